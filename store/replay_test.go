package store_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
	"ncmp-inventory/store"
	"ncmp-inventory/store/storetest"
)

// at is the place of a record in the tests' topic, a second for each offset.
func at(offset int64) store.Place {
	return store.Place{Partition: topic, Offset: offset, Time: clock.Add(time.Duration(offset) * time.Second)}
}

// elsewhere is the same moment in another partition.
func elsewhere(p store.Place) store.Place {
	p.Index, p.Offset = p.Index+1, 1000-p.Offset
	return p
}

func TestLaterChangesAreFoundByPositionOrTime(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	s := db.New(t, withCodec)
	l := startLane(t, s, topic)
	l.items(t, creation("a"), creation("b"), move("a", inventory.Ready), creation("gone"), inventory.Item{Op: inventory.OpRemove, ID: "gone"})
	ids := []string{"a", "b", "gone", "never"}
	for _, c := range []struct {
		place store.Place
		want  map[string]int64 // offset of the last later change
	}{
		{at(-1), map[string]int64{"a": 2, "b": 1, "gone": 4}},
		{at(1), map[string]int64{"a": 2, "gone": 4}},
		{at(2), map[string]int64{"gone": 4}},
		{at(4), map[string]int64{}},
		{elsewhere(at(1)), map[string]int64{"a": 2, "gone": 4}},
		{elsewhere(at(4)), map[string]int64{}},
		{store.Place{Partition: elsewhere(at(0)).Partition}, map[string]int64{"a": 2, "b": 1, "gone": 4}}, // of unknown time
	} {
		later, err := s.LaterChanges(t.Context(), c.place, ids)
		require.NoError(t, err)
		got := map[string]int64{}
		for _, x := range later {
			got[x.Handle] = x.Source.Offset
			require.NotZero(t, x.Step)
			require.Equal(t, topic, x.Source.Partition)
		}
		require.Equal(t, c.want, got, "%+v", c.place)
	}

	// Without a history the state's own time decides.
	execute(t, db, `delete from ncmp_inventory.history`)
	later, err := s.LaterChanges(t.Context(), elsewhere(at(-1)), ids)
	require.NoError(t, err)
	require.Len(t, later, 2)
	for _, x := range later {
		require.Zero(t, x.Step)
		require.True(t, clock.Truncate(time.Millisecond).Equal(x.At), "%s", x.At)
	}
	later, err = s.LaterChanges(t.Context(), at(0), ids)
	require.NoError(t, err)
	require.Empty(t, later)
}

// What a replayed record did counts by where that record first stood: replaying
// two records of one handle in order is no overwriting.
func TestAReplayCountsByItsOrigin(t *testing.T) {
	t.Parallel()
	s := storetest.Open(t).New(t, withCodec)
	l := startLane(t, s, topic)
	l.items(t, creation("other"), creation("other-2"), creation("other-3"))
	first := store.Replay{Source: at(1), Origin: at(1), Attempt: 1, Target: topic, From: 3}
	require.NoError(t, s.BeginReplays(t.Context(), []store.Replay{first}))
	require.Error(t, s.BeginReplays(t.Context(), []store.Replay{{Source: at(0), Origin: at(0), Target: topic}, first}), "noted before")
	l.items(t, creation("a")) // offset 3: the replayed record
	later, err := s.LaterChanges(t.Context(), at(2), []string{"a"})
	require.NoError(t, err)
	require.Len(t, later, 1, "nobody knows yet that it was one")
	first.TargetOffset = 3
	require.NoError(t, s.FinishReplays(t.Context(), []store.Replay{first}))
	later, err = s.LaterChanges(t.Context(), at(2), []string{"a"})
	require.NoError(t, err)
	require.Empty(t, later)
	later, err = s.LaterChanges(t.Context(), at(0), []string{"a"})
	require.NoError(t, err)
	require.Len(t, later, 1)
	require.EqualValues(t, 1, later[0].Source.Offset)

	require.NoError(t, s.DropReplays(t.Context(), []store.Replay{first}), "what was sent stays noted")
	all, err := s.Replays(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
	all[0].At, all[0].Source, all[0].Origin = first.At, first.Source, first.Origin
	require.Equal(t, first, all[0])
}

func TestOnlyOneReplaysAtATime(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	s, other := db.New(t), db.New(t)
	unlock, err := s.LockReplay(t.Context())
	require.NoError(t, err)
	_, err = other.LockReplay(t.Context())
	require.ErrorIs(t, err, store.ErrReplaying)
	unlock()
	unlock, err = other.LockReplay(t.Context())
	require.NoError(t, err)
	unlock()
}

// A rehearsal sees what is stored and changes nothing, not even a position.
func TestARehearsalNeedsNoPosition(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	s := db.New(t, withCodec)
	l := startLane(t, s, topic)
	l.create(t, handle("a", "/a"))
	b := &inventory.Batch{Records: make([]inventory.Record, 1)}
	seen := false
	require.NoError(t, s.Rehearse(t.Context(), b, needOf([]string{"a", "b"}), func(snap *inventory.Snapshot) (*inventory.Plan, error) {
		seen = snap.Handles["a"] != nil && snap.Handles["b"] == nil
		return &inventory.Plan{
			Changes: []inventory.Change{{After: handle("b", "")}}, Claims: []inventory.Claim{{Key: "b", Owner: "b"}},
			Messages: []inventory.Message{{Key: []byte("b")}},
		}, nil
	}))
	require.True(t, seen)
	require.Empty(t, under(t, db, "b"))
	require.Empty(t, column(t, db, `select key from ncmp_inventory.reference where key = 'b'`))
	require.Empty(t, column(t, db, `select id::text from ncmp_inventory.outbox`))
	bad := handle("b", "")
	bad.Public = []inventory.Property{{Name: "p", Value: "refused"}}
	err := s.Rehearse(t.Context(), b, needOf([]string{"b"}), func(*inventory.Snapshot) (*inventory.Plan, error) {
		return &inventory.Plan{Changes: []inventory.Change{{After: bad}}}, nil
	})
	require.ErrorIs(t, err, inventory.ErrData)
}

// A replayed record waits for a change that is being written to its handle, and
// sees it then: it is judged under the lock, not before.
func TestAReplayedRecordIsJudgedUnderTheLock(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	s := db.New(t, withCodec)
	l := startLane(t, s, topic)
	l.items(t, creation("a"), creation("b"))
	other := startLane(t, s, elsewhere(at(0)).Partition)

	locked, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	wait := make(chan error, 1)
	go func() {
		b := one(l, move("a", inventory.Ready))
		_, err := registrar(s, func() time.Time {
			once.Do(func() { close(locked) })
			<-release
			return clock
		}).Apply(t.Context(), b)
		wait <- err
	}()
	<-locked
	replayed := make(chan error, 1)
	b := one(other, move("a", inventory.Locked))
	b.Records[0].Replay = &inventory.Replay{Origin: at(1)}
	go func() {
		_, err := registrar(s, func() time.Time { return clock }).Apply(t.Context(), b)
		replayed <- err
	}()
	require.Eventually(t, func() bool {
		var n int
		err := db.Pool(t).QueryRow(t.Context(), `
			select count(*) from pg_locks l join pg_database d on d.oid = l.database or l.database is null
			where not l.granted and d.datname = current_database()`).Scan(&n)
		return err == nil && n > 0
	}, time.Minute, time.Millisecond)
	close(release)
	require.NoError(t, <-wait)
	require.NoError(t, <-replayed)
	require.Equal(t, inventory.Ready, stateOf(t, s, "a"))
	require.Equal(t, 1, deadLettersIn(t, db))

	// One that first stood behind the change is applied, and counts by its origin.
	other.next++
	b = one(other, move("a", inventory.Locked))
	b.Records[0].Replay = &inventory.Replay{Origin: at(3)}
	_, err := registrar(s, func() time.Time { return clock }).Apply(t.Context(), b)
	require.NoError(t, err)
	require.Equal(t, inventory.Locked, stateOf(t, s, "a"))
	require.Equal(t, 1, deadLettersIn(t, db))
	later, err := s.LaterChanges(t.Context(), at(2), []string{"a"})
	require.NoError(t, err)
	require.Len(t, later, 1)
	require.Equal(t, at(3).Offset, later[0].Source.Offset)
	require.True(t, at(3).Time.Equal(later[0].Source.Time))
	later, err = s.LaterChanges(t.Context(), at(3), []string{"a"})
	require.NoError(t, err)
	require.Empty(t, later)
}

func registrar(s *store.Store, now func() time.Time) *inventory.Registrar {
	return inventory.NewRegistrar(s, keyed{}, inventory.RegistrarConfig{PlannerConfig: inventory.PlannerConfig{Facts: true}, Now: now})
}

// one is a batch of one record of one item.
func one(l *lane, item inventory.Item) *inventory.Batch {
	b := l.batch(1)
	b.Records[0] = inventory.Record{
		Offset: b.First, LeaderEpoch: 7, Timestamp: clock.Add(time.Duration(b.First) * time.Second),
		Events: []inventory.Event{{ID: "event", Source: "/test", Items: []inventory.Item{item}}},
	}
	return b
}

func deadLettersIn(t *testing.T, db *storetest.DB) (n int) {
	t.Helper()
	require.NoError(t, db.Pool(t).QueryRow(t.Context(), `select count(*) from ncmp_inventory.outbox where kind = $1`, inventory.DeadLetterRecord).Scan(&n))
	return n
}

func stateOf(t *testing.T, s *store.Store, id string) inventory.State {
	t.Helper()
	h, err := s.GetHandle(t.Context(), id)
	require.NoError(t, err)
	return h.State.State
}
