// Package check proves that what stands in deploy fits the program and the
// systems it is for. It is a module of its own, so that the libraries of Helm,
// Kubernetes, Prometheus, Grafana and Compose are none of the product's.
package check

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the top of the repository.
const root = "../.."

// tools are built once, when a test needs one, into a directory of this run.
var tools string

func TestMain(m *testing.M) {
	// Helm tells of the chart's links to the rules and the dashboard, each time.
	slog.SetDefault(slog.New(slog.DiscardHandler))
	var err error
	if tools, err = os.MkdirTemp("", "check"); err != nil {
		panic(err)
	}
	code := m.Run()
	if err := os.RemoveAll(tools); err != nil {
		panic(err)
	}
	os.Exit(code)
}

func build(dir, pkg, name string, flags ...string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		path := filepath.Join(tools, name)
		cmd := exec.Command("go", append(append([]string{"build", "-o", path}, flags...), pkg)...)
		cmd.Dir, cmd.Stderr = dir, os.Stderr
		return path, cmd.Run()
	})
}

var (
	buildProgram = build(root, "./cmd/ncmp-inventory", "ncmp-inventory")
	// promtool needs none of the places where Prometheus looks for targets,
	// but the one of the compose file.
	buildPromtool = build(".", "github.com/prometheus/prometheus/cmd/promtool", "promtool", "-tags", "remove_all_sd enable_dns_sd")
)

// program runs the product and gives what it printed.
func program(t *testing.T, args ...string) string {
	t.Helper()
	path, err := buildProgram()
	require.NoError(t, err)
	return execute(t, path, args...)
}

func promtool(t *testing.T, args ...string) string {
	t.Helper()
	path, err := buildPromtool()
	require.NoError(t, err)
	return execute(t, path, args...)
}

func execute(t *testing.T, path string, args ...string) string {
	t.Helper()
	var said bytes.Buffer
	cmd := exec.Command(path, args...)
	cmd.Stderr = &said
	out, err := cmd.Output()
	require.NoError(t, err, "%v\n%s%s", args, out, &said)
	return string(out)
}

// read reads a file by its path from the top of the repository.
func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	return b
}

// same compares a generated file with what it should be; UPDATE_GOLDEN=1 writes it.
func same(t *testing.T, path, want string) {
	t.Helper()
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.WriteFile(filepath.Join(root, path), []byte(want), 0o644))
	}
	require.Equal(t, want, string(read(t, path)), "UPDATE_GOLDEN=1 writes %s anew", path)
}
