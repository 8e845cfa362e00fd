package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	kafka "github.com/segmentio/kafka-go"
	"go.uber.org/zap"

	"ncmp-inventory/inventory"
)

// Deps are what a Consumer works with. All but Gate are needed.
type Deps struct {
	Cluster   *Cluster
	Decoder   Decoder
	Applier   Applier
	Positions Positions
	// Gate says why no input may be taken now, "" if it may. It is called
	// before every fetch and every batch, from many goroutines.
	Gate    func() string
	Log     *zap.Logger
	Metrics prometheus.Registerer
}

// Consumer is one member of the consumer group and the lanes of the partitions
// that it was given.
type Consumer struct {
	cfg       Config
	k         *Cluster
	decoder   Decoder
	applier   Applier
	positions Positions
	gate      func() string
	log       *zap.Logger
	m         *metrics

	mu         sync.Mutex
	who        inventory.Identity
	joined     bool
	generation int
	groupErr   error
	troubles   map[string]error
	missing    map[string]error // topics that cannot be seen
	lanes      []*lane

	compacted sync.Once
}

// New checks the configuration. It starts nothing and talks to nobody.
func New(cfg Config, d Deps) (*Consumer, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("consumer: %w", err)
	}
	c := &Consumer{
		cfg: cfg, k: d.Cluster, decoder: d.Decoder, applier: d.Applier, positions: d.Positions, gate: d.Gate, log: d.Log,
		troubles: map[string]error{}, missing: map[string]error{},
	}
	if c.gate == nil {
		c.gate = func() string { return "" }
	}
	c.m = newMetrics(d.Metrics, c)
	return c, nil
}

// Run consumes until ctx ends, then stops fetching, lets the batches in hand
// finish within the drain timeout, leaves the group (a static member stays)
// and returns nil. Outages of Kafka or the database are waited for; an error
// is something that no waiting mends.
func (c *Consumer) Run(ctx context.Context) error {
	m := &member{
		cfg: &c.cfg, k: c.k, log: c.log, m: c.m,
		serve: c.serve, found: c.beginLatest, stalled: c.stalled,
		note: func(joined bool, generation int, err error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.joined, c.generation, c.groupErr = joined, generation, err
		},
	}
	return m.run(ctx)
}

// serving is what the lanes of one session share.
type serving struct {
	c         *Consumer
	session   *session
	clusterID string
	fetcher   *fetcher
	offsets   *committer

	fetchBytes, heldMost, batchBytes int
}

// serve runs the lanes of a session until ctx ends.
func (c *Consumer) serve(ctx context.Context, s *session) error {
	md, hints, err := c.prepare(ctx, s)
	if err != nil || md == nil {
		return err
	}
	c.compacted.Do(func() { c.warnCompacted(ctx) })
	v := &serving{c: c, session: s, clusterID: md.ClusterID}
	v.fetcher = newFetcher(v)
	v.offsets = newCommitter(v)
	lanes := c.newLanes(v, md, hints)
	v.fetcher.lanes = lanes
	c.mu.Lock()
	c.lanes = lanes
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.lanes = nil
	}()

	// A lane's fatal error ends the others as a revocation would.
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var wg, helpers sync.WaitGroup
	errs := make([]error, len(lanes))
	for i, l := range lanes {
		wg.Go(func() {
			if errs[i] = l.run(ctx); errs[i] != nil {
				stop()
			}
		})
	}
	helpers.Go(func() { v.fetcher.run(ctx) })
	helpers.Go(func() { v.offsets.run(ctx) })
	<-ctx.Done()
	wg.Wait()
	helpers.Wait()
	_ = v.offsets.flush(context.WithoutCancel(ctx)) // a hint, no more
	return errors.Join(errs...)
}

// prepare learns what the lanes need to judge their positions. A nil Metadata
// means that ctx ended.
func (c *Consumer) prepare(ctx context.Context, s *session) (md *Metadata, hints map[partitionKey]hint, err error) {
	tries := 0
	err = c.kafka(ctx, "preparing the session", func(ctx context.Context) error {
		if tries++; tries > 5 {
			s.reassign() // the topics may be others by now
		}
		var err error
		if md, err = c.k.Metadata(ctx, c.cfg.Topics...); err != nil {
			return err
		}
		for name, parts := range s.assigned {
			// A broker may be behind the one that the leader asked.
			if t := md.Topics[name]; t.Err != nil || len(t.Leaders) <= slices.Max(parts) {
				return fmt.Errorf("topic %s: not all assigned partitions are known yet: %w", name, kafka.UnknownTopicOrPartition)
			}
		}
		hints, err = c.k.hints(ctx, c.cfg.Group, s.assigned)
		return err
	})
	if err == nil {
		err = c.store(ctx, "identifying the database", func(ctx context.Context) error {
			id, err := c.positions.Identity(ctx)
			if err == nil {
				c.setIdentity(id)
			}
			return err
		})
	}
	if ctx.Err() != nil {
		return nil, nil, nil //nolint:nilerr // the end of ctx is no failure
	}
	return md, hints, err
}

func (c *Consumer) newLanes(v *serving, md *Metadata, hints map[partitionKey]hint) []*lane {
	n := 0
	for _, parts := range v.session.assigned {
		n += len(parts)
	}
	v.fetchBytes, v.heldMost, v.batchBytes = c.cfg.share(n)
	lanes := make([]*lane, 0, n)
	for name, parts := range v.session.assigned {
		for _, i := range parts {
			p := inventory.Partition{TopicID: md.Topics[name].ID, Topic: name, Index: int32(i)}
			l := &lane{
				serving: v, part: p, heartbeats: slices.Contains(c.cfg.HeartbeatTopics, name),
				box: newMailbox(v.heldMost, 8*c.cfg.MaxRecords), heads: newHeaders(), next: -1,
				log: c.log.With(zap.String("topic", name), zap.Int("partition", i)),
			}
			if h, ok := hints[keyOf(p)]; ok {
				l.hint = &h
			}
			l.position.Store(-1)
			l.oldest.Store(-1)
			l.calm.Store(time.Now().UnixNano())
			lanes = append(lanes, l)
		}
	}
	slices.SortFunc(lanes, func(a, b *lane) int {
		if d := strings.Compare(a.part.Topic, b.part.Topic); d != 0 {
			return d
		}
		return int(a.part.Index - b.part.Index)
	})
	return lanes
}

// stalled reports whether some batch has been in hand for too long.
func (c *Consumer) stalled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	limit := time.Now().Add(-c.cfg.StallTimeout).UnixNano()
	for _, l := range c.lanes {
		if since := l.since.Load(); since != 0 && since < limit {
			return true
		}
	}
	return false
}

func (c *Consumer) identity() inventory.Identity {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.who
}

func (c *Consumer) setIdentity(id inventory.Identity) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.who = id
}

// kafka does something with the brokers until it works: whatever they answer
// here, waiting is right.
func (c *Consumer) kafka(ctx context.Context, what string, do func(context.Context) error) error {
	return c.retry(ctx, troubleKafka, what, func(error) bool { return true }, do)
}

// store does something with the stored positions until it works or fails for
// good.
func (c *Consumer) store(ctx context.Context, what string, do func(context.Context) error) error {
	return c.retry(ctx, troubleDatabase, what, func(err error) bool { return errors.Is(err, inventory.ErrTransient) }, do)
}

func (c *Consumer) retry(ctx context.Context, part, what string, waits func(error) bool, do func(context.Context) error) error {
	for attempt := 0; ; attempt++ {
		err := do(ctx)
		if err == nil {
			c.calm(part)
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !waits(err) {
			return fmt.Errorf("%s: %w", what, err)
		}
		c.trouble(part, fmt.Errorf("%s: %w", what, err))
		c.m.retries.WithLabelValues(part).Inc()
		if !sleep(ctx, pauseFor(attempt)) {
			return ctx.Err()
		}
	}
}

// warnCompacted looks once whether the broker may throw input records away
// that others overwrote: every event counts here, not the last one of a key.
func (c *Consumer) warnCompacted(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req := &kafka.DescribeConfigsRequest{}
	for _, t := range c.cfg.Topics {
		req.Resources = append(req.Resources, kafka.DescribeConfigRequestResource{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: t, ConfigNames: []string{"cleanup.policy"},
		})
	}
	r, err := c.k.client.DescribeConfigs(ctx, req)
	if err != nil {
		c.log.Debug("looking for compacted input topics", zap.Error(err))
		return
	}
	for _, res := range r.Resources {
		for _, e := range res.ConfigEntries {
			if e.ConfigName == "cleanup.policy" && strings.Contains(e.ConfigValue, "compact") {
				c.log.Warn("input topic is compacted: events that a later one of the same key replaces can get lost",
					zap.String("topic", res.ResourceName), zap.String("cleanup.policy", e.ConfigValue))
			}
		}
	}
}
