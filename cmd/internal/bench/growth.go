package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"ncmp-inventory/cmd/internal/load"
)

// growthPoints are the sizes of the inventory, as parts of --handles: of
// 1,000,000 they are 20,000, 50,000, 200,000 and all.
var growthPoints = []float64{0.02, 0.05, 0.2, 1}

// growthSlice is how many handles live at each point.
const growthSlice = 5_000

// growth measures whole lives in a growing inventory, in turns with the same on
// one that stays at its first size.
func (r *run) growth(ctx context.Context, _ []string) ([]Result, error) {
	small, err := r.s.startSystem(ctx)
	if err != nil {
		return nil, err
	}
	large, err := r.s.startSystem(ctx)
	if err != nil {
		return nil, errors.Join(err, small.close(ctx))
	}
	res, err := r.grow(ctx, small, large)
	return []Result{res}, errors.Join(err, large.close(ctx), small.close(ctx))
}

func (r *run) grow(ctx context.Context, small, large *system) (top Result, err error) {
	perEvent := r.cfg.PerEvent
	n := max(perEvent, min(growthSlice, r.cfg.Handles/10))
	l, err := load.New(load.Config{Handles: n, PerEvent: perEvent, Seed: 1})
	if err != nil {
		return top, err
	}
	stored := 0
	var cases []Result
	for i, part := range growthPoints {
		want := max(1, int(part*float64(r.cfg.Handles)))
		r.cfg.Progress(fmt.Sprintf("growth: storing %d CM handles", want))
		if i == 0 {
			if err := small.fill(ctx, 0, want); err != nil {
				return top, err
			}
		}
		if err := large.fill(ctx, stored, want); err != nil {
			return top, err
		}
		stored = max(stored, want)
		var samples []sample
		for k := range r.cfg.Repeat {
			r.repetition(fmt.Sprintf("growth at %d CM handles", stored), k)
			m, idle := newMeter(large.observed()...), newMeter()
			s, err := large.life(ctx, l, perEvent, m)
			if err != nil {
				return top, err
			}
			at, err := small.life(ctx, l, perEvent, idle)
			if err != nil {
				return top, err
			}
			s.bare, s.uses = at.took, m.uses()
			samples = append(samples, s)
		}
		res := summarize(samples, true)
		res.Handles, res.Case, res.at = stored, strconv.Itoa(stored)+" stored", float64(stored)
		cases = append(cases, res)
		top = res
	}
	top.Workload, top.Case, top.Cases = "growth", "", cases
	return top, nil
}

// life takes handles through their whole life.
func (y *system) life(ctx context.Context, l *load.Load, perEvent int, m *meter) (s sample, err error) {
	for _, ph := range []phase{register, becomeReady, update, remove} {
		topic := y.registrations()
		if ph == becomeReady {
			topic = y.stateChanges()
		}
		events, _ := ph.eventsOf(l, perEvent)
		records := messages(topic, events)
		m.start()
		took, err := y.drive(ctx, records, l.Handles()*ph.events())
		m.stop()
		if err != nil {
			return s, err
		}
		s.took += took
		s.fragments += l.Handles() * ph.rows()
	}
	s.handles = l.Handles()
	return s, nil
}

const (
	// The workers may hold ids already: those of the rows come after.
	sqlReserve = `
select setval('fragment_id_seq', nextval('fragment_id_seq') + $1) - $1 - 99`
	copyChunk = 2_000
	// storedFirst keeps the numbers of stored handles apart from those that
	// live beside them.
	storedFirst = 1_000_000_000
)

// fill stores READY handles from..to of an inventory by COPY, as if they had been
// there for long.
func (y *system) fill(ctx context.Context, from, to int) error {
	var anchor, root int64
	if err := y.conn.QueryRow(ctx, sqlRoot).Scan(&anchor, &root); err != nil {
		return err
	}
	for ; from < to; from += copyChunk {
		n := min(copyChunk, to-from)
		l, err := load.New(load.Config{Handles: n, First: storedFirst + from, Seed: 1})
		if err != nil {
			return err
		}
		var first int64
		need := (n*rowsPerHandle + 99) / 100 * 100
		if err := y.conn.QueryRow(ctx, sqlReserve, need).Scan(&first); err != nil {
			return err
		}
		shape, err := newShaper(root, first-int64(l.First())*rowsPerHandle)
		if err != nil {
			return err
		}
		if err := y.copyHandles(ctx, shape, anchor, l); err != nil {
			return fmt.Errorf("store CM handles: %w", err)
		}
	}
	_, err := y.conn.Exec(ctx, "vacuum analyze fragment, ncmp_inventory.reference")
	return err
}

func (y *system) copyHandles(ctx context.Context, shape *shaper, anchor int64, l *load.Load) error {
	n := &nodes{}
	var keys [][]any
	for i := range l.Handles() {
		shape.advised(n, l, i)
		shape.ready(n, l, i)
		id := l.ID(i)
		keys = append(keys, []any{id, id}, []any{l.Handle(i).AlternateID, id})
	}
	_, err := y.conn.CopyFrom(ctx, pgx.Identifier{"fragment"}, []string{"id", "parent_id", "anchor_id", "xpath", "attributes"},
		pgx.CopyFromSlice(len(n.ids), func(i int) ([]any, error) {
			return []any{n.ids[i], n.parents[i], anchor, n.xpaths[i], n.attributes[i]}, nil
		}))
	if err != nil {
		return err
	}
	_, err = y.conn.CopyFrom(ctx, pgx.Identifier{"ncmp_inventory", "reference"}, []string{"key", "owner"}, pgx.CopyFromRows(keys))
	return err
}
