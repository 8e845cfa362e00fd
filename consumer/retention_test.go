package consumer

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// What stands at the end of a partition can be invisible: markers of transactions
// and what was aborted. Retention takes it like all else, and a worker that comes
// later misses nothing and halts at nothing.
func TestMarkersAtTheTailAreNoGapOnceRetentionTookThem(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]int32{"in": 1})
	want := map[string][]string{}
	for i, commit := range []bool{true, false} {
		cl := l.client(txnID("in", 10*i)...)
		require.NoError(t, cl.BeginTransaction())
		was := l.cl
		l.cl = cl
		sent := l.send("in", 0, 10*i, 10*i+3)
		l.cl = was
		require.NoError(t, cl.EndTransaction(context.Background(), commitOrAbort(commit)))
		cl.Close()
		if commit {
			want["in/0"] = sent
		}
	}
	const end = 8 // three records and a marker, twice
	w := l.start("a", nil)
	l.requireExact(want)
	p := l.part("in", 0)
	l.db.until(t, "the end behind the last marker", func() bool { return l.position(p) == end })
	w.stop()
	require.NoError(t, w.wait())
	require.NoError(t, l.broker.DeleteRecords("in", 0, end))
	w = l.start("b", nil)
	want["in/0"] = append(want["in/0"], l.send("in", 0, 50, 53)...)
	l.requireExact(want)
	w.until("no halt", func(s Status) bool { return s.Halted == 0 && owns(1)(s) && s.Partitions[0].Lag == 0 })
}
