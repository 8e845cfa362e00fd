package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"ncmp-inventory/cmd/internal/load"
	"ncmp-inventory/inventory"
)

// sliceHandles is how many handles worker and ceiling take in turn: enough for
// seconds, few enough that both meet the same neighbours.
const sliceHandles = 10_000

// pair is a system under test and the ceiling beside it.
type pair struct {
	r *run
	y *system
	c *ceiling
	// bare watches PostgreSQL while the ceiling writes.
	bare *meter
	// stored is how many data nodes both databases should hold.
	stored int
}

// startPair starts both on empty databases.
func (r *run) startPair(ctx context.Context) (*pair, error) {
	y, err := r.s.startSystem(ctx)
	if err != nil {
		return nil, err
	}
	c, err := r.s.newCeiling(ctx, min(r.cfg.Workers*r.cfg.Connections, r.cfg.Partitions))
	if err != nil {
		return nil, errors.Join(err, y.close(ctx))
	}
	return &pair{r: r, y: y, c: c, bare: newMeter(), stored: 1}, nil
}

func (p *pair) close(ctx context.Context) error {
	return errors.Join(p.y.close(ctx), p.c.close(ctx))
}

// slices cuts handles into loads, each a whole number of events.
func (r *run) slices(handles int) ([]*load.Load, error) {
	turns := max(1, handles/sliceHandles)
	size := (handles + turns - 1) / turns
	size = (size + r.cfg.PerEvent - 1) / r.cfg.PerEvent * r.cfg.PerEvent
	var all []*load.Load
	for first := 0; first < handles; first += size {
		l, err := load.New(load.Config{Handles: min(size, handles-first), First: first, PerEvent: r.cfg.PerEvent, Seed: 1})
		if err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	return all, nil
}

// events of a phase, and how many handles one holds.
func (p phase) eventsOf(l *load.Load, perEvent int) (events func(yield func(load.Event) bool), handles int) {
	switch p {
	case becomeReady:
		return l.StateChanges(inventory.Ready), 1
	case update:
		return l.Updates(), perEvent
	case remove:
		return l.Removals(), perEvent
	}
	return l.Registrations(), perEvent
}

// turn lets the workers and then the ceiling take one slice through a phase.
func (p *pair) turn(ctx context.Context, ph phase, l *load.Load, m *meter, s *sample) error {
	topic := p.y.registrations()
	if ph == becomeReady {
		topic = p.y.stateChanges()
	}
	events, perRecord := ph.eventsOf(l, p.r.cfg.PerEvent)
	records := messages(topic, events)
	before, err := p.y.scrape(ctx)
	if err != nil {
		return err
	}
	m.start()
	took, err := p.y.drive(ctx, records, l.Handles()*ph.events())
	m.stop()
	if err != nil {
		return err
	}
	after, err := p.y.scrape(ctx)
	if err != nil {
		return err
	}
	done := after.since(before)
	rows := p.c.prepare(ph, l, done.size()*perRecord)
	p.bare.start()
	bare, err := p.c.write(ctx, rows)
	p.bare.stop()
	if err != nil {
		return err
	}
	s.handles += l.Handles()
	s.fragments += l.Handles() * ph.rows()
	s.took += took
	s.bare += bare
	s.batches.add(done)
	return nil
}

// phase takes all slices through a phase.
func (p *pair) phase(ctx context.Context, ph phase, slices []*load.Load, name string) (sample, error) {
	m := newMeter(p.y.observed()...)
	p.bare = newMeter(p.r.s.observed("postgresql, ceiling")...)
	var s sample
	stop, err := p.profile(ctx, name)
	if err != nil {
		return s, err
	}
	for _, l := range slices {
		if err := p.turn(ctx, ph, l, m, &s); err != nil {
			return s, errors.Join(err, stop())
		}
	}
	if err := stop(); err != nil {
		return s, err
	}
	s.uses = append(m.uses(), p.bare.uses()...)
	p.stored += s.handles * map[phase]int{register: rowsAdvised, becomeReady: rowsReady - rowsAdvised, remove: -rowsReady}[ph]
	return s, p.check(ctx)
}

const sqlCount = `select count(*) from fragment`

// check counts the rows: neither side may have written less than the other.
func (p *pair) check(ctx context.Context) error {
	var written, bare int
	if err := p.y.conn.QueryRow(ctx, sqlCount).Scan(&written); err != nil {
		return fmt.Errorf("count the workers' rows: %w", err)
	}
	if err := p.c.pool.QueryRow(ctx, sqlCount).Scan(&bare); err != nil {
		return fmt.Errorf("count the ceiling's rows: %w", err)
	}
	if written != p.stored || bare != p.stored {
		return fmt.Errorf("%d data nodes should be stored; the workers stored %d, the ceiling %d", p.stored, written, bare)
	}
	return nil
}

// phaseOf are the workloads that are one phase of a handle's life.
var phaseOf = []struct {
	workload string
	phase    phase
}{{"registration", register}, {"state", becomeReady}, {"deregistration", remove}}

// handles measures registration, state and deregistration: on one system, one
// after the other, as far as they are wanted or needed.
func (r *run) handles(ctx context.Context, wanted []string) ([]Result, error) {
	slicesOf, err := r.slices(r.cfg.Handles)
	if err != nil {
		return nil, err
	}
	last := 0
	for i, p := range phaseOf {
		if slices.Contains(wanted, p.workload) {
			last = i
		}
	}
	samples := map[phase][]sample{}
	for n := range r.cfg.Repeat {
		err := r.withPair(ctx, func(p *pair) error {
			for _, w := range phaseOf[:last+1] {
				r.repetition(w.workload, n)
				s, err := p.phase(ctx, w.phase, slicesOf, fmt.Sprintf("%s-%d", w.workload, n+1))
				if err != nil {
					return err
				}
				samples[w.phase] = append(samples[w.phase], s)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	var all []Result
	for _, w := range phaseOf {
		if slices.Contains(wanted, w.workload) {
			res := summarize(samples[w.phase], true)
			res.Workload = w.workload
			all = append(all, res)
		}
	}
	return all, nil
}

// withPair gives use a fresh system and ceiling.
func (r *run) withPair(ctx context.Context, use func(*pair) error) error {
	p, err := r.startPair(ctx)
	if err != nil {
		return err
	}
	return errors.Join(use(p), p.close(ctx))
}

// lifecycle takes each slice through all of a handle's life before the next.
func (r *run) lifecycle(ctx context.Context, _ []string) ([]Result, error) {
	slicesOf, err := r.slices(r.cfg.Handles)
	if err != nil {
		return nil, err
	}
	var samples []sample
	for n := range r.cfg.Repeat {
		r.repetition("lifecycle", n)
		err := r.withPair(ctx, func(p *pair) error {
			s, err := p.lives(ctx, slicesOf, fmt.Sprintf("lifecycle-%d", n+1))
			samples = append(samples, s)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	res := summarize(samples, true)
	res.Workload = "lifecycle"
	return []Result{res}, nil
}

// lives takes handles through their whole life, slice by slice.
func (p *pair) lives(ctx context.Context, slices []*load.Load, name string) (sample, error) {
	m := newMeter(p.y.observed()...)
	p.bare = newMeter(p.r.s.observed("postgresql, ceiling")...)
	var s sample
	stop, err := p.profile(ctx, name)
	if err != nil {
		return s, err
	}
	for _, l := range slices {
		for _, ph := range []phase{register, becomeReady, update, remove} {
			if err := p.turn(ctx, ph, l, m, &s); err != nil {
				return s, errors.Join(err, stop())
			}
		}
	}
	// Every handle was counted once a phase.
	s.handles /= 4
	s.uses = append(m.uses(), p.bare.uses()...)
	return s, errors.Join(stop(), p.check(ctx))
}

// coldHandles is how many handles are cold.
const coldHandles = 5_000

// cold compares the first handles on an empty database with the next.
func (r *run) cold(ctx context.Context, _ []string) ([]Result, error) {
	n := max(r.cfg.PerEvent, min(coldHandles, r.cfg.Handles/2))
	var samples []sample
	for i := range r.cfg.Repeat {
		r.repetition("cold", i)
		y, err := r.s.startSystem(ctx)
		if err != nil {
			return nil, err
		}
		s, err := y.cold(ctx, n, r.cfg.PerEvent)
		if err := errors.Join(err, y.close(ctx)); err != nil {
			return nil, err
		}
		samples = append(samples, s)
	}
	res := summarize(samples, true)
	res.Workload = "cold"
	return []Result{res}, nil
}

func (y *system) cold(ctx context.Context, handles, perEvent int) (s sample, err error) {
	m := newMeter(y.observed()...)
	var took [2]time.Duration
	for i := range took {
		l, err := load.New(load.Config{Handles: handles, First: i * handles, PerEvent: perEvent, Seed: 1})
		if err != nil {
			return s, err
		}
		records := messages(y.registrations(), l.Registrations())
		m.start()
		if took[i], err = y.drive(ctx, records, handles); err != nil {
			return s, err
		}
		m.stop()
	}
	return sample{handles: handles, fragments: handles * rowsAdvised, took: took[0], bare: took[1], uses: m.uses()}, nil
}
