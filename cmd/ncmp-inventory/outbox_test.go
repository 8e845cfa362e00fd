package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// parkOne puts two messages of one key into the outbox, of which the first is parked.
func (s *system) parkOne(t *testing.T, kind int, key string) {
	t.Helper()
	s.sql(t, `
insert into ncmp_inventory.outbox (kind, hash, key, headers, value, parked)
values ($1, 0, $2, '\x00', '{}', 'too large for the topic'), ($1, 0, $2, '\x00', '{}', null)`, kind, []byte(key))
}

func TestOutboxListsAndRetriesWhatIsParked(t *testing.T) {
	t.Parallel()
	s := newSystem(t, true)
	s.start(t)
	s.awaitReady(t)
	got := s.run(t, "", "outbox", "list")
	require.Equal(t, exitDone, got.code, got.stderr)
	require.Equal(t, "ID  TIME  KEY  BYTES  BEHIND  REASON\n", got.stdout)
	require.Contains(t, got.stderr, "0 parked")

	s.parkOne(t, 0, "lab-1")
	s.parkOne(t, 1, "lab-2")
	parked := func(args ...string) (list []parkedJSON) {
		got := s.run(t, "", append([]string{"outbox"}, args...)...)
		require.Equal(t, exitDone, got.code, got.stderr)
		for line := range strings.Lines(got.stdout) {
			var p parkedJSON
			require.NoError(t, json.Unmarshal([]byte(line), &p))
			list = append(list, p)
		}
		return list
	}
	list := parked("list", "--json")
	require.Len(t, list, 2)
	require.Equal(t, "lab-1", list[0].Key)
	require.Equal(t, "lcm", list[0].Kind)
	require.EqualValues(t, 1, list[0].Behind)
	require.EqualValues(t, 8, list[0].Bytes)
	require.Equal(t, "too large for the topic", list[0].Reason)
	got = s.run(t, "", "outbox", "list", "--kind", "inventory", "--limit", "1")
	require.Regexp(t, `(?m)^inventory/\d+ .* lab-2  8      1       too large for the topic$`, got.stdout)
	require.Len(t, strings.Split(strings.TrimSpace(got.stdout), "\n"), 2)
	require.Contains(t, s.run(t, "", "outbox", "list", "--limit", "1").stderr, "the first 1 of 2")

	dry := parked("retry", "--dry-run", "--json", list[0].ID)
	require.Len(t, dry, 1)
	require.False(t, *dry[0].Retried)
	require.Len(t, parked("list", "--json"), 2, "a dry run changes nothing")

	got = s.run(t, "", "outbox", "retry", list[0].ID)
	require.Equal(t, exitDone, got.code, got.stderr)
	require.Contains(t, got.stderr, "1 parked message(s) are sent once more")
	require.Eventually(t, func() bool { return s.input(t, s.cfg.Kafka.Topics.LCMEvents) == 2 }, patience, 10*time.Millisecond,
		"the message and the one behind it are published")
	require.Len(t, parked("list", "--json"), 1)

	got = s.run(t, "", "outbox", "retry", list[0].ID)
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.stderr, "no message "+list[0].ID+" is parked")
	retried := parked("retry", "--json")
	require.Len(t, retried, 1)
	require.True(t, *retried[0].Retried)
	require.Eventually(t, func() bool { return s.input(t, s.cfg.Kafka.Topics.InventoryEvents) == 2 }, patience, 10*time.Millisecond)
	require.Empty(t, parked("retry", "--json"))

	for _, args := range [][]string{
		{"list", "--kind", "lcmm"}, {"list", "--limit", "-1"}, {"retry", "4711"}, {"retry", "lcm/x"}, {"retry", "lcmm/1"},
	} {
		require.Equal(t, exitUsage, s.run(t, "", append([]string{"outbox"}, args...)...).code, "%v", args)
	}
}
