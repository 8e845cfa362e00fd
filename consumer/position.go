package consumer

import (
	"context"
	"errors"
	"fmt"

	kafka "github.com/segmentio/kafka-go"
	"go.uber.org/zap"

	"ncmp-inventory/inventory"
)

// halt stops one partition until an operator decides. Kind is a metric label.
type halt struct {
	kind   string
	reason string
}

func (h *halt) Error() string { return h.reason }

// The kinds of halts, gaps and rewinds.
const (
	kindGap         = "gap"
	kindTruncated   = "truncated"
	kindRecreated   = "recreated"
	kindRewound     = "rewound"
	kindDeadLetters = "dead-letters"
	kindDamaged     = "damaged"
)

// errAgain makes a lane claim its partition anew and look at everything again.
var errAgain = errors.New("claim again")

// own claims the partition and finds where to go on. The stored position is
// the truth; it is checked against the log's bounds, against what the group's
// offsets tell about the database, and against what this lane had reached.
// Only then fetching begins.
func (l *lane) own(ctx context.Context) error {
	var cl inventory.Claimed
	if err := l.c.store(ctx, "claiming "+l.name(), func(ctx context.Context) (err error) {
		cl, err = l.c.positions.Claim(ctx, l.part, l.clusterID, l.c.cfg.Owner)
		return err
	}); err != nil {
		return err
	}
	var log Offsets
	if err := l.c.kafka(ctx, "looking at "+l.name(), func(ctx context.Context) (err error) {
		log, err = l.c.k.boundsOf(ctx, l.part)
		return err
	}); err != nil {
		return err
	}
	l.box.bounds(log)
	l.begins = log.Start
	if cl.Found {
		l.position.Store(cl.Next)
	}
	if cl.Moved {
		l.hint, l.next = nil, -1
	}
	back := l.wentBack(cl)
	if back != "" {
		if l.c.cfg.OnRewind == Halt {
			return &halt{kindRewound, back}
		}
		l.c.m.gaps.WithLabelValues(kindRewound).Inc()
		l.log.Warn("the database went back: records are applied again", zap.String("found", back), zap.Int64("from", cl.Next))
		l.hint = nil
	}
	if !cl.Found {
		begin, err := l.begin(ctx, log, back != "")
		if err != nil {
			return err
		}
		if err := l.c.store(ctx, "storing the start of "+l.name(), func(ctx context.Context) (err error) {
			cl, err = l.c.positions.Start(ctx, l.part, l.clusterID, l.c.cfg.Owner, begin)
			return err
		}); err != nil {
			return err
		}
	}
	l.noted = l.noted || cl.Halted
	l.next, l.epoch, l.owner, l.deadRun = cl.Next, cl.LeaderEpoch, cl.OwnerEpoch, cl.DeadRun
	if cl.Moved {
		l.deadRun = 0
	}
	if cl.Moved {
		if err := l.settle(ctx); err != nil {
			return err
		}
	}
	if most := l.c.cfg.DeadLettersHaltAfter; most > 0 && l.deadRun >= most {
		return l.tooManyDead()
	}
	switch {
	case l.next < log.Start:
		why := fmt.Sprintf("%d records are gone: the log starts at offset %d, the position is %d", log.Start-l.next, log.Start, l.next)
		if err := l.jump(ctx, kindGap, why, log.Start); err != nil {
			return err
		}
	case l.next > log.End:
		why := fmt.Sprintf("the log was truncated: it ends at offset %d, the position is %d", log.End, l.next)
		if err := l.jump(ctx, kindTruncated, why, log.End); err != nil {
			return err
		}
	}
	l.show()
	l.reader = recordReader{}
	l.spent = 0
	l.box.reset(l.next, l.epoch)
	l.fetcher.kick()
	l.offsets.note(l.part, l.next)
	return nil
}

// settle ends an operator's move: the group learns of the new position before
// the mark of the move goes. A worker that dies in between leaves the mark, or the
// next owner would take the position for that of a database that went back.
func (l *lane) settle(ctx context.Context) error {
	if err := l.c.kafka(ctx, "telling the group where "+l.name()+" was moved to", func(ctx context.Context) error {
		return l.offsets.tell(ctx, l.part, l.next)
	}); err != nil {
		return err
	}
	return l.apply(ctx, &inventory.Batch{Partition: l.part, First: l.next, Next: l.next, OwnerEpoch: l.owner, LeaderEpoch: l.epoch})
}

// wentBack says how the database shows that it lost commits, "" if it does
// not: its position lies below what was reached, or it is another database, or
// an earlier history of it.
func (l *lane) wentBack(cl inventory.Claimed) string {
	if cl.Found && l.next > cl.Next {
		return fmt.Sprintf("the stored position is %d, this worker had reached %d", cl.Next, l.next)
	}
	h := l.hint
	if h == nil {
		return ""
	}
	id := l.c.identity()
	switch {
	case !cl.Found:
		return fmt.Sprintf("no position is stored, the group had reached %d", h.position)
	case cl.Next < h.position:
		return fmt.Sprintf("the stored position is %d, the group had reached %d", cl.Next, h.position)
	case h.identity.SystemID != id.SystemID:
		return fmt.Sprintf("this is database %s at position %d, the group had reached %d with database %s", id.SystemID, cl.Next, h.position, h.identity.SystemID)
	case id.Timeline < h.identity.Timeline:
		return fmt.Sprintf("the database is on timeline %d at position %d, the group had reached %d on timeline %d", id.Timeline, cl.Next, h.position, h.identity.Timeline)
	}
	return ""
}

// begin decides where a partition without a stored position begins.
func (l *lane) begin(ctx context.Context, log Offsets, replay bool) (int64, error) {
	var known, recreated bool
	if err := l.c.store(ctx, "looking for topic "+l.part.Topic, func(ctx context.Context) (err error) {
		known, recreated, err = l.c.positions.TopicKnown(ctx, l.part)
		return err
	}); err != nil {
		return 0, err
	}
	switch {
	case replay:
		return log.Start, nil
	case recreated:
		const why = "the topic was deleted and created anew"
		if l.c.cfg.OnGap == Halt {
			return 0, &halt{kindRecreated, why}
		}
		l.c.m.gaps.WithLabelValues(kindRecreated).Inc()
		l.log.Warn(why, zap.Int64("from", log.Start))
		return log.Start, nil
	case known:
		return log.Start, nil // a partition that was added: nothing of it is skipped
	case l.c.cfg.Start == Latest:
		return log.Stable, nil
	}
	return log.Start, nil
}

// beginLatest stores where the partitions of topics never seen before begin.
// It is the group leader's, between two generations when nobody owns anything:
// if each member stored its own partitions, those that come later would look
// like partitions added to a known topic.
func (c *Consumer) beginLatest(ctx context.Context, md *Metadata) error {
	if c.cfg.Start != Latest {
		return nil
	}
	for _, t := range md.Topics {
		if t.Err != nil {
			continue
		}
		known, recreated, err := c.positions.TopicKnown(ctx, inventory.Partition{TopicID: t.ID, Topic: t.Name, Index: -1})
		if err != nil {
			return storeError(err)
		}
		if known || recreated {
			continue
		}
		log, err := c.k.bounds(ctx, t)
		if err != nil {
			return err
		}
		for i := range log {
			p := inventory.Partition{TopicID: t.ID, Topic: t.Name, Index: int32(i)}
			if _, err := c.positions.Start(ctx, p, md.ClusterID, c.cfg.Owner, log[i].Stable); err != nil {
				return storeError(err)
			}
		}
	}
	return nil
}

// storeError marks what no waiting mends as the end of the membership.
func storeError(err error) error {
	if errors.Is(err, inventory.ErrTransient) {
		return err
	}
	return &serveError{err}
}

// jump moves the position over what is not there any more, or halts, as the
// policy says. The move is an empty batch, under the claim like any other.
func (l *lane) jump(ctx context.Context, kind, why string, to int64) error {
	if l.c.cfg.OnGap == Halt {
		return &halt{kind, why}
	}
	l.c.m.gaps.WithLabelValues(kind).Inc()
	l.log.Warn(why, zap.Int64("going on at", to))
	return l.apply(ctx, &inventory.Batch{
		Partition: l.part, First: l.next, Next: to, OwnerEpoch: l.owner, LeaderEpoch: -1, DeadRun: l.deadRun, DeadRunBefore: l.deadRun,
	})
}

// judge looks into what the fetcher met, after everything before it was
// applied.
func (l *lane) judge(ctx context.Context, p *problem) error {
	l.strikes++
	switch {
	case p.err != nil:
		if l.strikes > 3 { // a bit flipped on the way would not come again
			return &halt{kindDamaged, p.err.Error()}
		}
	case p.diverged >= 0:
		why := fmt.Sprintf("the log was truncated: it holds other records from offset %d on, the position is %d", p.diverged, l.next)
		if err := l.jump(ctx, kindTruncated, why, min(p.diverged, l.next)); err != nil {
			return err
		}
		return errAgain
	case errors.Is(p.code, kafka.OffsetOutOfRange):
		return errAgain // own finds out which bound was crossed
	default:
		if err := l.sameTopic(ctx); err != nil {
			return err
		}
	}
	if sleep(ctx, pauseFor(l.strikes)) {
		l.box.settle()
		l.fetcher.kick()
	}
	return nil
}

// sameTopic checks the topic's id after the broker did not know it. On a topic
// just created, that is a passing state.
func (l *lane) sameTopic(ctx context.Context) error {
	md, err := l.c.k.Metadata(ctx, l.part.Topic)
	if err != nil {
		return nil //nolint:nilerr // asked again after the pause
	}
	t := md.Topics[l.part.Topic]
	if t.Err == nil && t.ID != l.part.TopicID {
		l.session.reassign() // what follows is the new topic's lane's to say
		return &halt{kindRecreated, "the topic was deleted and created anew"}
	}
	if t.Err != nil {
		l.c.trouble(troubleKafka, fmt.Errorf("topic %s: %w", l.part.Topic, t.Err))
	}
	return nil
}

func (l *lane) tooManyDead() *halt {
	return &halt{kindDeadLetters, fmt.Sprintf("%d dead letters in a row: the producer or the topic is wrong", l.deadRun)}
}
