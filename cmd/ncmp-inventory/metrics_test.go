package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"ncmp-inventory/cmd/ncmp-inventory/config"
)

// metricsFile is the list of all metrics; dashboards and alerts are checked
// against it.
const metricsFile = "testdata/metrics.txt"

// fixedLabels have values that alerts may name.
var fixedLabels = []string{"class", "component", "kind", "phase", "reason", "state", "what"}

// The metrics of a worker that has seen all kinds of input are those of the
// list, and none of them waits for its first event to be there: an alert on the
// first of something needs the zero before it.
func TestMetricsAreAsDocumented(t *testing.T) {
	t.Parallel()
	s := newSystem(t, true)
	var reg *prometheus.Registry
	s.start(t, func(w *worker) { reg = w.reg })
	newLogger(config.Log{}, io.Discard, reg)
	s.awaitReady(t)
	// The second body's create is refused.
	require.Equal(t, exitWrong, s.run(t, twoBodies, "register", "-", "--wait").code)
	require.Equal(t, exitDone, s.run(t, "", "state", "lab-17", "--to", "READY", "--wait").code)

	registered := describe(reg)
	var families []*dto.MetricFamily
	require.Eventually(t, func() bool {
		var err error
		families, err = reg.Gather()
		require.NoError(t, err)
		return len(families) >= len(registered)
	}, time.Minute, 10*time.Millisecond, "%v have no series", &missingSeries{registered, &families})

	problems, err := testutil.GatherAndLint(reg)
	require.NoError(t, err)
	require.Empty(t, problems)

	got := metricsText(families)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.WriteFile(metricsFile, got, 0o644))
	}
	want, err := os.ReadFile(metricsFile)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "UPDATE_GOLDEN=1 writes %s anew", metricsFile)
}

// describe lists the names that are registered.
func describe(reg *prometheus.Registry) map[string]bool {
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		reg.Describe(descs)
	}()
	names := map[string]bool{}
	name := regexp.MustCompile(`fqName: "([^"]+)"`)
	for d := range descs {
		names[name.FindStringSubmatch(d.String())[1]] = true
	}
	return names
}

// missingSeries names, when asked, what is registered and not gathered.
type missingSeries struct {
	registered map[string]bool
	gathered   *[]*dto.MetricFamily
}

func (m *missingSeries) String() string {
	left := maps.Clone(m.registered)
	for _, f := range *m.gathered {
		delete(left, f.GetName())
	}
	return fmt.Sprint(slices.Sorted(maps.Keys(left)))
}

// metricsText is a line for each metric: name, type, labels, help; below it, one
// for each label whose values are fixed.
func metricsText(families []*dto.MetricFamily) []byte {
	var b bytes.Buffer
	for _, f := range families {
		values := map[string]map[string]bool{}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if values[l.GetName()] == nil {
					values[l.GetName()] = map[string]bool{}
				}
				values[l.GetName()][l.GetValue()] = true
			}
		}
		labels := slices.Sorted(maps.Keys(values))
		fmt.Fprintf(&b, "%s\t%s\t%s\t%s\n", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, ","), f.GetHelp())
		for _, l := range labels {
			if slices.Contains(fixedLabels, l) {
				fmt.Fprintf(&b, "\t%s\t%s\n", l, strings.Join(slices.Sorted(maps.Keys(values[l])), ","))
			}
		}
	}
	return b.Bytes()
}
