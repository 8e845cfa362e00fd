package bench

import (
	"math"
	"slices"
	"time"
)

// Result is one workload, or one case of it, over all repetitions: medians. What
// does not apply is zero and left out.
type Result struct {
	Workload string `json:"workload,omitzero"`
	// Case tells the cases of one workload apart.
	Case               string  `json:"case,omitzero"`
	Handles            int     `json:"handles,omitzero"` // or devices
	HandlesPerSecond   float64 `json:"handlesPerSecond,omitzero"`
	FragmentsPerSecond float64 `json:"fragmentsPerSecond,omitzero"`
	// Ceiling is what Ratio compares with, in the unit of the first rate
	// above, or of P50Ms.
	Ceiling    float64 `json:"ceiling,omitzero"`
	Ratio      float64 `json:"ratio,omitzero"`
	P50Ms      float64 `json:"p50Ms,omitzero"`
	P99Ms      float64 `json:"p99Ms,omitzero"`
	RSSMiB     float64 `json:"rssMiB,omitzero"`     // the most that one worker held
	CPUSeconds float64 `json:"cpuSeconds,omitzero"` // of all workers
	Published  string  `json:"published,omitzero"`
	// Spread is how far the repetitions lie apart: half of the range, as a part
	// of the median.
	Spread float64 `json:"spread,omitzero"`
	// Processes used so much in one repetition.
	Processes []Use    `json:"processes,omitzero"`
	Cases     []Result `json:"cases,omitzero"`

	// Batch is how many records a worker's transaction held; Phases are the
	// seconds that its parts took, all transactions together.
	Batch int `json:"-"`
	// at is where the case stands on a plot's axis.
	at     float64
	Phases map[string]float64 `json:"-"`
}

// sample is one repetition.
type sample struct {
	handles, fragments int
	took, bare         time.Duration // for the same work
	p50, p99           time.Duration
	bareP50            time.Duration // of the ceiling, where latencies are compared
	uses               []Use
	batches            batches
}

// summarize makes one result of repetitions. The unit of the ceiling is handles
// if there are any that count, else fragments, else milliseconds.
func summarize(samples []sample, byHandle bool) Result {
	of := func(f func(sample) float64) []float64 { return sorted(samples, f) }
	unit := func(s sample) float64 {
		if byHandle {
			return float64(s.handles)
		}
		return float64(s.fragments)
	}
	first := samples[0]
	rates := of(func(s sample) float64 { return unit(s) / s.took.Seconds() })
	r := Result{
		Handles: first.handles,
		Spread:  round(spread(rates), 3),
		P50Ms:   round(median(of(func(s sample) float64 { return ms(s.p50) })), 3),
		P99Ms:   round(median(of(func(s sample) float64 { return ms(s.p99) })), 3),
	}
	if byHandle {
		r.HandlesPerSecond = round(median(rates), 1)
	}
	if first.fragments > 0 {
		r.FragmentsPerSecond = round(median(of(func(s sample) float64 { return float64(s.fragments) / s.took.Seconds() })), 1)
	}
	switch {
	case first.bareP50 > 0:
		r.Ceiling = round(median(of(func(s sample) float64 { return ms(s.bareP50) })), 3)
		r.Ratio = round(median(of(func(s sample) float64 { return float64(s.p50) / float64(s.bareP50) })), 3)
	case first.bare > 0:
		r.Ceiling = round(median(of(func(s sample) float64 { return unit(s) / s.bare.Seconds() })), 1)
		r.Ratio = round(median(of(func(s sample) float64 { return s.bare.Seconds() / s.took.Seconds() })), 3)
	}
	// The processes of the repetition in the middle; the peak of all.
	r.Processes, r.Batch, r.Phases = middle(samples).uses, middle(samples).batches.size(), middle(samples).batches.phases
	for _, s := range samples {
		for _, u := range s.uses {
			if isWorker(u.Process) {
				r.RSSMiB = max(r.RSSMiB, round(u.RSSMiB, 1))
			}
		}
	}
	for _, u := range r.Processes {
		if isWorker(u.Process) {
			r.CPUSeconds += u.CPUSeconds
		}
	}
	r.CPUSeconds = round(r.CPUSeconds, 2)
	return r
}

// sorted are the values of all repetitions in order.
func sorted(samples []sample, f func(sample) float64) []float64 {
	all := make([]float64, len(samples))
	for i, s := range samples {
		all[i] = f(s)
	}
	slices.Sort(all)
	return all
}

// middle is the repetition whose time is the median.
func middle(samples []sample) sample {
	sorted := slices.Clone(samples)
	slices.SortFunc(sorted, func(a, b sample) int { return int(a.took - b.took) })
	return sorted[len(sorted)/2]
}

// median of sorted values.
func median(sorted []float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// spread of sorted values is half of their range as a part of the median.
func spread(sorted []float64) float64 {
	m := median(sorted)
	if m == 0 {
		return 0
	}
	return (sorted[len(sorted)-1] - sorted[0]) / 2 / m
}

// percentile of sorted durations.
func percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(math.Ceil(p*float64(len(sorted))))-1)]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func round(x float64, digits int) float64 {
	p := math.Pow10(digits)
	return math.Round(x*p) / p
}
