package store_test

import (
	"bytes"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
	"ncmp-inventory/store"
	"ncmp-inventory/store/storetest"
)

func TestDeadlockWithAForeignWriterIsTriedAgain(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	u, err := url.Parse(db.URL)
	require.NoError(t, err)
	q := u.Query()
	q.Set("deadlock_timeout", "2s") // a session looks once: late enough to see the circle, and before the foreign one
	u.RawQuery = q.Encode()
	reg := prometheus.NewRegistry()
	s := open(t, u.String(), func(c *store.Config) { c.Registerer = reg })
	l := startLane(t, s, topic)
	l.create(t, handle("a", ""), handle("b", ""))

	pool := db.Pool(t)
	const touch = `update fragment set attributes = attributes where xpath = $1`
	foreign, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer foreign.Rollback(t.Context())
	_, err = foreign.Exec(t.Context(), `set local deadlock_timeout = '1min'`)
	require.NoError(t, err)
	_, err = foreign.Exec(t.Context(), touch, "/dmi-registry/cm-handles[@id='b']/state")
	require.NoError(t, err)

	wait := l.begin(t, needOf([]string{"a", "b"}), func(s *inventory.Snapshot) *inventory.Plan {
		p := &inventory.Plan{}
		for _, id := range []string{"a", "b"} {
			h := s.Handles[id].Handle
			h.State.State = inventory.Locked
			p.Changes = append(p.Changes, inventory.Change{Before: s.Handles[id], After: &h})
		}
		return p
	})
	require.Eventually(t, func() bool {
		var n int
		err := pool.QueryRow(t.Context(), `select count(*) from pg_stat_activity where application_name like 'ncmp-inventory%' and wait_event_type = 'Lock'
			and datname = current_database()`).Scan(&n)
		return err == nil && n > 0
	}, time.Minute, time.Millisecond)
	_, err = foreign.Exec(t.Context(), touch, "/dmi-registry/cm-handles[@id='a']/state")
	require.NoError(t, err)
	require.NoError(t, foreign.Commit(t.Context()))
	wait()
	require.NotZero(t, counter(t, reg, "ncmp_inventory_store_retries_total", "retry"))
	require.Equal(t, inventory.Locked, l.read(t, "a").State.State)
	require.Equal(t, inventory.Locked, l.read(t, "b").State.State)
}

func TestCommitThatHangsIsGivenUpWithoutACancel(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	var armed atomic.Bool
	hang := make(chan struct{})
	p, url := startProxy(t, db, nil, func(kind byte, body []byte) bool {
		if kind == commandComplete && bytes.HasPrefix(body, []byte("COMMIT")) && armed.CompareAndSwap(true, false) {
			<-hang
		}
		return true
	})
	t.Cleanup(func() { close(hang) })
	s := open(t, url, func(c *store.Config) {
		c.StatementTimeout, c.TransactionTimeout = 500*time.Millisecond, 500*time.Millisecond
	})
	l := startLane(t, s, topic)
	l.create(t, handle("a", ""))
	armed.Store(true)
	rc := l.apply(t, needOf([]string{"b"}), func(*inventory.Snapshot) *inventory.Plan {
		return &inventory.Plan{Changes: []inventory.Change{{After: handle("b", "")}}, Claims: []inventory.Claim{{Key: "b", Owner: "b"}}}
	})
	require.True(t, rc.AlreadyApplied)
	require.Zero(t, p.cancels.Load())
	require.Len(t, under(t, db, "b"), 5)
}

func TestPlanThatAMigrationMadeStaleIsPreparedAnew(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	s := db.New(t, withCodec, func(c *store.Config) { c.MaxConnections = 2 })
	l := startLane(t, s, topic)
	need := needOf([]string{"a"})
	need.Trust = []string{"a"}
	nothing := func(*inventory.Snapshot) *inventory.Plan { return &inventory.Plan{} }
	l.apply(t, need, nothing)
	execute(t, db, `alter table ncmp_inventory.trust alter column level type varchar(20)`)
	_, err := s.Transact(t.Context(), l.batch(2), need, func(*inventory.Snapshot) (*inventory.Plan, error) { return &inventory.Plan{}, nil })
	require.ErrorIs(t, err, inventory.ErrTransient)
	l.apply(t, need, nothing)
}

// TestAlternateIDThatTurnsUpLateIsLockedAfterAll has the alternate id of a
// handle that is to be removed change between the look without lock and the
// lock.
func TestAlternateIDThatTurnsUpLateIsLockedAfterAll(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	reg := prometheus.NewRegistry()
	s := db.New(t, withCodec, func(c *store.Config) { c.Registerer = reg })
	l := startLane(t, s, topic)
	l.create(t, handle("a", ""))

	pool := db.Pool(t)
	holder, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer holder.Rollback(t.Context())
	_, err = holder.Exec(t.Context(), `update ncmp_inventory.reference set owner = owner where key = 'a'`)
	require.NoError(t, err)
	need := needOf([]string{"a"})
	need.Frees = []string{"a"}
	var owner string
	wait := l.begin(t, need, func(s *inventory.Snapshot) *inventory.Plan {
		owner = s.Owners["/late"]
		return &inventory.Plan{Changes: []inventory.Change{{Before: s.Handles["a"], Removed: true}}, Releases: []string{"/late", "a"}}
	})
	require.Eventually(t, func() bool {
		var n int
		err := pool.QueryRow(t.Context(), `select count(*) from pg_stat_activity where application_name like 'ncmp-inventory%' and wait_event_type = 'Lock'
			and datname = current_database()`).Scan(&n)
		return err == nil && n > 0
	}, time.Minute, time.Millisecond)
	for _, sql := range []string{
		`update fragment set attributes = attributes || '{"alternate-id": "/late"}' where xpath = '/dmi-registry/cm-handles[@id=''a'']'`,
		`insert into ncmp_inventory.reference values ('/late', 'a')`,
	} {
		_, err := holder.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	require.NoError(t, holder.Commit(t.Context()))
	wait()
	require.Equal(t, "a", owner)
	require.EqualValues(t, 1, counter(t, reg, "ncmp_inventory_store_retries_total", "need"))
	require.Empty(t, column(t, db, `select key from ncmp_inventory.reference`))
}

func TestBatchThatTakesLongerToPlanThanTheServerWaitsIsSplit(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	s := db.New(t, withCodec, func(c *store.Config) { c.FrozenTimeout = 50 * time.Millisecond })
	l := startLane(t, s, topic)
	pool := db.Pool(t)
	slow := func(*inventory.Snapshot) (*inventory.Plan, error) {
		// Until the server has ended the session.
		require.Eventually(t, func() bool {
			var n int
			err := pool.QueryRow(t.Context(), `select count(*) from pg_stat_activity where application_name like 'ncmp-inventory%'
				and datname = current_database() and state = 'idle in transaction'`).Scan(&n)
			return err == nil && n == 0
		}, time.Minute, time.Millisecond)
		return &inventory.Plan{}, nil
	}
	_, err := s.Transact(t.Context(), l.batch(2), needOf([]string{"a"}), slow)
	require.ErrorIs(t, err, inventory.ErrData)
	_, err = s.Transact(t.Context(), l.batch(1), needOf([]string{"a"}), slow)
	require.ErrorIs(t, err, inventory.ErrTransient)
	l.create(t, handle("a", ""))
}
