package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/store"
)

// A topic with many partitions that was created anew is one line, not one for
// each partition.
func TestPositionsThatDoNotFitAreOneFindingForEachTopic(t *testing.T) {
	t.Parallel()
	const anew = "the topic was deleted and created anew"
	list := []position{{Topic: "fits"}, {Topic: "new", Note: noteNone}, {Topic: "gone", Note: noteUnused}}
	for i := range int32(20) {
		list = append(list, position{Topic: "in", Partition: i, Note: anew})
	}
	for i, note := range []string{"a", "b", "a", "c", "d", "e"} {
		list = append(list, position{Topic: "other", Partition: int32(i), Note: note})
	}
	const broker = "positions that do not fit the topics"
	require.Equal(t, []store.Finding{
		{Check: "position-broker", Text: broker, Count: 20, Examples: []string{"in/0, in/1, in/2, in/3, in/4 and 15 more: " + anew}},
		{Check: "position-broker", Text: broker, Count: 6, Examples: []string{
			"other/0, other/2: a", "other/1: b", "other/3: c", "and 2 more reasons",
		}},
		{Check: "position-unused", Text: "positions of partitions that are not consumed", Count: 1, Notice: true, Examples: []string{"gone/0: " + noteUnused}},
	}, judgePositions(list))
}

func TestDeadLettersListPrintsNothingWithoutABroker(t *testing.T) {
	t.Parallel()
	got := runCommand(t, "", "dead-letters", "list", "--kafka.brokers", "127.0.0.1:1")
	require.Equal(t, exitFailed, got.code)
	require.Empty(t, got.stdout)
}
