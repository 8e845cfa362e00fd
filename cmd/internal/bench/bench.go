package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"

	"ncmp-inventory/store"
)

// Config says what to measure and with what.
type Config struct {
	// Handles is how many CM handles a workload has; workloads of devices
	// take up to MaxDevices of them.
	Handles int
	// Workers is how many processes share the work, Connections how many
	// database connections each may use for transactions.
	Workers, Connections int
	// PerEvent is how many handles one registration event holds.
	PerEvent int
	// Partitions is how many each topic has; DefaultPartitions if 0.
	Partitions int
	// PostgreSQL has settings of the embedded server, beside the bench's own.
	PostgreSQL map[string]string
	// Repeat is how often each measurement is made.
	Repeat int
	// Time is how long the steady load lasts; a minute if 0.
	Time time.Duration
	// ProfileDir, if set, gets CPU and allocation profiles of the workers.
	ProfileDir string

	// Program is the command that starts this program.
	Program []string
	// WorkerFlags are configuration that the workers get before the bench's own.
	WorkerFlags []string
	// History says that they keep one: then the ceiling does as well.
	History bool
	// Store is how the store is opened, but for its URL.
	Store store.Config

	// Database is the URL of the user's own server, "" for an embedded one;
	// Password, if set, gives its password.
	Database string
	Password func(context.Context) (string, error)
	// Brokers and Kafka are the user's own, empty for an embedded broker.
	Brokers []string
	Kafka   *kafka.Client

	// Progress, if set, is told what happens next.
	Progress func(string)
}

func (c *Config) validate() error {
	for _, n := range []struct {
		name  string
		value int
	}{{"handles", c.Handles}, {"workers", c.Workers}, {"per-event", c.PerEvent}, {"repeat", c.Repeat}} {
		if n.value < 1 {
			return fmt.Errorf("%s has to be at least 1", n.name)
		}
	}
	if c.Time < 0 {
		return errors.New("time cannot be negative")
	}
	if len(c.PostgreSQL) > 0 && c.Database != "" {
		return errors.New("settings of PostgreSQL are for the embedded server; database.url names another")
	}
	if c.Connections < 2 {
		return errors.New("connections has to be at least 2")
	}
	return nil
}

// workload is one line of the result.
type workload struct {
	name      string
	published string // what ONAP publishes about CPS and NCMP
	// measure returns the results of this workload, or of all that it shares
	// its set-up with and that are wanted.
	measure func(r *run, ctx context.Context, wanted []string) ([]Result, error)
}

var workloads = []workload{
	{"registration", "20,000 in 205 s, 50,000 in 463 s; 40,000 in 108 s", (*run).handles},
	{"state", "~100 handles/s with module sync", (*run).handles},
	{"deregistration", "20,000 in 144 s, 50,000 in 488 s; 40,000 in 142.3 s (385/s in batches)", (*run).handles},
	{"insert", "", (*run).insert},
	{"leaves", "1,500, later 3,000 fragments/s", (*run).leaves},
	{"delete", "168-1,112 ms per 100 nodes; ~35,000 fragments/s", (*run).delete},
	{"read", "80,000-100,000 fragments/s", (*run).read},
	{"lifecycle", "", (*run).lifecycle},
	{"cold", "", (*run).cold},
	{"latency", "", (*run).latency},
	{"growth", "2.5 times the handles cost 2.3 and 3.4 times the time", (*run).growth},
	{"start", "", (*run).start},
	{steadyName, "", (*run).steady},
}

// steadyName names the workload that "all" leaves out: its time is its point.
const steadyName = "steady"

// Workloads are the names of all workloads, in the order in which "all" runs
// them; it leaves the last one out, steady.
func Workloads() []string {
	names := make([]string, len(workloads))
	for i, w := range workloads {
		names[i] = w.name
	}
	return names
}

// ErrUsage means that there is no such workload, or that a number makes no sense.
var ErrUsage = errors.New("usage")

const gcPercent = 400

// run is one run of workloads.
type run struct {
	cfg *Config
	s   *servers
}

// Run measures the named workloads, "all" being all of them, and emits each
// result when it is there. Servers that it starts are stopped before it returns.
func Run(ctx context.Context, cfg Config, names []string, emit func(Result) error) (err error) {
	if err := cfg.validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	if slices.Contains(names, "all") {
		names = append(slices.DeleteFunc(Workloads(), func(name string) bool { return name == steadyName }), names...)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == "all" })
	for _, name := range names {
		if !slices.Contains(Workloads(), name) {
			return fmt.Errorf("%w: no workload %q; there are %s, and all", ErrUsage, name, strings.Join(Workloads(), ", "))
		}
	}
	if cfg.Partitions == 0 {
		cfg.Partitions = DefaultPartitions
	}
	if cfg.Time == 0 {
		cfg.Time = time.Minute
	}
	if cfg.Progress == nil {
		cfg.Progress = func(string) {}
	}
	// This process holds the rows of a slice, and shares the processors with
	// what it measures: it collects garbage more rarely.
	defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	cfg.Progress("starting servers")
	s, err := startServers(ctx, &cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	r := &run{cfg: &cfg, s: s}
	done := map[string]bool{}
	for _, w := range workloads {
		if !slices.Contains(names, w.name) || done[w.name] {
			continue
		}
		results, err := w.measure(r, ctx, names)
		if err != nil {
			return fmt.Errorf("workload %s: %w", w.name, err)
		}
		for _, res := range results {
			done[res.Workload] = true
			res.Published = published(res.Workload)
			if err := emit(res); err != nil {
				return err
			}
		}
	}
	return nil
}

func published(name string) string {
	for _, w := range workloads {
		if w.name == name {
			return w.published
		}
	}
	return ""
}

// repetition tells what is measured now.
func (r *run) repetition(what string, n int) {
	r.cfg.Progress(fmt.Sprintf("%s, %d of %d", what, n+1, r.cfg.Repeat))
}
