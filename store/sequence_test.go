package store_test

import (
	"io"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
	"ncmp-inventory/store"
	"ncmp-inventory/store/storetest"
)

func TestSequenceIsOnlyEverRaised(t *testing.T) {
	t.Parallel()
	pool, o, _ := publisher(t)
	require.NoError(t, o.RaiseSequence(t.Context(), 1))
	require.EqualValues(t, 2, put(t, pool, inventory.LCMEvent, nil, nil))
	require.NoError(t, o.RaiseSequence(t.Context(), 1000))
	require.EqualValues(t, 1001, put(t, pool, inventory.LCMEvent, nil, nil))
	require.NoError(t, o.RaiseSequence(t.Context(), 5))
	require.EqualValues(t, 1002, put(t, pool, inventory.LCMEvent, nil, nil))
	require.NoError(t, o.RaiseSequence(t.Context(), 1002))
	require.EqualValues(t, 1003, put(t, pool, inventory.LCMEvent, nil, nil))
}

// writesOutbox is a session in the middle of a pipeline that has written to the
// outbox: the server waits for the rest and knows no time-out for that.
func writesOutbox(t *testing.T, db *storetest.DB, name, id string) *pgconn.PgConn {
	t.Helper()
	cfg, err := pgconn.ParseConfig(db.URL)
	require.NoError(t, err)
	cfg.RuntimeParams["application_name"] = name
	conn, err := pgconn.ConnectConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Conn().Close() })
	p := conn.StartPipeline(t.Context())
	p.SendQueryParams(`delete from ncmp_inventory.outbox where id = $1`, [][]byte{[]byte(id)}, nil, nil, nil)
	p.SendFlushRequest()
	require.NoError(t, p.Flush())
	r, err := p.GetResults()
	require.NoError(t, err)
	_, err = r.(*pgconn.ResultReader).Close()
	require.NoError(t, err)
	return conn
}

func TestASequenceThatIsHighEnoughWaitsForNobody(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	o := newOutbox(t, db.New(t, func(c *store.Config) { c.LockTimeout = 50 * time.Millisecond }))
	pool := db.Pool(t)
	require.EqualValues(t, 1, put(t, pool, inventory.LCMEvent, nil, nil))
	writesOutbox(t, db, "psql", "0")
	require.NoError(t, o.RaiseSequence(t.Context(), 1))
	require.ErrorIs(t, o.RaiseSequence(t.Context(), 2), inventory.ErrTransient, "a stranger's session is left alone")
}

func TestARaisedSequenceEndsTheSessionsOfFrozenWorkersOnly(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	o := newOutbox(t, db.New(t, func(c *store.Config) { c.LockTimeout = 50 * time.Millisecond; c.FrozenTimeout = 50 * time.Millisecond }))
	pool := db.Pool(t)
	frozen := writesOutbox(t, db, "ncmp-inventory frozen", "0")
	require.Eventually(t, func() bool { return o.RaiseSequence(t.Context(), 100) == nil }, time.Minute, time.Millisecond)
	require.EqualValues(t, 101, put(t, pool, inventory.LCMEvent, nil, nil))
	requireEnded(t, frozen)
}

func requireEnded(t *testing.T, conn *pgconn.PgConn) {
	t.Helper()
	require.NoError(t, conn.Conn().SetReadDeadline(time.Now().Add(time.Minute)))
	_, err := io.Copy(io.Discard, conn.Conn())
	require.NoError(t, err, "the server has closed it")
}

func TestAPublisherEndsTheSessionOfAFrozenOneThatDeletedTheSameRows(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	o := newOutbox(t, db.New(t, func(c *store.Config) { c.LockTimeout = 50 * time.Millisecond; c.FrozenTimeout = 50 * time.Millisecond }))
	pool := db.Pool(t)
	first, second := put(t, pool, inventory.LCMEvent, nil, nil), put(t, pool, inventory.LCMEvent, nil, nil)
	l := lead(t, o, "me")
	stranger := writesOutbox(t, db, "psql", strconv.FormatInt(second, 10))
	_, err := o.Exchange(t.Context(), l, inventory.LCMEvent, []int64{second}, wide)
	require.ErrorIs(t, err, inventory.ErrTransient, "a stranger's session is left alone")
	require.NoError(t, stranger.Conn().Close())

	frozen := writesOutbox(t, db, "ncmp-inventory frozen", strconv.FormatInt(first, 10))
	var rows []inventory.OutboxRow
	require.Eventually(t, func() bool {
		rows, err = o.Exchange(t.Context(), l, inventory.LCMEvent, []int64{first, second}, wide)
		return err == nil
	}, time.Minute, time.Millisecond)
	require.Empty(t, rows)
	requireEnded(t, frozen)
}
