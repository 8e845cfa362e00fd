package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"ncmp-inventory/inventory"
)

// transaction is one attempt at applying a batch.
type transaction struct {
	s      *Store
	b      *inventory.Batch
	need   *inventory.Need
	decide func(*inventory.Snapshot) (*inventory.Plan, error)
	why    purpose
	conn   *pgxpool.Conn

	snap     *inventory.Snapshot
	reserved map[string]struct{} // keys this transaction put into reference
	healed   map[string]string   // of these, keys that a stored handle bears
	spare    map[int64][]int64   // by handle row: second rows of one property
	moved    bool                // the position was ours and moved

	messages     int
	decideFailed bool
	unknown      bool // COMMIT was sent and its answer did not come
}

func newTransaction(s *Store, b *inventory.Batch, need *inventory.Need, decide func(*inventory.Snapshot) (*inventory.Plan, error), why purpose) *transaction {
	return &transaction{
		s: s, b: b, need: need, decide: decide, why: why,
		snap: &inventory.Snapshot{
			Handles: make(map[string]*inventory.Stored, len(need.Handles)),
			Owners:  make(map[string]string, len(need.Keys)),
			Trust:   map[string]inventory.TrustLevel{},
		},
		reserved: map[string]struct{}{}, healed: map[string]string{}, spare: map[int64][]int64{},
	}
}

// needError means that a handle to be removed turned out to have an alternate
// id that is not locked.
type needError struct{ claims []inventory.Claim }

func (e *needError) Error() string { return "an alternate id that is not locked" }

// run makes one attempt, bounded as a whole.
func (t *transaction) run(ctx context.Context, keys keySet) (rc inventory.Receipt, err error) {
	limit := t.s.cfg.TransactionTimeout
	if t.single() {
		limit *= singleFactor
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	start := time.Now()
	if t.conn, err = t.s.pool.Acquire(ctx); err != nil {
		return rc, err
	}
	defer t.conn.Release() // closes the connection if a transaction is left open
	if err := t.prepare(ctx, &keys); err != nil {
		return rc, err
	}
	if err := t.read(ctx, &keys); err != nil {
		t.rollback(ctx)
		return rc, err
	}
	if !t.moved {
		t.rollback(ctx)
		return t.displaced(ctx)
	}
	rc.Next = t.b.Next
	rc.Read = time.Since(start)

	start = time.Now()
	plan, err := t.decide(t.snap)
	if err != nil {
		t.decideFailed = true
		t.rollback(ctx)
		return rc, fmt.Errorf("plan: %w", err)
	}
	rc.Plan, rc.Tally = time.Since(start), plan.Tally
	if rc.Plan > t.s.cfg.FrozenTimeout && !t.single() {
		// The server has taken this worker for frozen and ended the session.
		// The same batch would end so each time; a smaller one will not.
		t.rollback(ctx)
		return rc, &inventory.DataError{SQLState: "25P03", Op: "plan for longer than the server waits"}
	}
	t.messages = len(plan.Messages)
	if err := t.write(ctx, plan, &keys, &rc); err != nil {
		t.rollback(ctx)
		return rc, err
	}
	return rc, nil
}

func (t *transaction) single() bool { return len(t.b.Records) <= 1 }

// rollback frees the locks at once. On a broken connection there is nothing to
// do: its release closes it.
func (t *transaction) rollback(ctx context.Context) {
	c := t.conn.Conn()
	if c.IsClosed() || c.PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.s.cfg.LockTimeout)
	defer cancel()
	_, _ = c.Exec(ctx, "rollback")
}

// prepare is the first round trip, outside the transaction, and only made when
// there is something to ask: the alternate ids that removals would free, and
// fragment ids for what the batch may insert.
func (t *transaction) prepare(ctx context.Context, keys *keySet) error {
	b := &pgx.Batch{}
	if blocks := t.s.ids.missing(estimateRows(t.b)); blocks > 0 {
		t.s.queueBlocks(b, blocks)
	}
	if frees := t.need.Frees; len(frees) > 0 {
		b.Queue(sqlReadAlternates, t.s.anchor, handleXPaths(frees)).Query(func(rows pgx.Rows) error {
			var n int64
			var alternate string
			var found []inventory.Claim
			_, err := pgx.ForEachRow(rows, []any{&n, &alternate}, func() error {
				if key := trimmed(alternate); referable(key) {
					found = append(found, inventory.Claim{Key: key, Owner: frees[n-1]})
				}
				return nil
			})
			keys.add(found)
			return err
		})
	}
	if b.Len() == 0 {
		return nil
	}
	return t.conn.SendBatch(ctx, b).Close()
}

// estimateRows is the most rows that a batch's items can insert.
func estimateRows(b *inventory.Batch) int {
	n := 0
	for i := range b.Records {
		for j := range b.Records[i].Events {
			for k := range b.Records[i].Events[j].Items {
				it := &b.Records[i].Events[j].Items[k]
				switch {
				case it.Fields != nil:
					n += 2 + len(it.Fields.Public) + len(it.Fields.Private)
				case it.Op == inventory.OpUpgrade:
					n++ // the lock reason
				case it.State != nil:
					n += 2 // a lock reason, or the datastores
				}
			}
		}
	}
	return n
}

// read is the second round trip: it moves the position, locks every key, and
// only then reads.
func (t *transaction) read(ctx context.Context, keys *keySet) error {
	b := &pgx.Batch{}
	b.Queue(sqlBegin)
	if t.single() {
		b.Queue(sqlLongStatements, millis(singleFactor*t.s.cfg.StatementTimeout))
		b.Queue(sqlLongPauses, millis(singleFactor*t.s.cfg.FrozenTimeout))
	}
	if t.why == forRehearsal {
		t.moved = true
	} else {
		t.queueMove(b)
	}
	t.queueLock(b, keys)
	t.queueReadHandles(b, t.need.Handles, t.need.Deep)
	var now, later []string
	for id, certain := range t.need.Full {
		if certain {
			now = append(now, id)
		}
	}
	t.queueReadProperties(b, now)
	t.queueReadTrust(b, t.need.Trust)
	t.queueLater(b, t.need.Replayed)
	if err := t.conn.SendBatch(ctx, b).Close(); err != nil || !t.moved {
		return err
	}
	t.heal()
	if err := t.checkNeed(keys); err != nil {
		return err
	}
	for id, certain := range t.need.Full {
		if !certain && t.snap.Handles[id] != nil {
			later = append(later, id)
		}
	}
	if len(later) == 0 {
		return nil
	}
	b = &pgx.Batch{}
	t.queueReadProperties(b, later)
	return t.conn.SendBatch(ctx, b).Close()
}

// checkNeed looks whether the handles to be removed have, now that they are
// locked, an alternate id that is not.
func (t *transaction) checkNeed(keys *keySet) error {
	var missing []inventory.Claim
	for _, id := range t.need.Frees {
		if h := t.snap.Handles[id]; h != nil && referable(h.AlternateID) && !keys.holds(h.AlternateID) {
			missing = append(missing, inventory.Claim{Key: h.AlternateID, Owner: id})
		}
	}
	if len(missing) > 0 {
		return &needError{missing}
	}
	return nil
}

// write sends the plan in chunks; the last carries the COMMIT.
func (t *transaction) write(ctx context.Context, plan *inventory.Plan, keys *keySet, rc *inventory.Receipt) error {
	start := time.Now()
	w := &writer{leaves: t.s.leaves, root: t.s.root, spare: t.spare}
	if err := t.leaseIDs(ctx, plan, w); err != nil {
		return err
	}
	b := &pgx.Batch{}
	for i := range plan.Changes {
		if err := w.change(&plan.Changes[i]); err != nil {
			return err
		}
		if w.pending() >= chunkRows && i < len(plan.Changes)-1 {
			w.queue(b, t.s.anchor)
			if err := t.conn.SendBatch(ctx, b).Close(); err != nil {
				return err
			}
			w.reset()
			b = &pgx.Batch{}
		}
	}
	w.queue(b, t.s.anchor)
	if t.s.synced && len(w.removed) > 0 {
		b.Queue(sqlDeleteSyncedData, t.s.network, w.removed)
		b.Queue(sqlDeleteSyncedAnchors, t.s.network, w.removed)
	}
	w.trusted.queue(b)
	if err := t.queueReferences(b, plan, keys); err != nil {
		return err
	}
	b, err := t.queueFacts(ctx, b, plan.Facts)
	if err != nil {
		return err
	}
	if b, err = t.queueMessages(ctx, b, plan.Messages); err != nil {
		return err
	}
	if t.why != forGood {
		b.Queue("rollback")
		return t.conn.SendBatch(ctx, b).Close()
	}
	if rc.Commit, err = t.commit(ctx, b); err != nil {
		return err
	}
	rc.Write = time.Since(start) - rc.Commit
	rc.Fragments = w.rows
	t.s.ids.giveBack(w.ids)
	return nil
}

// leaseIDs sets fragment ids apart. They are at hand unless another lane was
// faster, or the plan holds more than the items let expect.
func (t *transaction) leaseIDs(ctx context.Context, plan *inventory.Plan, w *writer) error {
	n := 0
	for i := range plan.Changes {
		n += rowsOf(&plan.Changes[i])
	}
	for {
		var ok bool
		if w.ids, ok = t.s.ids.lease(n); ok {
			return nil
		}
		b := &pgx.Batch{}
		t.s.queueBlocks(b, max(1, t.s.ids.missing(n)))
		if err := t.conn.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
	}
}

// queue adds the rows gathered so far. Removals come first: a handle that is
// removed and created again has the same xpaths before and after.
func (w *writer) queue(b *pgx.Batch, anchor int64) {
	queueDelete(b, w.handles)
	queueDelete(b, w.deletes)
	queueInsert(b, anchor, &w.inserts)
	queueMerge(b, w.merges.ids, w.merges.attributes, w.merges.replace)
}

// NCMP keeps an anchor of each synced handle, named by its id, in a dataspace
// of its own, and removes it with the handle. Most of these anchors have no data.
// The planner cannot know that: where nearly all rows belong to the registry it
// would read them all to find none. So the anchors that do have data are found
// first, in the order of the index, and without any the rest is not run.
const (
	sqlDeleteSyncedData = `
with holding as materialized (
    select a.id from anchor a
    cross join lateral (select from fragment f where f.anchor_id = a.id order by f.xpath limit 1) f
    where a.dataspace_id = $1 and a.name = any($2::text[])
)
delete from fragment where (select count(*) from holding) > 0 and anchor_id = any(array(select id from holding))`
	sqlDeleteSyncedAnchors = `delete from anchor where dataspace_id = $1 and name = any($2::text[])`
)

const sqlClock = `select clock_timestamp()`

// commit sends the last writes with the COMMIT. From here on nothing is
// cancelled: at the deadline, or when the caller gives up, the connection is
// closed and the position tells later what became of the transaction.
//
// All answers of a pipeline come at once, so the server's clock tells how much of
// the time was the COMMIT's.
func (t *transaction) commit(ctx context.Context, b *pgx.Batch) (took time.Duration, err error) {
	var tag pgconn.CommandTag
	var began, ended time.Time
	b.Queue(sqlClock).QueryRow(func(row pgx.Row) error { return row.Scan(&began) })
	b.Queue("commit").Exec(func(ct pgconn.CommandTag) error {
		tag = ct
		return nil
	})
	b.Queue(sqlClock).QueryRow(func(row pgx.Row) error { return row.Scan(&ended) })
	conn := t.conn.Conn()
	link := linkOf(conn)
	if link == nil {
		return 0, errors.New("the connection was not opened by this package")
	}
	link.committing.Store(true)
	stop := context.AfterFunc(ctx, func() { _ = link.Close() })
	err = conn.SendBatch(context.WithoutCancel(ctx), b).Close()
	stop()
	committed := tag.String() == "COMMIT"
	if err != nil && !committed {
		// With the connection alive the answer is in: the server passed over
		// the COMMIT, or nothing was sent.
		if t.unknown = conn.IsClosed(); !t.unknown {
			link.committing.Store(false)
		}
		return 0, err
	}
	link.committing.Store(false)
	if !committed {
		return 0, fmt.Errorf("%w: the server answered COMMIT with %s", inventory.ErrTransient, tag)
	}
	if err == nil {
		took = ended.Sub(began)
	}
	err = confirmSync(conn)
	t.unknown = err != nil
	return took, err
}

// confirmSync tells whether the last COMMIT on a connection was acknowledged
// without its synchronous standby: then it may vanish with the primary.
func confirmSync(conn *pgx.Conn) error {
	data := conn.PgConn().CustomData()
	if data[unsynced] == nil {
		return nil
	}
	delete(data, unsynced)
	return fmt.Errorf("%w: the server stopped waiting for its synchronous standby", inventory.ErrTransient)
}
