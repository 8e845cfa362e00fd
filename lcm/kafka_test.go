//go:build kafka

package lcm_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
	"ncmp-inventory/lcm"
)

// brokers is where the Apache Kafka for the tests runs.
func brokers(t *testing.T) []string {
	t.Helper()
	list := os.Getenv("NCMP_TEST_KAFKA_BROKERS")
	require.NotEmpty(t, list, "NCMP_TEST_KAFKA_BROKERS names no Apache Kafka")
	return strings.Split(list, ",")
}

func newTopic(t *testing.T, parts int) string {
	t.Helper()
	topic := "lcm-" + uuid.NewString()
	require.NoError(t, createTopic(t.Context(), clientOf(t, brokers(t), nil), topic, parts))
	return topic
}

// Apache Kafka fences a partition at the new epoch's first write there, not
// before; that has to be enough.
func TestKafkaFrozenPublisherIsFenced(t *testing.T) {
	t.Parallel()
	frozenPublisher(t, brokers(t), newTopic(t, 1))
}

func TestKafkaTakesOurBatches(t *testing.T) {
	t.Parallel()
	topic, o := newTopic(t, partitions), newMemOutbox()
	only := func(cfg *lcm.RelayConfig) {
		cfg.Topics = map[inventory.MessageKind]string{inventory.LCMEvent: topic}
		cfg.WindowRows = 300
	}
	o.add(messages(inventory.LCMEvent, 50, 20)...)
	for range 3 { // each term has an epoch of its own, and starts its sequences anew
		r := startWith(t, clientOf(t, brokers(t), nil), o, only)
		o.await(t, "an empty outbox", empty(inventory.LCMEvent))
		r.stop()
	}
	requireOnce(t, readFrom(t, brokers(t), topic, 1000), 50, 20)
	o.mu.Lock()
	defer o.mu.Unlock()
	require.EqualValues(t, 1000, o.raised, "the last sequence was read from the topic")
}
