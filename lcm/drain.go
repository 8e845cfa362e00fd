package lcm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"go.uber.org/zap"

	"ncmp-inventory/inventory"
)

const (
	// straggle is how long a round waits for its slower partitions before
	// the others go on without them.
	straggle = 50 * time.Millisecond
	// lookAgain is how often a topic's partition count is read.
	lookAgain = 10 * time.Second
	// A kind that was woken for nothing idleWakes times in a row is for
	// other kinds' commits: it reads at most once in idleGap until it finds
	// something.
	idleWakes = 3
	idleGap   = 10 * time.Millisecond
	// After a round of fewer than fullRound rows the next waits for gatherGap:
	// under load more gathers meanwhile, and reading the outbox costs the
	// database about the same for one row as for a thousand.
	fullRound = 1000
	gatherGap = 5 * time.Millisecond
)

// drain publishes one kind of message to its topic under one producer epoch.
// It runs in one goroutine; each partition that has something in flight has
// another, and there is never more than one batch of a partition in flight.
//
//	read the oldest rows ---> a batch a partition ---> acknowledged
//	        ^                                                |
//	        +--- with the ids acknowledged, to be deleted ---+
//
// A partition with an unanswered or failing batch is left out of the next
// reads; all others go on.
type drain struct {
	r     *Relay
	kind  inventory.MessageKind
	label string // of metrics
	topic string
	prod  producer
	lease inventory.Lease
	wake  <-chan struct{}

	parts    []*partition
	numbers  []int // 0, 1, 2 … as the balancer wants them
	limit    int   // bytes of one batch
	looked   time.Time
	results  chan *partition
	senders  sync.WaitGroup
	round    int
	busy     int
	acked    []int64
	blocked  []int
	idleness int
}

func newDrain(r *Relay, kind inventory.MessageKind, topic string, p producer, lease inventory.Lease) *drain {
	return &drain{
		r: r, kind: kind, label: kind.String(), topic: topic, prod: p, lease: lease,
		wake: r.wakeOf(kind), results: make(chan *partition),
	}
}

// run drains until soft ends: by a shutdown, then it goes on until nothing
// waits; or for a new epoch, then it brings home what is in flight. The end of
// hard stops it at once.
func (d *drain) run(hard, soft context.Context) (err error) {
	hard, cancel := context.WithCancelCause(hard)
	defer func() {
		cancel(err) // ends senders that would try for ever
		d.finish(hard)
	}()
	if !d.prepare(hard, soft) {
		return d.prepareErr(hard)
	}
	for {
		if soft.Err() != nil && errors.Is(context.Cause(soft), errRenew) {
			return d.settleAll(hard)
		}
		rows, err := d.exchange(hard)
		if err != nil {
			return err
		}
		few := 0 < len(rows) && len(rows) < fullRound
		started := d.dispatch(hard, rows)
		if soft.Err() != nil && started == 0 && d.busy == 0 && len(d.acked) == 0 {
			return nil
		}
		if err := d.collect(hard, started); err != nil {
			return err
		}
		if len(d.acked) == 0 {
			if err := d.idle(hard, soft); err != nil {
				return err
			}
		}
		if err := d.look(hard); err != nil {
			return err
		}
		if few && soft.Err() == nil {
			pause(soft.Done(), gatherGap)
		}
	}
}

// prepare waits for the topic. For LCM events it also makes sure that
// sequences go on above what the topic holds: a database that went back would
// issue them again, and consumers drop what does not grow.
func (d *drain) prepare(hard, soft context.Context) bool {
	var wait backoff
	for {
		n, err := d.r.partitions(hard, d.topic)
		if err == nil && d.kind == inventory.LCMEvent {
			err = d.r.raiseSequence(hard, d.topic, n)
		}
		if err == nil {
			d.resize(n)
			d.limit = d.batchLimit(hard)
			d.r.board.good(d.r.log, d.topic, whole)
			return hard.Err() == nil
		}
		if hard.Err() != nil {
			return false
		}
		d.r.board.bad(d.r.log, d.topic, whole, err)
		if !wait.sleep(soft.Done()) {
			return false
		}
	}
}

func (d *drain) prepareErr(hard context.Context) error {
	if hard.Err() != nil {
		return context.Cause(hard)
	}
	return nil
}

// maxBatch bounds a batch even where the topic takes more: larger ones bring
// nothing but memory.
const maxBatch = 1 << 20

func (d *drain) batchLimit(ctx context.Context) int {
	ctx, cancel := context.WithTimeout(ctx, d.r.cfg.ProduceTimeout)
	defer cancel()
	n, err := MaxMessageBytes(ctx, d.r.client, d.topic)
	if err != nil { // not allowed, perhaps; a batch that is too large is split
		n = DefaultMaxMessageBytes
	}
	return min(n, maxBatch)
}

func (d *drain) resize(n int) {
	for i := len(d.parts); i < n; i++ {
		d.parts = append(d.parts, &partition{d: d, number: i})
		d.numbers = append(d.numbers, i)
	}
	d.looked = time.Now()
}

// look notices partitions that were added. The change waits until nothing is
// in flight. Fewer partitions mean another topic of the same name.
func (d *drain) look(ctx context.Context) error {
	if d.busy > 0 || time.Since(d.looked) < lookAgain {
		return nil
	}
	d.looked = time.Now()
	n, err := d.r.partitions(ctx, d.topic)
	switch {
	case err != nil: // the partitions themselves will tell
		return nil
	case n < len(d.parts):
		return fmt.Errorf("%w: topic %q has fewer partitions than before", errRenew, d.topic)
	case n > len(d.parts):
		d.r.log.Warn("the topic has more partitions: from here on its keys are spread anew, order across the change is not kept",
			zap.String("topic", d.topic), zap.Int("before", len(d.parts)), zap.Int("now", n))
		d.resize(n)
	}
	return nil
}

// exchange deletes what was acknowledged and reads on, in one round trip. If
// its answer is lost, the same ids are deleted once more.
func (d *drain) exchange(hard context.Context) ([]inventory.OutboxRow, error) {
	w := inventory.Window{Rows: d.r.cfg.WindowRows, Bytes: d.r.cfg.WindowBytes, Partitions: len(d.parts)}
	d.blocked = d.blocked[:0]
	for _, p := range d.parts {
		if p.busy {
			d.blocked = append(d.blocked, p.number)
		}
	}
	w.Blocked = d.blocked
	var rows []inventory.OutboxRow
	err := d.r.retry(hard, hard, "reading the outbox", func(ctx context.Context) (err error) {
		rows, err = d.r.outbox.Exchange(ctx, d.lease, d.kind, d.acked, w)
		return err
	})
	if err != nil {
		return nil, err
	}
	d.acked = d.acked[:0]
	return rows, nil
}

// dispatch hands rows to their partitions, in order, and reports how many
// partitions got some. Rows without a key go to partition 0, which is also
// what their hash in the outbox says: they have no order to keep.
func (d *drain) dispatch(hard context.Context, rows []inventory.OutboxRow) (started int) {
	d.round++
	for i := range rows {
		n := 0
		if rows[i].Key != nil {
			n = kafka.Murmur2Balancer{}.Balance(kafka.Message{Key: rows[i].Key}, d.numbers...)
		}
		p := d.parts[n]
		if p.busy && p.round != d.round {
			continue // was left out of the read; it has a batch in flight
		}
		if !p.busy {
			p.begin(d.round)
			started++
		}
		p.rows = append(p.rows, rows[i])
	}
	if started == 0 {
		return 0
	}
	d.busy += started
	d.idleness = 0
	for _, p := range d.parts {
		if p.busy && p.round == d.round {
			d.senders.Add(1)
			go func() {
				defer d.senders.Done()
				p.err = p.publish(hard, p.rows)
				d.results <- p
			}()
		}
	}
	return started
}

// collect waits for the round's partitions, for the slower ones only a while.
func (d *drain) collect(hard context.Context, fresh int) error {
	if fresh == 0 {
		return nil
	}
	t := time.NewTimer(straggle)
	defer t.Stop()
	for fresh > 0 {
		select {
		case p := <-d.results:
			if p.round == d.round {
				fresh--
			}
			if err := d.settle(p); err != nil {
				return err
			}
		case <-t.C:
			return nil
		case <-hard.Done():
			return context.Cause(hard)
		}
	}
	return nil
}

// settle takes a partition back.
func (d *drain) settle(p *partition) error {
	p.busy = false
	d.busy--
	d.acked = append(d.acked, p.acked...)
	p.acked = p.acked[:0]
	clear(p.rows)
	p.rows = p.rows[:0]
	return p.err
}

// idle waits for a reason to read again.
func (d *drain) idle(hard, soft context.Context) error {
	d.idleness++
	if d.idleness > idleWakes && soft.Err() == nil {
		pause(soft.Done(), idleGap)
	}
	poll := time.NewTimer(d.r.cfg.Poll)
	defer poll.Stop()
	stop := soft.Done()
	if soft.Err() != nil {
		stop = nil // stopping already: only what is in flight counts
	}
	select {
	case p := <-d.results:
		return d.settle(p)
	case <-d.wake:
	case <-poll.C:
	case <-stop:
	case <-hard.Done():
		return context.Cause(hard)
	}
	return nil
}

// settleAll waits for everything in flight.
func (d *drain) settleAll(hard context.Context) error {
	for d.busy > 0 {
		select {
		case p := <-d.results:
			if err := d.settle(p); err != nil {
				return err
			}
		case <-hard.Done():
			return context.Cause(hard)
		}
	}
	return nil
}

// finish waits for the senders, whose context has ended or who are done, and
// deletes what was acknowledged meanwhile: else it is only sent again.
func (d *drain) finish(hard context.Context) {
	gone := make(chan struct{})
	go func() { d.senders.Wait(); close(gone) }()
	for waiting := true; waiting; {
		select {
		case p := <-d.results:
			_ = d.settle(p) // the run has its reason to end already
		case <-gone:
			waiting = false
		}
	}
	if len(d.acked) == 0 || errors.Is(context.Cause(hard), inventory.ErrNotLeader) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(hard), d.r.cfg.LeaseTTL)
	defer cancel()
	_, err := d.r.outbox.Exchange(ctx, d.lease, d.kind, d.acked, inventory.Window{Rows: 1, Bytes: 1, Partitions: len(d.parts)})
	if err != nil {
		d.r.log.Info("published messages stay in the outbox and are sent again", zap.String("topic", d.topic),
			zap.Int("messages", len(d.acked)), zap.Error(err))
	}
}
