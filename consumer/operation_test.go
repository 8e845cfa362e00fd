package consumer

import (
	"context"
	"fmt"
	"testing"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"ncmp-inventory/inventory"
)

// A right that is taken away while the worker runs is waited for, like an
// outage: unready, told once, and nothing is lost when it comes back.
func TestRightThatIsTakenAwayIsWaitedFor(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]kfake.Fault{
		"topic": {Keys: []kmsg.Key{kmsg.Fetch}, Topic: "in", Err: kerr.TopicAuthorizationFailed, Count: -1},
		"group": {Keys: []kmsg.Key{kmsg.Heartbeat}, Group: "g", TopLevel: true, Err: kerr.GroupAuthorizationFailed, Count: -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, map[string]int32{"in": 2})
			core, logs := observer.New(zap.WarnLevel)
			want := wants(l, "in", 2, 0, 10, nil)
			w := l.start("a", func(_ *Config, d *Deps) { d.Log = zap.New(core) })
			l.requireExact(want)
			f := l.broker.Fault(fault)
			wants(l, "in", 2, 10, 20, want)
			w.until("trouble", func(s Status) bool { return s.Kafka+s.Group != "" })
			require.NoError(t, waitHits(f, 20))
			f.Remove()
			l.requireExact(want)
			w.until("calm", func(s Status) bool { ok, _ := s.Ready(); return ok })
			require.LessOrEqual(t, logs.Len(), 3, "one line a problem, not one a try: %v", logs.All())
		})
	}
}

// More workers than partitions: those without any are ready and quiet, and
// take over when there is something to take.
func TestMembersWithoutPartitionsAreReady(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]int32{"in": 1})
	ready := func(s Status) bool { ok, _ := s.Ready(); return ok }
	ws := []*worker{l.start("a", nil), l.start("b", nil), l.start("c", nil)}
	want := wants(l, "in", 1, 0, 10, nil)
	l.requireExact(want)
	for _, w := range ws {
		w.until("ready", func(s Status) bool { return ready(s) })
	}
	for i, w := range ws[:2] {
		w.stop()
		require.NoError(t, w.wait())
		wants(l, "in", 1, 10*(i+1), 10*(i+2), want)
		l.requireExact(want)
	}
	ws[2].until("the partition", owns(1))
}

// Lag tools see every partition of a group from its beginning, also one that
// nothing was ever written to.
func TestGroupHasAnOffsetForEveryPartitionAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]int32{"in": 3})
	l.send("in", 1, 0, 5)
	w := l.start("a", nil)
	w.until("all", owns(3))
	require.Eventually(t, func() bool {
		r, err := l.k.client.OffsetFetch(context.Background(), &kafka.OffsetFetchRequest{GroupID: "g", Topics: map[string][]int{"in": {0, 1, 2}}})
		require.NoError(t, err)
		n := 0
		for _, p := range r.Topics["in"] {
			if p.CommittedOffset >= 0 {
				n++
			}
		}
		return n == 3
	}, patience, 10*time.Millisecond)
}

// From the moment of a stop nothing more is fetched, however long the batch in
// hand takes.
func TestNothingIsFetchedAfterAStop(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]int32{"in": 1})
	running, finish := make(chan struct{}), make(chan struct{})
	l.db.before = func(_ context.Context, b *inventory.Batch) error {
		if len(b.Records) > 0 {
			running <- struct{}{}
			<-finish
		}
		return nil
	}
	fetches := l.broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Observe: true, Count: -1})
	beats := l.broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Group: "g", Observe: true, TopLevel: true, Count: -1})
	first := l.send("in", 0, 0, 1)
	w := l.start("a", func(c *Config, _ *Deps) { c.MaxRecords = 1 })
	<-running
	w.stop()
	l.send("in", 0, 1, 100)
	before := fetches.Hits()
	require.NoError(t, waitHits(beats, beats.Hits()+10)) // it drains, and stays a member while it does
	require.LessOrEqual(t, fetches.Hits(), before+1, "one may have been on its way")
	close(finish)
	require.NoError(t, w.wait())
	l.db.set(func() { require.Equal(t, first, l.db.applied["in/0"]) })
}

// A stop in the middle of a rebalance, while the database does not answer:
// the worker ends in time, leaves the group, and the others go on.
func TestStopDuringARebalance(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]int32{"in": 2})
	running := make(chan struct{}, 10)
	want := wants(l, "in", 2, 0, 50, nil)
	joins := l.broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Group: "g", Observe: true, TopLevel: true, Count: -1})
	a := l.start("a", func(c *Config, d *Deps) {
		c.DrainTimeout = 50 * time.Millisecond
		d.Applier = applierFunc(func(ctx context.Context, b *inventory.Batch) (inventory.Receipt, error) {
			if len(b.Records) == 0 {
				return l.db.Apply(ctx, b)
			}
			running <- struct{}{}
			<-ctx.Done()
			return inventory.Receipt{}, fmt.Errorf("no answer: %w", inventory.ErrTransient)
		})
	})
	<-running
	hits := joins.Hits()
	b := l.start("b", nil)
	require.NoError(t, waitHits(joins, hits+1))
	a.stop()
	require.NoError(t, a.wait())
	b.until("all", owns(2))
	l.requireExact(want)
	r, err := l.k.client.DescribeGroups(context.Background(), &kafka.DescribeGroupsRequest{GroupIDs: []string{"g"}})
	require.NoError(t, err)
	require.Len(t, r.Groups[0].Members, 1, "the stopped member left")
}

// What waits while a batch is applied becomes the next one, up to the bounds on
// records and bytes; a record that is larger than the bound stands alone.
func TestBatchesGatherUpToTheirBounds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Config)
		size   int
		want   []int
	}{
		"records": {func(c *Config) { c.MaxRecords = 30 }, 10, []int{30, 30, 30, 10}},
		"bytes":   {func(c *Config) { c.MaxBytes = 8 << 10 }, 1000, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, map[string]int32{"in": 1})
			running, finish := make(chan struct{}), make(chan struct{})
			var sizes []int
			var bytes []int
			first := true
			l.db.before = func(_ context.Context, b *inventory.Batch) error {
				if len(b.Records) == 0 {
					return nil
				}
				if first {
					first = false
					close(running)
					<-finish
					return nil
				}
				sum := 0
				for i := range b.Records {
					sum += b.Records[i].Bytes
				}
				sizes, bytes = append(sizes, len(b.Records)), append(bytes, sum)
				return nil
			}
			l.value("in", 0, "first")
			w := l.start("a", func(cfg *Config, _ *Deps) { c.change(cfg) })
			<-running
			want := map[string][]string{"in/0": {"first"}}
			for i := range 100 {
				v := fmt.Sprintf("%0*d", c.size, i)
				l.value("in", 0, v)
				want["in/0"] = append(want["in/0"], v)
			}
			w.until("all", func(s Status) bool { return s.Partitions[0].Lag == 101 && s.Partitions[0].Held > int64(100*c.size) })
			close(finish)
			l.requireExact(want)
			w.stop()
			require.NoError(t, w.wait())
			if c.want != nil {
				require.Equal(t, c.want, sizes)
				return
			}
			require.Greater(t, len(sizes), 100*c.size/(8<<10)-1)
			for i := range sizes[:len(sizes)-1] {
				require.Greater(t, sizes[i], 1)
				require.Less(t, bytes[i], 8<<10+2*c.size)
			}
		})
	}
}
