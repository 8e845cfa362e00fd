package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// TuneStep is one change that brings CPS's own tables closer to the leaner
// layout that the worker gives an empty database. A real NCMP runs on the
// result as well.
type TuneStep struct {
	Name   string
	Brings string // what it is good for
	Locks  string // what it keeps waiting, and for how long
	Done   bool   // nothing is left to do

	done, sql string
}

// What tells that a step is done.
const (
	sqlRelationKeysGone = `
select not exists (select from pg_constraint where contype = 'f' and confrelid = 'fragment'::regclass and conrelid = to_regclass('relation'))`
	// indexOn finds a plain index on nothing but the column that follows.
	indexOn = `
(select from pg_index i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[0]
    where i.indrelid = 'fragment'::regclass and i.indnatts = 1 and not i.indisunique and i.indpred is null and a.attname = `
	sqlAnchorIndexGone = `select not exists ` + indexOn + `'anchor_id')`
	sqlNodeIndexGone   = `select not exists ` + indexOn + `'schema_node_id')`
	sqlBytewise        = `
select l.collname = 'C' from pg_attribute a join pg_collation l on l.oid = a.attcollation
where a.attrelid = 'fragment'::regclass and a.attname = 'xpath'`
	sqlRoomy = `
select coalesce(reloptions @> array['fillfactor=80', 'autovacuum_analyze_threshold=500'], false) from pg_class where oid = 'fragment'::regclass`
	sqlStateIndex = `
select exists (select from pg_index i where i.indrelid = 'fragment'::regclass and i.indisvalid
    and pg_get_expr(i.indpred, i.indrelid) like '%xpath ~~ ''\%/state''%')`
)

// tuneSteps are in the order that costs least: what makes later steps cheaper
// comes first.
var tuneSteps = []TuneStep{
	{
		Name:   "relation-keys",
		Brings: "removing data nodes takes about a quarter of the time: each removed row is no longer looked for twice in the unused table relation",
		Locks:  "tables fragment and relation against everything, for a moment",
		done:   sqlRelationKeysGone,
		sql: `alter table relation drop constraint if exists relation_from_fragment_id_fkey,
			drop constraint if exists relation_to_fragment_id_fkey`,
	},
	{
		Name:   "anchor-index",
		Brings: "inserts and removals keep one index less; the unique key on anchor_id and xpath serves the same look-ups",
		Locks:  "table fragment against everything, for a moment",
		done:   sqlAnchorIndexGone,
		sql:    `drop index if exists fki_fragment_anchor_id_fk`,
	},
	{
		Name:   "schema-node-index",
		Brings: "inserts and removals keep one index less, on a column that is always null",
		Locks:  "table fragment against everything, for a moment",
		done:   sqlNodeIndexGone,
		sql:    `drop index if exists fki_schema_node_id_to_id`,
	},
	{
		Name:   "xpath-collation",
		Brings: "xpaths are compared bytewise: look-ups and inserts cost up to a third less than with a language's order, and a prefix is found by index",
		Locks:  "table fragment against everything while the index on xpath is built anew: about 2 s for a million rows",
		done:   sqlBytewise,
		sql:    `alter table fragment alter column xpath type text collate "C"`,
	},
	{
		Name:   "fillfactor",
		Brings: "new pages keep room, so that changes of state touch no index; statistics are taken in time",
		Locks:  "nothing but other changes of the table's layout; rows that exist stay where they are",
		done:   sqlRoomy,
		sql: `alter table fragment set (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05,
			autovacuum_analyze_scale_factor = 0.02, autovacuum_analyze_threshold = 500)`,
	},
	{
		Name:   "state-index",
		Brings: "counting and listing handles by state reads a third as long, at no cost to changes of state",
		Locks:  "nothing: the index is built beside the running work",
		done:   sqlStateIndex,
		sql:    `create index concurrently if not exists fragment_state_idx on fragment (id) where xpath like '%/state'`,
	},
}

// Tune applies the leaner layout to tables that CPS made. It calls each for
// every step, with what the step brings and locks and whether anything is left
// to do; run applies it. A callback that does not call run makes a dry run. Each
// step stands alone: after an error the ones before it are done. The caller's
// role must own the tables.
func (s *Store) Tune(ctx context.Context, each func(step TuneStep, run func() error) error) error {
	for _, step := range tuneSteps {
		if err := s.pool.QueryRow(ctx, step.done).Scan(&step.Done); err != nil {
			return s.classify("look at the layout: "+step.Name, err)
		}
		run := func() error {
			if step.Done {
				return nil
			}
			return s.classify("tune "+step.Name, s.tune(ctx, step.sql))
		}
		if err := each(step, run); err != nil {
			return fmt.Errorf("step %s: %w", step.Name, err)
		}
	}
	return nil
}

// tune runs one step outside a transaction, since an index cannot be built
// beside running work in one. It may take as long as it needs, but waits for
// its lock no longer than others would have to wait behind it.
func (s *Store) tune(ctx context.Context, sql string) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	// The session's settings are not the pool's any more.
	c := conn.Hijack()
	defer c.Close(context.WithoutCancel(ctx))
	for _, q := range []string{`set statement_timeout = 0`, sql} {
		if _, err := c.Exec(ctx, q, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
	}
	return nil
}
