package lcm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/compress"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"ncmp-inventory/inventory"
)

// RelayConfig says where the outbox goes and how.
type RelayConfig struct {
	// Topics by kind. A kind without a topic is not published: its rows wait.
	Topics map[inventory.MessageKind]string
	// Name of this worker, for people; the lease's holder is the name and a
	// random part, so that a restarted worker is another holder. Default "worker".
	Name string
	// Compression of record batches. Default none: it is measured.
	Compression kafka.Compression
	// LeaseTTL is how long a silent publisher keeps the lease; it is renewed
	// every third of it. Default 3 s.
	LeaseTTL time.Duration
	// ProduceTimeout bounds one attempt at one batch; the broker is given
	// half of it to replicate. Default 10 s.
	ProduceTimeout time.Duration
	// StoreTimeout bounds one call of the outbox. Default 10 s.
	StoreTimeout time.Duration
	// Poll is how often the outbox is read although nobody said that
	// something was committed. Default 500 ms.
	Poll time.Duration
	// FlushTimeout bounds publishing what still waits after Run's context
	// ended. Default 5 s.
	FlushTimeout time.Duration
	// Reinitialize is how long a producer epoch is used; it keeps the
	// transactional id from expiring. Default 24 h.
	Reinitialize time.Duration
	// WindowRows and WindowBytes bound one read of the outbox, for each
	// kind. Defaults 5,000 and 4 MiB.
	WindowRows, WindowBytes int
	// Published, if not nil, is told each batch that a partition acknowledged
	// and when its first attempt began. It is called from many goroutines and
	// may keep nothing of rows.
	Published func(topic string, partition int, rows []inventory.OutboxRow, began time.Time)
}

func (c *RelayConfig) validate() error {
	for _, d := range []struct {
		name string
		v    *time.Duration
		def  time.Duration
	}{
		{"lease TTL", &c.LeaseTTL, 3 * time.Second},
		{"produce timeout", &c.ProduceTimeout, 10 * time.Second},
		{"store timeout", &c.StoreTimeout, 10 * time.Second},
		{"poll", &c.Poll, 500 * time.Millisecond},
		{"flush timeout", &c.FlushTimeout, 5 * time.Second},
		{"reinitialize", &c.Reinitialize, 24 * time.Hour},
	} {
		if *d.v == 0 {
			*d.v = d.def
		}
		if *d.v < 0 {
			return fmt.Errorf("%s is negative", d.name)
		}
	}
	if c.WindowRows == 0 {
		c.WindowRows = 5000
	}
	if c.WindowBytes == 0 {
		c.WindowBytes = 4 << 20
	}
	if c.WindowRows < 0 || c.WindowBytes < 0 {
		return errors.New("the window is negative")
	}
	if c.Name == "" {
		c.Name = "worker"
	}
	seen := make(map[string]inventory.MessageKind, len(c.Topics))
	for kind, topic := range c.Topics {
		if other, ok := seen[topic]; ok && topic != "" {
			return fmt.Errorf("topic %q is named for %v and for %v", topic, other, kind)
		}
		seen[topic] = kind
	}
	return nil
}

// Relay publishes the outbox. Of all workers' relays on one database one
// publishes at a time: a lease in the database chooses it, and a producer
// epoch that Kafka issues keeps a predecessor that is late from writing behind
// it. Kafka decides, the lease is a hint.
type Relay struct {
	cfg     RelayConfig
	holder  string
	outbox  Outbox
	client  *kafka.Client
	codec   compress.Codec
	log     *zap.Logger
	metrics *metrics
	board   board
	wakes   [len(wakeKinds)]chan struct{}
}

var wakeKinds = [...]inventory.MessageKind{
	inventory.LCMEvent, inventory.InventoryEvent, inventory.OutcomeEvent, inventory.DeadLetterRecord,
}

// NewRelay makes a relay; Run starts it. Of client it uses address and
// transport.
func NewRelay(cfg RelayConfig, outbox Outbox, client *kafka.Client, log *zap.Logger, reg prometheus.Registerer) (*Relay, error) {
	cfg.Topics = cloneTopics(cfg.Topics)
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	r := &Relay{
		cfg:     cfg,
		holder:  cfg.Name + "/" + uuid.NewString(),
		outbox:  outbox,
		client:  &kafka.Client{Addr: client.Addr, Transport: client.Transport, Timeout: cfg.ProduceTimeout},
		log:     log,
		metrics: newMetrics(reg),
	}
	if cfg.Compression != 0 {
		r.codec = cfg.Compression.Codec()
		if r.codec == nil {
			return nil, fmt.Errorf("relay: unknown compression %d", cfg.Compression)
		}
	}
	for i := range r.wakes {
		r.wakes[i] = make(chan struct{}, 1)
	}
	return r, nil
}

func cloneTopics(in map[inventory.MessageKind]string) map[inventory.MessageKind]string {
	out := make(map[inventory.MessageKind]string, len(in))
	for k, t := range in {
		out[k] = t
	}
	return out
}

// Wake says that messages were committed. It never blocks, may be called at
// any time and from anywhere, and calls that come close together count as one.
func (r *Relay) Wake() {
	for _, c := range r.wakes {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

var (
	// errFenced: Kafka has given the transactional id to a later publisher.
	errFenced = errors.New("a later publisher has taken over")
	// errRenew: the producer state is lost or a day old; a new epoch is
	// needed, and everything not yet deleted is sent again under it.
	errRenew = errors.New("a new producer epoch is needed")
	// errUnreachable: the lease is better held by a worker that reaches Kafka.
	errUnreachable = errors.New("no producer epoch could be had from Kafka")
	// errExpired: the lease could not be renewed in time.
	errExpired = errors.New("the lease expired")
)

// Run publishes whenever this worker holds the lease, until ctx ends; then it
// publishes what still waits, within FlushTimeout, gives the lease back and
// returns nil. Outages of the database and of Kafka are waited for. Any other
// failure of the outbox is returned.
func (r *Relay) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { r.listen(ctx); return nil })
	g.Go(func() error { return r.compete(ctx) })
	return g.Wait()
}

// listen passes other workers' wake-ups on. Without it the poll still finds
// their messages, only later.
func (r *Relay) listen(ctx context.Context) {
	var wait backoff
	for ctx.Err() == nil {
		started := time.Now()
		err := r.outbox.Listen(ctx, r.Wake)
		if ctx.Err() != nil {
			return
		}
		if time.Since(started) > time.Minute {
			wait.reset()
		}
		r.metrics.outbox.Inc()
		r.log.Debug("wake-ups of other workers are not heard", zap.Error(err))
		wait.sleep(ctx.Done())
	}
}

// compete waits for the lease, serves a term, and waits again.
func (r *Relay) compete(ctx context.Context) error {
	var wait backoff
	for ctx.Err() == nil {
		asked := time.Now()
		lease, ok, err := r.askLease(ctx, r.cfg.LeaseTTL)
		switch {
		case ctx.Err() != nil:
			if ok {
				r.resign(lease)
			}
			return nil
		case err != nil:
			if !transient(err) {
				return fmt.Errorf("taking the publisher's lease: %w", err)
			}
			r.metrics.outbox.Inc()
			wait.sleep(ctx.Done())
			continue
		case !ok:
			wait.reset()
			pause(ctx.Done(), jitter(r.cfg.LeaseTTL/3))
			continue
		}
		wait.reset()
		err = r.serve(ctx, lease, asked)
		r.resign(lease)
		switch {
		case ctx.Err() != nil && (err == nil || !fatal(err)):
			return nil
		case fatal(err):
			return err
		case errors.Is(err, errFenced):
			r.metrics.fenced.Inc()
			r.log.Warn("publisher stopped: a later one took the relay id; if this repeats, another database uses the same one", zap.Error(err))
			pause(ctx.Done(), r.cfg.LeaseTTL+jitter(r.cfg.LeaseTTL))
		case errors.Is(err, errUnreachable):
			r.log.Warn("publisher stopped, so that a worker which reaches Kafka can take over", zap.Error(err))
			pause(ctx.Done(), r.cfg.LeaseTTL+jitter(r.cfg.LeaseTTL))
		default:
			r.log.Info("publisher stopped", zap.Error(err))
			pause(ctx.Done(), jitter(r.cfg.LeaseTTL/3))
		}
	}
	return nil
}

// fatal reports whether a term ended for a reason that waiting cannot mend.
func fatal(err error) bool {
	for _, passing := range []error{errFenced, errRenew, errUnreachable, errExpired, inventory.ErrNotLeader} {
		if errors.Is(err, passing) {
			return false
		}
	}
	return !transient(err)
}

func transient(err error) bool {
	return err == nil || errors.Is(err, inventory.ErrTransient) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

func (r *Relay) askLease(ctx context.Context, within time.Duration) (inventory.Lease, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return r.outbox.Lead(ctx, r.holder, r.cfg.LeaseTTL)
}

// resign gives the lease back, so that another worker need not wait for it to
// expire. It may fail: then the others do wait.
func (r *Relay) resign(l inventory.Lease) {
	ctx, cancel := context.WithTimeout(context.Background(), r.cfg.LeaseTTL)
	defer cancel()
	if err := r.outbox.Resign(ctx, l); err != nil && !errors.Is(err, inventory.ErrNotLeader) {
		r.log.Info("the publisher's lease was not given back; it expires", zap.Error(err))
	}
}

// serve publishes for as long as the lease can be renewed.
func (r *Relay) serve(ctx context.Context, lease inventory.Lease, asked time.Time) error {
	r.metrics.leading.Set(1)
	r.metrics.terms.Inc()
	r.board.lead(true)
	r.log.Info("publisher started", zap.Int64("generation", lease.Generation))
	defer func() {
		r.metrics.leading.Set(0)
		r.board.lead(false)
	}()
	// The end of ctx is a wish: what is in flight is still brought home.
	hard, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	g, hard := errgroup.WithContext(hard)
	done := make(chan struct{})
	g.Go(func() error { return r.keep(hard, done, lease, asked.Add(r.cfg.LeaseTTL)) })
	g.Go(func() error {
		defer close(done)
		if err := r.retryParked(hard, ctx, lease); err != nil {
			return err
		}
		var wait backoff
		for {
			started := time.Now()
			err := r.session(hard, ctx, lease)
			if ctx.Err() != nil || !errors.Is(err, errRenew) {
				return err
			}
			r.log.Info("producer epoch is renewed", zap.Error(err))
			if time.Since(started) > time.Minute {
				wait.reset()
			}
			wait.sleep(ctx.Done())
		}
	})
	return g.Wait()
}

// retryParked lets a new publisher try once what an earlier one set aside: the
// topic may take more by now.
func (r *Relay) retryParked(hard, soft context.Context, lease inventory.Lease) error {
	n := 0
	err := r.retry(hard, soft, "retrying parked rows", func(ctx context.Context) (err error) {
		n, err = r.outbox.RetryParked(ctx, lease)
		return err
	})
	if n > 0 {
		r.log.Info("messages that a broker would not take are sent once more", zap.Int("messages", n))
	}
	return err
}

// keep renews the lease until done, on the safe side of the database's clock:
// it counts from before it asked.
func (r *Relay) keep(ctx context.Context, done <-chan struct{}, lease inventory.Lease, until time.Time) error {
	step := r.cfg.LeaseTTL / 3
	for {
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return nil
		case <-time.After(min(step, time.Until(until))):
		}
		asked := time.Now()
		if !asked.Before(until) {
			return errExpired
		}
		now, ok, err := r.askLease(ctx, until.Sub(asked))
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !transient(err):
			return fmt.Errorf("renewing the publisher's lease: %w", err)
		case err != nil:
			r.metrics.outbox.Inc()
		case !ok || now.Generation != lease.Generation:
			return inventory.ErrNotLeader
		default:
			until = asked.Add(r.cfg.LeaseTTL)
		}
	}
}

// session publishes under one producer epoch, every kind on its own. It ends
// with errRenew after a day.
func (r *Relay) session(hard, soft context.Context, lease inventory.Lease) error {
	p, err := r.initProducer(hard, soft)
	if err != nil || soft.Err() != nil {
		return err
	}
	day, cancelDay := context.WithTimeoutCause(soft, r.cfg.Reinitialize, errRenew)
	defer cancelDay()
	hard, cancel := context.WithCancelCause(hard)
	defer cancel(nil)
	g, hard := errgroup.WithContext(hard)
	for _, kind := range wakeKinds {
		topic := r.cfg.Topics[kind]
		if topic == "" {
			continue
		}
		d := newDrain(r, kind, topic, p, lease)
		g.Go(func() error { return d.run(hard, day) })
	}
	// Once stopping, bringing home what is in flight may take this long.
	ended, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-ended:
			return
		case <-day.Done():
		}
		if pause(ended, r.cfg.FlushTimeout) {
			cancel(context.Cause(day))
		}
	}()
	err = g.Wait()
	close(ended)
	<-watched
	if err == nil && soft.Err() == nil {
		err = context.Cause(day)
	}
	return err
}

// wakeOf is the kind's wake channel.
func (r *Relay) wakeOf(kind inventory.MessageKind) <-chan struct{} {
	return r.wakes[slices.Index(wakeKinds[:], kind)]
}
