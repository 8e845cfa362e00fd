package main

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"ncmp-inventory/cmd/ncmp-inventory/config"
	"ncmp-inventory/inventory"
	"ncmp-inventory/store"
)

const (
	// pruneHandles is how many handles' histories one step looks at.
	pruneHandles = 500
	// pruneShare bounds what pruning takes of the database: after a step it
	// rests for so many times as long as the step took.
	pruneShare = 50
	// pruneEvery is how often the whole history is gone through, at most.
	pruneEvery = 10 * time.Minute
)

// pruner removes from the history what is too old or too much. The worker that
// publishes does it, so that not all of them do.
type pruner struct {
	cfg     config.History
	store   *store.Store
	leading func() bool
	log     *zap.Logger
	removed prometheus.Counter
}

func newPruner(cfg config.History, s *store.Store, leading func() bool, log *zap.Logger, reg prometheus.Registerer) *pruner {
	p := &pruner{cfg: cfg, store: s, leading: leading, log: log, removed: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "ncmp_inventory_history_removed_total", Help: "Entries of the history that were removed because of their age or number.",
	})}
	reg.MustRegister(p.removed)
	return p
}

// run goes through the history again and again until ctx ends. A failed step
// is tried again; the database's trouble is told by readiness.
func (p *pruner) run(ctx context.Context) {
	last, began, told := "", time.Now(), ""
	for ctx.Err() == nil {
		rest := time.Second
		if p.leading() {
			start := time.Now()
			if last == "" {
				began = start
			}
			next, n, err := p.store.PruneHistory(ctx, last, pruneHandles, start.Add(-p.cfg.Keep), p.cfg.KeepEvents)
			p.removed.Add(float64(n))
			switch {
			case err == nil:
				last, told = next, ""
			case ctx.Err() == nil && !errors.Is(err, inventory.ErrTransient) && err.Error() != told:
				told = err.Error()
				p.log.Warn("the history is not pruned", zap.Error(err))
			}
			rest = max(100*time.Millisecond, pruneShare*time.Since(start))
			if err != nil {
				rest = max(rest, 10*time.Second)
			} else if last == "" {
				rest = max(rest, pruneEvery-time.Since(began))
			}
		}
		t := time.NewTimer(rest)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
}
