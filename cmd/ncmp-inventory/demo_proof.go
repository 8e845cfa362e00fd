package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"ncmp-inventory/cmd/internal/load"
	"ncmp-inventory/cmd/internal/proof"
	"ncmp-inventory/inventory"
	"ncmp-inventory/store"
)

// demoProblems bounds how many faults are told in words.
const demoProblems = 20

func (d *demo) problem(format string, args ...any) {
	if len(d.result.Problems) < demoProblems {
		d.result.Problems = append(d.result.Problems, fmt.Sprintf(format, args...))
	}
}

// withStore opens the workers' database beside them.
func (d *demo) withStore(ctx context.Context, use func(*store.Store) error) error {
	sc, err := storeConfig(&d.system.config, zap.NewNop(), prometheus.NewRegistry())
	if err != nil {
		return err
	}
	sc.Instance = "demo"
	s, err := store.Open(ctx, sc)
	if err != nil {
		return err
	}
	defer s.Close()
	return use(s)
}

// proveRows holds the stored handles against what the events say and against
// what was sent.
func (d *demo) proveRows(ctx context.Context) error {
	return d.withStore(ctx, func(s *store.Store) error {
		expected := make(map[string]int, d.load.Handles())
		for i := range d.load.Handles() {
			expected[d.load.ID(i)] = i
		}
		told := d.standIn.states()
		for h, err := range s.ListHandles(ctx, store.Filter{}) {
			if err != nil {
				return err
			}
			i, ok := expected[h.ID]
			if !ok {
				d.problem("%s is stored, but was not registered", h.ID)
				continue
			}
			delete(expected, h.ID)
			if want := told[h.ID]; string(h.State.State) != want {
				d.problem("%s is stored as %s, its events say %q", h.ID, h.State.State, want)
			}
			if !asUpdated(&h.Handle, d.load.Handle(i)) {
				d.problem("%s is not stored as it was sent", h.ID)
			}
		}
		if len(expected) > 0 {
			d.problem("%s registered, but not stored", counted(len(expected), "CM handle"))
		}
		return d.verify(ctx, s)
	})
}

// asUpdated compares what is stored with what the registration and the update
// asked for.
func asUpdated(h *inventory.Handle, sent load.Handle) bool {
	if h.AlternateID != sent.AlternateID || h.ModuleSetTag != sent.ModuleSetTag || h.DataProducerID != load.UpdatedProducer {
		return false
	}
	public := map[string]string{"systemId": sent.Public.SystemID, "systemName": load.UpdatedSystem}
	for _, p := range h.Public {
		if public[p.Name] != p.Value {
			return false
		}
	}
	return len(h.Public) == len(public) && len(h.Private) == 7
}

// proveEvents follows the topic to its end, once nothing waits to be published.
func (d *demo) proveEvents(ctx context.Context) error {
	err := d.withStore(ctx, func(s *store.Store) error {
		if err := d.awaitPublished(ctx, s); err != nil {
			return err
		}
		for h, err := range s.ListHandles(ctx, store.Filter{}) {
			if err != nil {
				return err
			}
			d.problem("%s is still stored", h.ID)
		}
		return d.verify(ctx, s)
	})
	if err != nil {
		return err
	}
	if err := d.standIn.awaitEnd(ctx, demoStall); err != nil {
		return err
	}
	report := d.standIn.compare(func(yield func(string, []proof.Fact) bool) {
		for i := range d.load.Handles() {
			if !yield(d.load.ID(i), demoLife) {
				return
			}
		}
	})
	r := &d.result
	r.LCMEvents, r.Lost, r.OutOfOrder = report.Events, report.Lost, report.OutOfOrder
	// Nothing failed here, so that a repeat would be one too many.
	r.Doubled = report.Doubled + report.Repeated
	for _, f := range report.Faults {
		d.problem("%s", f)
	}
	return nil
}

// awaitPublished returns when the outbox is empty.
func (d *demo) awaitPublished(ctx context.Context, s *store.Store) error {
	outbox, err := store.NewOutbox(ctx, s)
	if err != nil {
		return err
	}
	defer outbox.Close()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		waiting, err := outbox.Load(ctx)
		if err != nil || waiting.Rows == 0 {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// keepHandles is how many handles --keep leaves to look at.
const keepHandles = 100

// stay registers some handles to look at, says how, and waits for the end.
func (d *demo) stay(ctx context.Context) error {
	l, err := load.New(load.Config{Handles: keepHandles, First: d.options.handles, Seed: 1})
	if err != nil {
		return err
	}
	w := load.Writer(d.system.broker.Addrs(), d.system.config.Kafka.Topics.Registrations[0])
	defer load.Close(w) //nolint:errcheck // it has written all that it was given
	before := d.standIn.count(becameReady)
	if err := load.Send(ctx, w, l.Registrations(), nil); err != nil {
		return err
	}
	err = d.standIn.await(ctx, demoStall, func() bool { return d.standIn.count(becameReady) >= before+keepHandles })
	if err != nil {
		return err
	}
	flags, id := d.system.flags(), l.ID(0)
	fmt.Fprintf(d.stderr, "\n%s are registered. Try, in another terminal:\n\n", counted(keepHandles, "CM handle"))
	for _, command := range []string{
		"list", "get " + id, "watch --from earliest --handle " + id,
		"state " + id + " --to LOCKED", "verify", "positions",
	} {
		fmt.Fprintf(d.stderr, "  %s %s %s\n", program(), command, flags)
	}
	fmt.Fprintf(d.stderr, "\nThe workers' log is %s. Ctrl-C stops everything and removes it.\n", d.system.logs.Name())
	<-ctx.Done()
	return nil
}

// verify lets the store look for anything wrong.
func (d *demo) verify(ctx context.Context, s *store.Store) error {
	r, err := s.Verify(ctx)
	if err != nil {
		return err
	}
	for _, f := range r.Findings {
		d.problem("%s: %s (%d): %s", f.Check, f.Text, f.Count, strings.Join(f.Examples, ", "))
	}
	return nil
}
