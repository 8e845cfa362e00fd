package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"ncmp-inventory/inventory"
)

// outboxConnections is enough for one drain per kind, the lease and a look at
// the load, which hardly ever meet.
const outboxConnections = 3

// Outbox is the publisher's side of the store. It has connections of its own:
// lanes that wait for rows must not starve the drain that they wait for.
// Its methods may be called from any goroutine.
type Outbox struct {
	s    *Store
	pool *pgxpool.Pool
}

// NewOutbox prepares the publisher's connections; none is opened before it is
// needed. Close it before the store.
func NewOutbox(ctx context.Context, s *Store) (*Outbox, error) {
	cfg, err := s.poolConfig()
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = outboxConnections
	// A queue is empty one moment and huge the next; its statistics are
	// always wrong, and its table holds more dead rows than live ones. So no
	// plan of ours may read the table or sort it: the index has the order.
	for _, p := range []string{"enable_seqscan", "enable_bitmapscan", "enable_sort"} {
		cfg.ConnConfig.RuntimeParams[p] = "off"
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("preparing the publisher's connections: %w", err)
	}
	return &Outbox{s: s, pool: pool}, nil
}

// Close ends the connections. It waits for those in use.
func (o *Outbox) Close() { o.pool.Close() }

// deletePublished names rows one by one. A range would take along a row of a
// lower id whose transaction commits only now, unpublished.
const deletePublished = `
delete from ncmp_inventory.outbox
where kind = $3 and id = any($4::bigint[]) and ` + leaseCondition

// Outcomes and dead letters (kinds 2 and 3) have no order to keep and pass a
// parked row of their key.
//
// readWindow starts at the lowest id that is left, always: a row can become
// visible after rows of higher ids were read. octet_length does not fetch a
// value that lies apart, so rows beyond the byte limit cost little. A size is
// an int, for a row came in one message of at most 1 GiB: sums of bigint are
// numeric, and slow.
const readWindow = `
select id, key, headers, value, created
from (
  select id, key, headers, value, created,
         sum(size) over (order by id rows unbounded preceding) - size as before
  from (
    select id, key, headers, value, created,
           coalesce(octet_length(key), 0) + octet_length(headers) + coalesce(octet_length(value), 0) as size
    from ncmp_inventory.outbox o
    where kind = $1 and parked is null
      and (cardinality($5::int[]) = 0 or hash % $4 <> all ($5::int[]))
      and not exists (
        select from ncmp_inventory.outbox p
        where p.kind = $1 and p.kind in (0, 1) and p.parked is not null and p.key = o.key and p.id < o.id)
    order by id limit $2
  ) o
) o
where before < $3
order by id`

// Exchange deletes exactly the acknowledged rows of the kind and returns the
// oldest of those that remain, by id, in one round trip. Parked rows, rows
// behind a parked row of the same key, and rows of blocked partitions are left
// out. The window holds at least one row, however large, if there is any. It
// fails with ErrNotLeader when the lease has gone to another holder; then
// nothing was deleted.
//
// A publisher before this one that was frozen while it deleted the same rows loses
// its session.
func (o *Outbox) Exchange(ctx context.Context, l inventory.Lease, kind inventory.MessageKind, acked []int64, w inventory.Window) ([]inventory.OutboxRow, error) {
	var got []inventory.OutboxRow
	exchange := func(ctx context.Context) error {
		got = nil
		b := &pgx.Batch{}
		queueLeaseCheck(b, l)
		if len(acked) > 0 {
			b.Queue(deletePublished, l.Holder, l.Generation, kind, acked)
		}
		blocked := w.Blocked
		if blocked == nil {
			blocked = []int{}
		}
		b.Queue(readWindow, kind, w.Rows, w.Bytes, max(w.Partitions, 1), blocked).Query(func(rows pgx.Rows) (err error) {
			got, err = collectOutbox(rows)
			return err
		})
		return o.pool.SendBatch(ctx, b).Close()
	}
	err := o.s.repeated(ctx, "exchanging outbox rows", func() error {
		err := o.query(ctx, exchange)
		if !lockTimedOut(err) {
			return err
		}
		if err := o.evict(ctx, evictDeleters, kind, acked); err != nil {
			return err
		}
		return o.query(ctx, exchange)
	})
	if errors.Is(err, inventory.ErrNotLeader) {
		return nil, inventory.ErrNotLeader
	}
	return got, err
}

// collectOutbox copies the rows' bytes into few large pieces: a window has
// thousands of rows and lives as long as its last one.
func collectOutbox(rows pgx.Rows) ([]inventory.OutboxRow, error) {
	defer rows.Close()
	var got []inventory.OutboxRow
	var piece []byte
	keep := func(b []byte) []byte {
		if b == nil {
			return nil
		}
		if len(b) > cap(piece)-len(piece) {
			piece = make([]byte, 0, max(len(b), 64<<10))
		}
		from := len(piece)
		piece = append(piece, b...)
		return piece[from:len(piece):len(piece)]
	}
	for rows.Next() {
		v := rows.RawValues() // in binary, pgx's choice for these types
		got = append(got, inventory.OutboxRow{
			ID:      int64(binary.BigEndian.Uint64(v[0])),
			Key:     keep(v[1]),
			Headers: keep(v[2]),
			Value:   keep(v[3]),
			Created: binaryTime(v[4]),
		})
	}
	return got, rows.Err()
}

// postgresEpoch is where PostgreSQL's binary timestamps start, in microseconds.
var postgresEpoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

func binaryTime(b []byte) time.Time {
	return time.UnixMicro(postgresEpoch + int64(binary.BigEndian.Uint64(b))).UTC()
}

const parkRow = `
update ncmp_inventory.outbox set parked = $5
where kind = $3 and id = $4 and ` + leaseCondition

// Park sets a row aside that the broker will not take. Later rows of its key
// wait behind it if the kind keeps an order (LCM and inventory events); all
// others pass, and a row without a key holds up nothing.
func (o *Outbox) Park(ctx context.Context, l inventory.Lease, kind inventory.MessageKind, id int64, reason string) error {
	ctx, cancel := o.s.deadline(ctx)
	defer cancel()
	b := &pgx.Batch{}
	queueLeaseCheck(b, l)
	b.Queue(parkRow, l.Holder, l.Generation, kind, id, cleanText(reason)).Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() == 0 {
			return fmt.Errorf("outbox row %d of kind %s is gone", id, kind)
		}
		return nil
	})
	err := o.pool.SendBatch(ctx, b).Close()
	if errors.Is(err, inventory.ErrNotLeader) {
		return inventory.ErrNotLeader
	}
	return o.s.classify("parking an outbox row", err)
}

// cleanText makes text that PostgreSQL takes of whatever a broker said.
func cleanText(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// Parked is a row that the broker would not take.
type Parked struct {
	Kind    inventory.MessageKind
	ID      int64
	Key     []byte
	Bytes   int64
	Reason  string
	Created time.Time
	Behind  int64 // later rows of its key, which wait
}

const listParked = `
select p.kind, p.id, p.key,
       coalesce(octet_length(p.key), 0) + octet_length(p.headers) + coalesce(octet_length(p.value), 0)::bigint,
       p.parked, p.created,
       (select count(*) from ncmp_inventory.outbox w where w.kind = p.kind and w.kind in (0, 1) and w.key = p.key and w.id > p.id and w.parked is null)
from ncmp_inventory.outbox p where p.parked is not null
order by p.kind, p.id limit $1`

// ListParked returns up to limit parked rows, by kind and id.
func (o *Outbox) ListParked(ctx context.Context, limit int) ([]Parked, error) {
	ctx, cancel := o.s.deadline(ctx)
	defer cancel()
	return o.s.parked(ctx, limit)
}

func (s *Store) parked(ctx context.Context, limit int) ([]Parked, error) {
	rows, err := s.pool.Query(ctx, listParked, limit)
	if err != nil {
		return nil, s.classify("listing parked outbox rows", err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Parked])
	return got, s.classify("listing parked outbox rows", err)
}

const unparkRows = `
update ncmp_inventory.outbox set parked = null where kind = $1 and id = any($2::bigint[]) and parked is not null`

// Unpark lets parked rows be sent again and returns how many there were.
func (o *Outbox) Unpark(ctx context.Context, kind inventory.MessageKind, ids []int64) (int, error) {
	ctx, cancel := o.s.deadline(ctx)
	defer cancel()
	tag, err := o.pool.Exec(ctx, unparkRows, kind, ids)
	return int(tag.RowsAffected()), o.s.classify("unparking outbox rows", err)
}

const unparkAll = `
update ncmp_inventory.outbox set parked = null
where parked is not null and ` + leaseCondition + `
`

// RetryParked lets all parked rows be sent once more, as a new publisher does:
// what the broker refused may have been changed since. It returns their number.
func (o *Outbox) RetryParked(ctx context.Context, l inventory.Lease) (int, error) {
	ctx, cancel := o.s.deadline(ctx)
	defer cancel()
	tag, err := o.pool.Exec(ctx, unparkAll, l.Holder, l.Generation)
	return int(tag.RowsAffected()), o.s.classify("retrying parked outbox rows", err)
}

// The age is that of rows which can be published: one that is parked, or waits
// behind a parked one, is an alarm of its own and must not stop the input. The
// first of each kind is its oldest, so that no other row is looked at for this.
// The age goes by the clock that the rows were stamped with.
const outboxLoad = `
select l.rows, l.bytes, o.created, coalesce(extract(epoch from clock_timestamp() - o.created), 0)::float8,
       (select count(*) from ncmp_inventory.outbox p where p.parked is not null)
from (
    select count(*) as rows,
           coalesce(sum(coalesce(octet_length(key), 0) + octet_length(headers) + coalesce(octet_length(value), 0)), 0)::bigint as bytes
    from ncmp_inventory.outbox) l
cross join (
    select min(f.created) as created
    from generate_series(0, 3) k (kind)
    cross join lateral (
        select o.created from ncmp_inventory.outbox o
        where o.kind = k.kind and o.parked is null and not exists (
            select from ncmp_inventory.outbox p
            where p.kind = o.kind and p.kind in (0, 1) and p.parked is not null and p.key = o.key and p.id < o.id)
        order by o.id limit 1) f) o`

// Load is how much waits to be published. It counts the whole outbox, which takes
// most of a second at the default bound of 256 MiB: the fuller, the more rarely.
func (o *Outbox) Load(ctx context.Context) (inventory.OutboxLoad, error) {
	ctx, cancel := o.s.deadline(ctx)
	defer cancel()
	var l inventory.OutboxLoad
	var oldest *time.Time
	var age float64
	err := o.pool.QueryRow(ctx, outboxLoad).Scan(&l.Rows, &l.Bytes, &oldest, &age, &l.Parked)
	if oldest != nil {
		l.Oldest = *oldest
	}
	l.Age = max(0, time.Duration(age*float64(time.Second)))
	return l, o.s.classify("measuring the outbox", err)
}

// Listen calls wake once it listens, and then whenever some worker says that it
// committed messages, until ctx ends (nil) or the connection, which is its own,
// fails. Several commits can come as one call.
func (o *Outbox) Listen(ctx context.Context, wake func()) error {
	const op = "listening for commits"
	cfg := o.pool.Config()
	if cfg.BeforeConnect != nil {
		if err := cfg.BeforeConnect(ctx, cfg.ConnConfig); err != nil {
			return fmt.Errorf("%s: %w", op, err)
		}
	}
	conn, err := pgx.ConnectConfig(ctx, cfg.ConnConfig)
	if err != nil {
		return o.s.listenError(ctx, op, err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx) // the connection is given up either way
	}()
	if _, err := conn.Exec(ctx, "listen "+notifyChannel); err != nil {
		return o.s.listenError(ctx, op, err)
	}
	for {
		wake()
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return o.s.listenError(ctx, op, err)
		}
	}
}

func (s *Store) listenError(ctx context.Context, op string, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return s.classify(op, err)
}
