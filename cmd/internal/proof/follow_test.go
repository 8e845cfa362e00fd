package proof_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"ncmp-inventory/cmd/internal/kafkaembed"
	"ncmp-inventory/cmd/internal/load"
	"ncmp-inventory/cmd/internal/proof"
)

func TestFollowReadsEveryPartitionInOrder(t *testing.T) {
	t.Parallel()
	b, err := kafkaembed.Start(t.Context(), kafkaembed.Config{DataDir: t.TempDir(), Topics: map[string]int{"out": 3}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	const records = 900
	w := load.Writer(b.Addrs(), "out")
	var messages []kafka.Message
	for i := range records {
		messages = append(messages, kafka.Message{
			Key: []byte(strconv.Itoa(i % 7)), Value: []byte(strconv.Itoa(i)),
			Headers: []kafka.Header{{Key: "n", Value: []byte(strconv.Itoa(i))}},
		})
	}
	require.NoError(t, w.WriteMessages(t.Context(), messages...))
	require.NoError(t, load.Close(w))

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := map[string][]int{}
	next := map[int]int64{}
	total := 0
	require.NoError(t, proof.Follow(ctx, b.Addrs(), "out", func(m *kafka.Message) error {
		require.Equal(t, next[m.Partition], m.Offset)
		next[m.Partition] = m.Offset + 1
		n, err := strconv.Atoi(string(m.Value))
		require.NoError(t, err)
		for name, value := range proof.Headers(m) {
			require.Equal(t, "n "+string(m.Value), name+" "+string(value))
		}
		seen[string(m.Key)] = append(seen[string(m.Key)], n)
		if total++; total == records {
			cancel()
		}
		return nil
	}), "the end of following is no error")
	require.Len(t, seen, 7)
	for _, numbers := range seen {
		require.True(t, slices.IsSorted(numbers))
	}
	ends, err := proof.Ends(t.Context(), b.Addrs(), "out")
	require.NoError(t, err)
	require.Equal(t, next, ends)

	stop := errors.New("enough")
	require.ErrorIs(t, proof.Follow(t.Context(), b.Addrs(), "out", func(*kafka.Message) error { return stop }), stop)
	require.ErrorIs(t, proof.Follow(t.Context(), b.Addrs(), "missing", nil), kafka.UnknownTopicOrPartition)
}
