package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"ncmp-inventory/cmd/internal/bench"
)

// printBench prints what was measured, then what it used.
func printBench(w io.Writer, results []bench.Result) error {
	t := newTable(w, "WORKLOAD", "HANDLES", "HANDLES/S", "FRAGMENTS/S", "CEILING", "RATIO", "SPREAD", "P50 MS", "P99 MS", "PUBLISHED")
	for _, r := range results {
		t.row(benchRow(r.Workload, &r)...)
		for _, c := range r.Cases {
			t.row(benchRow("  "+c.Case, &c)...)
		}
	}
	if err := t.flush(); err != nil {
		return err
	}
	if !slices.ContainsFunc(results, func(r bench.Result) bool { return len(r.Processes) > 0 }) {
		return nil
	}
	fmt.Fprintln(w)
	t = newTable(w, "WORKLOAD", "PROCESS", "CPU S", "RSS MIB", "TRANSACTIONS OF")
	for _, r := range results {
		for i, u := range r.Processes {
			name, batch := r.Workload, batchOf(&r)
			if i > 0 {
				name, batch = "", ""
			}
			t.row(name, u.Process, fmt.Sprintf("%.2f", u.CPUSeconds), fmt.Sprintf("%.0f", u.RSSMiB), batch)
		}
	}
	return t.flush()
}

func benchRow(name string, r *bench.Result) []string {
	number := func(v float64, format string) string {
		if v == 0 {
			return "-"
		}
		return fmt.Sprintf(format, v)
	}
	count := func(v float64) string {
		switch {
		case v == 0:
			return "-"
		case v < 100:
			return fmt.Sprintf("%.2f", v)
		}
		return grouped(int(v))
	}
	spread := "-"
	if r.Spread > 0 {
		spread = fmt.Sprintf("±%.0f %%", 100*r.Spread)
	}
	return []string{
		name, grouped(r.Handles), count(r.HandlesPerSecond), count(r.FragmentsPerSecond), count(r.Ceiling),
		number(r.Ratio, "%.2f"), spread, number(r.P50Ms, "%.2f"), number(r.P99Ms, "%.2f"), r.Published,
	}
}

// batchOf tells how large the workers' transactions were, and where their time
// went.
func batchOf(r *bench.Result) string {
	if len(r.Phases) == 0 {
		return ""
	}
	sum := 0.0
	for name, v := range r.Phases {
		if name != "apply" { // all but decode, together
			sum += v
		}
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(r.Phases)) {
		if name != "apply" && sum > 0 {
			parts = append(parts, fmt.Sprintf("%s %.0f %%", name, 100*r.Phases[name]/sum))
		}
	}
	return fmt.Sprintf("%d records: %s", r.Batch, strings.Join(parts, ", "))
}
