package lcm

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
)

// Kafka counts sequences in an int32 that goes on with 0 after its largest.
func TestSequenceGoesRound(t *testing.T) {
	t.Parallel()
	require.EqualValues(t, 5, advance(2, 3))
	require.EqualValues(t, 0, advance(math.MaxInt32, 1))
	require.EqualValues(t, 9, advance(math.MaxInt32-2, 12))
}

func TestSequenceHeaderSortsAsItCounts(t *testing.T) {
	t.Parallel()
	require.Equal(t, "0000000000000000000", string(appendSequence(nil, 0)))
	require.Equal(t, "0000000000000000042", string(appendSequence(nil, 42)))
	require.Equal(t, "9223372036854775807", string(appendSequence(nil, math.MaxInt64)))
}

func TestBatchesFitTheLimit(t *testing.T) {
	t.Parallel()
	rows := make([]inventory.OutboxRow, 200)
	for i := range rows {
		rows[i] = inventory.OutboxRow{ID: int64(i), Key: []byte("key"), Headers: []byte{0}, Value: make([]byte, i)}
	}
	w := new(batchWriter)
	for _, limit := range []int{1, 200, 500, 5000, 1 << 20} {
		for rest := rows; len(rest) > 0; {
			n := fitting(inventory.LCMEvent, rest, limit)
			require.Positive(t, n)
			b, err := w.build(producer{}, 0, inventory.LCMEvent, rest[:n], 0)
			require.NoError(t, err)
			require.EqualValues(t, len(b)-frame, binary.BigEndian.Uint32(b))
			if n > 1 {
				require.LessOrEqual(t, len(b)-frame, limit)
			}
			rest = rest[n:]
		}
	}
}

func BenchmarkBuildBatch(b *testing.B) {
	rows := make([]inventory.OutboxRow, 1000)
	for i := range rows {
		rows[i] = inventory.OutboxRow{ID: int64(i), Key: []byte("key"), Headers: make([]byte, 700), Value: make([]byte, 500)}
	}
	w := new(batchWriter)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.build(producer{}, 0, inventory.LCMEvent, rows, 0); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*1000/b.Elapsed().Seconds(), "rows/s")
}
