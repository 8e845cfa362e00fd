//go:build kafka

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"ncmp-inventory/cmd/internal/load"
	"ncmp-inventory/cmd/internal/proof"
	"ncmp-inventory/cmd/ncmp-inventory/config"
	"ncmp-inventory/store/storetest"
)

// newKafkaLab makes a lab on Apache Kafka, with topics and a group of its own.
func newKafkaLab(t *testing.T, partitions int) *lab {
	t.Helper()
	brokers := os.Getenv("NCMP_TEST_KAFKA_BROKERS")
	require.NotEmpty(t, brokers, "NCMP_TEST_KAFKA_BROKERS names no Apache Kafka: use `make test-kafka`")
	l := newLabOn(t, strings.Split(brokers, ","), partitions)
	t.Cleanup(func() { l.deleteTopics(context.Background(), allTopics(l.config.Kafka.Topics)...) })
	return l
}

// newLabOn makes a lab on brokers that are there, with topics and a group of its
// own, which stay.
func newLabOn(t *testing.T, brokers []string, partitions int) *lab {
	t.Helper()
	l := &lab{T: t, db: storetest.OpenEmpty(t), config: config.Defaults(), brokers: brokers}
	own := "-" + uuid.NewString()[:8]
	k := &l.config.Kafka
	k.Group += own
	topics := &k.Topics
	for _, list := range [][]string{topics.Registrations, topics.StateChanges, topics.Heartbeats} {
		list[0] += own
	}
	for _, name := range []*string{&topics.LCMEvents, &topics.InventoryEvents, &topics.Outcomes, &topics.DeadLetters} {
		*name += own
	}
	l.configure()
	l.createTopics(partitions, allTopics(*topics)...)
	return l
}

func (l *lab) client() *kafka.Client {
	var t kafka.Transport
	l.Cleanup(t.CloseIdleConnections)
	return &kafka.Client{Addr: kafka.TCP(l.brokers...), Transport: &t}
}

func (l *lab) createTopics(partitions int, names ...string) {
	l.Helper()
	c := l.client()
	for _, name := range names {
		topic := kafka.TopicConfig{Topic: name, NumPartitions: partitions, ReplicationFactor: 1}
		require.Eventually(l, func() bool { // a deleted topic's name is free a little later
			r, err := c.CreateTopics(l.Context(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{topic}})
			return err == nil && r.Errors[name] == nil
		}, patience, 100*time.Millisecond)
	}
}

func (l *lab) deleteTopics(ctx context.Context, names ...string) {
	l.Helper()
	r, err := l.client().DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: names})
	require.NoError(l, err)
	for name, err := range r.Errors {
		require.NoError(l, err, name)
	}
}

func (l *lab) load(c load.Config) *load.Load {
	l.Helper()
	made, err := load.New(c)
	require.NoError(l, err)
	return made
}

func TestKafkaKilledWorkersLeaveNoTrace(t *testing.T) {
	t.Parallel()
	newKafkaLab(t, 6).killWorkers(6_000, 100)
}

// The documents' conversation holds on Apache Kafka as well.
func TestKafkaEventsAreAsDocumented(t *testing.T) {
	t.Parallel()
	newKafkaLab(t, 1).requireEventsAsDocumented()
}

// A worker that freezes loses partitions and publisher's lease to another; when
// it thaws, what it still holds can reach neither the rows nor the topic.
func TestKafkaAFrozenWorkerIsFenced(t *testing.T) {
	t.Parallel()
	const handles = 6_000
	l := newKafkaLab(t, 6)
	ld := l.load(load.Config{Handles: handles, Seed: 11})
	s := l.standIn()
	first := l.startWorker("first")
	first.awaitLine(`"publisher started"`)
	second := l.startWorker("second")
	second.awaitLine(`"partitions assigned"`)
	l.send(ld.Registrations())
	l.awaitFact(s, proof.Created, handles/8)
	require.NoError(t, first.cmd.Process.Signal(syscall.SIGSTOP))
	l.awaitFact(s, becameReady, handles)
	second.awaitLine(`"publisher started"`)
	l.send(ld.Updates())
	l.awaitFact(s, proof.Changed, handles/4)
	require.NoError(t, first.cmd.Process.Signal(syscall.SIGCONT))
	l.awaitFact(s, proof.Changed, handles)
	l.requireAsIfNothingHappened(s, expectation{ld, func(int) bool { return true }}, 0)
	first.terminate()
	second.terminate()
}

// Only what a transaction committed is applied, and only when it is.
func TestKafkaTransactionsAreRespected(t *testing.T) {
	t.Parallel()
	l := newKafkaLab(t, 1)
	s := l.standIn()
	w := l.startWorker("worker")
	w.awaitLine(`"started"`)
	producer, err := kgo.NewClient(kgo.SeedBrokers(l.brokers...), kgo.TransactionalID(uuid.NewString()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer producer.Close()
	write := func(ld *load.Load) {
		for e := range ld.Registrations() {
			require.NoError(t, producer.ProduceSync(t.Context(), l.kgoRecord(e)).FirstErr())
		}
	}
	end := func(commit kgo.TransactionEndTry) { require.NoError(t, producer.EndTransaction(t.Context(), commit)) }
	committed := l.load(load.Config{Handles: 300, Seed: 1})
	aborted := l.load(load.Config{Handles: 300, Seed: 2, Prefix: "aborted-"})
	late := l.load(load.Config{Handles: 300, Seed: 3, First: 300})

	require.NoError(t, producer.BeginTransaction())
	write(aborted)
	end(kgo.TryAbort)
	require.NoError(t, producer.BeginTransaction())
	write(committed)
	end(kgo.TryCommit)
	l.awaitFact(s, becameReady, 300)

	require.NoError(t, producer.BeginTransaction())
	write(late)
	// The state changes come by another topic: that they are applied shows
	// that the worker goes on while the transaction is open.
	probe := l.load(load.Config{Handles: 1, Seed: 4})
	stateChanges := load.Writer(l.brokers, l.config.Kafka.Topics.StateChanges[0])
	defer load.Close(stateChanges) //nolint:errcheck // it has written all that it was given
	require.NoError(t, load.Send(t.Context(), stateChanges, probe.StateChanges("LOCKED"), nil))
	l.awaitFact(s, proof.Transition("READY", "LOCKED"), 1)
	require.Equal(t, 300, s.count(proof.Created), "an open transaction is not read")
	end(kgo.TryCommit)
	l.awaitFact(s, becameReady, 600)

	l.awaitNothingWaits()
	require.NoError(t, s.awaitEnd(t.Context(), patience))
	r := s.compare(func(yield func(string, []proof.Fact) bool) {
		for _, ld := range []*load.Load{committed, late} {
			for i := range ld.Handles() {
				life := demoLife[:2]
				if ld == committed && i == 0 {
					life = append(life[:2:2], proof.Transition("READY", "LOCKED"))
				}
				if !yield(ld.ID(i), life) {
					return
				}
			}
		}
	})
	require.Truef(t, r.OK(), "%+v", r)
	l.requireVerified()
	w.terminate()
}

func (l *lab) kgoRecord(e load.Event) *kgo.Record {
	m := e.Message()
	r := &kgo.Record{Topic: l.config.Kafka.Topics.Registrations[0], Key: m.Key, Value: m.Value}
	for _, h := range m.Headers {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	return r
}

// A topic that was deleted and created anew is another topic, even if it has
// grown beyond the old position: the worker halts and says so, and goes on from
// its beginning when it is told to.
func TestKafkaATopicCreatedAnewIsNoticed(t *testing.T) {
	t.Parallel()
	l := newKafkaLab(t, 1)
	topic := l.config.Kafka.Topics.Registrations[0]
	s := l.standIn()
	w := l.startWorker("halting")
	w.awaitLine(`"started"`)
	before := l.load(load.Config{Handles: 100, Seed: 1})
	l.send(before.Registrations())
	l.awaitFact(s, becameReady, 100)

	l.deleteTopics(t.Context(), topic)
	l.createTopics(1, topic)
	after := l.load(load.Config{Handles: 1_000, Seed: 2, First: 100})
	l.send(after.Registrations())
	w.awaitLine("halted")
	require.Contains(t, w.said.String(), topic)
	w.terminate()
	require.Equal(t, 100, s.count(proof.Created), "nothing of the new topic was read")

	w = l.startWorker("going on", "--kafka.on-gap", "earliest")
	l.awaitFact(s, becameReady, 1_100)
	l.awaitNothingWaits()
	require.NoError(t, s.awaitEnd(t.Context(), patience))
	r := s.compare(func(yield func(string, []proof.Fact) bool) {
		for i := range 1_100 {
			if !yield(fmt.Sprintf("ch-%d", i+1), demoLife[:2]) {
				return
			}
		}
	})
	require.Truef(t, r.OK(), "%+v", r)
	l.requireVerified()
	w.terminate()
}
