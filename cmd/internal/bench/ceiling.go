package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"ncmp-inventory/cmd/internal/load"
	"ncmp-inventory/inventory"
	"ncmp-inventory/store"
)

// ceiling writes what the worker writes, and nothing else: bare pgx, one round
// trip a transaction, all arguments encoded before.
type ceiling struct {
	s      *servers
	url    string
	pool   *pgxpool.Pool
	conns  int
	anchor int64
	shape  *shaper

	unplanned atomic.Int64 // rows until statistics are taken, as the worker does
}

const (
	sqlRoot      = `select f.anchor_id, f.id from fragment f where f.xpath = '/dmi-registry'`
	sqlPositions = `
insert into ncmp_inventory.position (topic_id, partition, topic, cluster_id, next_offset)
select '00000000-0000-0000-0000-000000000001', n, 'bench', 'bench', 0 from generate_series(0, $1::int - 1) n`

	bareMove = `
update ncmp_inventory.position set next_offset = next_offset + 1, updated = clock_timestamp()
where topic_id = '00000000-0000-0000-0000-000000000001' and partition = $1 and owner_epoch = 0`
	bareRefer  = `insert into ncmp_inventory.reference (key, owner) select * from unnest($1::text[], $2::text[])`
	bareForget = `delete from ncmp_inventory.reference where key = any($1::text[])`
	bareInsert = `
insert into fragment (id, parent_id, anchor_id, xpath, attributes)
select u.id, u.parent_id, $1, u.xpath, u.attributes
from unnest($2::bigint[], $3::bigint[], $4::text[], $5::jsonb[]) as u (id, parent_id, xpath, attributes)`
	// The sub-query hides the arrays' length, without which the planner reads
	// the whole table for large ones.
	bareReplace = `
update fragment f set attributes = u.attributes
from (select $1::bigint[] as ids, $2::jsonb[] as attributes offset 0) p, unnest(p.ids, p.attributes) as u (id, attributes)
where f.id = u.id`
	bareMerge = `
update fragment f set attributes = f.attributes || u.attributes
from (select $1::bigint[] as ids, $2::jsonb[] as attributes offset 0) p, unnest(p.ids, p.attributes) as u (id, attributes)
where f.id = u.id`
	bareDelete = `delete from fragment where id = any((select $1::bigint[])::bigint[])`
	bareTell   = `
insert into ncmp_inventory.outbox (kind, hash, key, headers, value)
select * from unnest($1::smallint[], $2::int[], $3::bytea[], $4::bytea[], $5::bytea[])`
	bareNote = `
insert into ncmp_inventory.history
    (at, topic_id, partition, handle, step, event_id, source_offset, source_time, cause_id, cause_source, before, after)
select now(), '00000000-0000-0000-0000-000000000001', 0, u.handle, u.step, u.event, u.source_offset, u.time, u.cause, u.source,
       nullif(u.before, ''), nullif(u.after, '')
from unnest($1::text[], $2::smallint[], $3::uuid[], $4::bigint[], $5::timestamptz[], $6::text[], $7::text[], $8::text[], $9::text[])
    as u (handle, step, event, source_offset, time, cause, source, before, after)`

	bareAnalyze  = `analyze fragment, ncmp_inventory.reference`
	bareTruncate = `truncate ncmp_inventory.outbox`
)

const (
	// statementRows bounds one statement, as the worker does.
	statementRows = 2000
	// plannedRows is when the worker takes statistics of a fresh table.
	plannedRows = 3000
	// firstRowID leaves the ids below to the root data node.
	firstRowID = 1001
)

// sessionSettings keep PostgreSQL from planning the cascade of a delete anew for
// each row: whether it does depends on what ANALYZE happened to sample, and costs
// as much as the delete.
var sessionSettings = map[string]string{"plan_cache_mode": "force_generic_plan"}

// newCeiling migrates a database of its own to the worker's tables.
func (s *servers) newCeiling(ctx context.Context, conns int) (c *ceiling, err error) {
	c = &ceiling{s: s, conns: conns}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close(ctx))
			c = nil
		}
	}()
	if c.url, err = s.createDatabase(ctx); err != nil {
		return c, err
	}
	st, err := s.openStore(ctx, c.url)
	if err != nil {
		return c, err
	}
	st.Close()
	if c.pool, err = s.pool(ctx, c.url, conns, sessionSettings); err != nil {
		return c, err
	}
	return c, c.begin(ctx)
}

// begin finds the registry and stores a position for each connection.
func (c *ceiling) begin(ctx context.Context) (err error) {
	var root int64
	if err := c.pool.QueryRow(ctx, sqlRoot).Scan(&c.anchor, &root); err != nil {
		return fmt.Errorf("find the registry's root: %w", err)
	}
	if _, err := c.pool.Exec(ctx, sqlPositions, c.conns); err != nil {
		return fmt.Errorf("store positions: %w", err)
	}
	c.unplanned.Store(plannedRows)
	c.shape, err = newShaper(root, firstRowID)
	return err
}

// openStore migrates a database and opens it as the worker does.
func (s *servers) openStore(ctx context.Context, databaseURL string) (*store.Store, error) {
	sc := s.cfg.Store
	sc.URL, sc.Password, sc.Migrate, sc.Instance = databaseURL, s.cfg.Password, true, "bench"
	return store.Open(ctx, sc)
}

func (c *ceiling) close(ctx context.Context) error {
	if c.pool != nil {
		c.pool.Close()
	}
	if c.url == "" {
		return nil
	}
	return c.s.dropDatabase(context.WithoutCancel(ctx), c.url)
}

// transaction is what one COMMIT makes durable.
type transaction struct {
	statements []statement
	rows       int
}

type statement struct {
	sql  string
	args []any
}

func (t *transaction) queue(sql string, args ...any) {
	t.statements = append(t.statements, statement{sql, args})
}

func (t *transaction) insert(anchor int64, n *nodes) {
	for from := 0; from < len(n.ids); from += statementRows {
		to := min(from+statementRows, len(n.ids))
		t.queue(bareInsert, anchor, n.ids[from:to], n.parents[from:to], n.xpaths[from:to], n.attributes[from:to])
	}
	t.rows += len(n.ids)
}

func (t *transaction) change(sql string, ids []int64, attributes [][]byte) {
	for from := 0; from < len(ids); from += statementRows {
		to := min(from+statementRows, len(ids))
		t.queue(sql, ids[from:to], attributes[from:to])
	}
	t.rows += len(ids)
}

func (t *transaction) tell(o *outbox) {
	for from := 0; from < len(o.keys); from += statementRows {
		to := min(from+statementRows, len(o.keys))
		t.queue(bareTell, o.kinds[from:to], o.hashes[from:to], o.keys[from:to], o.headers[from:to], o.values[from:to])
	}
}

func (t *transaction) note(h *history) {
	for from := 0; from < len(h.handles); from += statementRows {
		to := min(from+statementRows, len(h.handles))
		t.queue(bareNote, h.handles[from:to], h.steps[from:to], h.events[from:to], h.offsets[from:to], h.times[from:to],
			h.causes[from:to], h.sources[from:to], h.before[from:to], h.after[from:to])
	}
}

// prepare makes the transactions of a phase, so many handles each.
func (c *ceiling) prepare(p phase, l *load.Load, perBatch int) []*transaction {
	var all []*transaction
	for from := 0; from < l.Handles(); from += perBatch {
		all = append(all, c.transaction(p, l, from, min(from+perBatch, l.Handles())))
	}
	return all
}

func (c *ceiling) transaction(p phase, l *load.Load, from, to int) *transaction {
	t, n, o, h := &transaction{}, &nodes{}, &outbox{}, &history{}
	var ids []int64
	var attributes [][]byte
	var keys, owners []string
	for i := from; i < to; i++ {
		id := c.shape.id(l, i)
		switch p {
		case register:
			c.shape.advised(n, l, i)
		case becomeReady:
			ids, attributes = append(ids, id+rowState), append(attributes, encode(c.shape.state(inventory.Ready)))
			c.shape.ready(n, l, i)
		case update:
			ids = append(ids, id, id+rowPublic+1)
			attributes = append(attributes, encode(leaves{"data-producer-identifier": load.UpdatedProducer}),
				encode(leaves{"name": "systemName", "value": load.UpdatedSystem}))
		case remove:
			ids = append(ids, id)
		}
		if p == register || p == remove {
			keys, owners = append(keys, l.ID(i), l.Handle(i).AlternateID), append(owners, l.ID(i), l.ID(i))
		}
		c.shape.tellPhase(o, p, l, i)
		if c.s.cfg.History {
			c.shape.note(h, p, l, i)
		}
	}
	switch p {
	case register:
		t.queue(bareRefer, keys, owners)
	case becomeReady:
		t.change(bareReplace, ids, attributes)
	case update:
		t.change(bareMerge, ids, attributes)
	case remove:
		for from := 0; from < len(ids); from += statementRows {
			t.queue(bareDelete, ids[from:min(from+statementRows, len(ids))])
		}
		t.queue(bareForget, keys)
	}
	t.insert(c.anchor, n)
	t.note(h)
	t.tell(o)
	return t
}

// write runs the transactions on all connections and returns how long it took.
func (c *ceiling) write(ctx context.Context, all []*transaction) (time.Duration, error) {
	next := make(chan *transaction)
	g, writing := errgroup.WithContext(ctx)
	began := time.Now()
	g.Go(func() error {
		defer close(next)
		for _, t := range all {
			select {
			case next <- t:
			case <-writing.Done():
				return nil
			}
		}
		return nil
	})
	for i := range min(c.conns, len(all)) {
		g.Go(func() error {
			conn, err := c.pool.Acquire(writing)
			if err != nil {
				return err
			}
			defer conn.Release()
			for t := range next {
				if err := c.commit(writing, conn, i, t); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return 0, fmt.Errorf("write the ceiling's rows: %w", err)
	}
	took := time.Since(began)
	// The worker's are gone by now as well: its publisher deletes them.
	_, err := c.pool.Exec(ctx, bareTruncate)
	return took, err
}

// commit writes one transaction in one round trip.
func (c *ceiling) commit(ctx context.Context, conn *pgxpool.Conn, position int, t *transaction) error {
	b := &pgx.Batch{}
	b.Queue("begin")
	b.Queue(bareMove, position)
	for _, s := range t.statements {
		b.Queue(s.sql, s.args...)
	}
	b.Queue("commit")
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	if c.unplanned.Load() > 0 && c.unplanned.Add(-int64(t.rows)) <= 0 {
		c.unplanned.Store(0)
		_, err := conn.Exec(ctx, bareAnalyze)
		return err
	}
	return nil
}
