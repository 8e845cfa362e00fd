package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"ncmp-inventory/inventory"
)

// lane applies one partition's records in order: everything that is hard
// about a partition (retry, revocation, gaps, fencing) happens in its one
// goroutine and concerns no other.
type lane struct {
	*serving
	part       inventory.Partition
	heartbeats bool
	box        *mailbox
	log        *zap.Logger

	// The lane's goroutine alone.
	next    int64 // position; -1 before the first claim
	epoch   int32 // leader epoch of the last record
	owner   int64
	deadRun int
	hint    *hint // what the group knew at assignment; nil once it was judged
	noted   bool  // a halt is stored
	begins  int64 // where the log began at the last look
	span    span
	reader  recordReader
	records []inventory.Record
	heads   *headers
	spent   int // cost of the spans that the batch in hand used up
	damage  error
	strikes int // problems in a row

	// Seen from outside.
	position atomic.Int64
	halted   atomic.Pointer[halt]
	since    atomic.Int64 // when the batch in hand was cut, ns; 0 if none is
	oldest   atomic.Int64 // timestamp of its first record, or of that behind a halt, ms; -1 if none
	behind   atomic.Int64 // where what a halt holds up begins
	calm     atomic.Int64 // when nothing was left to apply for the last time, ns
	expanded atomic.Int64 // bytes of decompressed records in hand
	inHand   atomic.Int64 // its records
}

// idleDelay is how long invisible offsets (transaction markers, aborted
// records, what compaction took) wait for a batch that takes them along,
// before the position moves by itself.
const idleDelay = 500 * time.Millisecond

// gatePause is how often a closed gate is looked at.
const gatePause = 100 * time.Millisecond

func (l *lane) name() string { return fmt.Sprintf("%s/%d", l.part.Topic, l.part.Index) }

func (l *lane) show() { l.position.Store(l.next) }

// run works until ctx ends: nil. A batch in hand then still finishes, within
// the drain timeout. An error is fatal for the whole worker.
func (l *lane) run(ctx context.Context) error {
	defer l.box.shut()
	for ctx.Err() == nil {
		err := l.own(ctx)
		if err == nil {
			l.resume(ctx)
			err = l.consume(ctx)
		}
		var h *halt
		switch {
		case errors.As(err, &h):
			l.stop(ctx, h)
			if !sleep(ctx, l.c.cfg.RecheckInterval) {
				return nil
			}
		case errors.Is(err, errAgain):
			sleep(ctx, pauseFor(l.strikes))
			l.strikes++
		case err == nil, errors.Is(err, errLeft):
			return nil
		case ctx.Err() != nil && errors.Is(err, ctx.Err()):
			return nil
		default:
			return fmt.Errorf("partition %s: %w", l.name(), err)
		}
	}
	return nil
}

// consume applies batch after batch.
func (l *lane) consume(ctx context.Context) error {
	for ctx.Err() == nil {
		if l.c.gate() != "" {
			sleep(ctx, gatePause)
			continue
		}
		next, epoch, problem, empty := l.box.idle()
		busy := l.reader.left > 0 || !empty
		switch {
		case busy:
			if err := l.batch(ctx); err != nil {
				return err
			}
		case problem != nil:
			if next > l.next {
				if err := l.skip(ctx, next, epoch); err != nil {
					return err
				}
			}
			if err := l.judge(ctx, problem); err != nil {
				return err
			}
		default:
			if err := l.wait(ctx, next, epoch); err != nil {
				return err
			}
		}
	}
	return nil
}

// wait ends when something came. Invisible offsets are skipped once nothing
// came for a while, or when the partition is given away.
func (l *lane) wait(ctx context.Context, next int64, epoch int32) error {
	var idle <-chan time.Time
	if l.box.caughtUp() {
		defer func() { l.calm.Store(time.Now().UnixNano()) }() // until something came
	}
	if next > l.next {
		t := time.NewTimer(idleDelay)
		defer t.Stop()
		idle = t.C
	}
	select {
	case <-l.box.wake:
		return nil
	case <-idle:
	case <-ctx.Done():
		if next <= l.next {
			return nil
		}
	}
	return l.skip(ctx, next, epoch)
}

func (l *lane) skip(ctx context.Context, next int64, epoch int32) error {
	return l.apply(ctx, &inventory.Batch{
		Partition: l.part, First: l.next, Next: next, OwnerEpoch: l.owner, LeaderEpoch: epoch, DeadRun: l.deadRun, DeadRunBefore: l.deadRun,
	})
}

// batch cuts and applies one batch.
func (l *lane) batch(ctx context.Context) error {
	if d := l.c.cfg.Linger; d > 0 && l.box.state().waiting < l.c.cfg.MaxRecords {
		if !sleep(ctx, d) {
			return nil
		}
	}
	began := time.Now()
	b := l.cut()
	if len(b.Records) > 0 || b.Next > b.First {
		l.c.m.phases.WithLabelValues("decode").Observe(time.Since(began).Seconds())
		l.since.Store(began.UnixNano())
		if len(b.Records) > 0 {
			l.oldest.Store(b.Records[0].Timestamp.UnixMilli())
			l.inHand.Store(int64(len(b.Records)))
		}
		err := l.apply(ctx, b)
		l.since.Store(0)
		l.oldest.Store(-1)
		l.inHand.Store(0)
		if err != nil {
			return err
		}
	}
	l.expanded.Store(int64(l.reader.expanded))
	if l.box.release(l.spent) {
		l.fetcher.kick()
	}
	l.spent, l.strikes = 0, 0
	if l.damage != nil {
		err := l.damage
		l.damage = nil
		return &halt{kindDamaged, err.Error()}
	}
	if most := l.c.cfg.DeadLettersHaltAfter; most > 0 && l.deadRun >= most {
		return l.tooManyDead()
	}
	return nil
}

// cut decodes a batch from whatever waits, up to the bounds. Its records alias
// the fetched bytes, its slices are the lane's own and used again.
func (l *lane) cut() *inventory.Batch {
	cfg := &l.c.cfg
	l.heads.reset()
	b := &inventory.Batch{
		Partition: l.part, First: l.next, Next: l.next, OwnerEpoch: l.owner, LeaderEpoch: l.epoch,
		DeadRun: l.deadRun, DeadRunBefore: l.deadRun,
	}
	n, bytes, entries := 0, 0, 0
	for n < cfg.MaxRecords && bytes < l.batchBytes && entries < maxEntries {
		if l.reader.left == 0 {
			var ok bool
			if l.span, ok = l.box.take(); !ok {
				break
			}
			var err error
			l.reader, err = l.span.open(cfg.MaxExpanded)
			switch {
			case errors.Is(err, errOversize):
				// It can never be applied, and it must not stop what follows.
				r := l.record(n)
				r.Offset, r.LeaderEpoch, r.Bytes = max(l.span.base, b.Next), l.span.epoch, len(l.span.body)
				r.Timestamp = time.UnixMilli(l.span.first)
				r.Dead = &inventory.DeadLetter{
					Reason: reasonBatchTooLarge, Byte: -1, Attempts: 1,
					Text: fmt.Sprintf("record batch of offsets %d to %d is larger than %d bytes when decompressed", l.span.base, l.span.next-1, cfg.MaxExpanded),
				}
				l.reader = recordReader{}
				n++
				b.DeadRun++
				bytes += r.Bytes
				l.finish(b)
				if cfg.DeadLettersHaltAfter > 0 && b.DeadRun >= cfg.DeadLettersHaltAfter {
					return l.close(b, n)
				}
				continue
			case err != nil:
				l.damage, l.reader = err, recordReader{}
				return l.close(b, n)
			}
			l.expanded.Add(int64(l.reader.expanded))
		}
		r := l.record(n)
		if err := l.reader.next(r, l.heads); err != nil {
			l.damage, l.reader = err, recordReader{}
			return l.close(b, n)
		}
		if r.Offset >= b.Next {
			l.c.decoder.Decode(r, l.heartbeats)
			n++
			bytes += r.Bytes
			entries += entriesOf(r)
			b.Next, b.LeaderEpoch = r.Offset+1, r.LeaderEpoch
			if b.DeadRun++; r.Dead == nil {
				b.DeadRun = 0
			}
		}
		if l.reader.left == 0 {
			l.finish(b)
		}
		if cfg.DeadLettersHaltAfter > 0 && b.DeadRun >= cfg.DeadLettersHaltAfter {
			break // what follows is not applied
		}
	}
	return l.close(b, n)
}

// maxEntries bounds a batch beside records and bytes: a hundred removals are a
// kilobyte of input, and thousands of rows and messages. PostgreSQL gains
// nothing from more than some hundred handles in a transaction.
const maxEntries = 1000

func entriesOf(r *inventory.Record) int {
	n := 0
	for i := range r.Events {
		n += len(r.Events[i].Items)
	}
	return n
}

// record hands out slot n, cleaned.
func (l *lane) record(n int) *inventory.Record {
	if n == len(l.records) {
		l.records = append(l.records, inventory.Record{})
	}
	r := &l.records[n]
	*r = inventory.Record{Events: r.Events[:0]}
	return r
}

// finish ends a span: the position moves behind it and what is invisible there.
func (l *lane) finish(b *inventory.Batch) {
	b.Next, b.LeaderEpoch = max(b.Next, l.span.next), l.span.epoch
	l.spent += l.span.cost()
	l.span.body = nil
}

func (l *lane) close(b *inventory.Batch, n int) *inventory.Batch {
	b.Records = l.records[:n]
	return b
}

// apply makes a batch durable. It tries the same batch for ever while waiting
// can mend it, or until the partition is given away.
func (l *lane) apply(ctx context.Context, b *inventory.Batch) error {
	began := time.Now()
	seen := recordsOf(b) // applying may split the batch and set records aside
	work, done := outlive(ctx, min(l.c.cfg.DrainTimeout, l.c.cfg.RebalanceTimeout))
	defer done()
	for attempt := 0; ; attempt++ {
		r, err := l.c.applier.Apply(work, b)
		if err == nil {
			l.c.calm(troubleDatabase)
			l.next, l.epoch, l.deadRun = b.Next, b.LeaderEpoch, b.DeadRun
			l.show()
			l.offsets.note(l.part, l.next)
			l.c.m.applied(l.part.Topic, seen, &r, time.Since(began))
			return nil
		}
		if work.Err() != nil {
			l.log.Warn("a batch was cut off when the drain time was over; its next owner applies it", zap.Int64("first", b.First), zap.Int64("next", b.Next))
			return errLeft
		}
		switch {
		case errors.Is(err, inventory.ErrTransient):
			l.c.trouble(troubleDatabase, err)
			l.c.m.retries.WithLabelValues("apply").Inc()
			if !sleep(ctx, pauseFor(attempt)) {
				return errLeft // nothing was applied: the next owner does it
			}
			if err := l.sameDatabase(work); err != nil {
				return err
			}
		case errors.Is(err, inventory.ErrFenced):
			l.c.m.fenced.Inc()
			l.log.Warn("another worker claimed the partition", zap.Int64("first", b.First))
			if err := l.session.confirm(ctx); err != nil {
				return errLeft
			}
			return errAgain
		case errors.Is(err, inventory.ErrRewound):
			return errAgain // own compares with what this lane had reached
		default:
			return fmt.Errorf("applying [%d, %d): %w", b.First, b.Next, err)
		}
	}
}

// sameDatabase looks, after an outage, whether it still is the database that
// the session began with. A higher timeline is a failover, nothing more.
func (l *lane) sameDatabase(ctx context.Context) error {
	was := l.c.identity()
	now, err := l.c.positions.Identity(ctx)
	switch {
	case errors.Is(err, inventory.ErrTransient):
		return nil // still out
	case err != nil:
		return err
	case now == was:
		return nil
	}
	if now.SystemID != was.SystemID || now.Timeline < was.Timeline {
		l.hint = &hint{identity: was, position: l.next, topicID: l.part.TopicID}
		l.c.setIdentity(now)
		return errAgain
	}
	l.c.setIdentity(now)
	return nil
}

// outlive makes a context that ends d after ctx did.
func outlive(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, func() {
		t := time.AfterFunc(d, cancel)
		context.AfterFunc(work, func() { t.Stop() })
	})
	return work, func() {
		unhook()
		cancel()
	}
}
