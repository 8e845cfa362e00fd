package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	kafka "github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"ncmp-inventory/inventory"
)

// ledger is a scripted database: positions with claims, compared and moved as
// the real store does (which is tested with this package in cmd), and what was
// applied. A test may step in before each batch.
type ledger struct {
	mu      sync.Mutex
	rows    map[partitionKey]*row
	names   map[string]map[[16]byte]bool
	halts   map[string]string // kinds by topic/partition
	id      inventory.Identity
	applied map[string][]string // values by topic/partition
	batches []inventory.Batch   // without records
	biggest int
	changed chan struct{}
	before  func(ctx context.Context, b *inventory.Batch) error
	// down makes every call fail as an outage does.
	down bool
}

type row struct {
	next, owner int64
	epoch       int32
	deadRun     int
	moved       bool
	by          string
}

func newLedger() *ledger {
	return &ledger{
		rows: map[partitionKey]*row{}, names: map[string]map[[16]byte]bool{}, applied: map[string][]string{},
		halts: map[string]string{},
		id:    inventory.Identity{SystemID: "7001", Timeline: 1}, changed: make(chan struct{}),
	}
}

func (d *ledger) outage() error {
	if d.down {
		return fmt.Errorf("the database is down: %w", inventory.ErrTransient)
	}
	return nil
}

func (d *ledger) tell() {
	close(d.changed)
	d.changed = make(chan struct{})
}

func (d *ledger) Claim(_ context.Context, p inventory.Partition, _, owner string) (inventory.Claimed, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.claim(p, owner), d.outage()
}

func (d *ledger) claim(p inventory.Partition, owner string) inventory.Claimed {
	r := d.rows[keyOf(p)]
	if r == nil {
		return inventory.Claimed{}
	}
	r.owner++
	c := inventory.Claimed{Found: true, Next: r.next, OwnerEpoch: r.owner, LeaderEpoch: r.epoch, DeadRun: r.deadRun, Moved: r.moved}
	_, c.Halted = d.halts[fmt.Sprintf("%s/%d", p.Topic, p.Index)]
	r.by = owner
	d.tell()
	return c
}

func (d *ledger) Start(_ context.Context, p inventory.Partition, _, owner string, next int64) (inventory.Claimed, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.rows[keyOf(p)] == nil {
		d.put(p, next)
	}
	return d.claim(p, owner), d.outage()
}

func (d *ledger) put(p inventory.Partition, next int64) {
	d.rows[keyOf(p)] = &row{next: next, epoch: -1}
	if d.names[p.Topic] == nil {
		d.names[p.Topic] = map[[16]byte]bool{}
	}
	d.names[p.Topic][p.TopicID] = true
}

func (d *ledger) Halted(_ context.Context, p inventory.Partition, _, kind, _ string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := fmt.Sprintf("%s/%d", p.Topic, p.Index)
	if d.halts[name] = kind; kind == "" {
		delete(d.halts, name)
	}
	d.tell()
	return d.outage()
}

func (d *ledger) TopicKnown(_ context.Context, p inventory.Partition) (known, recreated bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	known = d.names[p.Topic][p.TopicID]
	for id := range d.names[p.Topic] {
		if id != p.TopicID {
			recreated = recreated || !known || d.rows[partitionKey{id, p.Index}] != nil
		}
	}
	return known, recreated, d.outage()
}

func (d *ledger) Identity(context.Context) (inventory.Identity, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.id, d.outage()
}

func (d *ledger) Apply(ctx context.Context, b *inventory.Batch) (inventory.Receipt, error) {
	d.mu.Lock()
	before := d.before
	d.mu.Unlock()
	if before != nil {
		if err := before(ctx, b); err != nil {
			return inventory.Receipt{}, err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.outage(); err != nil {
		return inventory.Receipt{}, err
	}
	r := d.rows[keyOf(b.Partition)]
	switch {
	case r == nil || r.owner != b.OwnerEpoch:
		return inventory.Receipt{}, inventory.ErrFenced
	case r.next < b.First:
		return inventory.Receipt{}, inventory.ErrRewound
	case r.next != b.First:
		return inventory.Receipt{}, fmt.Errorf("position %d, batch begins at %d", r.next, b.First)
	}
	name := fmt.Sprintf("%s/%d", b.Topic, b.Index)
	bytes := 0
	for i := range b.Records {
		rec := &b.Records[i]
		if rec.Offset < b.First || rec.Offset >= b.Next {
			return inventory.Receipt{}, fmt.Errorf("offset %d in [%d, %d)", rec.Offset, b.First, b.Next)
		}
		d.applied[name] = append(d.applied[name], string(rec.Value))
		bytes += rec.Bytes
	}
	d.biggest = max(d.biggest, bytes)
	r.next, r.epoch, r.deadRun, r.moved = b.Next, b.LeaderEpoch, b.DeadRun, false
	copied := *b
	copied.Records = nil
	d.batches = append(d.batches, copied)
	d.tell()
	return inventory.Receipt{Next: b.Next}, nil
}

// until waits for a condition on the ledger.
func (d *ledger) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	late := time.After(patience)
	for {
		d.mu.Lock()
		yes, changed := ok(), d.changed
		d.mu.Unlock()
		if yes {
			return
		}
		select {
		case <-changed:
		case <-late:
			d.set(func() { t.Errorf("never came: %s; applied %v", what, d.counts()) })
			t.FailNow()
		}
	}
}

func (d *ledger) counts() map[string]int {
	m := map[string]int{}
	for k, v := range d.applied {
		m[k] = len(v)
	}
	return m
}

func (d *ledger) total() (n int) {
	for _, v := range d.applied {
		n += len(v)
	}
	return n
}

func (d *ledger) set(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
	d.tell()
}

// patience is how long a test waits for what must come.
const patience = 60 * time.Second

// plain is a decoder for tests: the value says what the record is.
type plain struct{}

func (plain) Decode(r *inventory.Record, _ bool) {
	switch {
	case r.Value == nil:
		r.Empty = true
	case string(r.Value) == "dead":
		r.Dead = &inventory.DeadLetter{Reason: "test", Byte: -1}
	default:
		r.Events = append(r.Events, inventory.Event{ID: "e"})
	}
}

// lab is a broker, a producer and a ledger.
type lab struct {
	t      *testing.T
	broker *kfake.Cluster // nil on Apache Kafka
	addrs  []string
	cl     *kgo.Client
	db     *ledger
	tr     *kafka.Transport
	k      *Cluster
}

func newLab(t *testing.T, topics map[string]int32, opts ...kfake.Opt) *lab {
	t.Helper()
	opts = append([]kfake.Opt{kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(100 * time.Millisecond)}, opts...)
	for name, n := range topics {
		opts = append(opts, kfake.SeedTopics(n, name))
	}
	broker, err := kfake.NewCluster(opts...)
	require.NoError(t, err)
	l := &lab{t: t, broker: broker, addrs: broker.ListenAddrs(), db: newLedger()}
	l.cl = l.client()
	l.tr, l.k = l.cluster()
	t.Cleanup(func() {
		l.cl.Close()
		broker.Close()
	})
	return l
}

// client makes a franz-go client that writes to the partition it is told.
func (l *lab) client(opts ...kgo.Opt) *kgo.Client {
	l.t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(l.addrs...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(10 * time.Millisecond),
		kgo.ProducerBatchCompression(kgo.NoCompression())}, opts...)...)
	require.NoError(l.t, err)
	return cl
}

func (l *lab) cluster() (*kafka.Transport, *Cluster) {
	tr := &kafka.Transport{ClientID: "test", MetadataTTL: 200 * time.Millisecond}
	l.t.Cleanup(tr.CloseIdleConnections)
	return tr, NewCluster(kafka.TCP(l.addrs...), tr)
}

// send writes values to a partition and returns them.
func (l *lab) send(topic string, partition int32, from, to int) []string {
	l.t.Helper()
	var rs []*kgo.Record
	var vs []string
	for i := from; i < to; i++ {
		v := fmt.Sprintf("%s-%d-%d", topic, partition, i)
		vs = append(vs, v)
		rs = append(rs, &kgo.Record{Topic: topic, Partition: partition, Value: []byte(v), Key: []byte("k"),
			Headers: []kgo.RecordHeader{{Key: "ce_id", Value: []byte(v)}, {Key: "null"}}})
	}
	require.NoError(l.t, l.cl.ProduceSync(context.Background(), rs...).FirstErr())
	return vs
}

func (l *lab) topicID(topic string) [16]byte {
	l.t.Helper()
	md, err := l.k.Metadata(context.Background(), topic)
	require.NoError(l.t, err)
	require.NoError(l.t, md.Topics[topic].Err)
	return md.Topics[topic].ID
}

func (l *lab) part(topic string, i int32) inventory.Partition {
	return inventory.Partition{TopicID: l.topicID(topic), Topic: topic, Index: i}
}

// visible waits until the broker shows a topic as it was changed, and takes a
// producer that knows no older metadata.
func (l *lab) visible(topic string, partitions int32) {
	l.t.Helper()
	require.Eventually(l.t, func() bool {
		md, err := l.k.Metadata(context.Background(), topic)
		return err == nil && len(md.Topics[topic].Leaders) == int(partitions)
	}, patience, 10*time.Millisecond)
	l.cl.Close()
	l.cl = l.client()
}

// position is a stored position; the ledger must be locked.
func (l *lab) position(p inventory.Partition) int64 {
	if r := l.db.rows[keyOf(p)]; r != nil {
		return r.next
	}
	return -1
}

// worker is a running Consumer.
type worker struct {
	*Consumer
	lab  *lab
	reg  *prometheus.Registry
	stop context.CancelFunc
	done chan error
}

// start runs a consumer with quick settings; change adapts them.
func (l *lab) start(name string, change func(*Config, *Deps)) *worker {
	l.t.Helper()
	_, k := l.cluster()
	cfg := DefaultConfig()
	cfg.Topics, cfg.Group, cfg.Owner = []string{"in"}, "g", name
	cfg.SessionTimeout, cfg.HeartbeatInterval, cfg.RebalanceTimeout = 2*time.Second, 50*time.Millisecond, 10*time.Second
	cfg.MetadataInterval, cfg.RecheckInterval = 100*time.Millisecond, 100*time.Millisecond
	reg := prometheus.NewRegistry()
	d := Deps{Cluster: k, Decoder: plain{}, Applier: l.db, Positions: l.db, Metrics: reg,
		Log: zaptest.NewLogger(l.t, zaptest.Level(zap.WarnLevel)).Named(name)}
	if change != nil {
		change(&cfg, &d)
	}
	c, err := New(cfg, d)
	require.NoError(l.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	w := &worker{Consumer: c, lab: l, reg: reg, stop: cancel, done: make(chan error, 1)}
	go func() { w.done <- c.Run(ctx) }()
	l.t.Cleanup(func() {
		cancel()
		_ = w.wait() // a test that cares has asked before
	})
	return w
}

// wait waits for Run to return; the first call gets its error.
func (w *worker) wait() error {
	select {
	case err, ok := <-w.done:
		if ok {
			close(w.done)
		}
		return err
	case <-time.After(patience):
		w.lab.t.Error("Run does not return")
		return errors.New("stuck")
	}
}

// until waits for a condition on the worker's status.
func (w *worker) until(what string, ok func(Status) bool) Status {
	w.lab.t.Helper()
	var s Status
	require.Eventually(w.lab.t, func() bool { s = w.Status(); return ok(s) }, patience, 5*time.Millisecond, what)
	return s
}

func owns(n int) func(Status) bool {
	return func(s Status) bool {
		known := 0
		for _, p := range s.Partitions {
			if p.Position >= 0 {
				known++
			}
		}
		return s.Joined && known == n && len(s.Partitions) == n
	}
}

// requireExact checks that every value was applied once, in order.
func (l *lab) requireExact(want map[string][]string) {
	l.t.Helper()
	n := 0
	for _, vs := range want {
		n += len(vs)
	}
	l.db.until(l.t, fmt.Sprintf("%d records", n), func() bool { return l.db.total() >= n })
	l.db.mu.Lock()
	defer l.db.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		require.Equal(l.t, want[name], l.db.applied[name], name)
	}
	require.Equal(l.t, n, l.db.total())
}

// admin sends one request to the broker.
func admin[T any](l *lab, req kmsg.Request) T {
	l.t.Helper()
	resp, err := l.cl.Request(context.Background(), req)
	require.NoError(l.t, err)
	return resp.(T)
}

func record(topic string, partition int32, v string) *kgo.Record {
	return &kgo.Record{Topic: topic, Partition: partition, Value: []byte(v)}
}

func txnID(of string, n int) []kgo.Opt {
	return []kgo.Opt{kgo.TransactionalID(fmt.Sprint(of, "-txn-", n))}
}

func commitOrAbort(commit bool) kgo.TransactionEndTry {
	if commit {
		return kgo.TryCommit
	}
	return kgo.TryAbort
}
