package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Model is the YANG module of the inventory.
type Model struct {
	Module, Revision string
	Content          []byte
}

// LayoutError means that the database's tables are of a kind that the worker
// must not touch.
type LayoutError struct{ Reason string }

func (e *LayoutError) Error() string { return "the database cannot be used: " + e.Reason }

// sqlLayout looks at what the worker stands on: the columns it writes, the
// key that finds a data node, the cascade that removes a subtree, and ids
// that come in blocks of 100.
const sqlLayout = `
select to_regclass('fragment') is not null,
       to_regclass('anchor') is not null and to_regclass('dataspace') is not null and to_regclass('schema_set') is not null
           and to_regclass('yang_resource') is not null and to_regclass('schema_set_yang_resources') is not null,
       coalesce((select string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod), ',' order by a.attname)
           from pg_attribute a where a.attrelid = to_regclass('fragment') and a.attnum > 0 and not a.attisdropped), ''),
       exists (select from pg_index i where i.indrelid = to_regclass('fragment') and i.indisunique and i.indpred is null
           and (select array_agg(a.attname::text order by k.n) from unnest(i.indkey::int2[]) with ordinality k(attnum, n)
                join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum) = array['anchor_id', 'xpath']),
       exists (select from pg_constraint c where c.conrelid = to_regclass('fragment') and c.confrelid = c.conrelid
           and c.contype = 'f' and c.confdeltype = 'c'),
       coalesce((select q.seqincrement from pg_sequence q where q.seqrelid = to_regclass('fragment_id_seq')), 0)`

// checkLayout reports whether CPS's tables exist, and refuses those of a
// release that the worker does not know.
func checkLayout(ctx context.Context, tx pgx.Tx) (found bool, err error) {
	var others, unique, cascade bool
	var columns string
	var increment int64
	err = tx.QueryRow(ctx, sqlLayout).Scan(&found, &others, &columns, &unique, &cascade, &increment)
	if err != nil {
		return false, err
	}
	if !found && !others {
		return false, nil
	}
	const (
		plain  = "anchor_id bigint,attributes jsonb,id bigint,parent_id bigint,schema_node_id integer,xpath text"
		tuned  = "alt_id text," + plain // a generated column that some installations add
		wanted = 100
	)
	switch {
	case !found || !others:
		err = &LayoutError{"it holds some of CPS's tables, but not all"}
	case columns != plain && columns != tuned:
		err = &LayoutError{"table fragment has the columns of an unknown release: " + columns}
	case !unique:
		err = &LayoutError{"table fragment has no unique key of anchor_id and xpath"}
	case !cascade:
		err = &LayoutError{"the foreign key of fragment.parent_id does not cascade"}
	case increment != wanted:
		err = &LayoutError{fmt.Sprintf("sequence fragment_id_seq goes by %d and not by %d", increment, wanted)}
	}
	return true, err
}

// checkRevision refuses a registry whose handles have leaves that the worker
// would not keep up to date.
func checkRevision(revision, schemaSet string) error {
	if revision == "" {
		revision = schemaSet
		if len(schemaSet) > len("dmi-registry-") {
			revision = schemaSet[len("dmi-registry-"):]
		}
	}
	switch revision {
	case "2024-02-23", "2026-01-28":
		return nil
	case "2025-07-22", "2026-04-23":
		return &LayoutError{"the registry uses the optimised model " + revision +
			", which keeps state and properties twice; go back to 2026-01-28 with NCMP (IGNORE_R20260423_MODEL=true) first"}
	}
	return &LayoutError{"the registry uses an unknown revision of its model: " + revision}
}

const (
	sqlDataspace   = `insert into dataspace (name) values ($1) on conflict (name) do nothing`
	sqlDataspaceID = `select id from dataspace where name = $1`
	sqlAnchorModel = `
select a.id, coalesce((select r.revision from schema_set_yang_resources l join yang_resource r on r.id = l.yang_resource_id
    where l.schema_set_id = s.id and r.module_name = 'dmi-registry' limit 1), ''), coalesce(s.name, '')
from anchor a left join schema_set s on s.id = a.schema_set_id where a.dataspace_id = $1 and a.name = 'ncmp-dmi-registry'`
	sqlYangResource = `
insert into yang_resource (file_name, content, checksum, module_name, revision) values ($1, $2, $3, $4, $5)
on conflict (checksum) do nothing`
	sqlYangResourceID = `select id from yang_resource where checksum = $1`
	sqlSchemaSet      = `insert into schema_set (name, dataspace_id) values ($1, $2) on conflict (name, dataspace_id) do nothing`
	sqlSchemaSetID    = `select id from schema_set where name = $1 and dataspace_id = $2`
	sqlLink           = `
insert into schema_set_yang_resources (schema_set_id, yang_resource_id)
select $1, $2 where not exists (select from schema_set_yang_resources where schema_set_id = $1 and yang_resource_id = $2)`
	sqlAnchor = `insert into anchor (name, schema_set_id, dataspace_id) values ('ncmp-dmi-registry', $1, $2) returning id`
	sqlRoot   = `
insert into fragment (id, xpath, attributes, anchor_id)
select nextval('fragment_id_seq') - 99, '/dmi-registry', '{}', $1
where not exists (select from fragment where anchor_id = $1 and xpath = '/dmi-registry')`
)

// installRegistry adds what NCMP's model loader would: dataspaces, schema set,
// anchor and root data node. What exists stays.
func (s *Store) installRegistry(ctx context.Context, tx pgx.Tx) error {
	for _, name := range []string{"NCMP-Admin", "NFP-Operational"} {
		if _, err := tx.Exec(ctx, sqlDataspace, name); err != nil {
			return err
		}
	}
	var dataspace int
	if err := tx.QueryRow(ctx, sqlDataspaceID, "NCMP-Admin").Scan(&dataspace); err != nil {
		return err
	}
	var anchor int64
	var revision, schemaSet string
	switch err := tx.QueryRow(ctx, sqlAnchorModel, dataspace).Scan(&anchor, &revision, &schemaSet); {
	case err == nil:
		if err := checkRevision(revision, schemaSet); err != nil {
			return err
		}
	case errors.Is(err, pgx.ErrNoRows):
		if anchor, err = s.installAnchor(ctx, tx, dataspace); err != nil {
			return err
		}
	default:
		return err
	}
	_, err := tx.Exec(ctx, sqlRoot, anchor)
	return err
}

func (s *Store) installAnchor(ctx context.Context, tx pgx.Tx, dataspace int) (anchor int64, err error) {
	m := s.cfg.Model
	if m.Module == "" || m.Revision == "" || len(m.Content) == 0 {
		return 0, errors.New("no YANG module was given to create the registry with")
	}
	sum := sha256.Sum256(m.Content)
	checksum := hex.EncodeToString(sum[:])
	if _, err := tx.Exec(ctx, sqlYangResource, m.Module+"@"+m.Revision+".yang", string(m.Content), checksum, m.Module, m.Revision); err != nil {
		return 0, err
	}
	var resource, set int
	if err := tx.QueryRow(ctx, sqlYangResourceID, checksum).Scan(&resource); err != nil {
		return 0, err
	}
	name := m.Module + "-" + m.Revision
	if _, err := tx.Exec(ctx, sqlSchemaSet, name, dataspace); err != nil {
		return 0, err
	}
	if err := tx.QueryRow(ctx, sqlSchemaSetID, name, dataspace).Scan(&set); err != nil {
		return 0, err
	}
	if _, err := tx.Exec(ctx, sqlLink, set, resource); err != nil {
		return 0, err
	}
	err = tx.QueryRow(ctx, sqlAnchor, set, dataspace).Scan(&anchor)
	return anchor, err
}
