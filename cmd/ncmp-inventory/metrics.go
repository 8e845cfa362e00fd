package main

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// selfMetrics tells what the worker is and what it lacks, looked up when
// somebody asks: an alert has to see the same as a readiness probe.
type selfMetrics struct{ w *worker }

var (
	buildDesc = prometheus.NewDesc("ncmp_inventory_build_info", "1; the version that runs.", []string{"version", "go"}, nil)
	readyDesc = prometheus.NewDesc("ncmp_inventory_ready",
		"1 while this part of the worker is ready; /readyz says what is missing.", []string{"component"}, nil)
	stoppingDesc = prometheus.NewDesc("ncmp_inventory_stopping_seconds", "Time since the worker was asked to stop, 0 before.", nil, nil)
	drainDesc    = prometheus.NewDesc("ncmp_inventory_drain_timeout_seconds", "How long a stop may take, drain-timeout.", nil, nil)
)

// Describe implements prometheus.Collector.
func (s selfMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{buildDesc, readyDesc, stoppingDesc, drainDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s selfMetrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(buildDesc, 1, version(), runtime.Version())
	for _, p := range s.w.probes() {
		ready := 1.0
		if p.check() != nil {
			ready = 0
		}
		gauge(readyDesc, ready, p.name)
	}
	stopping := time.Duration(0)
	if at := s.w.stopping.Load(); at != nil {
		stopping = time.Since(*at)
	}
	gauge(stoppingDesc, stopping.Seconds())
	gauge(drainDesc, s.w.cfg.Drain.Seconds())
}
