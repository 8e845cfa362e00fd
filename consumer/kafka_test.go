//go:build kafka

package consumer

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// newKafkaLab is a lab on Apache Kafka with one topic of its own.
func newKafkaLab(t *testing.T, partitions int32) (l *lab, topic string, own func(...func(*Config)) func(*Config, *Deps)) {
	t.Helper()
	list := os.Getenv("NCMP_TEST_KAFKA_BROKERS")
	require.NotEmpty(t, list, "NCMP_TEST_KAFKA_BROKERS names no Apache Kafka: use `make test-kafka`")
	l = &lab{t: t, addrs: strings.Split(list, ","), db: newLedger()}
	l.cl = l.client()
	t.Cleanup(func() { l.cl.Close() })
	l.tr, l.k = l.cluster()
	topic = "in-" + uuid.NewString()
	l.create(topic, partitions)
	group := "g-" + uuid.NewString()
	return l, topic, func(change ...func(*Config)) func(*Config, *Deps) {
		return func(c *Config, _ *Deps) {
			c.Topics, c.Group = []string{topic}, group
			c.SessionTimeout, c.RebalanceTimeout = 10*time.Second, 20*time.Second
			for _, f := range change {
				f(c)
			}
		}
	}
}

// create makes a topic; the name of one just deleted is free a little later.
func (l *lab) create(topic string, partitions int32) {
	l.t.Helper()
	require.Eventually(l.t, func() bool {
		req := kmsg.NewPtrCreateTopicsRequest()
		ct := kmsg.NewCreateTopicsRequestTopic()
		ct.Topic, ct.NumPartitions, ct.ReplicationFactor = topic, partitions, 1
		req.Topics = append(req.Topics, ct)
		return kerr.ErrorForCode(admin[*kmsg.CreateTopicsResponse](l, req).Topics[0].ErrorCode) == nil
	}, patience, 50*time.Millisecond)
	l.visible(topic, partitions)
}

func TestKafkaConsumesCommittedRecordsOnce(t *testing.T) {
	t.Parallel()
	l, topic, own := newKafkaLab(t, 4)
	want := wants(l, topic, 4, 0, 500, nil)
	a := l.start("a", own())
	b := l.start("b", own())
	a.until("half", owns(2))
	b.until("half", owns(2))
	for n, commit := range []bool{true, false, true, false} {
		cl := l.client(txnID(topic, n)...)
		require.NoError(t, cl.BeginTransaction())
		was := l.cl
		l.cl = cl
		vs := l.send(topic, 0, 1000*(n+1), 1000*(n+1)+20)
		l.cl = was
		require.NoError(t, cl.EndTransaction(context.Background(), commitOrAbort(commit)))
		cl.Close()
		if commit {
			want[topic+"/0"] = append(want[topic+"/0"], vs...)
		}
	}
	l.requireExact(want)
	p := l.part(topic, 0)
	l.db.until(t, "the end behind the last marker", func() bool {
		// The broker writes the marker after it answered the producer.
		ends, err := l.k.ListOffsets(t.Context(), topic)
		return err == nil && l.position(p) == ends[0].End
	})
	b.stop()
	require.NoError(t, b.wait())
	a.until("all", owns(4))
	wants(l, topic, 4, 500, 600, want)
	addPartitions(l, topic, 5)
	want[topic+"/4"] = l.send(topic, 4, 0, 10)
	l.requireExact(want)
}

func TestKafkaTopicCreatedAnew(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{Halt, Earliest} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			l, topic, own := newKafkaLab(t, 1)
			want := wants(l, topic, 1, 0, 5, nil)
			w := l.start("a", own(func(c *Config) { c.OnGap = policy }))
			l.requireExact(want)
			req := kmsg.NewPtrDeleteTopicsRequest()
			dt := kmsg.NewDeleteTopicsRequestTopic()
			dt.Topic = &topic
			req.Topics, req.TopicNames = append(req.Topics, dt), []string{topic}
			require.NoError(t, kerr.ErrorForCode(admin[*kmsg.DeleteTopicsResponse](l, req).Topics[0].ErrorCode))
			l.create(topic, 1)
			next := l.send(topic, 0, 100, 110)
			if policy == Halt {
				w.until("a halt", halted("created anew"))
				l.requireExact(want)
				return
			}
			want[topic+"/0"] = append(want[topic+"/0"], next...)
			l.requireExact(want)
		})
	}
}

func TestKafkaRetentionGapHalts(t *testing.T) {
	t.Parallel()
	l, topic, own := newKafkaLab(t, 1)
	want := wants(l, topic, 1, 0, 5, nil)
	w := l.start("a", own())
	l.requireExact(want)
	w.stop()
	require.NoError(t, w.wait())
	l.send(topic, 0, 5, 12)
	req := kmsg.NewPtrDeleteRecordsRequest()
	rt := kmsg.NewDeleteRecordsRequestTopic()
	rp := kmsg.NewDeleteRecordsRequestTopicPartition()
	rt.Topic, rp.Offset = topic, 8
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	admin[*kmsg.DeleteRecordsResponse](l, req)
	w = l.start("b", own())
	w.until("a halt", halted("3 records are gone: the log starts at offset 8, the position is 5"))
}

func TestKafkaStaticMemberDisturbsNobody(t *testing.T) {
	t.Parallel()
	l, topic, own := newKafkaLab(t, 2)
	static := func(id string) func(*Config, *Deps) {
		return own(func(c *Config) {
			c.InstanceID, c.SessionTimeout, c.RebalanceTimeout = id, 30*time.Second, 30*time.Second
		})
	}
	a := l.start("a", static("a"))
	b := l.start("b", static("b"))
	a.until("half", owns(1))
	b.until("half", owns(1))
	generation := a.Status().Generation
	b.stop()
	require.NoError(t, b.wait())
	want := wants(l, topic, 2, 0, 10, nil)
	b = l.start("b", static("b"))
	b.until("half again", owns(1))
	l.requireExact(want)
	require.Equal(t, generation, a.Status().Generation)
}
