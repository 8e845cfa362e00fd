package bench

import (
	"context"
	"errors"
	"time"

	"ncmp-inventory/cmd/internal/load"
)

// startIdle is how long a worker that has nothing to do is watched.
const startIdle = 5 * time.Second

// start measures how long it takes from the start of a worker's process until
// the LCM event of a registration that waited for it is there, joining the group
// included, and what the worker holds when it then has nothing to do.
func (r *run) start(ctx context.Context, _ []string) ([]Result, error) {
	y, err := r.s.startSystem(ctx)
	if err != nil {
		return nil, err
	}
	var samples []sample
	for i := range r.cfg.Repeat {
		r.repetition("start", i)
		s, err := y.restart(ctx, i)
		if err != nil {
			return nil, errors.Join(err, y.close(ctx))
		}
		samples = append(samples, s)
	}
	res := summarize(samples, true)
	res.Workload, res.HandlesPerSecond, res.FragmentsPerSecond, res.P99Ms = "start", 0, 0, 0
	return []Result{res}, y.close(ctx)
}

// restart puts one new worker in the place of all that run.
func (y *system) restart(ctx context.Context, i int) (s sample, err error) {
	for _, w := range y.workers {
		if err := w.stop(ctx); err != nil {
			return s, err
		}
	}
	y.workers = nil
	l, err := load.New(load.Config{Handles: 1, First: i, PerEvent: 1, Seed: 1})
	if err != nil {
		return s, err
	}
	if err := y.writer.WriteMessages(ctx, messages(y.registrations(), l.Registrations())...); err != nil {
		return s, err
	}
	began := time.Now()
	w, err := y.startWorker(ctx, i+1)
	if err != nil {
		return s, err
	}
	y.workers = append(y.workers, w)
	if _, err := y.drive(ctx, nil, 1); err != nil {
		return s, err
	}
	s.took = time.Since(began)
	m := newMeter(y.observed()...)
	m.start()
	select {
	case <-time.After(startIdle):
	case <-ctx.Done():
		return s, context.Cause(ctx)
	}
	m.stop()
	s.handles, s.p50, s.uses = 1, s.took, m.uses()
	return s, nil
}
