package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"ncmp-inventory/cmd/internal/load"
	"ncmp-inventory/consumer"
	"ncmp-inventory/inventory"
)

const (
	// steadyRate is how many state changes are sent in a second.
	steadyRate = 500
	// steadyParts is how often in the time memory and latencies are looked at.
	steadyParts = 10
	// steadyTicks divides a second.
	steadyTicks = 20
)

// steady sends state changes at a constant rate for a long time and looks, part
// by part, at memory and latency: neither may grow.
func (r *run) steady(ctx context.Context, _ []string) ([]Result, error) {
	y, err := r.s.startSystem(ctx)
	if err != nil {
		return nil, err
	}
	res, err := r.steadily(ctx, y)
	return []Result{res}, errors.Join(err, y.close(ctx))
}

func (r *run) steadily(ctx context.Context, y *system) (top Result, err error) {
	l, err := load.New(load.Config{Handles: max(r.cfg.PerEvent, min(steadyRate*40, r.cfg.Handles)), PerEvent: r.cfg.PerEvent, Seed: 1})
	if err != nil {
		return top, err
	}
	if _, err := y.drive(ctx, messages(y.registrations(), l.Registrations()), l.Handles()); err != nil {
		return top, err
	}
	w := newStopwatch()
	g, both := errgroup.WithContext(ctx)
	g.Go(func() error {
		p := &pair{y: y}
		return p.follow(both, y.lcmEvents(), func(r *consumer.TailRecord) error { w.stop(string(r.Key)); return nil })
	})
	var cases []Result
	g.Go(func() error {
		to := [...]inventory.State{inventory.Locked, inventory.Advised}
		ticks := max(1, int(r.cfg.Time.Seconds()*steadyTicks/steadyParts))
		sent := 0
		for part := range steadyParts {
			r.cfg.Progress(fmt.Sprintf("steady, part %d of %d", part+1, steadyParts))
			m := newMeter(y.observed()...)
			m.start()
			tick := time.NewTicker(time.Second / steadyTicks)
			from := sent
			for range ticks {
				select {
				case <-tick.C:
				case <-both.Done():
					tick.Stop()
					return context.Cause(both)
				}
				batch := func(yield func(load.Event) bool) {
					for range steadyRate / steadyTicks {
						id := l.ID(sent % l.Handles())
						w.start(id)
						if !yield(load.StateChange(fmt.Sprintf("steady-%d", sent), id, to[sent/l.Handles()%len(to)])) {
							return
						}
						sent++
					}
				}
				if err := y.writer.WriteMessages(both, messages(y.stateChanges(), batch)...); err != nil {
					tick.Stop()
					return err
				}
			}
			tick.Stop()
			if err := w.settle(both); err != nil {
				return err
			}
			m.stop()
			s := w.sample(m.uses())
			w.forget()
			if s.handles != sent-from {
				return fmt.Errorf("%d events were sent, %d LCM events came", sent-from, s.handles)
			}
			res := summarize([]sample{s}, true)
			res.HandlesPerSecond, res.FragmentsPerSecond = 0, 0
			res.Case, res.at = fmt.Sprintf("part %d", part+1), float64(part+1)
			cases = append(cases, res)
		}
		y.told += int64(sent)
		return errEnough
	})
	if err := g.Wait(); !errors.Is(err, errEnough) {
		return top, err
	}
	top = cases[len(cases)-1]
	top.Workload, top.Case, top.Cases = "steady", "", cases
	return top, nil
}
