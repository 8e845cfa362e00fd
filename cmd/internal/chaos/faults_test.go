package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// fault is a kind of trouble. run begins it, lets it last and ends it; once ctx
// has ended it lasts no longer. r decides all that is left to chance.
type fault struct {
	kind string
	run  func(ctx context.Context, w *world, r *rand.Rand) error
	// only says where it makes sense; nil is everywhere.
	only func(w *world) bool
	// outage says that a clean stop may fail meanwhile, away that a server
	// does nothing for anybody.
	outage, away bool
}

// injected is one fault that was.
type injected struct {
	kind     string
	away     bool
	from, to time.Time
}

// note keeps account of a fault.
func (w *world) note(f fault, from, to time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.injected = append(w.injected, injected{f.kind, f.away, from, to})
}

// lane injects faults one after the other until ctx ends: all of its kinds in
// random order, then again.
func (w *world) lane(ctx context.Context, r *rand.Rand, kinds []fault) error {
	var deck []fault
	for {
		pause(ctx, time.Duration(r.Int64N(int64(w.quiet))))
		if ctx.Err() != nil {
			return nil
		}
		if len(deck) == 0 {
			for _, f := range kinds {
				if strings.Contains(f.kind, w.only) && (f.only == nil || f.only(w)) {
					deck = append(deck, f)
				}
			}
			if len(deck) == 0 {
				continue
			}
			r.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		}
		f := deck[0]
		deck = deck[1:]
		from := time.Now()
		if f.outage {
			w.outages.Add(1)
		}
		err := f.run(ctx, w, r)
		if f.outage {
			w.outages.Add(1)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f.kind, err)
		}
		w.note(f, from, time.Now())
		w.Logf("%s %s (%s)", from.Format("15:04:05.000"), f.kind, time.Since(from).Round(time.Millisecond))
	}
}

// between draws a time, of a run of five minutes or more; a shorter run has
// shorter faults.
func (w *world) between(r *rand.Rand, low, high time.Duration) time.Duration {
	d := low + time.Duration(r.Int64N(int64(high-low)))
	if w.duration < 5*time.Minute {
		d = max(time.Duration(float64(d)*w.duration.Minutes()/5), min(low, 300*time.Millisecond))
	}
	return d
}

// replace starts a worker in the place of one that has ended.
func (w *world) replace(slot int) (err error) {
	w.slots[slot], err = w.startMember()
	return err
}

// ofWorkers are the faults of the first lane.
var ofWorkers = []fault{
	{kind: "worker killed", run: func(ctx context.Context, w *world, r *rand.Rand) error {
		slot := r.IntN(len(w.slots))
		wait := w.between(r, 0, 5*time.Second)
		if err := w.slots[slot].kill(); err != nil {
			return err
		}
		pause(ctx, wait)
		return w.replace(slot)
	}},
	{kind: "all workers killed", run: func(_ context.Context, w *world, _ *rand.Rand) error {
		for _, m := range w.slots {
			if err := m.kill(); err != nil {
				return err
			}
		}
		return w.replaceAll()
	}},
	{kind: "worker frozen beyond its session", run: func(ctx context.Context, w *world, r *rand.Rand) error {
		return w.slots[r.IntN(len(w.slots))].freeze(ctx, w.session+w.between(r, time.Second, 8*time.Second))
	}},
	{kind: "worker frozen for a moment", run: func(ctx context.Context, w *world, r *rand.Rand) error {
		return w.slots[r.IntN(len(w.slots))].freeze(ctx, w.between(r, 200*time.Millisecond, 2*time.Second))
	}},
	{kind: "worker stopped and replaced", run: func(ctx context.Context, w *world, r *rand.Rand) error {
		slot, wait := r.IntN(len(w.slots)), w.between(r, 0, 3*time.Second)
		if err := w.slots[slot].terminate(); err != nil {
			return err
		}
		pause(ctx, wait)
		return w.replace(slot)
	}},
	{kind: "rolling restart", run: func(ctx context.Context, w *world, r *rand.Rand) error {
		for slot, old := range w.slots {
			if err := w.replace(slot); err != nil {
				return err
			}
			pause(ctx, w.between(r, time.Second, 3*time.Second))
			if err := old.terminate(); err != nil {
				return err
			}
		}
		return nil
	}},
	{kind: "workers join and leave", run: func(ctx context.Context, w *world, r *rand.Rand) error {
		var guests []*member
		for range 1 + r.IntN(2) {
			m, err := w.startMember()
			if err != nil {
				return err
			}
			guests = append(guests, m)
		}
		pause(ctx, w.between(r, 3*time.Second, 12*time.Second))
		for _, m := range guests {
			leave := m.terminate
			if r.IntN(3) == 0 {
				leave = m.kill
			}
			if err := leave(); err != nil {
				return err
			}
		}
		return nil
	}},
	{kind: "second SIGTERM", run: func(_ context.Context, w *world, r *rand.Rand) error {
		slot := r.IntN(len(w.slots))
		if err := w.slots[slot].terminateTwice(); err != nil {
			return err
		}
		return w.replace(slot)
	}},
	{kind: "produce held back across publishers", run: func(ctx context.Context, w *world, r *rand.Rand) error {
		release := w.proxy.hold()
		defer release()
		pause(ctx, w.between(r, 300*time.Millisecond, 2*time.Second))
		frozen := r.IntN(2) == 0
		old := append([]*member(nil), w.slots...)
		for _, m := range old { // whoever publishes is among them
			stop := m.kill
			if frozen {
				stop = m.stop
			}
			if err := stop(); err != nil {
				return err
			}
		}
		if err := w.replaceAll(); err != nil {
			return err
		}
		// The lease expires, another worker publishes.
		pause(ctx, publisherLease+w.session+w.between(r, time.Second, 5*time.Second))
		release()
		var errs []error
		for _, m := range old {
			if frozen {
				errs = append(errs, m.goOn(), m.terminate())
			}
		}
		return errors.Join(errs...)
	}},
}

// publisherLease is how long a publisher that is gone keeps others waiting.
const publisherLease = 3 * time.Second

func (w *world) replaceAll() error {
	for slot := range w.slots {
		if err := w.replace(slot); err != nil {
			return err
		}
	}
	return nil
}
