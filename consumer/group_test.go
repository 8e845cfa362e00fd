package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"ncmp-inventory/inventory"
)

func wants(l *lab, topic string, partitions int32, from, to int, into map[string][]string) map[string][]string {
	if into == nil {
		into = map[string][]string{}
	}
	for p := range partitions {
		name := fmt.Sprintf("%s/%d", topic, p)
		into[name] = append(into[name], l.send(topic, p, from, to)...)
	}
	return into
}

func TestTwoMembersShareAndTakeOver(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]int32{"in": 4})
	want := wants(l, "in", 4, 0, 50, nil)
	a := l.start("a", nil)
	a.until("all four", owns(4))
	b := l.start("b", nil)
	b.until("half", owns(2))
	a.until("half", owns(2))
	wants(l, "in", 4, 50, 100, want)
	l.requireExact(want)

	b.stop()
	require.NoError(t, b.wait())
	a.until("all again", owns(4))
	wants(l, "in", 4, 100, 120, want)
	l.requireExact(want)
}

// mute makes the coordinator refuse to let anyone leave: a stopped worker then
// looks killed.
func (l *lab) mute() {
	l.broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.LeaveGroup}, Group: "g", TopLevel: true, Err: kerr.CoordinatorNotAvailable, Count: -1})
}

func TestKilledMembersPartitionsMove(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]int32{"in": 4})
	want := wants(l, "in", 4, 0, 10, nil)
	a := l.start("a", nil)
	b := l.start("b", nil)
	a.until("half", owns(2))
	b.until("half", owns(2))
	l.mute()
	b.stop()
	require.NoError(t, b.wait())
	wants(l, "in", 4, 10, 20, want)
	l.requireExact(want)
	a.until("all", owns(4))
}

func TestStaticMemberKeepsItsPartitionsOverARestart(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]int32{"in": 4})
	static := func(id string) func(*Config, *Deps) {
		return func(c *Config, _ *Deps) {
			c.InstanceID = id
			// Long enough for the restart on a busy machine.
			c.SessionTimeout = 30 * time.Second
			c.RebalanceTimeout = 30 * time.Second
		}
	}
	a := l.start("a", static("a"))
	b := l.start("b", static("b"))
	a.until("half", owns(2))
	before := b.until("half", owns(2))
	generation := a.Status().Generation
	b.stop()
	require.NoError(t, b.wait())
	want := wants(l, "in", 4, 0, 10, nil)
	b = l.start("b", static("b"))
	after := b.until("half again", owns(2))
	l.requireExact(want)
	require.Equal(t, generation, a.Status().Generation, "the other member was not disturbed")
	for i := range before.Partitions {
		require.Equal(t, before.Partitions[i].Partition, after.Partitions[i].Partition)
	}
}

func TestSessionSurvivesABrokerThatIsAway(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]int32{"in": 2})
	want := wants(l, "in", 2, 0, 10, nil)
	w := l.start("a", func(c *Config, _ *Deps) { c.SessionTimeout, c.RebalanceTimeout = 30*time.Second, 30*time.Second })
	generation := w.until("both", owns(2)).Generation
	l.requireExact(want)
	var away atomic.Bool
	away.Store(true)
	l.broker.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
		l.broker.KeepControl()
		if away.Load() {
			return nil, errors.New("the connection is cut"), true
		}
		return nil, nil, false
	})
	w.until("trouble", func(s Status) bool { ok, _ := s.Ready(); return !ok && s.Kafka != "" })
	away.Store(false)
	wants(l, "in", 2, 10, 20, want)
	l.requireExact(want)
	s := w.until("calm", func(s Status) bool { ok, _ := s.Ready(); return ok })
	require.Equal(t, generation, s.Generation)
}

func TestTopicThatComesLaterAndPartitionsThatAreAdded(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]int32{"in": 2})
	joins := l.broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Group: "g", Observe: true, TopLevel: true, Count: -1})
	looks := l.broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "later", Observe: true, Count: -1})
	w := l.start("a", func(c *Config, _ *Deps) { c.Topics = []string{"in", "later"} })
	w.until("the one that is there", owns(2))
	require.NoError(t, waitHits(looks, 20))
	require.LessOrEqual(t, joins.Hits(), 3, "a missing topic is no reason to join again and again")
	ok, why := func() (bool, string) { s := w.Status(); return s.Ready() }()
	require.False(t, ok)
	require.Contains(t, why, "later")

	require.NoError(t, l.broker.CreateTopic("later", 3, nil))
	want := wants(l, "later", 3, 0, 10, nil)
	wants(l, "in", 2, 0, 10, want)
	l.requireExact(want)
	w.until("both", owns(5))

	addPartitions(l, "in", 4)
	w.until("the added ones", owns(7))
	want["in/3"] = l.send("in", 3, 0, 10)
	l.requireExact(want)
}

func waitHits(h *kfake.FaultHandle, n int) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return h.Wait(ctx, n)
}

func TestHeartbeatsGoOnWhileABatchIsSlow(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]int32{"in": 1})
	var once atomic.Bool
	beats := l.broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Group: "g", Observe: true, TopLevel: true, Count: -1})
	l.db.before = func(ctx context.Context, b *inventory.Batch) error {
		if len(b.Records) > 0 && once.CompareAndSwap(false, true) {
			// More heartbeats than fit into the session timeout.
			return waitHits(beats, beats.Hits()+60)
		}
		return nil
	}
	w := l.start("a", func(c *Config, _ *Deps) { c.SessionTimeout = time.Second })
	generation := w.until("the partition", owns(1)).Generation
	l.requireExact(wants(l, "in", 1, 0, 10, nil))
	require.Equal(t, generation, w.Status().Generation)
}

func TestRevocationWaitsForTheRunningBatch(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]int32{"in": 2})
	running, finish := make(chan struct{}), make(chan struct{})
	var once atomic.Bool
	l.db.before = func(ctx context.Context, b *inventory.Batch) error {
		if len(b.Records) > 0 && once.CompareAndSwap(false, true) {
			close(running)
			<-finish
			return ctx.Err()
		}
		return nil
	}
	want := wants(l, "in", 2, 0, 100, nil)
	joins := l.broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Group: "g", Observe: true, TopLevel: true, Count: -1})
	a := l.start("a", nil)
	<-running
	hits := joins.Hits()
	b := l.start("b", nil)
	require.NoError(t, waitHits(joins, hits+1)) // b is at the door
	close(finish)
	a.until("half", owns(1))
	b.until("half", owns(1))
	l.requireExact(want)
}

func TestStuckBatchMakesTheGroupMoveThePartition(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]int32{"in": 1})
	finish := make(chan struct{})
	stuck := make(chan struct{}, 10)
	want := wants(l, "in", 1, 0, 10, nil)
	a := l.start("a", func(c *Config, d *Deps) {
		c.SessionTimeout, c.StallTimeout, c.RebalanceTimeout = time.Second, 200*time.Millisecond, 2*time.Second
		d.Applier = applierFunc(func(ctx context.Context, b *inventory.Batch) (inventory.Receipt, error) {
			if len(b.Records) > 0 {
				stuck <- struct{}{}
				<-finish
			}
			return l.db.Apply(ctx, b)
		})
	})
	<-stuck
	l.start("b", func(c *Config, _ *Deps) { c.SessionTimeout, c.RebalanceTimeout = time.Second, 2*time.Second })
	l.requireExact(want)
	close(finish)
	a.until("a member again", func(s Status) bool { return s.Joined && s.Generation > 1 })
	l.requireExact(want)
}

type applierFunc func(context.Context, *inventory.Batch) (inventory.Receipt, error)

func (f applierFunc) Apply(ctx context.Context, b *inventory.Batch) (inventory.Receipt, error) {
	return f(ctx, b)
}

func TestForeignConsumerInTheGroupIsFatal(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]int32{"in": 1})
	a := l.start("a", nil)
	a.until("it", owns(1))
	l.broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Group: "g", TopLevel: true, Err: kerr.InconsistentGroupProtocol, Count: -1})
	b := l.start("b", nil)
	require.ErrorIs(t, b.wait(), kafka.InconsistentGroupProtocol)
}

func TestAssignmentIsEvenCompleteAndSticky(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		counts := map[string]int{}
		total := 0
		for i := range rapid.IntRange(0, 4).Draw(t, "topics") {
			n := rapid.IntRange(0, 9).Draw(t, "partitions")
			counts[fmt.Sprint("t", i)] = n
			total += n
		}
		var members []kafka.JoinGroupResponseMember
		for i := range rapid.IntRange(1, 5).Draw(t, "members") {
			members = append(members, kafka.JoinGroupResponseMember{ID: fmt.Sprint("m", i)})
		}
		check := func(got map[string]map[string][]int) {
			seen := map[string]bool{}
			for _, m := range members {
				n := 0
				for topic, parts := range got[m.ID] {
					for _, p := range parts {
						key := fmt.Sprint(topic, "/", p)
						if seen[key] || p < 0 || p >= counts[topic] {
							t.Fatalf("%s twice or beyond", key)
						}
						seen[key] = true
						n++
					}
				}
				if n < total/len(members) || n > (total+len(members)-1)/len(members) {
					t.Fatalf("%s has %d of %d", m.ID, n, total)
				}
			}
			if len(seen) != total {
				t.Fatalf("%d of %d assigned", len(seen), total)
			}
		}
		first := assign(members, counts)
		check(first)
		for i := range members {
			members[i].Metadata.OwnedPartitions = first[members[i].ID]
		}
		again := assign(members, counts)
		check(again)
		for _, m := range members {
			for topic, parts := range first[m.ID] {
				slices.Sort(parts)
				slices.Sort(again[m.ID][topic])
				if !slices.Equal(parts, again[m.ID][topic]) {
					t.Fatalf("%s moved", m.ID)
				}
			}
		}
		members = append(members, kafka.JoinGroupResponseMember{ID: "new"})
		third := assign(members, counts)
		check(third)
		moved := 0
		for _, m := range members[:len(members)-1] {
			for topic, parts := range again[m.ID] {
				for _, p := range parts {
					if !slices.Contains(third[m.ID][topic], p) {
						moved++
					}
				}
			}
		}
		if got := third["new"]; moved > total/len(members)+1 {
			t.Fatalf("%d moved for %v", moved, got)
		}
	})
}

func TestSecondMemberGetsItsPartOfEachTopic(t *testing.T) {
	t.Parallel()
	counts := map[string]int{"registrations": 6, "state-changes": 6}
	alone := []kafka.JoinGroupResponseMember{{ID: "a"}}
	alone[0].Metadata.OwnedPartitions = assign(alone, counts)["a"]
	both := assign(append(alone, kafka.JoinGroupResponseMember{ID: "b"}), counts)
	for _, id := range []string{"a", "b"} {
		for topic := range counts {
			require.Len(t, both[id][topic], 3, "%s of %s", topic, id)
		}
	}
}
