package store_test

import (
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
