package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"no command prints help", nil, exitDone, ""},
		{"unknown command", []string{"wroker"}, exitUsage, "unknown command"},
		{"unknown flag", []string{"config", "print", "--jsno"}, exitUsage, "unknown flag"},
		{"too many arguments", []string{"config", "print", "x"}, exitUsage, "unknown command"},
		{"bad value", []string{"config", "print", "--kafka.start=never"}, exitUsage, "kafka.start: \"never\": want one of earliest, latest (from flag --kafka.start)"},
		{"missing file", []string{"config", "print", "--config=/nowhere.yaml"}, exitUsage, "/nowhere.yaml"},
		{"good", []string{"config", "print"}, exitDone, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := runCommand(t, "", c.args...)
			require.Equal(t, c.code, got.code, got.stderr)
			require.Contains(t, got.stderr, c.says)
			if c.code != exitDone {
				require.Empty(t, got.stdout)
				require.True(t, strings.HasPrefix(got.stderr, "ncmp-inventory: "), got.stderr)
			}
		})
	}
}

func TestConfigPrintShowsValuesAndSources(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "worker.yaml")
	require.NoError(t, os.WriteFile(file, []byte("kafka:\n  sasl: {mechanism: PLAIN, username: u, password: s3cr3t}\n"), 0o600))
	got := runCommand(t, "", "config", "print", "--config", file, "--kafka.group", "g", "--json")
	require.Equal(t, exitDone, got.code, got.stderr)
	require.Contains(t, got.stdout, `"kafka.group": {
    "value": "g",
    "source": "flag --kafka.group"
  }`)
	require.NotContains(t, got.stdout, "s3cr3t")
	require.Contains(t, runCommand(t, "", "config", "keys").stdout, "| `kafka.brokers` |")
}
