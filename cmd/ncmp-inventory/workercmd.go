package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
)

func newWorkerCommand(a *app) *cobra.Command {
	var create bool
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Consumes events, writes the inventory, publishes LCM events, until SIGTERM",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return a.worker(cmd.Context(), create) },
	}
	cmd.Flags().BoolVar(&create, "create-topics", false, "create topics that do not exist, with the brokers' own replication")
	return cmd
}

func (a *app) worker(ctx context.Context, create bool) error {
	c, err := a.load("kafka.brokers", "database.url")
	if err != nil {
		return err
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	log, level := newLogger(c.Log, a.stderr, reg)
	defer log.Sync() //nolint:errcheck // a terminal cannot be synced
	w, err := newWorker(c.Config, log, reg)
	if err != nil {
		c.Explain(err)
		return err
	}
	w.level, w.createTopics = &level, create
	limitMemory(c.Limits.Memory, log)
	log.Info("ncmp-inventory worker", zap.String("version", version()))
	defer a.reloadLevel(ctx, log, level)()
	err = w.Run(ctx)
	c.Explain(err)
	return err
}

// reloadLevel sets the log level anew from the configuration on each SIGHUP. The
// function that it returns ends it.
func (a *app) reloadLevel(ctx context.Context, log *zap.Logger, level zap.AtomicLevel) func() {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-hup:
			}
			c, err := a.load()
			if err != nil {
				log.Error("SIGHUP: the configuration cannot be read; the log level stays", zap.Error(err))
				continue
			}
			level.SetLevel(logLevel(c.Log.Level))
			log.Info("SIGHUP: log level", zap.String("level", c.Log.Level))
		}
	}()
	return func() {
		signal.Stop(hup)
		cancel()
		<-done
	}
}

// memoryShare is how much of the container's memory the Go runtime may use
// before it collects harder; the rest is for stacks, buffers of the kernel's
// and what a burst needs.
const memoryShare = 0.9

// memoryBeside is what the worker may use beside the input in flight before the
// runtime collects harder, where no container sets a limit: decoded events,
// rows and messages of the transactions under way come to about as much.
const memoryBeside = 56 << 20

// limitMemory sets a soft limit, unless GOMEMLIMIT does: from the container's
// own, which the runtime would learn of only by being killed, else from what
// the worker needs, so that it does not grow to twice that between collections.
func limitMemory(inFlight int64, log *zap.Logger) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if limit, ok := containerMemory(); ok {
		limit = int64(float64(limit) * memoryShare)
		debug.SetMemoryLimit(limit)
		log.Info("soft memory limit set from the container's", zap.Int64("bytes", limit))
		return
	}
	debug.SetMemoryLimit(inFlight + memoryBeside)
}

// containerMemory is the memory that the container may use, if it is bounded.
func containerMemory() (int64, bool) {
	b, err := os.ReadFile("/sys/fs/cgroup/memory.max")
	if err != nil {
		return 0, false // no container, or none of the second version
	}
	limit, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return limit, err == nil // "max" is no limit
}
