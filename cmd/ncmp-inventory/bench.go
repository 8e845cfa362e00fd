package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"ncmp-inventory/cmd/internal/bench"
	"ncmp-inventory/cmd/ncmp-inventory/config"
)

// benchOptions are the flags of the benchmarks.
type benchOptions struct {
	bench.Config
	json        bool
	plot, sweep string
}

func newBenchCommand(a *app) *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use:   "bench WORKLOAD…|all",
		Short: "Measures workloads, each beside what PostgreSQL itself can do",
		Long: `Measures workloads and prints their rates, and beside each the ceiling: the same
rows written in the same batches by bare statements, in turns with the worker, so
that a noisy machine hurts both alike. Look at the ratio first.

Workloads: ` + strings.Join(bench.Workloads(), ", ") + `.
All of them are what "all" is, but steady, whose time is its point.

Without kafka.brokers and database.url it starts both on this machine. With them it
works in topics and databases of its own there, which it creates and removes; it
refuses a database that holds CM handles. Other configuration keys go to the
workers, for example --batch.max-records.`,
		Args:      cobra.MinimumNArgs(1),
		ValidArgs: append(bench.Workloads(), "all"),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := a.bench(cmd.Context(), o, args)
			if errors.Is(err, bench.ErrUsage) || errors.Is(err, bench.ErrInventory) {
				return &exitError{exitUsage, err}
			}
			return err
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Handles, "handles", 50_000, "how many CM handles; workloads of devices take up to 3,000")
	f.IntVar(&o.Workers, "workers", 1, "how many worker processes share the work")
	f.IntVar(&o.Connections, "connections", 0, "database connections of each worker (default: database.max-connections)")
	f.IntVar(&o.PerEvent, "per-event", 100, "how many CM handles a registration event holds")
	f.IntVar(&o.Repeat, "repeat", 3, "how often to measure; medians are printed")
	f.DurationVar(&o.Time, "time", time.Minute, "how long the steady load lasts")
	f.BoolVar(&o.json, "json", false, "print one JSON object for each workload")
	f.StringVar(&o.ProfileDir, "profile", "", "write CPU and allocation profiles of the workers to this directory")
	f.StringVar(&o.plot, "plot", "", "draw the results into this SVG file")
	f.StringVar(&o.sweep, "sweep", "", "measure for each value of a setting: KEY=VALUE,VALUE… (a configuration key, workers, connections, partitions, per-event, or postgresql. and a setting of the embedded server)")
	cmd.AddCommand(&cobra.Command{
		Use: "broker DIR", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return bench.ServeBroker(cmd.Context(), args[0], func(address string) { fmt.Fprintln(a.stdout, address) })
		},
	})
	return cmd
}

// benchOwn are the keys that the bench sets for its workers itself.
var benchOwn = map[string]bool{
	"config": true, "kafka.brokers": true, "kafka.group": true, "kafka.instance-id": true, "kafka.relay-id": true, "kafka.start": true,
	"database.url": true, "database.url-file": true, "database.migrate": true, "database.max-connections": true,
	"http.address": true, "http.debug-address": true, "log.level": true, "log.format": true,
}

func (a *app) bench(ctx context.Context, o benchOptions, workloads []string) error {
	c, err := a.load()
	if err != nil {
		return err
	}
	if err := a.configureBench(&o.Config, c); err != nil {
		return err
	}
	sweep := func(ctx context.Context, emit func(bench.Result) error) error {
		return bench.Run(ctx, o.Config, workloads, emit)
	}
	if o.sweep != "" {
		s, err := bench.ParseSweep(o.sweep)
		if err != nil {
			return err
		}
		sweep = func(ctx context.Context, emit func(bench.Result) error) error {
			return bench.RunSweep(ctx, o.Config, workloads, s, emit)
		}
	}
	var all []bench.Result
	err = sweep(ctx, func(r bench.Result) error {
		all = append(all, r)
		if !o.json {
			return nil
		}
		if err := json.MarshalWrite(a.stdout, r); err != nil {
			return err
		}
		_, err := fmt.Fprintln(a.stdout)
		return err
	})
	// What was measured before a failure took its time and is worth keeping.
	if !o.json && len(all) > 0 {
		err = errors.Join(err, printBench(a.stdout, all))
	}
	if err == nil && o.plot != "" {
		err = plotBench(o.plot, all)
	}
	return err
}

// configureBench adds what the command line does not say: servers, if the
// configuration names any, and how to start this program.
func (a *app) configureBench(b *bench.Config, c *config.Loaded) error {
	if b.Connections == 0 {
		b.Connections = c.Database.MaxConnections
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	b.Program, b.History = []string{self}, c.History.Enabled
	if a.file != "" {
		b.WorkerFlags = append(b.WorkerFlags, "--config", a.file)
	}
	a.flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed && !benchOwn[f.Name] && !strings.HasPrefix(f.Name, "kafka.topics.") {
			b.WorkerFlags = append(b.WorkerFlags, "--"+f.Name, f.Value.String())
		}
	})
	if c.Database.URL.IsSet() {
		if b.Database, err = c.Database.URL.Reveal(); err != nil {
			return &config.Error{Key: "database.url", Reason: err.Error()}
		}
		b.Password = passwordSource(c.Database)
	} else {
		// The store's configuration needs one; the bench puts its own in.
		c.Database.URL = config.SecretOf("postgres://")
	}
	if b.Store, err = storeConfig(&c.Config, zap.NewNop(), prometheus.NewRegistry()); err != nil {
		return err
	}
	b.Store.Registerer = nil // it is opened many times
	if len(c.Kafka.Brokers) > 0 {
		transport, err := newTransport(c.Kafka)
		if err != nil {
			return err
		}
		b.Brokers, b.Kafka = c.Kafka.Brokers, newClient(c.Kafka, transport)
	}
	if isTerminal(a.stderr) {
		bar := a.newProgress("", -1)
		b.Progress = bar.describe
	} else {
		b.Progress = func(what string) { fmt.Fprintln(a.stderr, what) }
	}
	return nil
}

func plotBench(path string, results []bench.Result) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return bench.Plot(f, results)
}
