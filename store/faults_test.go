package store_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
	"ncmp-inventory/store"
	"ncmp-inventory/store/pgembed"
	"ncmp-inventory/store/storetest"
)

// Kinds of message of PostgreSQL's protocol.
const (
	bind            = 'B'
	backendKeyData  = 'K'
	commandComplete = 'C'
)

func TestCommitWhoseAnswerIsLostIsAppliedOnce(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	var armed atomic.Bool
	p, url := startProxy(t, db, nil, func(kind byte, body []byte) bool {
		return kind != commandComplete || !bytes.HasPrefix(body, []byte("COMMIT")) || !armed.CompareAndSwap(true, false)
	})
	told := 0
	s := open(t, url, func(c *store.Config) { c.OnCommit = func(n int) { told += n } })
	l := startLane(t, s, topic)
	l.create(t, handle("a", ""))
	armed.Store(true)
	planned := 0
	rc := l.apply(t, needOf([]string{"b"}), func(*inventory.Snapshot) *inventory.Plan {
		planned++
		return &inventory.Plan{
			Changes:  []inventory.Change{{After: handle("b", "")}},
			Claims:   []inventory.Claim{{Key: "b", Owner: "b"}},
			Messages: []inventory.Message{{Key: []byte("b")}, {Key: []byte("b")}},
		}
	})
	require.True(t, rc.AlreadyApplied)
	require.Equal(t, 1, planned)
	require.Equal(t, 2, told, "the publisher is woken all the same")
	require.Zero(t, p.cancels.Load(), "a COMMIT is never cancelled")
	require.Len(t, under(t, db, "b"), 5)
	require.Equal(t, []string{"2"}, column(t, db, `select count(*)::text from ncmp_inventory.outbox`))
}

func TestCommitThatNeverReachedTheServerIsMadeAgain(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	var armed atomic.Bool
	_, url := startProxy(t, db, func(kind byte, _ []byte) bool {
		return kind != bind || !armed.CompareAndSwap(true, false)
	}, nil)
	s := open(t, url)
	l := startLane(t, s, topic)
	l.create(t, handle("a", ""))
	planned := 0
	rc := l.apply(t, needOf([]string{"b"}), func(*inventory.Snapshot) *inventory.Plan {
		planned++
		armed.Store(planned == 1)
		return &inventory.Plan{
			Changes:  []inventory.Change{{After: handle("b", "")}},
			Claims:   []inventory.Claim{{Key: "b", Owner: "b"}},
			Messages: []inventory.Message{{Key: []byte("b")}},
		}
	})
	require.False(t, rc.AlreadyApplied)
	require.Equal(t, 2, planned)
	require.Equal(t, []string{"1"}, column(t, db, `select count(*)::text from ncmp_inventory.outbox`))
}

func TestConnectionLostBeforeTheWritesIsTransient(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	var armed atomic.Bool
	_, url := startProxy(t, db, func(kind byte, _ []byte) bool { return kind != bind || !armed.Load() }, nil)
	s := open(t, url)
	l := startLane(t, s, topic)
	armed.Store(true)
	_, err := s.Transact(t.Context(), l.batch(2), needOf([]string{"a"}), nil)
	require.ErrorIs(t, err, inventory.ErrTransient)
	armed.Store(false)
	l.create(t, handle("a", ""))
}

func TestPoolerIsRefused(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	_, url := startProxy(t, db, nil, func(kind byte, body []byte) bool {
		if kind == backendKeyData { // a pooler answers with one of its own
			binary.BigEndian.PutUint32(body, binary.BigEndian.Uint32(body)+1)
		}
		return true
	})
	_, err := store.Open(t.Context(), store.Config{URL: url})
	require.ErrorContains(t, err, "pooler")
	require.NotErrorIs(t, err, inventory.ErrTransient)
}

func TestUnreachableServerIsTransientAndWrongPasswordIsNot(t *testing.T) {
	t.Parallel()
	_, err := store.Open(t.Context(), store.Config{URL: "postgres://u:hush@127.0.0.1:1/db"})
	require.ErrorIs(t, err, inventory.ErrTransient)
	require.NotContains(t, err.Error(), "hush")
	_, err = store.Open(t.Context(), store.Config{URL: "postgres://u:hush@127.0.0.1:bad/db"})
	require.NotErrorIs(t, err, inventory.ErrTransient)
	require.NotContains(t, err.Error(), "hush")

	db := storetest.Open(t)
	_, err = store.Open(t.Context(), store.Config{URL: withUser(t, db.URL, "nobody_of_that_name")})
	require.Error(t, err)
	require.NotErrorIs(t, err, inventory.ErrTransient)
}

// holder opens a transaction that holds a position's row, under the name of a
// worker's session.
func holder(t *testing.T, db *storetest.DB, name string) func() error {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(db.URL)
	require.NoError(t, err)
	cfg.ConnConfig.RuntimeParams["application_name"] = name
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	_, err = tx.Exec(t.Context(), `update ncmp_inventory.position set updated = now()`)
	require.NoError(t, err)
	return func() error { return tx.Commit(context.Background()) }
}

func TestClaimEndsTheSessionOfAFrozenOwnerOnly(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	s := db.New(t, withCodec, func(c *store.Config) { c.LockTimeout = 100 * time.Millisecond })
	_, err := s.Start(t.Context(), topic, "cluster", "frozen", 5)
	require.NoError(t, err)

	stranger := holder(t, db, "psql")
	_, err = s.Claim(t.Context(), topic, "cluster", "me")
	require.ErrorIs(t, err, inventory.ErrTransient)
	require.NoError(t, stranger(), "a stranger's session is left alone")

	frozen := holder(t, db, "ncmp-inventory frozen")
	c, err := s.Claim(t.Context(), topic, "cluster", "me")
	require.NoError(t, err)
	require.Equal(t, inventory.Claimed{Found: true, Next: 5, OwnerEpoch: 2, LeaderEpoch: -1}, c)
	require.Error(t, frozen())
}

// cancelSyncRep ends a wait for a standby that is not there and tells whether
// there was one.
func cancelSyncRep(t *testing.T, admin *pgxpool.Pool) bool {
	var n int
	err := admin.QueryRow(t.Context(), `select count(pg_cancel_backend(pid)) from pg_stat_activity where wait_event = 'SyncRep'`).Scan(&n)
	return err == nil && n > 0
}

// awaitSyncRep returns when commits wait for a standby. Sessions know the setting
// before the checkpointer has told them to act by it.
func awaitSyncRep(t *testing.T, admin *pgxpool.Pool) {
	t.Helper()
	for {
		done := make(chan error, 1)
		go func() {
			_, err := admin.Exec(t.Context(), `select pg_logical_emit_message(true, 'probe', '')`)
			done <- err
		}()
		waited := false
		require.Eventually(t, func() bool {
			waited = waited || cancelSyncRep(t, admin)
			return len(done) > 0
		}, time.Minute, time.Millisecond)
		require.NoError(t, <-done)
		if waited {
			return
		}
	}
}

func TestCommitThatGaveUpOnItsStandbyIsNotTakenAsDurable(t *testing.T) {
	t.Parallel()
	db := storetest.OpenAlone(t, nil)
	reg := prometheus.NewRegistry()
	s := db.New(t, withCodec, func(c *store.Config) { c.Registerer = reg })
	l := startLane(t, s, topic)
	l.create(t, handle("warm", ""))
	admin := db.Pool(t)
	reload := func(sql string) {
		t.Helper()
		for _, q := range []string{sql, `select pg_reload_conf()`} {
			_, err := admin.Exec(t.Context(), q)
			require.NoError(t, err)
		}
	}
	reload(`alter system set synchronous_standby_names = 'nobody'`)
	awaitSyncRep(t, admin)

	wait := l.begin(t, needOf([]string{"a"}), func(*inventory.Snapshot) *inventory.Plan {
		return &inventory.Plan{Changes: []inventory.Change{{After: handle("a", "")}}, Claims: []inventory.Claim{{Key: "a", Owner: "a"}}}
	})
	// The COMMIT waits for a standby that is not there; somebody cancels it.
	require.Eventually(t, func() bool { return cancelSyncRep(t, admin) }, time.Minute, time.Millisecond)
	require.Eventually(t, func() bool { return counter(t, reg, "ncmp_inventory_store_retries_total", "unknown-commit") == 1 }, time.Minute, time.Millisecond)
	reload(`alter system reset synchronous_standby_names`)
	rc := wait()
	require.True(t, rc.AlreadyApplied)
	require.Len(t, under(t, db, "a"), 5)
}

func TestAsynchronousCommitIsTurnedOff(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	name := column(t, db, `select current_database()`)[0]
	execute(t, db, `alter database `+name+` set synchronous_commit = off`)
	s := db.New(t, withCodec)
	require.Equal(t, map[string]string{
		"synchronous_commit": "on", "lock_timeout": "5s", "statement_timeout": "20s", "idle_in_transaction_session_timeout": "5s",
		"client_connection_check_interval": "5s", "search_path": "public",
	}, settingsOf(t, s, "synchronous_commit", "lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout", "client_connection_check_interval", "search_path"))
}

func TestServerThatWasRestartedIsUsedAgain(t *testing.T) {
	t.Parallel()
	db := storetest.OpenAlone(t, nil)
	s := db.New(t, withCodec)
	l := startLane(t, s, topic)
	l.create(t, handle("a", ""))
	require.NoError(t, db.Server().Restart(t.Context(), pgembed.Immediate))
	again := func() bool {
		_, err := s.Transact(t.Context(), l.batch(2), needOf([]string{"b"}), func(*inventory.Snapshot) (*inventory.Plan, error) {
			return &inventory.Plan{Changes: []inventory.Change{{After: handle("b", "")}}, Claims: []inventory.Claim{{Key: "b", Owner: "b"}}}, nil
		})
		if err != nil {
			require.ErrorIs(t, err, inventory.ErrTransient)
		}
		return err == nil
	}
	for range 20 {
		if again() {
			require.Len(t, under(t, db, "b"), 5)
			return
		}
	}
	t.Fatal("the store did not come back")
}
