package main

import (
	"context"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDemoProvesItself(t *testing.T) {
	t.Parallel()
	r := runCommand(t, "", "demo", "--handles", "750", "--workers", "3", "--json")
	require.Zero(t, r.code, r.stderr)
	var got map[string]any
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &got))
	require.Equal(t, 1, strings.Count(r.stdout, "\n"), "one object on one line")
	require.Positive(t, got["seconds"])
	rates := got["rates"].(map[string]any)
	for _, name := range []string{"registered", "ready", "updated", "removed", "lcmEvents"} {
		require.Positive(t, rates[name], name)
	}
	delete(got, "seconds")
	delete(got, "rates")
	require.Equal(t, map[string]any{
		"handles": 750.0, "registered": 750.0, "ready": 750.0, "updated": 750.0, "removed": 750.0,
		"lcmEvents": 3750.0, "lost": 0.0, "doubled": 0.0, "outOfOrder": 0.0,
	}, got)
	require.Len(t, strings.Split(strings.TrimSpace(r.stderr), "\n"), 1, "no progress bars off a terminal: %q", r.stderr)
}

// With --keep the demo tells what to try, and what it tells works while it
// stays up.
func TestDemoStaysUpOnDemand(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var tried int
	stderr := &watched{stop: func() {}}
	stderr.done = func(text string) bool {
		if !strings.Contains(text, "Ctrl-C stops everything") {
			return false
		}
		defer cancel()
		for _, m := range regexp.MustCompile(`(?m)^  \S.*? (list|get \S+|state .*|verify|positions) (--kafka\.brokers .*)$`).FindAllStringSubmatch(text, -1) {
			args := append(strings.Fields(m[1]), strings.Fields(strings.ReplaceAll(m[2], "'", ""))...)
			r := runCommand(t, "", args...)
			require.Zero(t, r.code, "%s: %s", args, r.stderr)
			tried++
		}
		return true
	}
	var stdout strings.Builder
	code := run(ctx, []string{"demo", "--handles", "20", "--keep"}, nil, strings.NewReader(""), &stdout, stderr)
	require.Zero(t, code, stderr.buf.String())
	require.Equal(t, 5, tried, stderr.buf.String())
	require.Contains(t, stdout.String(), "proof: 100 LCM events of 20 CM handles followed: 0 lost, 0 doubled, 0 out of order")
	log := regexp.MustCompile(`log is (\S+)\. `).FindStringSubmatch(stderr.buf.String())
	require.Len(t, log, 2)
	_, err := os.Stat(log[1])
	require.ErrorIs(t, err, os.ErrNotExist, "nothing is left behind")
}

func TestDemoRefusesNonsense(t *testing.T) {
	t.Parallel()
	require.Equal(t, exitUsage, runCommand(t, "", "demo", "--handles", "0").code)
	require.Equal(t, exitUsage, runCommand(t, "", "demo", "--workers", "-1").code)
	require.Equal(t, exitUsage, runCommand(t, "", "demo", "more").code)
}

func TestNumbersForPeople(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		require.Equal(t, want, grouped(n))
	}
	require.Equal(t, "1 worker", counted(1, "worker"))
	require.Equal(t, "1,000 workers", counted(1000, "worker"))
}
