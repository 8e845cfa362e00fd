//go:build kafka

package lcm_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

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
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers(t)...))
	require.NoError(t, err)
	defer cl.Close()
	req := kmsg.NewPtrCreateTopicsRequest()
	create := kmsg.NewCreateTopicsRequestTopic()
	create.Topic, create.NumPartitions, create.ReplicationFactor = topic, int32(parts), 1
	req.Topics = append(req.Topics, create)
	res, err := req.RequestWith(t.Context(), cl)
	require.NoError(t, err)
	require.NoError(t, kerr.ErrorForCode(res.Topics[0].ErrorCode))
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
	for n := range 3 { // each term has an epoch of its own, and starts its sequences anew
		r := startWith(t, clientOf(t, brokers(t), nil), o, only)
		o.await(t, "an empty outbox", func(o *memOutbox) bool {
			return o.left(inventory.LCMEvent) == 0 && (n == 0 || o.raised > 0)
		})
		r.stop()
		for k := range 50 {
			o.add(message(inventory.LCMEvent, fmt.Sprintf("key-%d", k), 20+n))
		}
	}
	requireOnce(t, readFrom(t, brokers(t), topic, 1100), 50, 22)
	o.mu.Lock()
	defer o.mu.Unlock()
	require.EqualValues(t, 1050, o.raised, "the last sequence was read from the topic")
}
