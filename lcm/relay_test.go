package lcm_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"ncmp-inventory/inventory"
	"ncmp-inventory/lcm"
)

const (
	partitions = 4
	// shortLease is for tests that want leases to expire; on a busy machine
	// they do so also when nobody died, which costs repeats.
	shortLease = 300 * time.Millisecond
)

var topics = map[inventory.MessageKind]string{
	inventory.LCMEvent: "ncmp-events", inventory.InventoryEvent: "ncmp-inventory-events",
	inventory.OutcomeEvent: "outcomes", inventory.DeadLetterRecord: "dead-letters",
}

func cluster(t testing.TB, names ...string) *kfake.Cluster {
	t.Helper()
	opts := []kfake.Opt{kfake.NumBrokers(1)}
	if len(names) == 0 {
		for _, n := range topics {
			names = append(names, n)
		}
	}
	opts = append(opts, kfake.SeedTopics(partitions, names...))
	c, err := kfake.NewCluster(opts...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func client(t testing.TB, c *kfake.Cluster) *kafka.Client { return clientOf(t, c.ListenAddrs(), nil) }

func clientOf(t testing.TB, brokers []string, dial func(context.Context, string, string) (net.Conn, error)) *kafka.Client {
	t.Helper()
	tr := &kafka.Transport{MetadataTTL: 100 * time.Millisecond, Dial: dial}
	t.Cleanup(tr.CloseIdleConnections)
	return &kafka.Client{Addr: kafka.TCP(brokers...), Transport: tr, Timeout: 10 * time.Second}
}

// running is a relay under test.
type running struct {
	*lcm.Relay
	reg  *prometheus.Registry
	stop func() // returns when Run has returned
}

func start(t testing.TB, c *kfake.Cluster, o lcm.Outbox, change func(*lcm.RelayConfig)) *running {
	t.Helper()
	return startWith(t, client(t, c), o, change)
}

func startWith(t testing.TB, cl *kafka.Client, o lcm.Outbox, change func(*lcm.RelayConfig)) *running {
	t.Helper()
	cfg := lcm.RelayConfig{
		Topics: topics, LeaseTTL: 30 * time.Second, ProduceTimeout: 2 * time.Second,
		Poll: 50 * time.Millisecond, FlushTimeout: 2 * time.Second,
	}
	if change != nil {
		change(&cfg)
	}
	r := &running{reg: prometheus.NewRegistry()}
	var err error
	r.Relay, err = lcm.NewRelay(cfg, o, cl, zap.NewNop(), r.reg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

func (r *running) metric(t testing.TB, name string) (sum float64) {
	t.Helper()
	families, err := r.reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// message is one message of a key; its value counts within the key.
func message(kind inventory.MessageKind, key string, n int) inventory.Message {
	m := inventory.Message{Kind: kind, Headers: []byte("\x02\x04ab\x02c"), Value: []byte(strconv.Itoa(n))}
	if key != "" {
		m.Key = []byte(key)
	}
	return m
}

func messages(kind inventory.MessageKind, keys, each int) (out []inventory.Message) {
	for n := range each {
		for k := range keys {
			out = append(out, message(kind, fmt.Sprintf("key-%d", k), n))
		}
	}
	return out
}

// read returns the topic's records up to the present end, partition by partition.
func read(t testing.TB, c *kfake.Cluster, topic string) (out []*kgo.Record) {
	t.Helper()
	var want int64
	for _, p := range c.PartitionInfos(topic) {
		want += p.HighWatermark
	}
	return readFrom(t, c.ListenAddrs(), topic, want)
}

func readFrom(t testing.TB, brokers []string, topic string, want int64) (out []*kgo.Record) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for int64(len(out)) < want {
		f := cl.PollFetches(ctx)
		require.NoError(t, f.Err())
		out = append(out, f.Records()...)
	}
	return out
}

func header(r *kgo.Record, key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

// requireOnce asserts that each key's values came once and in order.
func requireOnce(t testing.TB, recs []*kgo.Record, keys, each int) {
	t.Helper()
	require.Equal(t, keys*each, len(recs)) //nolint:testifylint // Len would print them all
	next := map[string]int{}
	for _, r := range recs {
		require.Equal(t, strconv.Itoa(next[string(r.Key)]), string(r.Value), "order of %s", r.Key)
		next[string(r.Key)]++
	}
	require.Len(t, next, keys)
}

func empty(kinds ...inventory.MessageKind) func(*memOutbox) bool {
	return func(o *memOutbox) bool { return o.left(kinds...) == 0 }
}

func TestRelayPublishesEveryKind(t *testing.T) {
	t.Parallel()
	for name, compression := range map[string]kafka.Compression{"plain": 0, "lz4": kafka.Lz4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, o := cluster(t), newMemOutbox()
			for _, k := range inventory.MessageKinds {
				o.add(messages(k, 50, 20)...)
			}
			o.add(inventory.Message{Kind: inventory.DeadLetterRecord, Headers: []byte("\x02\x02a\x01")})
			start(t, c, o, func(cfg *lcm.RelayConfig) { cfg.Compression, cfg.WindowRows = compression, 300 })
			o.await(t, "an empty outbox", empty(inventory.MessageKinds...))

			for _, k := range inventory.MessageKinds {
				recs := read(t, c, topics[k])
				if k == inventory.DeadLetterRecord {
					require.Equal(t, 1001, len(recs)) //nolint:testifylint // Len would print them all
					for i, r := range recs {
						if r.Key == nil {
							require.Nil(t, r.Value)
							require.Equal(t, []kgo.RecordHeader{{Key: "a"}}, r.Headers)
							recs = append(recs[:i], recs[i+1:]...)
							break
						}
					}
				}
				requireOnce(t, recs, 50, 20)
				last := map[string]string{}
				for _, r := range recs {
					require.Equal(t, "c", header(r, "ab"))
					require.Equal(t, partitionOf(r.Key, partitions), int(r.Partition))
					seq := header(r, "ce_sequence")
					if k != inventory.LCMEvent {
						require.Empty(t, seq)
						continue
					}
					require.Len(t, seq, 19)
					require.Greater(t, seq, last[string(r.Key)])
					last[string(r.Key)] = seq
				}
			}
		})
	}
}

func TestRelayIsWokenByACommit(t *testing.T) {
	t.Parallel()
	c, o := cluster(t), newMemOutbox()
	start(t, c, o, func(cfg *lcm.RelayConfig) { cfg.Poll = time.Hour })
	for n := range 20 {
		o.add(message(inventory.LCMEvent, "key-0", n))
		o.await(t, "an empty outbox", empty(inventory.LCMEvent))
	}
	requireOnce(t, read(t, c, topics[inventory.LCMEvent]), 1, 20)
}

// An attempt whose answer says "timed out" was written all the same: the
// repeat must be the same bytes under the same sequence, so that the broker
// drops it.
func TestLostAnswerIsNoDuplicate(t *testing.T) {
	t.Parallel()
	c, o := cluster(t), newMemOutbox()
	var mu sync.Mutex
	sent := map[string][]byte{} // by partition and base sequence
	repeats := 0
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		for _, tp := range r.(*kmsg.ProduceRequest).Topics {
			for _, p := range tp.Partitions {
				at := fmt.Sprint(tp.Topic, p.Partition, p.Records[43:57])
				if first, ok := sent[at]; ok {
					repeats++
					if !bytes.Equal(first, p.Records) {
						t.Errorf("a repeat differs")
					}
				}
				sent[at] = bytes.Clone(p.Records)
			}
		}
		return nil, nil, false
	})
	c.Fault(
		kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.RequestTimedOut, Count: 3},
		kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicasAfterAppend, Count: 3},
		kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition, Count: 3},
	)
	o.add(messages(inventory.LCMEvent, 20, 30)...)
	r := start(t, c, o, func(cfg *lcm.RelayConfig) { cfg.WindowRows = 100 })
	o.await(t, "an empty outbox", empty(inventory.LCMEvent))
	requireOnce(t, read(t, c, topics[inventory.LCMEvent]), 20, 30)
	require.EqualValues(t, 9, r.metric(t, "ncmp_inventory_publish_retries_total"))
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, 9, repeats)
}

func TestOnePartitionInTroubleStopsNoOther(t *testing.T) {
	t.Parallel()
	c, o := cluster(t), newMemOutbox()
	const bad = 1
	fault := c.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Topic: topics[inventory.LCMEvent], Partitions: []int32{bad},
		Err: kerr.NotLeaderForPartition, Count: -1,
	})
	r := start(t, c, o, nil)
	o.add(messages(inventory.LCMEvent, 20, 10)...)
	o.await(t, "only the partition's own rows", func(o *memOutbox) bool {
		for _, row := range o.rows[inventory.LCMEvent] {
			if partitionOf(row.Key, partitions) != bad {
				return false
			}
		}
		return true
	})
	require.Len(t, r.Status().Problems, 1)
	require.Contains(t, r.Status().Problems[0], "ncmp-events")
	require.True(t, r.Status().Leading)
	fault.Remove()
	o.await(t, "an empty outbox", empty(inventory.LCMEvent))
	requireOnce(t, read(t, c, topics[inventory.LCMEvent]), 20, 10)
	require.Empty(t, r.Status().Problems)
}

func TestTooLargeIsParkedAndHoldsItsKeyBack(t *testing.T) {
	t.Parallel()
	for name, blind := range map[string]bool{"limit known": false, "limit hidden": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, o := cluster(t, "other"), newMemOutbox()
			require.NoError(t, c.CreateTopic(topics[inventory.LCMEvent], partitions, map[string]string{"max.message.bytes": "2000"}))
			if blind { // batches are cut too large and have to be split
				c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Err: kerr.TopicAuthorizationFailed, Count: -1})
			}
			o.add(messages(inventory.LCMEvent, 20, 5)...)
			big := message(inventory.LCMEvent, "key-7", 5)
			big.Value = bytes.Repeat([]byte("x"), 3000)
			o.add(big)
			for n := 5; n < 10; n++ {
				for k := range 20 {
					o.add(message(inventory.LCMEvent, fmt.Sprintf("key-%d", k), n))
				}
			}
			r := start(t, c, o, func(cfg *lcm.RelayConfig) {
				cfg.Topics = map[inventory.MessageKind]string{inventory.LCMEvent: topics[inventory.LCMEvent]}
			})
			o.await(t, "only what waits behind the parked message", func(o *memOutbox) bool { return o.left(inventory.LCMEvent) == 6 })
			require.EqualValues(t, 1, r.metric(t, "ncmp_inventory_publish_parked_total"))
			r.stop()
			count := map[string]int{}
			for _, rec := range read(t, c, topics[inventory.LCMEvent]) {
				require.Equal(t, strconv.Itoa(count[string(rec.Key)]), string(rec.Value))
				count[string(rec.Key)]++
			}
			for k := range 20 {
				want := 10
				if k == 7 {
					want = 5
				}
				require.Equal(t, want, count[fmt.Sprintf("key-%d", k)])
			}
		})
	}
}

func TestMissingTopicStopsItsOwnDrainOnly(t *testing.T) {
	t.Parallel()
	c, o := cluster(t, "ncmp-events", "outcomes", "ncmp-inventory-events"), newMemOutbox()
	r := start(t, c, o, nil)
	o.add(messages(inventory.DeadLetterRecord, 3, 3)...)
	o.add(messages(inventory.LCMEvent, 10, 10)...)
	o.add(messages(inventory.OutcomeEvent, 10, 10)...)
	o.await(t, "the other kinds", empty(inventory.LCMEvent, inventory.OutcomeEvent))
	require.Len(t, r.Status().Problems, 1)
	require.Contains(t, r.Status().Problems[0], "dead-letters")
	require.NoError(t, c.CreateTopic("dead-letters", partitions, nil))
	o.await(t, "the dead letters", empty(inventory.DeadLetterRecord))
	requireOnce(t, read(t, c, "dead-letters"), 3, 3)
}

func TestNewEpochAfterLostProducerState(t *testing.T) {
	t.Parallel()
	c, o := cluster(t), newMemOutbox()
	r := start(t, c, o, nil)
	o.add(messages(inventory.LCMEvent, 10, 10)...)
	o.await(t, "an empty outbox", empty(inventory.LCMEvent))
	c.Fault(
		kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.OutOfOrderSequenceNumber},
		kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.UnknownProducerID},
	)
	for n := 10; n < 20; n++ {
		for k := range 10 {
			o.add(message(inventory.LCMEvent, fmt.Sprintf("key-%d", k), n))
		}
	}
	o.await(t, "an empty outbox", empty(inventory.LCMEvent))
	requireFirstsInOrder(t, read(t, c, topics[inventory.LCMEvent]), 10, 20)
	require.GreaterOrEqual(t, r.metric(t, "ncmp_inventory_publisher_epochs_total"), 2.0)
	require.EqualValues(t, 1, r.metric(t, "ncmp_inventory_publisher_terms_total"))
}

// requireFirstsInOrder asserts what consumers are promised: drop what is not
// above the last sequence seen, and each key's values are there once, in order.
func requireFirstsInOrder(t testing.TB, recs []*kgo.Record, keys, each int) {
	t.Helper()
	next, last := map[string]int{}, map[string]string{}
	values := map[string]string{}
	for _, r := range recs {
		key, seq := string(r.Key), header(r, "ce_sequence")
		if v, seen := values[seq]; seen {
			require.Equal(t, v, string(r.Value), "a repeat differs")
		}
		values[seq] = string(r.Value)
		if seq <= last[key] {
			continue
		}
		last[key] = seq
		require.Equal(t, strconv.Itoa(next[key]), string(r.Value), "order of %s", key)
		next[key]++
	}
	require.Len(t, next, keys)
	for k, n := range next {
		require.Equal(t, each, n, k)
	}
}

func TestEpochIsRenewedWithoutLoss(t *testing.T) {
	t.Parallel()
	c, o := cluster(t), newMemOutbox()
	r := start(t, c, o, func(cfg *lcm.RelayConfig) { cfg.Reinitialize = 50 * time.Millisecond })
	n := 0
	for ; r.metric(t, "ncmp_inventory_publisher_epochs_total") < 4; n++ {
		for k := range 10 {
			o.add(message(inventory.LCMEvent, fmt.Sprintf("key-%d", k), n))
		}
		o.await(t, "an empty outbox", empty(inventory.LCMEvent))
	}
	requireOnce(t, read(t, c, topics[inventory.LCMEvent]), 10, n)
	require.EqualValues(t, 1, r.metric(t, "ncmp_inventory_publisher_terms_total"))
}

func TestStopPublishesWhatWaitsAndGivesTheLeaseBack(t *testing.T) {
	t.Parallel()
	c, o := cluster(t), newMemOutbox()
	r := start(t, c, o, func(cfg *lcm.RelayConfig) { cfg.FlushTimeout = time.Minute; cfg.WindowRows = 50 })
	o.await(t, "the lease", func(o *memOutbox) bool { return o.holder != "" })
	o.add(messages(inventory.LCMEvent, 10, 100)...)
	o.await(t, "the first acknowledgement", func(o *memOutbox) bool { return o.left(inventory.LCMEvent) < 1000 })
	r.stop()
	o.mu.Lock()
	require.Zero(t, o.left(inventory.LCMEvent))
	require.Empty(t, o.holder)
	o.mu.Unlock()
	requireOnce(t, read(t, c, topics[inventory.LCMEvent]), 10, 100)
	require.False(t, r.Status().Leading)
}

func TestSequenceGoesOnAboveTheTopic(t *testing.T) {
	t.Parallel()
	c, o := cluster(t), newMemOutbox()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer cl.Close()
	produce := func(p int32, hs ...kgo.RecordHeader) {
		rec := &kgo.Record{Topic: topics[inventory.LCMEvent], Partition: p, Key: []byte("k"), Value: []byte("v"), Headers: hs}
		require.NoError(t, cl.ProduceSync(context.Background(), rec).FirstErr())
	}
	produce(0, kgo.RecordHeader{Key: "ce_sequence", Value: []byte("0000000000000004000")})
	produce(2, kgo.RecordHeader{Key: "ce_sequence", Value: []byte("0000000000000005000")})
	produce(2) // another producer's
	produce(3, kgo.RecordHeader{Key: "ce_sequence", Value: []byte("nonsense")})
	start(t, c, o, nil)
	o.await(t, "a raised sequence", func(o *memOutbox) bool { return o.raised != 0 })
	o.mu.Lock()
	defer o.mu.Unlock()
	require.EqualValues(t, 5000, o.raised)
}

func TestWithoutTheTransactionalRight(t *testing.T) {
	t.Parallel()
	c, o := cluster(t), newMemOutbox()
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, TxnID: o.relayID, Err: kerr.TransactionalIDAuthorizationFailed, Count: -1})
	start(t, c, o, func(cfg *lcm.RelayConfig) { cfg.ProduceTimeout = 200 * time.Millisecond })
	o.add(messages(inventory.LCMEvent, 10, 10)...)
	o.await(t, "an empty outbox", empty(inventory.LCMEvent))
	requireOnce(t, read(t, c, topics[inventory.LCMEvent]), 10, 10)
}

func TestFencedPublisherStepsBackAndLosesNothing(t *testing.T) {
	t.Parallel()
	c, o := cluster(t), newMemOutbox()
	r := start(t, c, o, func(cfg *lcm.RelayConfig) { cfg.LeaseTTL = shortLease })
	o.add(message(inventory.LCMEvent, "key-0", 0))
	o.await(t, "an empty outbox", empty(inventory.LCMEvent))
	later, err := client(t, c).InitProducerID(context.Background(), &kafka.InitProducerIDRequest{
		TransactionalID: o.relayID, TransactionTimeoutMs: 1000, ProducerID: -1, ProducerEpoch: -1,
	})
	require.NoError(t, err)
	require.NoError(t, later.Error)
	o.add(message(inventory.LCMEvent, "key-0", 1))
	o.await(t, "an empty outbox", empty(inventory.LCMEvent))
	require.EqualValues(t, 1, r.metric(t, "ncmp_inventory_publisher_fenced_total"))
	require.EqualValues(t, 2, r.metric(t, "ncmp_inventory_publisher_terms_total"))
	requireOnce(t, read(t, c, topics[inventory.LCMEvent]), 1, 2)
}

func TestFatalOutboxErrorEndsRun(t *testing.T) {
	t.Parallel()
	c, o := cluster(t), newMemOutbox()
	o.fail = func(op, _ string) error {
		if op == "exchange" {
			return fmt.Errorf("no such table")
		}
		return nil
	}
	r, err := lcm.NewRelay(lcm.RelayConfig{Topics: topics}, o, client(t, c), zap.NewNop(), prometheus.NewRegistry())
	require.NoError(t, err)
	require.ErrorContains(t, r.Run(t.Context()), "no such table")
	require.Empty(t, o.holder)
}

// Everything at once: answers lost and refused, an outbox that fails, workers
// that come and go. What consumers were promised holds.
func TestOrderUnderEverything(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	c, o := cluster(t), newMemOutbox()
	var mu sync.Mutex
	dice := func(percent int) bool {
		mu.Lock()
		defer mu.Unlock()
		return rnd.IntN(100) < percent
	}
	o.fail = func(op, _ string) error {
		if (op == "exchange" || op == "answer" || op == "lead") && dice(5) {
			return fmt.Errorf("dice: %w", inventory.ErrTransient)
		}
		return nil
	}
	for _, e := range []*kerr.Error{
		kerr.RequestTimedOut, kerr.NotEnoughReplicasAfterAppend, kerr.NotLeaderForPartition,
		kerr.UnknownTopicOrPartition, kerr.MessageTooLarge, kerr.OutOfOrderSequenceNumber,
	} {
		c.Fault(kfake.Fault{
			Keys: []kmsg.Key{kmsg.Produce}, Err: e, Count: 8,
			When: func(r kmsg.Request) bool {
				// A single record that is too large would be parked.
				recs := r.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records
				return dice(10) && (e != kerr.MessageTooLarge || recs[60] > 1)
			},
		})
	}
	small := func(cfg *lcm.RelayConfig) { cfg.WindowRows, cfg.LeaseTTL = 200, shortLease }
	workers := []*running{start(t, c, o, small), start(t, c, o, small)}
	const keys, each = 30, 60
	for n := range each {
		for k := range keys {
			o.add(message(inventory.LCMEvent, fmt.Sprintf("key-%d", k), n))
		}
		if n%15 == 14 {
			workers[0].stop()
			workers = append(workers[1:], start(t, c, o, small))
		}
	}
	o.await(t, "an empty outbox", empty(inventory.LCMEvent))
	requireFirstsInOrder(t, read(t, c, topics[inventory.LCMEvent]), keys, each)
}

func TestRelayConfigIsChecked(t *testing.T) {
	t.Parallel()
	for _, cfg := range []lcm.RelayConfig{
		{LeaseTTL: -1}, {WindowRows: -1}, {Compression: 99},
		{Topics: map[inventory.MessageKind]string{inventory.LCMEvent: "t", inventory.OutcomeEvent: "t"}},
	} {
		_, err := lcm.NewRelay(cfg, newMemOutbox(), &kafka.Client{}, zap.NewNop(), prometheus.NewRegistry())
		require.Error(t, err)
	}
	reg := prometheus.NewRegistry()
	_, err := lcm.NewRelay(lcm.RelayConfig{}, newMemOutbox(), &kafka.Client{}, zap.NewNop(), reg)
	require.NoError(t, err)
	n, err := testutil.GatherAndCount(reg)
	require.NoError(t, err)
	require.Positive(t, n)
}

// SizeOf is what the broker compares: a topic that takes just that takes the
// message, one byte less and it is parked.
func TestSizeIsTheBrokers(t *testing.T) {
	t.Parallel()
	tr := sample()
	tr.Cause.TraceState = strings.Repeat("x", 300) // lengths of more than one byte
	lcmEvent := encoder(t, lcm.Config{}).LCMEvent(tr)
	null := inventory.Message{Kind: inventory.LCMEvent, Headers: []byte{0}}
	crowded := inventory.Message{Kind: inventory.LCMEvent, Key: []byte{}, Value: []byte{}, Headers: []byte{126}}
	for range 63 {
		crowded.Headers = append(crowded.Headers, 2, 'h', 1)
	}
	other := message(inventory.OutcomeEvent, "k", 1)
	c := cluster(t)
	for i, m := range []inventory.Message{lcmEvent, null, crowded, other} {
		size := lcm.SizeOf(&m)
		require.LessOrEqual(t, size-len(m.Key)-len(m.Headers)-len(m.Value), lcm.DefaultMaxMessageBytes-lcm.PayloadLimit(lcm.DefaultMaxMessageBytes))
		for _, missing := range []int{0, 1} {
			topic := fmt.Sprintf("size-%d-%d", i, missing)
			require.NoError(t, c.CreateTopic(topic, 1, map[string]string{"max.message.bytes": strconv.Itoa(size - missing)}))
			o := newMemOutbox()
			o.add(m)
			r := start(t, c, o, func(cfg *lcm.RelayConfig) { cfg.Topics = map[inventory.MessageKind]string{m.Kind: topic} })
			o.await(t, "a verdict", func(o *memOutbox) bool { return o.left(m.Kind) == 0 || o.parked > 0 })
			r.stop()
			require.Equal(t, missing, o.parked, topic)
		}
	}
}

func TestMaxMessageBytes(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	require.NoError(t, c.CreateTopic("small", 1, map[string]string{"max.message.bytes": "12345"}))
	n, err := lcm.MaxMessageBytes(t.Context(), client(t, c), "small")
	require.NoError(t, err)
	require.Equal(t, 12345, n)
	_, err = lcm.MaxMessageBytes(t.Context(), client(t, c), "missing")
	require.Error(t, err)
}

func BenchmarkDrain(b *testing.B) {
	for name, compression := range map[string]kafka.Compression{"plain": 0, "lz4": kafka.Lz4} {
		b.Run(name, func(b *testing.B) {
			c, o := cluster(b), newMemOutbox()
			m := encoder(b, lcm.Config{}).LCMEvent(sample())
			msgs := make([]inventory.Message, b.N)
			for i := range msgs {
				msgs[i] = m
				msgs[i].Key = fmt.Appendf(nil, "key-%d", i%5000)
			}
			o.add(msgs...)
			b.ResetTimer()
			start(b, c, o, func(cfg *lcm.RelayConfig) { cfg.Compression = compression })
			o.await(b, "an empty outbox", empty(inventory.LCMEvent))
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
