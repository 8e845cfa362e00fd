package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"

	"ncmp-inventory/cmd/internal/load"
	"ncmp-inventory/consumer"
	"ncmp-inventory/inventory"
)

const (
	// latencyEvents is how many events are followed each way.
	latencyEvents = 1000
	// latencyBlock is how many of them worker and ceiling take in turn, one
	// every latencyPace.
	latencyBlock = 100
	latencyPace  = 10 * time.Millisecond
)

// latency sends single state changes to an idle system, 100 a second, and times
// each until its LCM event is read. In turns with that, the same rows go the
// bare way: a record is read, its rows are committed, a record is sent and read.
func (r *run) latency(ctx context.Context, _ []string) ([]Result, error) {
	n := min(latencyEvents, r.cfg.Handles)
	l, err := load.New(load.Config{Handles: n, PerEvent: r.cfg.PerEvent, Seed: 1})
	if err != nil {
		return nil, err
	}
	var ours, bare []sample
	for i := range r.cfg.Repeat {
		r.repetition("latency", i)
		err := r.withPair(ctx, func(p *pair) error {
			var s sample
			if err := p.turn(ctx, register, l, newMeter(), &s); err != nil {
				return err
			}
			o, b, err := p.latency(ctx, l)
			ours, bare = append(ours, o), append(bare, b)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	result := func(name string, samples []sample) Result {
		res := summarize(samples, true)
		res.HandlesPerSecond, res.FragmentsPerSecond, res.Case = 0, 0, name
		res.Spread = round(spread(sorted(samples, func(s sample) float64 { return ms(s.p50) })), 3)
		return res
	}
	top := result("", ours)
	top.Workload = "latency"
	top.Cases = []Result{result("event sent to LCM event read", ours), result("two bare hops and one bare commit", bare)}
	return []Result{top}, nil
}

// stopwatch times what is under way by its key.
type stopwatch struct {
	mu   sync.Mutex
	sent map[string]time.Time
	took []time.Duration
}

func newStopwatch() *stopwatch {
	return &stopwatch{sent: map[string]time.Time{}}
}

func (w *stopwatch) start(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent[key] = time.Now()
}

func (w *stopwatch) stop(key string) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if began, ok := w.sent[key]; ok {
		delete(w.sent, key)
		w.took = append(w.took, now.Sub(began))
	}
}

// settle waits until nothing is under way.
func (w *stopwatch) settle(ctx context.Context) error {
	err := poll(ctx, func() (bool, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.sent) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the last events: %w", err)
	}
	return nil
}

// sample tells the percentiles, and the time of all.
func (w *stopwatch) sample(u []Use) sample {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.Sort(w.took)
	s := sample{handles: len(w.took), uses: u, p50: percentile(w.took, 0.5), p99: percentile(w.took, 0.99)}
	for _, d := range w.took {
		s.took += d
	}
	return s
}

// forget begins anew.
func (w *stopwatch) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.took = nil
}

// errEnough ends what runs beside the measurement.
var errEnough = errors.New("measured")

// latency measures one repetition on a system that knows the load's handles.
func (p *pair) latency(ctx context.Context, l *load.Load) (ours, bare sample, err error) {
	in, out := p.y.prefix+"hop-in", p.y.prefix+"hop-out"
	if err := p.y.k.createTopics(ctx, p.y.s.cfg.Partitions, in, out); err != nil {
		return ours, bare, err
	}
	defer func() { err = errors.Join(err, p.y.k.deleteTopics(context.WithoutCancel(ctx), in, out)) }()
	rows := map[string]*transaction{}
	for i := range l.Handles() {
		rows[l.ID(i)] = p.c.transaction(becomeReady, l, i, i+1)
	}
	conn, err := p.c.pool.Acquire(ctx)
	if err != nil {
		return ours, bare, err
	}
	defer conn.Release()

	system, hops := newStopwatch(), newStopwatch()
	meter := newMeter(p.y.observed()...)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return p.follow(ctx, p.y.lcmEvents(), func(r *consumer.TailRecord) error { system.stop(string(r.Key)); return nil })
	})
	g.Go(func() error {
		return p.follow(ctx, in, func(r *consumer.TailRecord) error { return p.hop(ctx, conn, rows, r, out) })
	})
	g.Go(func() error {
		return p.follow(ctx, out, func(r *consumer.TailRecord) error { hops.stop(string(r.Key)); return nil })
	})
	g.Go(func() error {
		for first := 0; first < l.Handles(); first += latencyBlock {
			end := min(first+latencyBlock, l.Handles())
			meter.start()
			if err := p.paced(ctx, p.y.stateChanges(), l, first, end, system); err != nil {
				return err
			}
			meter.stop()
			if err := p.paced(ctx, in, l, first, end, hops); err != nil {
				return err
			}
		}
		return errEnough
	})
	if err := g.Wait(); !errors.Is(err, errEnough) {
		return ours, bare, err
	}
	ours, bare = system.sample(meter.uses()), hops.sample(nil)
	ours.bareP50 = bare.p50
	if ours.handles != l.Handles() || bare.handles != l.Handles() {
		return ours, bare, fmt.Errorf("%d events were sent each way, %d and %d came", l.Handles(), ours.handles, bare.handles)
	}
	p.y.told += int64(l.Handles())
	return ours, bare, nil
}

// follow reads a topic until ctx ends.
func (p *pair) follow(ctx context.Context, topic string, take func(*consumer.TailRecord) error) error {
	transport, ok := p.y.k.client.Transport.(*kafka.Transport)
	if !ok {
		return errors.New("the client has no transport of its own")
	}
	return consumer.NewCluster(p.y.k.client.Addr, transport).Follow(ctx, topic, nil, func(r *consumer.TailRecord) (bool, error) { return true, take(r) })
}

// hop commits what a record stands for and sends it on.
func (p *pair) hop(ctx context.Context, conn *pgxpool.Conn, rows map[string]*transaction, r *consumer.TailRecord, out string) error {
	if err := p.c.commit(ctx, conn, 0, rows[string(r.Key)]); err != nil {
		return err
	}
	return p.y.k.produce(ctx, p.y.s.cfg.Partitions, kafka.Message{Topic: out, Key: r.Key, Value: r.Value})
}

// paced sends one state change at a time and waits for the last to come back.
func (p *pair) paced(ctx context.Context, topic string, l *load.Load, first, end int, w *stopwatch) error {
	tick := time.NewTicker(latencyPace)
	defer tick.Stop()
	for i := first; i < end; i++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		id := l.ID(i)
		e := load.StateChange("ready-"+id, id, inventory.Ready)
		m := e.Message()
		m.Topic = topic
		w.start(id)
		if err := p.y.k.produce(ctx, p.y.s.cfg.Partitions, m); err != nil {
			return err
		}
	}
	return w.settle(ctx)
}

// produce sends one record at once and waits for the broker.
func (k *kafkaServer) produce(ctx context.Context, partitions int, m kafka.Message) error {
	all := make([]int, partitions)
	for i := range all {
		all[i] = i
	}
	res, err := k.client.Produce(ctx, &kafka.ProduceRequest{
		Topic: m.Topic, Partition: kafka.Murmur2Balancer{}.Balance(m, all...), RequiredAcks: kafka.RequireAll,
		Records: kafka.NewRecordReader(kafka.Record{Key: kafka.NewBytes(m.Key), Value: kafka.NewBytes(m.Value), Headers: m.Headers}),
	})
	if err == nil {
		err = res.Error
	}
	if err != nil {
		return fmt.Errorf("send to %s: %w", m.Topic, err)
	}
	return nil
}
