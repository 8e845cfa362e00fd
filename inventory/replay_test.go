package inventory_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
)

// replayed is a world in which records with these event ids are dead letters
// that are sent again, and first stood at these offsets of the tests' partition.
func replayed(facts bool, origins map[string]int64) *world {
	w := newWorld()
	w.cfg.Facts, w.replays = facts, map[string]*inventory.Replay{}
	for id, offset := range origins {
		w.replays[id] = &inventory.Replay{Origin: inventory.Place{
			Partition: source, Offset: offset, Time: now.Add(time.Duration(offset) * time.Second),
		}}
	}
	return w
}

func named(id string, items ...inventory.Item) inventory.Event {
	e := event(items...)
	e.ID = id
	return e
}

// A record that was sent again overwrites nothing that came after its first
// place, whether that stands in the database or in the same batch in front.
func TestAReplayedRecordIsOvertaken(t *testing.T) {
	t.Parallel()
	const overtaken = ": overtaken"
	for _, together := range []bool{false, true} {
		w := replayed(true, map[string]int64{"old": 0, "young": 3})
		events := []inventory.Event{
			event(create("other", "")),
			event(create("a", "")),
			event(update("a", "", "new")),
			named("old", update("a", "", "old"), update("other", "", "old")),
			named("young", update("a", "", "young")),
		}
		if together {
			w.apply(t, events...)
		} else {
			for _, e := range events {
				w.apply(t, e)
			}
		}
		require.Equal(t, "young", w.handles["a"].DataProducerID)
		require.Empty(t, w.handles["other"].DataProducerID, "the record goes whole")
		require.Contains(t, w.told, overtaken)
		require.Contains(t, w.told, ": old succeeded 0; dead overtaken")
	}
}

// What several replayed records do counts by where each first stood: in their
// order they do not overtake each other, nor does one its own entries.
func TestReplayedRecordsInOrderPass(t *testing.T) {
	t.Parallel()
	w := replayed(true, map[string]int64{"first": -3, "second": -2, "third": -1, "late": -2})
	w.apply(t, named("first", create("a", "")), named("second", update("a", "", "2")))
	w.apply(t, named("third", remove("a"), create("a", ""), update("a", "", "3")))
	require.Equal(t, "3", w.handles["a"].DataProducerID)
	w.apply(t, named("late", update("a", "", "2")))
	require.Equal(t, "3", w.handles["a"].DataProducerID)
}

func TestAForcedReplayOverwrites(t *testing.T) {
	t.Parallel()
	w := replayed(true, map[string]int64{"old": 0})
	w.replays["old"].Forced = true
	w.apply(t, event(create("x", "")), event(create("a", "")), named("old", update("a", "", "old")))
	require.Equal(t, "old", w.handles["a"].DataProducerID)
}

// Without a history the time of a state's last update is all there is.
func TestWithoutAHistoryTheLastUpdateTells(t *testing.T) {
	t.Parallel()
	w := replayed(false, map[string]int64{"old": -1, "young": 1})
	w.apply(t, event(create("a", "")))
	w.apply(t, named("old", update("a", "", "old")))
	require.Empty(t, w.handles["a"].DataProducerID)
	w.apply(t, named("young", update("a", "", "young")))
	require.Equal(t, "young", w.handles["a"].DataProducerID)
	w.handles["a"].State.LastUpdate = "long ago"
	w.apply(t, named("young", update("a", "", "again")))
	require.Equal(t, "young", w.handles["a"].DataProducerID, "nobody knows when")
}

// An ordinary batch asks for nothing more than it did.
func TestOrdinaryBatchesAskForNoLaterChanges(t *testing.T) {
	t.Parallel()
	e := event(create("a", ""))
	for replay, want := range map[*inventory.Replay]int{nil: 0, {Forced: true}: 0, {}: 1} {
		b := &inventory.Batch{Records: []inventory.Record{{Events: []inventory.Event{e}, Replay: replay}}}
		require.Len(t, inventory.NeedOf(b).Replayed, want)
	}
}
