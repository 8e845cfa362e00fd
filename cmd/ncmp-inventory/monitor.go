package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"ncmp-inventory/cmd/ncmp-inventory/config"
	"ncmp-inventory/inventory"
	"ncmp-inventory/store"
)

const (
	// loadEvery is how often the outbox is measured. A look at a full one takes
	// longer and is taken the more rarely: for one twentieth of the time, but
	// every five seconds at least, so that the bound is not passed by far, and
	// at most a fifth of the time for one far beyond the default bound.
	loadEvery   = time.Second
	loadAtLeast = 5 * time.Second
	loadShare   = 20
	loadMost    = 5
	// countEvery is how often handles are counted by state. The count reads
	// one index entry for each handle.
	countEvery = 30 * time.Second
	// reopenShare is the low water: a closed gate opens at three quarters of
	// the bound, so that it does not flutter.
	reopenNumerator, reopenDenominator = 3, 4
)

// monitor watches the database from the side: what waits to be published, how
// many handles there are, and whether it answers at all.
type monitor struct {
	bounds config.Outbox
	outbox *store.Outbox
	store  *store.Store
	group  string // the consumer group, "" if the database is not to be told
	log    *zap.Logger

	rival   atomic.Pointer[string] // another group on the database, nil if there is none
	closed  atomic.Pointer[string] // why input has to pause, nil if it has not
	failure atomic.Pointer[error]

	rows, bytes, parked, age, paused prometheus.Gauge
	handles, stateAge                *prometheus.GaugeVec
}

func newMonitor(bounds config.Outbox, outbox *store.Outbox, s *store.Store, log *zap.Logger, reg prometheus.Registerer) *monitor {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "ncmp_inventory_" + name, Help: help})
	}
	m := &monitor{
		bounds: bounds, outbox: outbox, store: s, log: log,
		rows:   gauge("outbox_messages", "Messages that wait to be published, of all workers on this database."),
		bytes:  gauge("outbox_bytes", "Bytes that wait to be published, of all workers on this database."),
		parked: gauge("outbox_parked_messages", "Messages that the broker does not take and that wait for a human."),
		age:    gauge("outbox_oldest_age_seconds", "Age of the oldest message that waits to be published, 0 when none does."),
		paused: gauge("input_paused", "1 while no input is taken because too much waits to be published."),
		handles: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ncmp_inventory_handles", Help: "Stored CM handles by state. Every worker reports the same: do not add them up.",
		}, []string{"state"}),
		stateAge: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ncmp_inventory_handle_state_age_seconds", Help: "Time since the last update of the CM handle that is the longest in a state, 0 when none is. Every worker reports the same.",
		}, []string{"state"}),
	}
	reg.MustRegister(m.rows, m.bytes, m.parked, m.age, m.paused, m.handles, m.stateAge)
	return m
}

// run measures until ctx ends. Failures are told by readiness and tried again.
func (m *monitor) run(ctx context.Context) {
	counted, held := time.Time{}, time.Now()
	for ctx.Err() == nil {
		began := time.Now()
		if m.group != "" && began.Sub(held) >= groupEvery {
			m.hold(ctx)
			held = began
		}
		took := m.measure(ctx)
		if began.Sub(counted) >= countEvery {
			m.count(ctx)
			counted = began
		}
		t := time.NewTimer(nextLoad(took))
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
}

// nextLoad is how long to wait after a look at the outbox that took so long.
func nextLoad(took time.Duration) time.Duration {
	return max(loadEvery, min(loadShare*took, loadAtLeast), loadMost*took)
}

// measure looks at the outbox and returns how long that took: 0 if it failed,
// which is no sign of a large one.
func (m *monitor) measure(ctx context.Context) (took time.Duration) {
	began := time.Now()
	l, err := m.outbox.Load(ctx)
	if ctx.Err() != nil {
		return 0
	}
	if err != nil {
		m.failure.Store(&err)
		return 0
	}
	took = time.Since(began)
	m.failure.Store(nil)
	m.rows.Set(float64(l.Rows))
	m.bytes.Set(float64(l.Bytes))
	m.parked.Set(float64(l.Parked))
	m.age.Set(l.Age.Seconds())
	m.decide(l)
	return took
}

// hold says that the group still works on the database. A worker that was frozen
// can find another group there; it then takes no input until that one is gone.
func (m *monitor) hold(ctx context.Context) {
	err := holdGroup(ctx, m.store, m.group)
	var rival *rivalError
	switch {
	case errors.As(err, &rival):
		why := rival.Error()
		if m.rival.Swap(&why) == nil {
			m.log.Error("input pauses", zap.Error(err))
		}
	case err == nil:
		m.rival.Store(nil)
	}
}

// count sets the gauges of handles by state. A state that NCMP does not know is
// "other": what others wrote must not make series without end.
func (m *monitor) count(ctx context.Context) {
	byState, err := m.store.CountByState(ctx)
	if err != nil {
		return // the database's trouble is told already
	}
	sums := map[inventory.State]store.StateCount{
		inventory.Advised: {}, inventory.Ready: {}, inventory.Locked: {}, inventory.Deleting: {}, "other": {},
	}
	for state, n := range byState {
		if _, known := sums[state]; !known {
			state = "other"
		}
		sum := sums[state]
		sum.Handles += n.Handles
		if sum.Oldest.IsZero() || !n.Oldest.IsZero() && n.Oldest.Before(sum.Oldest) {
			sum.Oldest = n.Oldest
		}
		sums[state] = sum
	}
	for state, sum := range sums {
		age := time.Duration(0)
		if !sum.Oldest.IsZero() {
			age = max(0, time.Since(sum.Oldest))
		}
		m.handles.WithLabelValues(string(state)).Set(float64(sum.Handles))
		m.stateAge.WithLabelValues(string(state)).Set(age.Seconds())
	}
}

// decide opens or closes the gate before input.
func (m *monitor) decide(l inventory.OutboxLoad) {
	was := m.closed.Load()
	maxBytes, maxAge := m.bounds.MaxBytes, m.bounds.MaxAge
	if was != nil {
		maxBytes = maxBytes / reopenDenominator * reopenNumerator
		maxAge = maxAge / reopenDenominator * reopenNumerator
	}
	reason := ""
	switch {
	case l.Bytes > maxBytes:
		reason = fmt.Sprintf("outbox: %d bytes wait to be published, outbox.max-bytes is %d", l.Bytes, m.bounds.MaxBytes)
	case l.Age > maxAge:
		reason = fmt.Sprintf("outbox: the oldest message waits for %s, outbox.max-age is %s", l.Age.Round(time.Second), m.bounds.MaxAge)
	}
	m.paused.Set(0)
	if reason != "" {
		m.paused.Set(1)
	}
	switch {
	case reason != "" && was == nil:
		m.log.Warn("input pauses: publishing is behind", zap.String("reason", reason))
		m.closed.Store(&reason)
	case reason != "":
		m.closed.Store(&reason)
	case was != nil:
		m.log.Info("input goes on: publishing has caught up")
		m.closed.Store(nil)
	}
}

// gate says why no input may be taken now, "" if it may. It is called for every
// batch, from many goroutines.
func (m *monitor) gate() string {
	if why := m.rival.Load(); why != nil {
		return *why
	}
	if why := m.closed.Load(); why != nil {
		return *why
	}
	return ""
}

// database is why PostgreSQL cannot be used now, nil if it can.
func (m *monitor) database() error {
	if err := m.failure.Load(); err != nil {
		return *err
	}
	return nil
}
