package chaos

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
)

var (
	flagTime  = flag.Duration("chaos.time", 6*time.Second, "how long faults are injected")
	flagSeed  = flag.Uint64("chaos.seed", 1, "decides the events and the faults; 0 is drawn from the clock")
	flagRate  = flag.Int("chaos.rate", 150, "input records in a second")
	flagOnly  = flag.String("chaos.only", "", "only faults whose name holds this text, to see what one kind costs")
	flagKafka = flag.String("chaos.kafka", "embedded", "the broker: embedded or apache")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Workers are killed, frozen, stopped and replaced, servers crash and go away,
// networks break; in the end everything is as if nothing had happened. Without
// flags it is a run of seconds; see `make chaos`.
func TestChaos(t *testing.T) {
	t.Parallel()
	o := options{
		seed: *flagSeed, duration: *flagTime, rate: *flagRate, apache: *flagKafka == "apache", only: *flagOnly,
		session: 3 * time.Second, workers: 3, quiet: 6 * time.Second,
	}
	if o.duration < time.Minute {
		o.session, o.workers, o.quiet = 1500*time.Millisecond, 2, time.Second
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	t.Logf("seed %d, %s of faults, %d records in a second", o.seed, o.duration, o.rate)
	w := newWorld(t, o)
	r, took, err := w.live()
	if r != nil {
		w.show(r, took)
		require.True(t, r.OK(), "%s", strings.Join(r.Faults, "\n"))
	}
	require.NoError(t, err)
	require.Empty(t, w.faults)
}

// live runs all of it, and says what the checker found.
func (w *world) live() (r *Report, took time.Duration, err error) {
	w.Helper()
	if w.anew {
		if err := w.createAnew(); err != nil {
			return nil, 0, err
		}
		head, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		if err := errors.Join(w.producer.run(head), w.producer.flush(w.Context())); err != nil {
			return nil, 0, err
		}
	}
	for range w.workers {
		m, err := w.startMember()
		require.NoError(w, err)
		w.slots = append(w.slots, m)
	}
	began := time.Now()
	w.inject()
	if err := w.settle(); err != nil {
		return nil, 0, err
	}
	took = time.Since(began)
	for _, m := range w.slots {
		require.NoError(w, m.terminate())
	}
	w.slots = nil
	w.alive.Wait()
	h := w.collect()
	return Check(h), took, errors.Join(w.verified(), w.noSecretTold(h))
}

// inject runs producer, watch and both lanes of faults until the time is over.
func (w *world) inject() {
	w.Helper()
	watching, seen := context.WithCancel(context.Background())
	var watcher errgroup.Group
	watcher.Go(func() error { return w.watch.run(watching) })
	w.Cleanup(func() {
		seen()
		require.NoError(w, watcher.Wait())
	})
	ctx, cancel := context.WithTimeout(w.Context(), w.duration)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return w.producer.run(ctx) })
	g.Go(func() error { return w.lane(ctx, rand.New(rand.NewPCG(w.seed, 1001)), ofWorkers) })
	g.Go(func() error { return w.lane(ctx, rand.New(rand.NewPCG(w.seed, 1002)), ofServers) })
	require.NoError(w, g.Wait())
}

// verified lets the program look for anything wrong.
func (w *world) verified() error {
	out, err := exec.CommandContext(w.Context(), w.program, append([]string{"verify"}, w.flags(w.direct)...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("verify: %w: %s", err, out)
	}
	return nil
}

// show prints what was done and what came of it.
func (w *world) show(r *Report, took time.Duration) {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(&b, "\nseed %d, %s, faults for %s, %s in all\n\n", w.seed, w.kafka.name(), w.duration, took.Round(time.Second))
	fmt.Fprintln(t, "FAULT\tTIMES\tWORST PAUSE\tOF WHICH SERVERS UP")
	byKind := map[string][]injected{}
	var kinds []string
	var away []injected
	slices.SortFunc(w.injected, func(a, b injected) int { return a.from.Compare(b.from) })
	for _, f := range w.injected {
		if f.away {
			away = append(away, f)
		}
		if byKind[f.kind] == nil {
			kinds = append(kinds, f.kind)
		}
		byKind[f.kind] = append(byKind[f.kind], f)
	}
	slices.Sort(kinds)
	for _, kind := range kinds {
		var pause, up time.Duration
		for _, f := range byKind[kind] {
			p, u := w.watch.worst(f.from, f.to, away)
			pause, up = max(pause, p), max(up, u)
		}
		fmt.Fprintf(t, "%s\t%d\t%.1f s\t%.1f s\n", kind, len(byKind[kind]), pause.Seconds(), up.Seconds())
	}
	fmt.Fprintln(t)
	fmt.Fprintln(t, "LONGEST PAUSES WITH SERVERS UP\tOF\tFROM\tMEANWHILE")
	for _, p := range w.watch.longest(8, away) {
		var meanwhile []string
		for _, f := range w.injected {
			if f.from.Before(p.to) && f.to.After(p.from) {
				meanwhile = append(meanwhile, f.from.Format("15:04:05 ")+f.kind)
			}
		}
		fmt.Fprintf(t, "%.1f s of %.1f s\t%s/%d\t%s\t%s\n", p.without(away).Seconds(), p.to.Sub(p.from).Seconds(), p.home.topic, p.home.partition, p.from.Format("15:04:05.000"), strings.Join(meanwhile, ", "))
	}
	fmt.Fprintln(t)
	for _, line := range []struct {
		what string
		n    int
	}{
		{"faults", len(w.injected)}, {"worker processes", w.people}, {"records in", r.Records}, {"events in", r.Events}, {"handles", r.Handles},
		{"LCM and inventory events checked", r.Effects}, {"outcomes checked", r.Outcomes}, {"dead letters checked", r.DeadLetters},
		{"groups of shared handles", r.Clusters}, {"sent again, as allowed", r.Repeated},
		{"lost", r.Lost}, {"doubled", r.Doubled}, {"out of order", r.OutOfOrder}, {"otherwise wrong", r.Wrong},
	} {
		fmt.Fprintf(t, "%s\t%d\n", line.what, line.n)
	}
	if len(w.stops) > 0 {
		fmt.Fprintf(t, "clean stops\t%d, the longest %.1f s\n", len(w.stops), slices.Max(w.stops).Seconds())
	}
	require.NoError(w, t.Flush())
	w.Log(b.String())
}
