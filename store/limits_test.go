package store_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
	"ncmp-inventory/store"
	"ncmp-inventory/store/storetest"
)

// many are n new handles and what creating them needs.
func many(n, from int) (inventory.Need, *inventory.Plan) {
	var ids []string
	var alternates []inventory.Claim
	p := &inventory.Plan{}
	for i := from; i < from+n; i++ {
		h := handle(fmt.Sprintf("ch-%06d", i), fmt.Sprintf("/alt/%06d", i))
		ids = append(ids, h.ID)
		alternates = append(alternates, inventory.Claim{Key: h.AlternateID, Owner: h.ID})
		p.Changes = append(p.Changes, inventory.Change{After: h})
		p.Messages = append(p.Messages, inventory.Message{Kind: inventory.LCMEvent, Key: []byte(h.ID), Headers: []byte{0}})
	}
	p.Claims = append(p.Claims, alternates...)
	for _, id := range ids {
		p.Claims = append(p.Claims, inventory.Claim{Key: id, Owner: id})
	}
	return needOf(ids, alternates...), p
}

// The server's lock table holds a few entries for each transaction, however
// many rows it touches, and no temporary tables are made: many workers with
// large batches do not fill its shared memory.
func TestLockTableIsNotFilledByRows(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	l := startLane(t, db.New(t, withCodec), topic)
	need, plan := many(2000, 0)
	locks := ""
	l.apply(t, need, func(*inventory.Snapshot) *inventory.Plan {
		locks = column(t, db, `select count(*)::text from pg_locks k join pg_stat_activity a on a.pid = k.pid
			where a.application_name like 'ncmp-inventory%' and a.datname = current_database() and k.locktype <> 'virtualxid'`)[0]
		return plan
	})
	var n int
	_, err := fmt.Sscan(locks, &n)
	require.NoError(t, err)
	require.Positive(t, n)
	require.Less(t, n, 64)
	require.Equal(t, []string{"0"}, column(t, db, `select count(*)::text from pg_class where relpersistence = 't'`))
}

// A batch costs the same few statements whether it holds one handle or
// hundreds, on a table of any size.
func TestStatementsDoNotGrowWithTheBatch(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	var statements atomic.Int64
	_, url := startProxy(t, db, func(kind byte, _ []byte) bool {
		if kind == bind {
			statements.Add(1)
		}
		return true
	}, nil)
	l := startLane(t, open(t, url), topic)
	fillHandles(t, db, 3000)
	count := func(n, from int) int64 {
		need, plan := many(n, from)
		before := statements.Load()
		l.apply(t, need, func(*inventory.Snapshot) *inventory.Plan { return plan })
		return statements.Load() - before
	}
	count(1, 0) // statements are described once
	one := count(1, 1000)
	require.Less(t, one, int64(20))
	require.LessOrEqual(t, count(200, 2000), one+2, "more ids may have to be fetched")
}

// A server that stops answering, without closing anything, holds nobody up for
// longer than the deadlines say: every call comes back as an outage.
func TestServerThatStopsAnsweringIsGivenUp(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	var silent atomic.Bool
	answer := make(chan struct{})
	_, url := startProxy(t, db, nil, func(byte, []byte) bool {
		if silent.Load() {
			<-answer
		}
		return true
	})
	s := open(t, url, func(c *store.Config) {
		c.StatementTimeout, c.TransactionTimeout, c.LockTimeout = 300*time.Millisecond, 300*time.Millisecond, 300*time.Millisecond
	})
	l := startLane(t, s, topic)
	o := newOutbox(t, s)
	lease := lead(t, o, "me")
	l.create(t, handle("a", ""))
	silent.Store(true)
	for name, call := range map[string]func() error{
		"transact": func() error {
			_, err := s.Transact(t.Context(), l.batch(2), needOf([]string{"b"}), func(*inventory.Snapshot) (*inventory.Plan, error) { return &inventory.Plan{}, nil })
			return err
		},
		"exchange": func() error {
			_, err := o.Exchange(t.Context(), lease, inventory.LCMEvent, nil, wide)
			return err
		},
		"lead":     func() error { _, _, err := o.Lead(t.Context(), "me", ttl); return err },
		"load":     func() error { _, err := o.Load(t.Context()); return err },
		"canary":   func() error { return s.CanaryWrite(t.Context()) },
		"claim":    func() error { _, err := s.Claim(t.Context(), topic, "cluster", "me"); return err },
		"identity": func() error { _, err := s.Identity(t.Context()); return err },
		"notify":   func() error { return s.Notify(t.Context()) },
	} {
		require.ErrorIs(t, call(), inventory.ErrTransient, name)
	}
	silent.Store(false)
	close(answer)
	c, err := s.Claim(t.Context(), topic, "cluster", "me")
	require.NoError(t, err)
	l.epoch = c.OwnerEpoch
	l.create(t, handle("b", ""))
}

// A migration that was cut off between two of its steps is finished by the
// next worker; what was done stays done.
func TestInterruptedMigrationIsFinished(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	all := column(t, db, `select version || ' ' || name from ncmp_inventory.migration order by version`)
	files, err := filepath.Glob("migrations/*.sql")
	require.NoError(t, err)
	require.Len(t, files, len(all))
	ours := func() []string { return column(t, db, workerLayout) }
	want := ours()
	fillHandles(t, db, 10)
	for done := len(all) - 1; done >= 2; done-- {
		// As if only the first steps had been done.
		execute(t, db, `drop schema ncmp_inventory cascade`)
		for i, file := range files[:done] {
			if i != 1 { // CPS's tables are there
				sql, err := os.ReadFile(file)
				require.NoError(t, err)
				execute(t, db, string(sql))
			}
			execute(t, db, `insert into ncmp_inventory.migration (version, name) values ($1, $2)`, i+1, strings.SplitN(all[i], " ", 2)[1])
		}
		s := open(t, db.URL)
		require.Equal(t, all, column(t, db, `select version || ' ' || name from ncmp_inventory.migration order by version`))
		require.Equal(t, want, ours())
		require.Len(t, column(t, db, `select key from ncmp_inventory.reference`), 20, "the handles that were there have their references")
		r, err := s.Verify(t.Context())
		require.NoError(t, err)
		require.Empty(t, r.Findings)
	}
}

const workerLayout = `
select table_name || '.' || column_name || ' ' || data_type from information_schema.columns where table_schema = 'ncmp_inventory'
union all
select indexdef from pg_indexes where schemaname = 'ncmp_inventory'
order by 1`
