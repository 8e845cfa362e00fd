package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/segmentio/kafka-go"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"ncmp-inventory/cmd/ncmp-inventory/config"
	"ncmp-inventory/consumer"
	"ncmp-inventory/inventory"
	"ncmp-inventory/lcm"
	"ncmp-inventory/store"
)

// worker is the product: it consumes, writes and publishes. Run may be called
// once.
type worker struct {
	cfg       config.Config
	name      string
	log       *zap.Logger
	reg       *prometheus.Registry
	transport *kafka.Transport
	client    *kafka.Client

	// level, if set before Run, can be changed at the debug address.
	level *zap.AtomicLevel
	// listening, if set before Run, is told each address that is served.
	listening func(key string, a net.Addr)
	// createTopics makes missing topics at the start.
	createTopics bool

	starting atomic.Pointer[string]    // what the start waits for; nil once it is over
	stopping atomic.Pointer[time.Time] // since when; nil before
	running  atomic.Pointer[running]
}

// running is what exists once all servers were reached.
type running struct {
	consumer *consumer.Consumer
	relay    *lcm.Relay
	monitor  *monitor
	pruner   *pruner
}

// newWorker checks the configuration. It starts nothing and reaches nobody.
func newWorker(cfg config.Config, log *zap.Logger, reg *prometheus.Registry) (*worker, error) {
	t := cfg.Kafka.Topics
	transport, err := newTransport(cfg.Kafka, append(t.Inputs(), t.LCMEvents, t.InventoryEvents, t.Outcomes, t.DeadLetters)...)
	if err != nil {
		return nil, err
	}
	w := &worker{cfg: cfg, name: workerName(cfg.Kafka.InstanceID), log: log, reg: reg, transport: transport, client: newClient(cfg.Kafka, transport)}
	w.waitFor("starting")
	if err := reg.Register(selfMetrics{w}); err != nil {
		return nil, err
	}
	return w, nil
}

// Run works until ctx ends and what is in hand is finished: then it returns nil.
// An error is something that no waiting mends.
func (w *worker) Run(ctx context.Context) error {
	defer w.transport.CloseIdleConnections()
	// Probes and metrics are served to the end: a worker that drains lives.
	outer, finish := context.WithCancel(context.WithoutCancel(ctx))
	defer finish()
	g, outer := errgroup.WithContext(outer)
	if a := w.cfg.HTTP.Address; a != "" {
		g.Go(func() error { return serveHTTP(outer, a, newOpsHandler(w.probes(), w.reg), w.bound("http.address")) })
	}
	if a := w.cfg.HTTP.DebugAddress; a != "" {
		g.Go(func() error { return serveHTTP(outer, a, newDebugHandler(w.level), w.bound("http.debug-address")) })
	}
	g.Go(func() error {
		defer finish()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(outer, cancel)() // an address that cannot be served ends all
		return w.work(ctx)
	})
	return g.Wait()
}

func (w *worker) bound(key string) func(net.Addr) {
	return func(a net.Addr) {
		w.log.Info("listening", zap.String("key", key), zap.Stringer("address", a))
		if w.listening != nil {
			w.listening(key, a)
		}
	}
}

// work is the life of a worker, in order: the servers are reached; input is
// consumed and output published; on a stop the poll loop ends, the lanes finish
// what they hold, the group is left, the relay drains, the pools close.
func (w *worker) work(ctx context.Context) error {
	told := make(chan struct{})
	unhook := context.AfterFunc(ctx, func() {
		defer close(told)
		now := time.Now()
		w.stopping.Store(&now)
		w.log.Info("stopping")
	})
	defer func() {
		if !unhook() {
			<-told // nothing is logged after Run has returned
		}
	}()
	limits, err := w.reachKafka(ctx)
	if err != nil || ctx.Err() != nil {
		return err
	}
	committed := make(chan struct{}, 1)
	s, err := w.reachStore(ctx, committed)
	if err != nil || s == nil {
		return err
	}
	defer s.Close()
	outbox, err := store.NewOutbox(context.WithoutCancel(ctx), s)
	if err != nil {
		return err
	}
	defer outbox.Close()
	var spans *tracing
	if endpoint := w.cfg.Trace.OTLPEndpoint; endpoint != "" {
		if spans, err = startTracing(ctx, endpoint, w.name, w.cfg.Kafka.Group, w.log.Named("trace")); err != nil {
			return err
		}
		defer spans.stop()
	}
	r, err := w.build(s, outbox, limits, spans)
	if err != nil {
		return err
	}
	w.running.Store(r)
	w.starting.Store(nil)
	w.log.Info("started", zap.Strings("topics", w.cfg.Kafka.Topics.Inputs()), zap.String("group", w.cfg.Kafka.Group))

	publish, drain := context.WithCancel(context.WithoutCancel(ctx))
	defer drain()
	g, consume := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer drain()
		return r.consumer.Run(consume)
	})
	g.Go(func() error { return r.relay.Run(publish) })
	g.Go(func() error { r.monitor.run(publish); return nil })
	g.Go(func() error { r.pruner.run(publish); return nil })
	g.Go(func() error { wake(publish, committed, r.relay, s, w.log); return nil })
	err = g.Wait()
	w.log.Info("stopped", zap.Error(err))
	return err
}

// build wires store → registrar → consumer and store → relay; spans, if not
// nil, look on.
func (w *worker) build(s *store.Store, outbox *store.Outbox, limits topicLimits, spans *tracing) (*running, error) {
	c := &w.cfg
	encoder, err := lcm.NewEncoder(lcm.Config{
		Version: lcm.Version(c.LCM.Version), LegacyHeaders: lcm.LegacyHeaders(c.LCM.LegacyHeaders),
		MaxOutcomeBytes: lcm.PayloadLimit(limits.outcomes),
	})
	if err != nil {
		return nil, err
	}
	if s.TookOver() && (c.LCM.Events != "ncmp" || c.LCM.LegacyHeaders != "java") {
		w.log.Warn("this database was NCMP's: consumers of NCMP's events may need lcm.events: ncmp and lcm.legacy-headers: java",
			zap.String("lcm.events", c.LCM.Events), zap.String("lcm.legacy-headers", c.LCM.LegacyHeaders))
	}
	rules := inventory.RegistrarConfig{PlannerConfig: inventory.PlannerConfig{
		Events:      map[string]inventory.EventMode{"all": inventory.EventsAll, "ncmp": inventory.EventsNCMP}[c.LCM.Events],
		Outcomes:    map[string]inventory.OutcomeMode{"failures": inventory.OutcomesFailures, "all": inventory.OutcomesAll, "off": inventory.OutcomesOff}[c.Outcomes],
		MaxLCMBytes: lcm.PayloadLimit(limits.lcm),
		Facts:       c.History.Enabled,
	}}
	registrar := inventory.NewRegistrar(s, encoder, rules)
	relay := lcm.RelayConfig{
		Topics: map[inventory.MessageKind]string{
			inventory.LCMEvent: c.Kafka.Topics.LCMEvents, inventory.InventoryEvent: c.Kafka.Topics.InventoryEvents,
			inventory.OutcomeEvent: c.Kafka.Topics.Outcomes, inventory.DeadLetterRecord: c.Kafka.Topics.DeadLetters,
		},
		Name:         w.name,
		FlushTimeout: c.Drain / flushShare,
	}
	applier := consumer.Applier(registrar)
	if spans != nil {
		applier = &tracedApplier{tracing: spans, plain: registrar, ledger: s, encoder: encoder, config: rules, topics: relay.Topics}
		relay.Published = spans.published
	}
	r := &running{monitor: newMonitor(c.Outbox, outbox, s, w.log, w.reg)}
	r.monitor.group = c.Kafka.Group
	r.relay, err = lcm.NewRelay(relay, outbox, w.client, w.log.Named("relay"), w.reg)
	if err != nil {
		return nil, err
	}
	r.pruner = newPruner(c.History, s, func() bool { return r.relay.Status().Leading }, w.log, w.reg)
	r.consumer, err = consumer.New(w.consumerConfig(), consumer.Deps{
		Cluster:   consumer.NewCluster(w.client.Addr, w.transport),
		Decoder:   newDecoder(c.Limits),
		Applier:   applier,
		Positions: s,
		Gate:      r.monitor.gate,
		Log:       w.log.Named("consumer"),
		Metrics:   w.reg,
	})
	return r, err
}

// flushShare is the part of the drain timeout that is kept for publishing what
// still waits: lanes may have to wait for PostgreSQL, the relay for Kafka.
const flushShare = 5

func (w *worker) consumerConfig() consumer.Config {
	c, k := consumer.DefaultConfig(), &w.cfg.Kafka
	c.Topics, c.HeartbeatTopics = k.Topics.Inputs(), k.Topics.Heartbeats
	c.Group, c.InstanceID, c.Owner = k.Group, k.InstanceID, w.name
	c.SessionTimeout, c.HeartbeatInterval = k.SessionTimeout, k.HeartbeatInterval
	c.RebalanceTimeout = max(c.RebalanceTimeout, c.SessionTimeout)
	c.Start, c.OnGap, c.OnRewind = k.Start, k.OnGap, w.cfg.Database.OnRewind
	c.MaxRecords, c.MaxBytes, c.Linger = w.cfg.Batch.MaxRecords, int(w.cfg.Batch.MaxBytes), w.cfg.Batch.Linger
	c.Memory = int(w.cfg.Limits.Memory)
	c.DeadLettersHaltAfter = w.cfg.DeadLetters.HaltAfter
	c.DrainTimeout = w.cfg.Drain - w.cfg.Drain/flushShare
	return c
}

// workerName is how people tell workers apart: the static member id, or the host
// and something that two workers on one host do not share.
func workerName(instanceID string) string {
	if instanceID != "" {
		return instanceID
	}
	host, err := os.Hostname()
	if err != nil {
		host = "worker"
	}
	return host + "-" + uuid.NewString()[:8]
}

// wake tells the publisher that messages were committed: this worker's own, or,
// while another worker publishes, that one through the database.
func wake(ctx context.Context, committed <-chan struct{}, relay *lcm.Relay, s *store.Store, log *zap.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-committed:
		}
		if relay.Status().Leading {
			relay.Wake()
			continue
		}
		if err := s.Notify(ctx); err != nil && ctx.Err() == nil {
			log.Debug("the publisher was not woken; it looks by itself", zap.Error(err))
		}
	}
}

func (w *worker) waitFor(what string) { w.starting.Store(&what) }

// probes say what the worker needs and has not got.
func (w *worker) probes() probes {
	when := func(check func(*running) error) func() error {
		return func() error {
			if r := w.running.Load(); r != nil {
				return check(r)
			}
			return nil
		}
	}
	return probes{
		{"worker", func() error {
			if w.stopping.Load() != nil {
				return errors.New("stopping")
			}
			if what := w.starting.Load(); what != nil {
				return errors.New(*what)
			}
			return nil
		}},
		{"postgresql", when(func(r *running) error { return r.monitor.database() })},
		{"input", when(func(r *running) error {
			s := r.consumer.Status()
			if ok, why := s.Ready(); !ok {
				return errors.New(why)
			}
			if s.Halted > 0 {
				return fmt.Errorf("%d partition(s) are halted", s.Halted)
			}
			return nil
		})},
		{"output", when(func(r *running) error {
			if p := r.relay.Status().Problems; len(p) > 0 {
				return errors.New(strings.Join(p, "; "))
			}
			return nil
		})},
	}
}

// ready is nil when the worker does all that it is there for.
func (w *worker) ready() error {
	if missing := w.probes().missing(); len(missing) > 0 {
		return errors.New(strings.Join(missing, "; "))
	}
	return nil
}
