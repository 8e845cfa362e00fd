package lcm

import (
	"github.com/prometheus/client_golang/prometheus"

	"ncmp-inventory/inventory"
)

// metrics count what the publisher does; how much waits, and for how long, is
// the outbox's own to tell.
type metrics struct {
	published *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	retries   *prometheus.CounterVec
	parked    *prometheus.CounterVec
	outbox    prometheus.Counter
	leading   prometheus.Gauge
	terms     prometheus.Counter
	fenced    prometheus.Counter
	renewed   prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	kind := []string{"kind"}
	m := &metrics{
		published: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ncmp_inventory_published_total",
			Help: "Messages that Kafka acknowledged, by kind of output.",
		}, kind),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "ncmp_inventory_publish_seconds",
			Help:    "Time from sending a record batch to its acknowledgement.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15),
		}, kind),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ncmp_inventory_publish_retries_total",
			Help: "Record batches sent again because the answer was missing or an error.",
		}, kind),
		parked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ncmp_inventory_publish_parked_total",
			Help: "Messages set aside because the broker refuses them; later ones of their key wait.",
		}, kind),
		outbox: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ncmp_inventory_publish_outbox_retries_total",
			Help: "Calls of the outbox or the lease that failed and were repeated.",
		}),
		leading: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ncmp_inventory_publisher_leader",
			Help: "1 while this worker publishes.",
		}),
		terms: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ncmp_inventory_publisher_terms_total",
			Help: "How often this worker became the publisher.",
		}),
		fenced: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ncmp_inventory_publisher_fenced_total",
			Help: "How often Kafka told this worker that another one publishes.",
		}),
		renewed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ncmp_inventory_publisher_epochs_total",
			Help: "Producer epochs taken: one a term, one a day, one after a lost producer state.",
		}),
	}
	for _, k := range inventory.MessageKinds {
		m.published.WithLabelValues(k.String())
		m.duration.WithLabelValues(k.String())
		m.retries.WithLabelValues(k.String())
		m.parked.WithLabelValues(k.String())
	}
	reg.MustRegister(m.published, m.duration, m.retries, m.parked, m.outbox, m.leading, m.terms, m.fenced, m.renewed)
	return m
}
