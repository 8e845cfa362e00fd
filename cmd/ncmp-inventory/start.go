package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"ncmp-inventory/cmd/ncmp-inventory/config"
	"ncmp-inventory/inventory"
	"ncmp-inventory/store"
)

// reachKafka waits until the brokers answer and the LCM topic is there, whose
// limit planning needs. What waiting cannot mend is an error.
func (w *worker) reachKafka(ctx context.Context) (limits topicLimits, err error) {
	told := ""
	for attempt := 0; ; attempt++ {
		f := checkKafka(ctx, w.cfg.Kafka, w.client)
		if ctx.Err() != nil {
			return limits, nil
		}
		if w.createTopics && len(f.missing) > 0 {
			if err := createTopics(ctx, w.cfg.Kafka, w.client, f.missing); err != nil {
				return limits, err
			}
			w.log.Info("topics created", zap.Strings("topics", f.missing))
			w.createTopics = false
			continue
		}
		var faults []error
		waits := ""
		for _, one := range f.list {
			switch {
			case one.verdict == wrong:
				faults = append(faults, &config.Error{Key: one.key, Reason: one.what + ": " + one.text + "; " + one.try})
			case one.verdict == absent && waits == "" && (len(f.list) == 1 || one.what == "topic "+w.cfg.Kafka.Topics.LCMEvents):
				waits = one.what + ": " + one.text + "; " + one.try
			}
		}
		if len(faults) > 0 {
			return limits, errors.Join(faults...)
		}
		if waits == "" {
			w.warn(f)
			return f.limits, nil
		}
		w.waitFor("kafka: " + waits)
		if waits != told {
			told = waits
			w.log.Warn("waiting for Kafka", zap.String("reason", waits))
		}
		if !pause(ctx, attempt) {
			return limits, nil
		}
	}
}

// warn tells what works but not well, and the topics that are still missing.
func (w *worker) warn(f *findings) {
	for _, one := range f.list {
		if one.verdict == warning || one.verdict == absent {
			w.log.Warn(one.what+": "+one.text, zap.String("key", one.key), zap.String("try", one.try))
		}
	}
}

// reachStore opens the database, waiting while it cannot be reached. It returns
// nil without an error when ctx ended first.
func (w *worker) reachStore(ctx context.Context, committed chan<- struct{}) (*store.Store, error) {
	told := ""
	for attempt := 0; ; attempt++ {
		// Each attempt registers metrics; only those of the last are kept.
		reg := prometheus.NewRegistry()
		sc, err := storeConfig(&w.cfg, w.log.Named("store"), reg)
		if err != nil {
			return nil, err
		}
		sc.Instance, sc.Migrate, sc.RelayID = w.name, w.cfg.Database.Migrate, w.cfg.Kafka.RelayID
		sc.OnCommit = func(int) {
			select {
			case committed <- struct{}{}:
			default:
			}
		}
		s, err := store.Open(ctx, sc)
		if err == nil {
			if err = holdGroup(ctx, s, w.cfg.Kafka.Group); err == nil {
				return s, w.reg.Register(reg)
			}
			s.Close()
		}
		switch {
		case ctx.Err() != nil:
			return nil, nil
		case !errors.Is(err, inventory.ErrTransient) || untrusted(err):
			return nil, databaseFault(err)
		}
		what, whom := "postgresql", "waiting for PostgreSQL"
		if rival := (*rivalError)(nil); errors.As(err, &rival) {
			what, whom = "kafka.group", "waiting for another consumer group"
		}
		w.waitFor(what + ": " + err.Error())
		if text := err.Error(); text != told {
			told = text
			w.log.Warn(whom, zap.Error(err))
		}
		if !pause(ctx, attempt) {
			return nil, nil
		}
	}
}

// pause waits between attempts: 100 ms, doubling to 2 s, with jitter. It
// reports false when ctx ended.
func pause(ctx context.Context, attempt int) bool {
	d := min(2*time.Second, 100*time.Millisecond<<min(attempt, 5))
	d = d/2 + rand.N(d/2)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
