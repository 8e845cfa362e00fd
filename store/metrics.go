package store

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	retries *prometheus.CounterVec // by class of error
	fetched prometheus.Counter
	unsafe  prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ncmp_inventory_store_retries_total",
			Help: "Transactions that were tried again, by the class of the error (retry is a deadlock, replan a lost race for a key, need an alternate id that turned up late, wait an outage).",
		}, []string{"class"}),
		fetched: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ncmp_inventory_store_fragment_ids_total",
			Help: "Fragment ids drawn from the database's sequence.",
		}),
		unsafe: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ncmp_inventory_store_fsync_off",
			Help: "1 while the server runs with fsync = off: what it commits does not survive a crash of its machine.",
		}),
	}
	for _, c := range []string{classRetry.String(), classReplan.String(), classWait.String(), retryNeed, retryUnknown} {
		m.retries.WithLabelValues(c)
	}
	r.MustRegister(m.retries, m.fetched, m.unsafe)
	return m
}

// Classes of retry that are no class of error.
const (
	retryNeed    = "need"
	retryUnknown = "unknown-commit"
)
