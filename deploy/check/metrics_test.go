package check

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

// metric is what the program says of one of its metrics.
type metric struct {
	kind   string
	labels map[string][]string // the values of those that are fixed
}

// scraped are labels that a scrape adds.
var scraped = []string{"namespace", "job", "instance", "pod"}

// metrics are those of the program, from the list that its own test writes, and
// those of Go and the process.
func metrics(t *testing.T) map[string]metric {
	t.Helper()
	all := map[string]metric{}
	last := ""
	for line := range strings.Lines(string(read(t, "cmd/ncmp-inventory/testdata/metrics.txt"))) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if f[0] == "" {
			all[last].labels[f[1]] = strings.Split(f[2], ",")
			continue
		}
		last = f[0]
		m := metric{f[1], map[string][]string{}}
		for _, l := range strings.FieldsFunc(f[2], func(c rune) bool { return c == ',' }) {
			m.labels[l] = nil
		}
		all[last] = m
		if m.kind == "histogram" {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				all[last+suffix] = metric{"counter", m.labels}
			}
		}
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		all[f.GetName()] = metric{strings.ToLower(f.GetType().String()), map[string][]string{}}
	}
	return all
}

// checkQuery says what in a query does not fit the program's metrics, and which
// of them it reads.
func checkQuery(all map[string]metric, query string) (used []string, problems []string) {
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		return nil, []string{err.Error()}
	}
	complain := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	known := map[string]bool{}
	parser.Inspect(expr, func(node parser.Node, path []parser.Node) error {
		v, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		m, ok := all[v.Name]
		if !ok {
			complain("the program has no metric %q", v.Name)
			return nil
		}
		used = append(used, v.Name)
		for l := range m.labels {
			known[l] = true
		}
		for _, match := range v.LabelMatchers {
			checkMatcher(complain, v.Name, m, match)
		}
		if inRate(path) != (m.kind == "counter" || strings.HasSuffix(v.Name, "_bucket")) && !inWindow(path) {
			complain("%s is a %s: only counters are for rates, and they for nothing else", v.Name, m.kind)
		}
		return nil
	})
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if a, ok := node.(*parser.AggregateExpr); ok {
			for _, l := range a.Grouping {
				if !known[l] && l != "le" && !slices.Contains(scraped, l) {
					complain("nothing here has a label %q", l)
				}
			}
		}
		return nil
	})
	return used, problems
}

func checkMatcher(complain func(string, ...any), name string, m metric, match *labels.Matcher) {
	if match.Name == model.MetricNameLabel || slices.Contains(scraped, match.Name) {
		return
	}
	values, ok := m.labels[match.Name]
	switch {
	case !ok:
		complain("%s has no label %q", name, match.Name)
	case values != nil && !slices.ContainsFunc(values, match.Matches):
		complain("%s matches none of %v", match, values)
	case values != nil && !slices.ContainsFunc(values, func(v string) bool { return !match.Matches(v) }):
		complain("%s matches all of %v", match, values)
	}
}

func calls(path []parser.Node) (names []string) {
	for _, n := range path {
		if c, ok := n.(*parser.Call); ok {
			names = append(names, c.Func.Name)
		}
	}
	return names
}

func inRate(path []parser.Node) bool {
	return slices.ContainsFunc(calls(path), func(f string) bool { return f == "rate" || f == "increase" })
}

// inWindow are functions of gauges over time and of presence.
func inWindow(path []parser.Node) bool {
	return slices.ContainsFunc(calls(path), func(f string) bool { return f == "changes" || f == "max_over_time" || f == "absent" })
}

func TestQueriesThatDoNotFitAreFound(t *testing.T) {
	t.Parallel()
	all := metrics(t)
	for query, want := range map[string]string{
		"ncmp_inventory_nothing":                                  "no metric",
		"ncmp_inventory_outbox_bytes{kind=\"lcm\"}":               "no label",
		"rate(ncmp_inventory_gaps_total{kind=\"gaps\"}[5m])":      "matches none",
		"rate(ncmp_inventory_gaps_total{kind!=\"gaps\"}[5m])":     "matches all",
		"sum by (topics) (ncmp_inventory_lag_seconds)":            "nothing here",
		"rate(ncmp_inventory_outbox_bytes[5m])":                   "only counters",
		"ncmp_inventory_gaps_total > 0":                           "only counters",
		"sum(":                                                    "parse error",
		"sum by (kind) (rate(ncmp_inventory_gaps_total[5m]))":     "",
		"max by (topic, instance) (ncmp_inventory_lag_seconds)":   "",
		"rate(ncmp_inventory_gaps_total{kind=~\"gap|re.*\"}[1m])": "",
	} {
		_, problems := checkQuery(all, query)
		if want == "" {
			require.Empty(t, problems, query)
			continue
		}
		require.Contains(t, strings.Join(problems, "; "), want, query)
	}
}
