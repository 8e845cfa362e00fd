package consumer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	kafka "github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"ncmp-inventory/inventory"
)

func halted(why string) func(Status) bool {
	return func(s Status) bool {
		for _, p := range s.Partitions {
			if p.Halted != "" {
				return why == "" || strings.Contains(p.Halted, why)
			}
		}
		return false
	}
}

// stopped consumes what is there and stops again.
func (l *lab) stopped(want map[string][]string) {
	l.t.Helper()
	w := l.start("first", nil)
	l.requireExact(want)
	w.stop()
	require.NoError(l.t, w.wait())
}

func TestPositionMovesOverMarkersAndAbortedRecords(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]int32{"in": 1})
	want := map[string][]string{}
	txn := func(from int, commit bool) {
		cl := l.client(txnID("in", from)...)
		defer cl.Close()
		require.NoError(t, cl.BeginTransaction())
		was := l.cl
		l.cl = cl
		vs := l.send("in", 0, from, from+3)
		l.cl = was
		require.NoError(t, cl.EndTransaction(context.Background(), commitOrAbort(commit)))
		if commit {
			want["in/0"] = append(want["in/0"], vs...)
		}
	}
	txn(0, true)
	txn(10, false)
	txn(20, true)
	w := l.start("a", nil)
	l.requireExact(want)
	txn(30, false)
	p := l.part("in", 0)
	l.db.until(t, "the end behind the last marker", func() bool { return l.position(p) == 16 })
	w.until("no lag", func(s Status) bool { return len(s.Partitions) == 1 && s.Partitions[0].Lag == 0 })
	txn(40, true)
	l.requireExact(want)

	// An open transaction holds back what comes behind it, and shows.
	cl := l.client(txnID("in", 50)...)
	defer cl.Close()
	require.NoError(t, cl.BeginTransaction())
	was := l.cl
	l.cl = cl
	open := l.send("in", 0, 50, 51)
	l.cl = was
	behind := l.send("in", 0, 60, 61)
	w.until("records behind an open transaction", func(s Status) bool { return s.Partitions[0].Open == 2 && s.Partitions[0].Lag == 0 })
	require.NoError(t, cl.EndTransaction(context.Background(), commitOrAbort(true)))
	want["in/0"] = append(append(want["in/0"], open...), behind...)
	l.requireExact(want)
}

func TestRetentionGap(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{Halt, Earliest} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, map[string]int32{"in": 1})
			want := wants(l, "in", 1, 0, 5, nil)
			l.stopped(want)
			l.send("in", 0, 5, 8)
			rest := l.send("in", 0, 8, 12)
			require.NoError(t, l.broker.DeleteRecords("in", 0, 8))
			w := l.start("a", func(c *Config, _ *Deps) { c.OnGap = policy })
			if policy == Halt {
				w.until("a halt", halted("3 records are gone: the log starts at offset 8, the position is 5"))
				p := l.part("in", 0)
				l.db.set(func() { r := l.db.rows[keyOf(p)]; r.next, r.moved = 8, true })
			}
			want["in/0"] = append(want["in/0"], rest...)
			l.requireExact(want)
			w.until("it goes on", func(s Status) bool { return s.Halted == 0 && s.Partitions[0].Lag == 0 })
		})
	}
}

func TestTruncatedLog(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{Halt, Earliest} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, map[string]int32{"in": 1})
			l.send("in", 0, 0, 5)
			p := l.part("in", 0)
			l.db.set(func() { l.db.put(p, 100) })
			w := l.start("a", func(c *Config, _ *Deps) { c.OnGap = policy })
			if policy == Halt {
				w.until("a halt", halted("it ends at offset 5, the position is 100"))
				return
			}
			w.until("it", owns(1))
			l.requireExact(map[string][]string{"in/0": l.send("in", 0, 5, 8)})
		})
	}
}

func TestTopicCreatedAnew(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{Halt, Earliest} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, map[string]int32{"in": 2, "other": 1})
			want := wants(l, "in", 2, 0, 5, nil)
			w := l.start("a", func(c *Config, _ *Deps) { c.Topics, c.OnGap = []string{"in", "other"}, policy })
			l.requireExact(want)
			require.NoError(t, l.broker.DeleteTopic("in"))
			require.NoError(t, l.broker.CreateTopic("in", 2, nil))
			l.cl.PurgeTopicsFromClient("in")
			// The new log is longer than the old position.
			next := wants(l, "in", 2, 100, 110, nil)
			want["other/0"] = l.send("other", 0, 0, 5)
			if policy == Halt {
				w.until("both halted", func(s Status) bool { return s.Halted == 2 && len(s.Partitions) == 3 })
				w.until("all of the new topic waits, and ages", func(s Status) bool {
					for _, p := range s.Partitions {
						if p.Topic == "in" && (p.Lag != 10 || p.LagSeconds <= 0) {
							return false
						}
					}
					return true
				})
				l.requireExact(want) // the other topic goes on
				l.db.until(t, "both halts stored", func() bool { return l.db.halts["in/0"] == kindRecreated && l.db.halts["in/1"] == kindRecreated })
				// A decision about one partition is none about the other.
				p := l.part("in", 1)
				l.db.set(func() {
					l.db.put(p, 4)
					l.db.rows[keyOf(p)].moved = true
				})
				want["in/1"] = append(want["in/1"], next["in/1"][4:]...)
				l.requireExact(want)
				w.until("one halted", func(s Status) bool { return s.Halted == 1 })
				l.db.until(t, "one halt stored", func() bool { return len(l.db.halts) == 1 })
				w.stop()
				require.NoError(t, w.wait())
				w = l.start("b", func(c *Config, _ *Deps) { c.Topics, c.OnGap = []string{"in", "other"}, policy })
				w.until("one halted", func(s Status) bool { return s.Halted == 1 && len(s.Partitions) == 3 && s.Joined })
				l.requireExact(want)
				return
			}
			for k, v := range next {
				want[k] = append(want[k], v...)
			}
			l.requireExact(want)
		})
	}
}

func TestRewoundDatabase(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]func(l *lab, r *row){
		"position below the group's": func(_ *lab, r *row) { r.next = 3 },
		"another database":           func(l *lab, _ *row) { l.db.id.SystemID = "7002" },
		"earlier timeline":           func(l *lab, _ *row) { l.db.id.Timeline = 0 },
		"no position":                func(l *lab, _ *row) { clear(l.db.rows) },
	} {
		for _, policy := range []string{Halt, Replay, "moved"} {
			t.Run(name+" "+policy, func(t *testing.T) {
				t.Parallel()
				l := newLab(t, map[string]int32{"in": 1})
				want := wants(l, "in", 1, 0, 5, nil)
				l.stopped(want)
				p := l.part("in", 0)
				l.db.set(func() {
					back(l, l.db.rows[keyOf(p)])
					if policy == "moved" {
						l.db.put(p, 3)
						l.db.rows[keyOf(p)].moved = true
					}
				})
				w := l.start("a", func(c *Config, _ *Deps) {
					if policy == Replay {
						c.OnRewind = Replay
					}
				})
				if policy == Halt {
					w.until("a halt", halted(""))
					return
				}
				at := max(0, func() int64 { l.db.mu.Lock(); defer l.db.mu.Unlock(); return l.position(p) }())
				w.until("it", owns(1))
				want["in/0"] = append(want["in/0"], want["in/0"][at:]...)
				want["in/0"] = append(want["in/0"], l.send("in", 0, 5, 7)...)
				l.requireExact(want)
			})
		}
	}
}

// A worker that dies after its claim of a partition that was moved back, before the
// group knows, leaves nothing that looks like a database that went back.
func TestAMovedPositionOutlivesWhoClaimedIt(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]int32{"in": 1})
	want := wants(l, "in", 1, 0, 5, nil)
	l.stopped(want)
	p := l.part("in", 0)
	l.db.set(func() {
		l.db.put(p, 3)
		l.db.rows[keyOf(p)].moved = true
		l.db.claim(p, "dead")
	})
	w := l.start("a", nil)
	want["in/0"] = append(want["in/0"], want["in/0"][3:]...)
	l.requireExact(want)
	w.until("no halt", func(s Status) bool { return s.Halted == 0 && owns(1)(s) })
	w.stop()
	require.NoError(t, w.wait())
	l.db.set(func() { require.False(t, l.db.rows[keyOf(p)].moved) })

	// It dies after the group was told, with the mark still there or not: the
	// group's offset is never above the position again.
	l.db.set(func() {
		l.db.rows[keyOf(p)].next, l.db.rows[keyOf(p)].moved = 1, true
		l.db.before = func(_ context.Context, b *inventory.Batch) error {
			if b.First < b.Next {
				return fmt.Errorf("the worker dies before its first batch: %w", inventory.ErrTransient)
			}
			return nil
		}
	})
	w = l.start("b", nil)
	l.db.until(t, "the mark is gone", func() bool { return !l.db.rows[keyOf(p)].moved })
	w.stop()
	require.NoError(t, w.wait())
	l.db.set(func() { l.db.before = nil })
	w = l.start("c", nil)
	want["in/0"] = append(want["in/0"], want["in/0"][1:5]...)
	l.requireExact(want)
	w.until("no halt", func(s Status) bool { return s.Halted == 0 && owns(1)(s) })
}

func TestRewoundWhileRunning(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]int32{"in": 1})
	want := wants(l, "in", 1, 0, 5, nil)
	w := l.start("a", nil)
	l.requireExact(want)
	p := l.part("in", 0)
	l.db.set(func() { l.db.rows[keyOf(p)].next = 2 })
	l.send("in", 0, 5, 7)
	w.until("a halt", halted("the stored position is 2, this worker had reached 5"))
	l.requireExact(want)
}

func TestFencedLaneClaimsAgainWhileItIsAMember(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]int32{"in": 1})
	want := wants(l, "in", 1, 0, 5, nil)
	l.start("a", nil)
	l.requireExact(want)
	p := l.part("in", 0)
	l.db.set(func() { l.db.rows[keyOf(p)].owner += 5 })
	wants(l, "in", 1, 5, 10, want)
	l.requireExact(want)
}

func TestStartLatestIsStoredForAllPartitionsAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]int32{"in": 4})
	wants(l, "in", 4, 0, 5, nil)
	latest := func(c *Config, _ *Deps) { c.Start = Latest }
	a := l.start("a", latest)
	b := l.start("b", latest)
	a.until("half", owns(2))
	b.until("half", owns(2))
	want := wants(l, "in", 4, 5, 10, nil)
	l.requireExact(want)
	// A partition that is added begins at its beginning.
	addPartitions(l, "in", 5)
	want["in/4"] = l.send("in", 4, 0, 5)
	l.requireExact(want)
}

func addPartitions(l *lab, topic string, n int32) {
	l.t.Helper()
	req := kmsg.NewPtrCreatePartitionsRequest()
	rt := kmsg.NewCreatePartitionsRequestTopic()
	rt.Topic, rt.Count = topic, n
	req.Topics = append(req.Topics, rt)
	admin[*kmsg.CreatePartitionsResponse](l, req)
	l.visible(topic, n)
}

func TestDeadLettersInARowHaltThePartition(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]int32{"in": 2})
	w := l.start("a", func(c *Config, _ *Deps) { c.DeadLettersHaltAfter = 3 })
	dead := func(n int) {
		for range n {
			l.value("in", 0, "dead")
		}
	}
	dead(2)
	l.value("in", 0, "good")
	dead(5)
	w.until("a halt", halted("3 dead letters in a row"))
	want := map[string][]string{"in/0": {"dead", "dead", "good", "dead", "dead", "dead"}, "in/1": l.send("in", 1, 0, 5)}
	l.requireExact(want)
	p := l.part("in", 0)
	l.db.set(func() { require.Equal(t, 3, l.db.rows[keyOf(p)].deadRun); l.db.rows[keyOf(p)].moved = true })
	want["in/0"] = append(want["in/0"], "dead", "dead")
	l.requireExact(want)
}

func TestOutageOfTheDatabaseIsAPause(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]int32{"in": 2})
	w := l.start("a", nil)
	generation := w.until("both", owns(2)).Generation
	l.db.set(func() { l.db.down = true })
	want := wants(l, "in", 2, 0, 10, nil)
	s := w.until("unready", func(s Status) bool { ok, _ := s.Ready(); return !ok && s.Database != "" })
	_, why := s.Ready()
	require.Contains(t, why, "database")
	l.db.set(func() { l.db.down = false; l.db.id.Timeline = 2 }) // a failover
	l.requireExact(want)
	s = w.until("ready", func(s Status) bool { ok, _ := s.Ready(); return ok })
	require.Equal(t, generation, s.Generation)
	require.Zero(t, s.Halted)
}

func TestAnotherDatabaseAfterAnOutageHalts(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]int32{"in": 1})
	w := l.start("a", nil)
	w.until("it", owns(1))
	l.db.set(func() { l.db.down = true })
	l.send("in", 0, 0, 10)
	w.until("unready", func(s Status) bool { return s.Database != "" })
	l.db.set(func() { l.db.down = false; l.db.id.SystemID = "7002" })
	w.until("a halt", halted("this is database 7002"))
}

func TestFatalErrorEndsRun(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]int32{"in": 1})
	broken := errors.New("a bug")
	l.db.before = func(context.Context, *inventory.Batch) error { return broken }
	l.send("in", 0, 0, 1)
	w := l.start("a", nil)
	err := w.wait()
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "in/0")
}

func TestGateStopsInputAndLetsItGoOn(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]int32{"in": 1})
	var shut atomic.Bool
	shut.Store(true)
	var asked atomic.Int64
	want := wants(l, "in", 1, 0, 10, nil)
	w := l.start("a", func(_ *Config, d *Deps) {
		d.Gate = func() string {
			asked.Add(1)
			if shut.Load() {
				return "the outbox is full"
			}
			return ""
		}
	})
	w.until("asked often", func(Status) bool { return asked.Load() > 20 })
	s := w.until("the reason", func(s Status) bool { return owns(1)(s) && s.Gate != "" })
	_, why := s.Ready()
	require.Equal(t, "the outbox is full", why)
	l.db.set(func() { require.Zero(t, l.db.total()) })
	shut.Store(false)
	l.requireExact(want)
}

func TestSlowPartitionHoldsUpNoOtherAndMemoryIsBounded(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]int32{"in": 2})
	finish := make(chan struct{})
	l.db.before = func(ctx context.Context, b *inventory.Batch) error {
		if b.Index == 0 && len(b.Records) > 0 {
			<-finish
		}
		return nil
	}
	big := make([]byte, 20_000)
	want := map[string][]string{}
	for p := range int32(2) {
		for i := range 200 {
			v := fmt.Sprintf("%d-%d-%s", p, i, big)
			l.value("in", p, v)
			want[fmt.Sprintf("in/%d", p)] = append(want[fmt.Sprintf("in/%d", p)], v)
		}
	}
	var most atomic.Int64
	w := l.start("a", func(c *Config, d *Deps) { c.Memory = 1 << 20 })
	l.db.until(t, "all of the fast partition", func() bool {
		for _, p := range w.Status().Partitions {
			most.Store(max(most.Load(), p.Held))
		}
		return len(l.db.applied["in/1"]) == 200
	})
	close(finish)
	l.requireExact(want)
	require.LessOrEqual(t, most.Load(), int64(1<<20)/2, "a partition holds at most its share")
	require.Positive(t, most.Load())
}

func (l *lab) value(topic string, partition int32, v string) {
	l.t.Helper()
	require.NoError(l.t, l.cl.ProduceSync(context.Background(), record(topic, partition, v)).FirstErr())
}

func TestStopFinishesTheBatchInHandAndCommitsIt(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]int32{"in": 1})
	running, finish := make(chan struct{}), make(chan struct{})
	l.db.before = func(ctx context.Context, b *inventory.Batch) error {
		if len(b.Records) > 0 {
			close(running)
			<-finish
		}
		return ctx.Err()
	}
	want := wants(l, "in", 1, 0, 10, nil)
	w := l.start("a", nil)
	<-running
	w.stop()
	close(finish)
	require.NoError(t, w.wait())
	l.requireExact(want)
	hints, err := l.k.hints(context.Background(), "g", map[string][]int{"in": {0}})
	require.NoError(t, err)
	h := hints[keyOf(l.part("in", 0))]
	require.Equal(t, hint{identity: l.db.id, position: 10, topicID: l.topicID("in")}, h)
	r, err := l.k.client.DescribeGroups(context.Background(), &kafka.DescribeGroupsRequest{GroupIDs: []string{"g"}})
	require.NoError(t, err)
	require.Empty(t, r.Groups[0].Members, "the member left")
}

func TestDrainTimeoutCutsABatchThatTakesTooLong(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]int32{"in": 1})
	running := make(chan struct{})
	var once atomic.Bool
	l.db.before = func(ctx context.Context, b *inventory.Batch) error {
		if len(b.Records) > 0 && once.CompareAndSwap(false, true) {
			close(running)
			<-ctx.Done()
			return fmt.Errorf("cut off: %w", inventory.ErrTransient)
		}
		return nil
	}
	want := wants(l, "in", 1, 0, 10, nil)
	w := l.start("a", func(c *Config, _ *Deps) { c.DrainTimeout = 50 * time.Millisecond })
	<-running
	w.stop()
	require.NoError(t, w.wait())
	l.db.set(func() { require.Zero(t, l.db.total()) })
	l.start("b", nil)
	l.requireExact(want)
}

func TestCompactedInputTopicIsWarnedAbout(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	policy := "compact,delete"
	require.NoError(t, l.broker.CreateTopic("in", 1, map[string]string{"cleanup.policy": policy}))
	core, logs := observer.New(zap.WarnLevel)
	w := l.start("a", func(_ *Config, d *Deps) { d.Log = zap.New(core) })
	w.until("it", owns(1))
	require.Equal(t, 1, logs.FilterMessageSnippet("compacted").FilterField(zap.String("topic", "in")).Len())
}

func TestHaltedPartitionShowsItsLag(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]int32{"in": 1})
	want := wants(l, "in", 1, 0, 5, nil)
	l.stopped(want)
	l.send("in", 0, 5, 9)
	p := l.part("in", 0)
	l.db.set(func() { l.db.rows[keyOf(p)].next = 2 })
	w := l.start("a", nil)
	s := w.until("a halt that ages", func(s Status) bool {
		return halted("")(s) && s.Partitions[0].LagSeconds > 0
	})
	require.Equal(t, "in", s.Partitions[0].Topic)
	require.Equal(t, 1, s.Halted)
	require.NoError(t, testutil.GatherAndCompare(w.reg, strings.NewReader(`
# HELP ncmp_inventory_partition_halted 1 while the partition is halted.
# TYPE ncmp_inventory_partition_halted gauge
ncmp_inventory_partition_halted{partition="0",topic="in"} 1
# HELP ncmp_inventory_lag_records Offsets that can be read and are not applied.
# TYPE ncmp_inventory_lag_records gauge
ncmp_inventory_lag_records{partition="0",topic="in"} 7
`), "ncmp_inventory_partition_halted", "ncmp_inventory_lag_records"))
}

// The lag is the age of the oldest record that was not applied: none while the
// input is idle, the record's own while it is old, also behind a halt that this
// worker has never seen a record of.
func TestLagInSecondsIsTheAgeOfTheOldestRecord(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]int32{"in": 1})
	hold := make(chan struct{})
	l.db.before = func(ctx context.Context, b *inventory.Batch) error {
		if len(b.Records) > 0 {
			select {
			case <-hold:
			case <-ctx.Done():
			}
		}
		return nil
	}
	old := func(age time.Duration, from, to int) {
		var rs []*kgo.Record
		for i := from; i < to; i++ {
			rs = append(rs, &kgo.Record{Topic: "in", Value: []byte(fmt.Sprint(i)), Timestamp: time.Now().Add(-age)})
		}
		require.NoError(t, l.cl.ProduceSync(t.Context(), rs...).FirstErr())
	}
	lag := func(least, most time.Duration) func(Status) bool {
		return func(s Status) bool {
			return len(s.Partitions) == 1 && s.Partitions[0].LagSeconds >= least.Seconds() && s.Partitions[0].LagSeconds <= most.Seconds()
		}
	}
	old(2*time.Hour, 0, 3)
	old(time.Hour, 3, 6)
	w := l.start("a", func(c *Config, _ *Deps) { c.MaxRecords = 3 })
	w.until("the age of the record in hand", lag(2*time.Hour, 3*time.Hour))
	close(hold)
	w.until("idle", func(s Status) bool { return owns(1)(s) && s.Partitions[0].Lag == 0 && lag(0, 0)(s) })
	w.stop()
	require.NoError(t, w.wait())

	p := l.part("in", 0)
	l.db.set(func() { l.db.rows[keyOf(p)].next = 4 })
	w = l.start("b", nil)
	w.until("the age behind a halt", func(s Status) bool { return halted("")(s) && lag(time.Hour, 2*time.Hour)(s) })
	l.db.set(func() { l.db.rows[keyOf(p)].next, l.db.rows[keyOf(p)].moved = 6, true })
	w.until("no halt, no lag", func(s Status) bool { return s.Halted == 0 && lag(0, 0)(s) })
}
