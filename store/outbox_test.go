package store_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
	"ncmp-inventory/store"
	"ncmp-inventory/store/storetest"
)

const ttl = time.Minute

func newOutbox(t testing.TB, s *store.Store) *store.Outbox {
	t.Helper()
	o, err := store.NewOutbox(t.Context(), s)
	require.NoError(t, err)
	t.Cleanup(o.Close)
	return o
}

func lead(t testing.TB, o *store.Outbox, holder string) inventory.Lease {
	t.Helper()
	l, ok, err := o.Lead(t.Context(), holder, ttl)
	require.NoError(t, err)
	require.True(t, ok)
	return l
}

// publisher is a store's outbox, led by the test.
func publisher(t testing.TB) (*pgxpool.Pool, *store.Outbox, inventory.Lease) {
	t.Helper()
	db := storetest.Open(t)
	o := newOutbox(t, db.New(t))
	return db.Pool(t), o, lead(t, o, "me")
}

// put adds a row as a committed transaction would; a nil key is a null key.
func put(t testing.TB, pool *pgxpool.Pool, kind inventory.MessageKind, key, value []byte) (id int64) {
	t.Helper()
	err := pool.QueryRow(t.Context(),
		`insert into ncmp_inventory.outbox (kind, hash, key, headers, value) values ($1, $2, $3, $4, $5) returning id`,
		kind, store.HashOf(key), key, []byte{0}, value).Scan(&id)
	require.NoError(t, err)
	return id
}

var wide = inventory.Window{Rows: 1000, Bytes: 1 << 20, Partitions: 4}

func exchange(t testing.TB, o *store.Outbox, l inventory.Lease, w inventory.Window, acked ...int64) []inventory.OutboxRow {
	t.Helper()
	rows, err := o.Exchange(t.Context(), l, inventory.LCMEvent, acked, w)
	require.NoError(t, err)
	return rows
}

func ids(rows []inventory.OutboxRow) []int64 {
	ids := make([]int64, 0, len(rows))
	for _, r := range rows {
		ids = append(ids, r.ID)
	}
	return ids
}

func TestRowsComeBackAsTheyWereStored(t *testing.T) {
	t.Parallel()
	pool, o, l := publisher(t)
	before := time.Now().Add(-time.Minute)
	poison := []byte{0, 0xff, 'x'}
	first := put(t, pool, inventory.LCMEvent, poison, poison)
	second := put(t, pool, inventory.LCMEvent, nil, nil)
	third := put(t, pool, inventory.LCMEvent, []byte{}, []byte{})
	put(t, pool, inventory.DeadLetterRecord, []byte("other kind"), nil)

	rows := exchange(t, o, l, wide)
	require.Equal(t, []int64{first, second, third}, ids(rows))
	require.Equal(t, poison, rows[0].Key)
	require.Equal(t, poison, rows[0].Value)
	require.Equal(t, []byte{0}, rows[0].Headers)
	require.Nil(t, rows[1].Key)
	require.Nil(t, rows[1].Value)
	require.Equal(t, []byte{}, rows[2].Key)
	require.Equal(t, []byte{}, rows[2].Value)
	require.WithinRange(t, rows[0].Created, before, time.Now().Add(time.Minute))
	require.Equal(t, []int64{second}, ids(exchange(t, o, l, wide, first, third)), "exactly what was acknowledged is gone")
}

func TestRowThatCommitsLateIsNotDeletedUnpublished(t *testing.T) {
	t.Parallel()
	pool, o, l := publisher(t)
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	var slow int64
	require.NoError(t, tx.QueryRow(t.Context(),
		`insert into ncmp_inventory.outbox (kind, hash, headers) values (0, 0, '\x00') returning id`).Scan(&slow))
	fast := put(t, pool, inventory.LCMEvent, []byte("b"), nil)
	require.Equal(t, []int64{fast}, ids(exchange(t, o, l, wide)))
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, []int64{slow}, ids(exchange(t, o, l, wide, fast)))
}

func TestOneLeaderAtATime(t *testing.T) {
	t.Parallel()
	pool, o, mine := publisher(t)
	id := put(t, pool, inventory.LCMEvent, []byte("k"), nil)
	_, ok, err := o.Lead(t.Context(), "other", ttl)
	require.NoError(t, err)
	require.False(t, ok)
	require.Equal(t, mine, lead(t, o, "me"), "renewing keeps the generation")

	// The lease ends on the database's clock.
	_, err = pool.Exec(t.Context(), `update ncmp_inventory.relay set until = clock_timestamp() - interval '1 second'`)
	require.NoError(t, err)
	require.Equal(t, []int64{id}, ids(exchange(t, o, mine, wide)), "nobody took it yet")
	theirs := lead(t, o, "other")
	require.Greater(t, theirs.Generation, mine.Generation)

	_, err = o.Exchange(t.Context(), mine, inventory.LCMEvent, []int64{id}, wide)
	require.ErrorIs(t, err, inventory.ErrNotLeader)
	require.ErrorIs(t, o.Park(t.Context(), mine, inventory.LCMEvent, id, "x"), inventory.ErrNotLeader)
	require.NoError(t, o.Resign(t.Context(), mine), "what is lost cannot be given back")
	_, ok, err = o.Lead(t.Context(), "me", ttl)
	require.NoError(t, err)
	require.False(t, ok)
	require.Equal(t, []int64{id}, ids(exchange(t, o, theirs, wide)), "the old leader deleted nothing")

	require.NoError(t, o.Resign(t.Context(), theirs))
	again := lead(t, o, "me")
	require.Greater(t, again.Generation, theirs.Generation)
}

func TestManyWorkersAskingGiveOneLeader(t *testing.T) {
	t.Parallel()
	o := newOutbox(t, storetest.Open(t).New(t))
	var wg sync.WaitGroup
	leaders := make(chan inventory.Lease, 20)
	for i := range 20 {
		wg.Go(func() {
			l, ok, err := o.Lead(context.Background(), fmt.Sprint("worker-", i), ttl)
			if err != nil {
				t.Error(err)
			}
			if ok {
				leaders <- l
			}
		})
	}
	wg.Wait()
	require.Len(t, leaders, 1)
}

func TestParkedRowHoldsBackLaterRowsOfItsKeyOnly(t *testing.T) {
	t.Parallel()
	pool, o, l := publisher(t)
	a1 := put(t, pool, inventory.LCMEvent, []byte("a"), nil)
	a2 := put(t, pool, inventory.LCMEvent, []byte("a"), nil)
	b1 := put(t, pool, inventory.LCMEvent, []byte("b"), nil)
	none1 := put(t, pool, inventory.LCMEvent, nil, nil)
	none2 := put(t, pool, inventory.LCMEvent, nil, nil)
	a3 := put(t, pool, inventory.LCMEvent, []byte("a"), nil)
	require.NoError(t, o.Park(t.Context(), l, inventory.LCMEvent, a2, "too large\x00 \xff"))
	require.NoError(t, o.Park(t.Context(), l, inventory.LCMEvent, none1, "no"))
	require.Equal(t, []int64{a1, b1, none2}, ids(exchange(t, o, l, wide)))
	require.ErrorContains(t, o.Park(t.Context(), l, inventory.LCMEvent, 999, "x"), "is gone")

	parked, err := o.ListParked(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, parked, 2)
	require.Equal(t, a2, parked[0].ID)
	require.Equal(t, "too large\uFFFD \uFFFD", parked[0].Reason)
	require.EqualValues(t, 1, parked[0].Behind)

	n, err := o.Unpark(t.Context(), inventory.LCMEvent, []int64{a2, b1})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, []int64{a1, a2, b1, none2, a3}, ids(exchange(t, o, l, wide)))
}

func TestParkedRowsNeitherStopTheInputNorOtherOutcomes(t *testing.T) {
	t.Parallel()
	pool, o, l := publisher(t)
	old := put(t, pool, inventory.OutcomeEvent, []byte("dmi"), nil)
	require.NoError(t, o.Park(t.Context(), l, inventory.OutcomeEvent, old, "too large"))
	lcm := put(t, pool, inventory.LCMEvent, []byte("a"), nil)
	put(t, pool, inventory.LCMEvent, []byte("a"), nil)
	require.NoError(t, o.Park(t.Context(), l, inventory.LCMEvent, lcm, "too large"))
	load, err := o.Load(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, load.Parked)
	require.EqualValues(t, 3, load.Rows)
	require.Zero(t, load.Oldest, "nothing can be published")

	// An outcome has no order to keep: the next of the same key passes.
	next := put(t, pool, inventory.OutcomeEvent, []byte("dmi"), nil)
	got, err := o.Exchange(t.Context(), l, inventory.OutcomeEvent, nil, wide)
	require.NoError(t, err)
	require.Equal(t, []int64{next}, ids(got))
	load, err = o.Load(t.Context())
	require.NoError(t, err)
	require.NotZero(t, load.Oldest)

	// A new publisher tries once more what was set aside.
	n, err := o.RetryParked(t.Context(), l)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	n, err = o.RetryParked(t.Context(), inventory.Lease{Holder: "gone", Generation: l.Generation})
	require.NoError(t, err)
	require.Zero(t, n)
}

func TestBlockedPartitionsAreLeftOut(t *testing.T) {
	t.Parallel()
	pool, o, l := publisher(t)
	var all, open []int64
	w := wide
	w.Blocked = []int{int(store.HashOf([]byte("key-0")) % 4), 9}
	for i := range 40 {
		key := []byte(fmt.Sprint("key-", i))
		id := put(t, pool, inventory.LCMEvent, key, nil)
		all = append(all, id)
		if int(store.HashOf(key)%4) != w.Blocked[0] {
			open = append(open, id)
		}
	}
	require.Less(t, len(open), len(all))
	require.Equal(t, open, ids(exchange(t, o, l, w)))
	require.Equal(t, all, ids(exchange(t, o, l, wide)))
}

func TestWindowIsBoundedByBytesAndRowsButNeverEmpty(t *testing.T) {
	t.Parallel()
	pool, o, l := publisher(t)
	var all []int64
	for range 10 {
		all = append(all, put(t, pool, inventory.LCMEvent, nil, make([]byte, 999))) // 1,000 with its header
	}
	read := func(rows, bytes int) []int64 {
		return ids(exchange(t, o, l, inventory.Window{Rows: rows, Bytes: bytes, Partitions: 1}))
	}
	require.Equal(t, all[:1], read(10, 1))
	require.Equal(t, all[:3], read(10, 3000))
	require.Equal(t, all[:4], read(10, 3001), "a row that crosses the bound still comes")
	require.Equal(t, all[:2], read(2, 1<<20))
	require.Equal(t, all, read(20, 1<<20))
}

func TestLoad(t *testing.T) {
	t.Parallel()
	pool, o, l := publisher(t)
	load, err := o.Load(t.Context())
	require.NoError(t, err)
	require.Equal(t, inventory.OutboxLoad{}, load)
	id := put(t, pool, inventory.LCMEvent, []byte("key"), make([]byte, 1000))
	put(t, pool, inventory.OutcomeEvent, nil, nil)
	require.NoError(t, o.Park(t.Context(), l, inventory.LCMEvent, id, "x"))
	load, err = o.Load(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, load.Rows)
	require.EqualValues(t, 3+1000+1+1, load.Bytes)
	require.EqualValues(t, 1, load.Parked)
	require.WithinDuration(t, time.Now(), load.Oldest, time.Hour)
}

func TestRelayIDIsGeneratedOnceForADatabase(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	o := newOutbox(t, db.New(t))
	id, err := o.RelayID(t.Context())
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(id, "ncmp-inventory-relay-"), id)
	lead(t, o, "me")
	again, err := newOutbox(t, db.New(t)).RelayID(t.Context())
	require.NoError(t, err)
	require.Equal(t, id, again)
	other, err := newOutbox(t, storetest.Open(t).New(t)).RelayID(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, id, other)

	configured := newOutbox(t, db.New(t, func(c *store.Config) { c.RelayID = "mine" }))
	id, err = configured.RelayID(t.Context())
	require.NoError(t, err)
	require.Equal(t, "mine", id)
}

func TestListenWakesOnCommitsOfOthersUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	pool, o, _ := publisher(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	woken := make(chan struct{}, 100)
	done := make(chan error, 1)
	go func() { done <- o.Listen(ctx, func() { woken <- struct{}{} }) }()
	<-woken // it listens now
	_, err := pool.Exec(ctx, `notify ncmp_inventory_outbox`)
	require.NoError(t, err)
	<-woken

	cancel()
	require.NoError(t, <-done)

	go func() { done <- o.Listen(t.Context(), func() { woken <- struct{}{} }) }()
	<-woken
	_, err = pool.Exec(t.Context(), `select pg_terminate_backend(pid) from pg_stat_activity where query like 'listen %' and pid <> pg_backend_pid()`)
	require.NoError(t, err)
	require.ErrorIs(t, <-done, inventory.ErrTransient)
}

func TestWindowIsReadThroughTheIndexWhateverThereIs(t *testing.T) {
	t.Parallel()
	pool, o, l := publisher(t)
	_, err := pool.Exec(t.Context(), `
insert into ncmp_inventory.outbox (kind, hash, key, headers, value)
select g % 2, g, convert_to('key-' || g, 'UTF8'), '\x00', repeat('v', 600)::bytea from generate_series(1, 20000) g;
delete from ncmp_inventory.outbox where id <= 15000;
analyze ncmp_inventory.outbox`)
	require.NoError(t, err)
	require.Len(t, exchange(t, o, l, wide), 1000)

	conn, err := store.OutboxPool(o).Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(t.Context(), "prepare w as "+store.ReadWindow)
	require.NoError(t, err)
	for _, blocked := range []string{"{}", "{1, 2}"} {
		rows, err := conn.Query(t.Context(), "explain (analyze, buffers) execute w (0, 1000, 1048576, 4, '"+blocked+"')")
		require.NoError(t, err)
		var plan strings.Builder
		for rows.Next() {
			var line string
			require.NoError(t, rows.Scan(&line))
			plan.WriteString(line + "\n")
		}
		require.NoError(t, rows.Err())
		require.Contains(t, plan.String(), "kind = $1", "the plan is the one that the session keeps")
		require.Contains(t, plan.String(), "using outbox_pkey", plan.String())
		require.NotContains(t, plan.String(), "Seq Scan on outbox", plan.String())
		require.NotContains(t, plan.String(), "Sort", plan.String())
		require.NotContains(t, plan.String(), "temp written", plan.String())
	}
}
