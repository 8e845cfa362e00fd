package check

import (
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const (
	rulesFile = root + "/deploy/prometheus/rules.yaml"
	testsFile = root + "/deploy/prometheus/rules.test.yaml"
)

func alerts(t *testing.T) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile(rulesFile, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	require.Empty(t, errs)
	var all []rulefmt.Rule
	for _, g := range groups.Groups {
		all = append(all, g.Rules...)
	}
	require.NotEmpty(t, all)
	return all
}

func TestAlertsFireWhenTheyShouldAndOnlyThen(t *testing.T) {
	t.Parallel()
	promtool(t, "test", "rules", testsFile)
	promtool(t, "check", "rules", "--lint=all", "--lint-fatal", rulesFile)
}

// Each alert has a test in which it fires and in which it does not.
func TestEveryAlertIsTested(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(testsFile)
	require.NoError(t, err)
	var file struct {
		Tests []struct {
			Name  string
			Exprs []struct {
				Expr    string
				Samples []struct{ Value float64 } `json:"exp_samples"`
			} `json:"promql_expr_test"`
		}
	}
	require.NoError(t, yaml.Unmarshal(b, &file))
	type seen struct{ fires, silent bool }
	tested := map[string]seen{}
	for _, one := range file.Tests {
		s := tested[one.Name]
		for _, e := range one.Exprs {
			require.Equal(t, `count(ALERTS{alertname="`+one.Name+`",alertstate="firing"}) or vector(0)`, e.Expr)
			s.fires = s.fires || e.Samples[0].Value > 0
			s.silent = s.silent || e.Samples[0].Value == 0
		}
		tested[one.Name] = s
	}
	for _, r := range alerts(t) {
		require.Equal(t, seen{true, true}, tested[r.Alert], r.Alert)
		delete(tested, r.Alert)
	}
	require.Empty(t, tested, "tests of no alert")
}

var promise = regexp.MustCompile(`^G[1-8]$`)

// Each promise has its alerts, each alert what a person needs who is woken by it.
func TestAlertsAreComplete(t *testing.T) {
	t.Parallel()
	all := metrics(t)
	promises := map[string]bool{}
	for _, r := range alerts(t) {
		_, problems := checkQuery(all, r.Expr)
		require.Empty(t, problems, r.Alert)
		require.Regexp(t, `^NcmpInventory[A-Z]`, r.Alert)
		require.Contains(t, []string{"critical", "warning", "info"}, r.Labels["severity"], r.Alert)
		if p, ok := r.Labels["promise"]; ok {
			require.Regexp(t, promise, p)
			promises[p] = true
		}
		for _, a := range []string{"summary", "description", "runbook_url"} {
			require.NotEmpty(t, r.Annotations[a], "%s of %s", a, r.Alert)
		}
		require.LessOrEqual(t, len(r.Annotations["summary"]), 100, r.Alert)
	}
	require.Len(t, promises, 8)
}

// Runbooks are where the alerts say they are, one for each.
func TestEveryAlertHasARunbook(t *testing.T) {
	t.Parallel()
	headings := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (NcmpInventory\w+)$`).FindAllStringSubmatch(string(read(t, "docs/operations.md")), -1) {
		headings[m[1]] = true
	}
	for _, r := range alerts(t) {
		require.Equal(t, "docs/operations.md#"+strings.ToLower(r.Alert), r.Annotations["runbook_url"])
		require.True(t, headings[r.Alert], "docs/operations.md has no section %s", r.Alert)
		delete(headings, r.Alert)
	}
	require.Empty(t, headings, "runbooks of no alert")
}

func TestPrometheusTakesItsConfiguration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"prometheus.yaml", "rules.yaml"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), read(t, "deploy/prometheus/"+name), 0o600))
	}
	out := promtool(t, "check", "config", "--lint=all", "--lint-fatal", filepath.Join(dir, "prometheus.yaml"))
	require.Contains(t, out, "1 rule files found")
}
