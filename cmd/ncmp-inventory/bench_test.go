package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"ncmp-inventory/cmd/internal/bench"
	"ncmp-inventory/cmd/internal/kafkaembed"
	"ncmp-inventory/store/storetest"
)

// runBench runs the benchmarks as a process: they start this program again.
func runBench(t *testing.T, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{"bench"}, args...)...)
	cmd.Env = append(os.Environ(), runAsProgram+"=1")
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run() // the exit code tells
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// benchFields are the members of every result that has them, as documented.
var benchFields = []string{
	"workload", "handles", "handlesPerSecond", "fragmentsPerSecond", "ceiling", "ratio",
	"p50Ms", "p99Ms", "rssMiB", "cpuSeconds", "published",
}

// benchHas are the fields that each workload has.
var benchHas = map[string]string{
	"registration":   "handles handlesPerSecond fragmentsPerSecond ceiling ratio rssMiB published",
	"state":          "handles handlesPerSecond fragmentsPerSecond ceiling ratio rssMiB published",
	"deregistration": "handles handlesPerSecond fragmentsPerSecond ceiling ratio rssMiB published",
	"insert":         "handles fragmentsPerSecond ceiling ratio p50Ms p99Ms",
	"leaves":         "handles fragmentsPerSecond ceiling ratio p50Ms p99Ms published",
	"delete":         "handles fragmentsPerSecond ceiling ratio p50Ms p99Ms published",
	"read":           "handles fragmentsPerSecond ceiling ratio p50Ms p99Ms published",
	"lifecycle":      "handles handlesPerSecond fragmentsPerSecond ceiling ratio rssMiB",
	"cold":           "handles handlesPerSecond fragmentsPerSecond ceiling ratio rssMiB",
	"latency":        "handles ceiling ratio p50Ms p99Ms rssMiB",
	"growth":         "handles handlesPerSecond fragmentsPerSecond ceiling ratio rssMiB published",
	"start":          "handles p50Ms rssMiB",
	"steady":         "handles p50Ms p99Ms rssMiB",
}

func TestBenchMeasuresEveryWorkload(t *testing.T) {
	t.Parallel()
	plot := filepath.Join(t.TempDir(), "plot.svg")
	r := runBench(t, "all", "steady", "--time", "2s", "--handles", "200", "--repeat", "1", "--connections", "3", "--json", "--plot", plot)
	require.Zero(t, r.code, r.stderr)
	cases := map[string]int{}
	var order []string
	for line := range strings.Lines(r.stdout) {
		var got map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &got), line)
		name := got["workload"].(string)
		order = append(order, name)
		for _, field := range benchFields[1:] {
			if field == "cpuSeconds" {
				continue // a run this short can be below the system's clock tick
			}
			if !slices.Contains(strings.Fields(benchHas[name]), field) {
				require.NotContains(t, got, field, "what does not apply to %s is left out", name)
				continue
			}
			require.Contains(t, got, field, line)
			if field != "published" {
				require.Positive(t, got[field], "%s of %s", field, name)
			}
		}
		if list, ok := got["cases"].([]any); ok {
			cases[name] = len(list)
		}
		if strings.Contains(benchHas[name], "handlesPerSecond") {
			require.InDelta(t, got["handlesPerSecond"].(float64)/got["ceiling"].(float64), got["ratio"], 0.01, line)
		}
	}
	require.Equal(t, bench.Workloads(), order, "one object a line and workload")
	require.Equal(t, map[string]int{"insert": 2, "leaves": 4, "delete": 12, "read": 12, "latency": 2, "growth": 4, "steady": 10}, cases)
	svg, err := os.ReadFile(plot)
	require.NoError(t, err)
	require.Contains(t, string(svg), "<svg")
}

// The user's own servers are used, and left as they were.
func TestBenchOnServersOfTheUser(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	b, err := kafkaembed.Start(t.Context(), kafkaembed.Config{DataDir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	profiles := t.TempDir()
	args := []string{
		"registration", "--handles", "60", "--per-event", "20", "--workers", "2", "--repeat", "1", "--sweep", "batch.max-records=1,10", "--profile", profiles,
		"--database.url", db.URL, "--kafka.brokers", b.Addrs()[0],
	}
	r := runBench(t, args...)
	require.Zero(t, r.code, r.stderr)
	require.Regexp(t, `(?m)^WORKLOAD +HANDLES +HANDLES/S`, r.stdout)
	require.Regexp(t, `(?m)^registration +60 +[\d.]+`, r.stdout)
	require.Regexp(t, `(?m)^  batch.max-records=1 +60 +[\d.]+`, r.stdout)
	require.Regexp(t, `(?m)^registration +worker-1 `, r.stdout)
	files, err := filepath.Glob(filepath.Join(profiles, "registration-1-worker-1-*.pb.gz"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 3, "CPU, and allocations before and after")

	pool := db.Pool(t)
	var left int
	require.NoError(t, pool.QueryRow(t.Context(), "select count(*) from pg_database where datname like 'ncmp_inventory_bench%'").Scan(&left))
	require.Zero(t, left, "databases")
	require.Empty(t, topicNames(t, b.Addrs()[0]), "topics")

	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `
insert into fragment (id, xpath, attributes, anchor_id, parent_id)
select 100000, '/dmi-registry/cm-handles[@id=''theirs'']', '{"id": "theirs"}', anchor_id, id from fragment where xpath = '/dmi-registry'`)
		return err
	}))
	r = runBench(t, args...)
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, "holds CM handles")
	require.Empty(t, r.stdout)
}

// topicNames are the topics that are not the broker's own.
func topicNames(t *testing.T, broker string) []string {
	t.Helper()
	conn, err := kafka.DialContext(t.Context(), "tcp", broker)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	parts, err := conn.ReadPartitions()
	require.NoError(t, err)
	var names []string
	for _, p := range parts {
		if !strings.HasPrefix(p.Topic, "__") {
			names = append(names, p.Topic+"-"+strconv.Itoa(p.ID))
		}
	}
	return names
}

func TestBenchRefusesNonsense(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{}, {"nothing"}, {"read", "--handles", "0"}, {"read", "--repeat", "-1"}, {"read", "--sweep", "workers"}, {"read", "--connections", "1"},
	} {
		r := runCommand(t, "", append([]string{"bench"}, args...)...)
		require.Equal(t, exitUsage, r.code, "%v: %s", args, r.stderr)
	}
}
