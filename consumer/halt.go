package consumer

import (
	"context"
	"fmt"

	"go.uber.org/zap"
)

// stop makes a halt known: one log line, not one per look.
func (l *lane) stop(ctx context.Context, h *halt) {
	l.box.shut()
	if was := l.halted.Swap(h); was == nil || was.reason != h.reason {
		l.c.m.halts.WithLabelValues(h.kind).Inc()
		l.log.Error("partition halted: "+h.reason,
			zap.String("kind", h.kind), zap.Int64("position", l.position.Load()),
			zap.String("to go on", fmt.Sprintf("ncmp-inventory positions set %s %d OFFSET --dry-run", l.part.Topic, l.part.Index)))
		l.noted = false
	}
	if !l.noted {
		l.noted = l.note(ctx, h.kind, h.reason)
	}
	l.behind.Store(max(l.position.Load(), l.begins))
	l.measure(ctx)
}

// measure finds how old the first record is that a halt keeps from being
// applied: nothing is fetched meanwhile, and when the partition was last caught
// up says little after a restart. What fails is tried at the next look.
func (l *lane) measure(ctx context.Context) {
	from, to := l.behind.Load(), l.box.state().stable
	if l.oldest.Load() >= 0 || from >= to {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	// All other partitions end where they begin.
	first, end := make([]int64, l.part.Index+1), make([]int64, l.part.Index+1)
	first[l.part.Index], end[l.part.Index] = from, to
	err := l.c.k.Read(ctx, l.part.Topic, first, end, func(r *TailRecord) (bool, error) {
		l.oldest.Store(r.Timestamp.UnixMilli())
		return false, nil
	})
	if err != nil && ctx.Err() == nil {
		l.log.Debug("the age of what a halt holds up is not known", zap.Error(err))
	}
}

func (l *lane) resume(ctx context.Context) {
	if l.halted.Swap(nil) != nil {
		l.oldest.Store(-1)
		l.log.Info("partition goes on", zap.Int64("position", l.next))
	}
	if l.noted {
		l.noted = !l.note(ctx, "", "")
	}
}

// note stores a halt or its end. It is for people: what fails is tried again
// when the lane looks the next time.
func (l *lane) note(ctx context.Context, kind, reason string) bool {
	err := l.c.positions.Halted(ctx, l.part, l.c.cfg.Owner, kind, reason)
	if err != nil && ctx.Err() == nil {
		l.log.Warn("the halt of a partition, or its end, could not be stored", zap.Error(err))
	}
	return err == nil
}
