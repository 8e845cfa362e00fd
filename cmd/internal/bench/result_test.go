package bench

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRepetitionsBecomeMedians(t *testing.T) {
	t.Parallel()
	samples := []sample{
		{handles: 100, fragments: 1100, took: 2 * time.Second, bare: time.Second, uses: []Use{{"worker-1", 1, 30}, {"broker", 9, 90}}},
		{handles: 100, fragments: 1100, took: time.Second, bare: time.Second, uses: []Use{{"worker-1", 2, 10}, {"worker-2", 3, 20}}},
		{handles: 100, fragments: 1100, took: 4 * time.Second, bare: time.Second},
	}
	r := summarize(samples, true)
	require.Equal(t, Result{
		Handles: 100, HandlesPerSecond: 50, FragmentsPerSecond: 550, Ceiling: 100, Ratio: 0.5,
		RSSMiB: 30, CPUSeconds: 1, Spread: 0.75, Processes: samples[0].uses, Batch: 1,
	}, r, "spread: from 25 to 100, half of it, of 50")
	r = summarize(samples[1:2], false)
	require.Equal(t, 1100.0, r.Ceiling, "without handles the ceiling counts fragments")
	require.Zero(t, r.HandlesPerSecond)
	require.Equal(t, 5.0, r.CPUSeconds)
	require.Equal(t, 20.0, r.RSSMiB, "the largest worker counts, no other process")
}

func TestPercentiles(t *testing.T) {
	t.Parallel()
	var d []time.Duration
	for i := range 200 {
		d = append(d, time.Duration(i+1))
	}
	require.Equal(t, time.Duration(100), percentile(d, 0.5))
	require.Equal(t, time.Duration(198), percentile(d, 0.99))
	require.Equal(t, time.Duration(1), percentile(d[:1], 0.99))
	require.Zero(t, percentile(nil, 0.5))
}

func TestSweepsSetWhatTheyName(t *testing.T) {
	t.Parallel()
	s, err := ParseSweep("batch.max-bytes=1MiB,4MiB")
	require.NoError(t, err)
	require.Equal(t, Sweep{"batch.max-bytes", []string{"1MiB", "4MiB"}}, s)
	c, err := s.with(Config{WorkerFlags: []string{"--outcomes", "off"}}, "4MiB")
	require.NoError(t, err)
	require.Equal(t, []string{"--outcomes", "off", "--batch.max-bytes", "4MiB"}, c.WorkerFlags)
	c, err = Sweep{Key: "workers"}.with(Config{Workers: 1}, "4")
	require.NoError(t, err)
	require.Equal(t, 4, c.Workers)
	c, err = Sweep{Key: "postgresql.wal_compression"}.with(Config{}, "off")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"wal_compression": "off"}, c.PostgreSQL)
	_, err = Sweep{Key: "workers"}.with(Config{}, "many")
	require.ErrorIs(t, err, ErrUsage)
	for _, bad := range []string{"", "workers", "=1", "workers="} {
		_, err := ParseSweep(bad)
		require.ErrorIs(t, err, ErrUsage, bad)
	}
	for text, want := range map[string]float64{"4MiB": 4 << 20, "100": 100, "off": 7} {
		require.InDelta(t, want, number(text, 7), 0, text)
	}
}

func TestPlotIsSVG(t *testing.T) {
	t.Parallel()
	results := []Result{
		{Workload: "registration", HandlesPerSecond: 5000, Ceiling: 7000, Ratio: 0.71},
		{Workload: "leaves", FragmentsPerSecond: 90_000, Ceiling: 100_000, Cases: []Result{
			{Case: "1 at a time", FragmentsPerSecond: 800, Ceiling: 900, at: 1},
			{Case: "100 at a time", FragmentsPerSecond: 80_000, Ceiling: 90_000, at: 100},
			{Case: "1000 at a time", FragmentsPerSecond: 90_000, Ceiling: 100_000, at: 1000},
		}},
		{Workload: "read", FragmentsPerSecond: 1, Cases: []Result{{Case: "a<b & c", FragmentsPerSecond: 1}}},
	}
	var b strings.Builder
	require.NoError(t, Plot(&b, results))
	tags := map[string]int{}
	for dec := xml.NewDecoder(strings.NewReader(b.String())); ; {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if s, ok := token.(xml.StartElement); ok {
			tags[s.Name.Local]++
		}
	}
	require.Equal(t, 1, tags["svg"])
	require.Equal(t, 6, tags["circle"], "a curve of three sizes, measured and ceiling")
	require.Equal(t, 1+2+1, tags["rect"], "the ground, and bars for what stands on no axis")
	require.Contains(t, b.String(), "registration, handles/s")
	require.Contains(t, b.String(), "a&lt;b &amp; c")
}

func TestNonsenseIsRefused(t *testing.T) {
	t.Parallel()
	good := Config{Handles: 1, Workers: 1, Connections: 2, PerEvent: 1, Repeat: 1}
	for _, change := range []func(*Config){
		func(c *Config) { c.Handles = 0 }, func(c *Config) { c.Workers = 0 }, func(c *Config) { c.Connections = 1 },
		func(c *Config) { c.PerEvent = 0 }, func(c *Config) { c.Repeat = 0 },
	} {
		c := good
		change(&c)
		require.ErrorIs(t, Run(t.Context(), c, []string{"read"}, nil), ErrUsage)
	}
	require.ErrorContains(t, Run(t.Context(), good, []string{"reed"}, nil), `no workload "reed"; there are registration, state`)
}
