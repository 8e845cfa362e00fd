package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
	"ncmp-inventory/store/storetest"
)

func TestSetPositionFencesTheOwnerAndMarksTheMove(t *testing.T) {
	t.Parallel()
	s := storetest.Open(t).New(t, withCodec)
	l := startLane(t, s, topic)
	l.apply(t, inventory.Need{}, func(*inventory.Snapshot) *inventory.Plan { return &inventory.Plan{} })
	require.NoError(t, s.SetPosition(t.Context(), topic, "cluster", 40))
	_, err := s.Transact(t.Context(), l.batch(1), inventory.Need{}, func(*inventory.Snapshot) (*inventory.Plan, error) { return &inventory.Plan{}, nil })
	require.ErrorIs(t, err, inventory.ErrFenced)
	c, err := s.Claim(t.Context(), topic, "cluster", "me")
	require.NoError(t, err)
	require.Equal(t, inventory.Claimed{Found: true, Next: 40, OwnerEpoch: l.epoch + 2, LeaderEpoch: -1, Moved: true}, c)
	c, err = s.Claim(t.Context(), topic, "cluster", "me")
	require.NoError(t, err)
	require.True(t, c.Moved, "who claimed it may have died before it did anything")
	l.next, l.epoch = c.Next, c.OwnerEpoch
	_, err = s.Transact(t.Context(), l.batch(0), inventory.Need{}, func(*inventory.Snapshot) (*inventory.Plan, error) { return &inventory.Plan{}, nil })
	require.NoError(t, err)
	c, err = s.Claim(t.Context(), topic, "cluster", "me")
	require.NoError(t, err)
	require.False(t, c.Moved)
}

func TestSetPositionStoresTheFirstOfAPartition(t *testing.T) {
	t.Parallel()
	s := storetest.Open(t).New(t)
	require.NoError(t, s.SetPosition(t.Context(), topic, "cluster", 7))
	c, err := s.Claim(t.Context(), topic, "cluster", "me")
	require.NoError(t, err)
	require.True(t, c.Found && c.Moved)
	require.EqualValues(t, 7, c.Next)
}

// A topic that was created anew is known as soon as one of its partitions is,
// but what was decided about that one does not hold for the others.
func TestARecreatedTopicIsDecidedByPartition(t *testing.T) {
	t.Parallel()
	s := storetest.Open(t).New(t)
	old, now := topic, topic
	now.TopicID = [16]byte{9}
	for i := range int32(2) {
		old.Index = i
		require.NoError(t, s.SetPosition(t.Context(), old, "cluster", 7))
	}
	ask := func(i int32) [2]bool {
		p := now
		p.Index = i
		known, recreated, err := s.TopicKnown(t.Context(), p)
		require.NoError(t, err)
		return [2]bool{known, recreated}
	}
	require.Equal(t, [][2]bool{{false, true}, {false, true}, {false, true}}, [][2]bool{ask(-1), ask(0), ask(2)})
	now.Index = 0
	require.NoError(t, s.SetPosition(t.Context(), now, "cluster", 0))
	require.Equal(t, [][2]bool{{true, false}, {true, true}, {true, false}}, [][2]bool{ask(-1), ask(1), ask(2)})
}

func TestHaltsAreStoredUntilThePartitionGoesOn(t *testing.T) {
	t.Parallel()
	s := storetest.Open(t).New(t)
	old := topic
	old.TopicID = [16]byte{9}
	require.NoError(t, s.Halted(t.Context(), old, "one", "recreated", "why"))
	require.NoError(t, s.Halted(t.Context(), topic, "one", "gap", "why"))
	require.NoError(t, s.Halted(t.Context(), topic, "two", "truncated", "b\x00ad"))
	halts, err := s.Halts(t.Context())
	require.NoError(t, err)
	require.Len(t, halts, 2)
	for _, h := range halts {
		if h.Partition == topic {
			require.Equal(t, []string{"two", "truncated", "b\uFFFDad"}, []string{h.Owner, h.Kind, h.Reason})
			require.False(t, h.Since.IsZero())
		}
	}
	require.NoError(t, s.SetPosition(t.Context(), topic, "cluster", 0))
	c, err := s.Claim(t.Context(), topic, "cluster", "two")
	require.NoError(t, err)
	require.True(t, c.Halted)
	require.NoError(t, s.Halted(t.Context(), topic, "two", "", ""))
	halts, err = s.Halts(t.Context())
	require.NoError(t, err)
	require.Empty(t, halts, "the predecessor's as well")
}
