package consumer

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Reading up to given ends stops there, also where the last offsets hold
// nothing to see, and leaves out what comes behind.
func TestReadEndsAtTheGivenOffsets(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]int32{"in": 3})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l.send("in", 0, 0, 9)
	l.send("in", 1, 0, 3)
	cl := l.client(txnID("in", 1)...)
	defer cl.Close()
	require.NoError(t, cl.BeginTransaction())
	require.NoError(t, cl.ProduceSync(ctx, record("in", 1, "aborted")).FirstErr())
	require.NoError(t, cl.EndTransaction(ctx, kgo.TryAbort))
	bounds, err := l.k.ListOffsets(ctx, "in")
	require.NoError(t, err)
	require.EqualValues(t, 5, bounds[1].Stable, "three records, an aborted one and its marker")

	var got []string
	take := func(r *TailRecord) (bool, error) {
		got = append(got, string(r.Value))
		return true, nil
	}
	require.NoError(t, l.k.Read(ctx, "in", []int64{2, 0, 0}, []int64{4, 5, 0}, take))
	require.ElementsMatch(t, []string{"in-0-2", "in-0-3", "in-1-0", "in-1-1", "in-1-2"}, got)
	got = nil
	require.NoError(t, l.k.Read(ctx, "in", []int64{4, 5, 0}, []int64{4, 5, 0}, take), "nothing to read")
	require.Empty(t, got)
}
