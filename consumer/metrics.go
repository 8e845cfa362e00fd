package consumer

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ncmp-inventory/inventory"
)

// metrics are the consumer's own. Labels are topics, partitions and fixed
// words, never anything out of a record.
type metrics struct {
	records      *prometheus.CounterVec
	handles      *prometheus.CounterVec
	unchanged    prometheus.Counter
	transitions  *prometheus.CounterVec
	deadLetters  *prometheus.CounterVec
	batchRecords prometheus.Histogram
	phases       *prometheus.HistogramVec
	rebalances   prometheus.Counter
	retries      *prometheus.CounterVec
	gaps         *prometheus.CounterVec
	halts        *prometheus.CounterVec
	fenced       prometheus.Counter
	stalls       prometheus.Counter
}

const namespace = "ncmp_inventory"

func newMetrics(reg prometheus.Registerer, c *Consumer) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	}
	m := &metrics{
		records: counter("records_total", "Input records applied, by what they were.", "topic", "result"),
		handles: counter("handle_operations_total", "Entries applied, by operation and result (ok, or the code refused with).", "operation", "result"),
		unchanged: prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "unchanged_entries_total",
			Help: "Entries that succeeded and had nothing to change: a producer's repeats."}),
		transitions: counter("state_transitions_total", "State transitions committed; a creation comes from none.", "from", "to"),
		deadLetters: counter("dead_letters_total", "Records set aside, by reason.", "reason"),
		batchRecords: prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: "batch_records",
			Help: "Records in a batch.", Buckets: []float64{1, 5, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000}}),
		phases: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: "batch_phase_seconds",
			Help: "Time of a batch by phase: decode, read, plan, write, commit, and apply for all after decode.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15)}, []string{"phase"}),
		rebalances: prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "rebalances_total", Help: "Rebalances of the consumer group that this worker took part in after its first."}),
		retries:    counter("retries_total", "Retries, by what was tried.", "what"),
		gaps:       counter("gaps_total", "Gaps in the input and rewound databases that were passed over by policy.", "kind"),
		halts:      counter("halts_total", "Partitions halted.", "kind"),
		fenced:     prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "fenced_total", Help: "Batches refused because another worker had claimed the partition."}),
		stalls:     prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "stalls_total", Help: "Times that heartbeats stopped because a batch took too long."}),
	}
	// An alert on the first of something needs the zero before it.
	m.zero(m.deadLetters, append([]string{reasonBatchTooLarge, inventory.ReasonRefused, inventory.ReasonOvertaken}, DecodeReasons...)...)
	m.zero(m.retries, "apply", "fetch", "offset-commit", "group", "heartbeat", troubleKafka, troubleDatabase)
	m.zero(m.gaps, kindGap, kindTruncated, kindRecreated, kindRewound)
	m.zero(m.halts, kindGap, kindTruncated, kindRecreated, kindRewound, kindDeadLetters, kindDamaged)
	if reg != nil {
		reg.MustRegister(m.records, m.handles, m.unchanged, m.transitions, m.deadLetters, m.batchRecords, m.phases,
			m.rebalances, m.retries, m.gaps, m.halts, m.fenced, m.stalls, &gauges{c})
	}
	return m
}

func (*metrics) zero(v *prometheus.CounterVec, values ...string) {
	for _, value := range values {
		v.WithLabelValues(value)
	}
}

// tally is what a batch's records were when they were cut.
type tally struct{ records, dead, empty int }

func recordsOf(b *inventory.Batch) tally {
	t := tally{records: len(b.Records)}
	for i := range b.Records {
		switch {
		case b.Records[i].Dead != nil:
			t.dead++
		case b.Records[i].Empty:
			t.empty++
		}
	}
	return t
}

// applied counts a batch that became durable, once.
func (m *metrics) applied(topic string, t tally, r *inventory.Receipt, took time.Duration) {
	if t.records == 0 {
		return
	}
	t.dead += r.Tally.DeadLetters[inventory.ReasonRefused] + r.Tally.DeadLetters[inventory.ReasonOvertaken]
	add := func(result string, n int) {
		if n > 0 {
			m.records.WithLabelValues(topic, result).Add(float64(n))
		}
	}
	add("applied", t.records-t.dead-t.empty)
	add("dead-letter", t.dead)
	add("empty", t.empty)
	m.batchRecords.Observe(float64(t.records))
	m.phases.WithLabelValues("apply").Observe(took.Seconds())
	for phase, d := range map[string]time.Duration{"read": r.Read, "plan": r.Plan, "write": r.Write, "commit": r.Commit} {
		if d > 0 {
			m.phases.WithLabelValues(phase).Observe(d.Seconds())
		}
	}
	m.unchanged.Add(float64(r.Tally.Unchanged))
	for op, n := range r.Tally.Succeeded {
		m.handles.WithLabelValues(op.String(), "ok").Add(float64(n))
	}
	for oc, n := range r.Tally.Rejected {
		m.handles.WithLabelValues(oc.Op.String(), string(oc.Code)).Add(float64(n))
	}
	for mv, n := range r.Tally.Transitions {
		from := string(mv.From)
		if from == "" {
			from = "none"
		}
		m.transitions.WithLabelValues(from, string(mv.To)).Add(float64(n))
	}
	for reason, n := range r.Tally.DeadLetters {
		m.deadLetters.WithLabelValues(reason).Add(float64(n))
	}
}

// gauges shows the lanes as they are when somebody looks.
type gauges struct{ c *Consumer }

var (
	partitionLabels = []string{"topic", "partition"}
	lagRecords      = prometheus.NewDesc(namespace+"_lag_records", "Offsets that can be read and are not applied.", partitionLabels, nil)
	lagOpen         = prometheus.NewDesc(namespace+"_lag_open_transaction_records", "Offsets that wait behind an open transaction of a producer.", partitionLabels, nil)
	lagSeconds      = prometheus.NewDesc(namespace+"_lag_seconds", "Age of the oldest record not applied, 0 when caught up.", partitionLabels, nil)
	positionDesc    = prometheus.NewDesc(namespace+"_position", "Offset of the next record to apply.", partitionLabels, nil)
	haltedDesc      = prometheus.NewDesc(namespace+"_partition_halted", "1 while the partition is halted.", partitionLabels, nil)
	heldBytes       = prometheus.NewDesc(namespace+"_in_flight_bytes", "Bytes of input in memory.", nil, nil)
	heldMostBytes   = prometheus.NewDesc(namespace+"_in_flight_limit_bytes", "Bytes of input that may be in memory, limits.memory.", nil, nil)
	joinedDesc      = prometheus.NewDesc(namespace+"_group_joined", "1 while this worker is a member of the consumer group.", nil, nil)
)

// Describe implements prometheus.Collector.
func (g *gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{lagRecords, lagOpen, lagSeconds, positionDesc, haltedDesc, heldBytes, heldMostBytes, joinedDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	s := g.c.Status()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	flag := map[bool]float64{true: 1}
	held := int64(0)
	for _, p := range s.Partitions {
		held += p.Held
		index := strconv.Itoa(int(p.Partition))
		gauge(haltedDesc, flag[p.Halted != ""], p.Topic, index)
		if p.Position >= 0 {
			gauge(positionDesc, float64(p.Position), p.Topic, index)
		}
		if p.Lag >= 0 {
			gauge(lagRecords, float64(p.Lag), p.Topic, index)
			gauge(lagOpen, float64(p.Open), p.Topic, index)
			gauge(lagSeconds, p.LagSeconds, p.Topic, index)
		}
	}
	gauge(heldBytes, float64(held))
	gauge(heldMostBytes, float64(g.c.cfg.Memory))
	gauge(joinedDesc, flag[s.Joined])
}
