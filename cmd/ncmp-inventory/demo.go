package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"ncmp-inventory/cmd/internal/load"
	"ncmp-inventory/cmd/internal/proof"
)

// demoStall is how long the demo waits for the next event before it gives up.
const demoStall = time.Minute

// demoOptions are the flags of the demo.
type demoOptions struct {
	handles, workers int
	keep, json       bool
}

func newDemoCommand(a *app) *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Shows everything on this machine, with a proof at the end",
		Long: `Starts a Kafka broker in this process, a private PostgreSQL, two workers in one
consumer group, and a stand-in for DMI plugin and module sync that answers each
creation with a state change to READY. Then it registers, updates and removes CM
handles by events, and holds rows and LCM events against each other: none may be
lost, doubled or out of order.

It needs nothing and leaves nothing behind. With --keep it stays up, with some
handles registered, and prints commands to try.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.handles < 1 || o.workers < 1 {
				return &exitError{exitUsage, errors.New("--handles and --workers have to be at least 1")}
			}
			return a.demo(cmd.Context(), o)
		},
	}
	cmd.Flags().IntVar(&o.handles, "handles", 10_000, "how many CM handles")
	cmd.Flags().IntVar(&o.workers, "workers", 2, "how many workers share the work")
	cmd.Flags().BoolVar(&o.keep, "keep", false, "stay up afterwards and print commands to try")
	cmd.Flags().BoolVar(&o.json, "json", false, "print the result as one JSON object")
	return cmd
}

// demo is a running demonstration.
type demo struct {
	*app
	options demoOptions
	system  *demoSystem
	standIn *standIn
	load    *load.Load
	result  demoResult
}

func (a *app) demo(ctx context.Context, o demoOptions) (err error) {
	l, err := load.New(load.Config{Handles: o.handles, Seed: 1})
	if err != nil {
		return err
	}
	fmt.Fprintln(a.stderr, "starting PostgreSQL, a Kafka broker and", counted(o.workers, "worker"))
	system, err := startDemoSystem(ctx, o.workers)
	if err != nil {
		return err
	}
	topics := system.config.Kafka.Topics
	d := &demo{
		app: a, options: o, load: l, system: system,
		standIn: newStandIn(system.broker.Addrs(), topics.LCMEvents, topics.StateChanges[0]),
		result:  demoResult{Handles: o.handles, Rates: map[string]float64{}},
	}
	err = d.run(ctx)
	return errors.Join(err, system.close(err != nil && ctx.Err() == nil))
}

// run tells the story with the workers and the stand-in beside it: if one of
// them fails, so does the story, and when the story ends, so do they.
func (d *demo) run(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.system.runWorkers(ctx) })
	g.Go(func() error { return d.standIn.Run(ctx) })
	g.Go(func() error {
		defer end()
		return d.story(ctx)
	})
	return g.Wait()
}

func (d *demo) story(ctx context.Context) error {
	if err := d.system.awaitReady(ctx); err != nil {
		return err
	}
	if err := d.act(ctx); err != nil {
		return err
	}
	if err := d.print(); err != nil {
		return err
	}
	if d.options.keep {
		if err := d.stay(ctx); err != nil {
			return err
		}
	}
	if d.result.wrong() {
		return &exitError{exitFailed, errors.New("the proof found something wrong")}
	}
	return nil
}

// act sends the events, waits after each kind for what they cause, and proves.
func (d *demo) act(ctx context.Context) error {
	inputs := load.Writer(d.system.broker.Addrs(), d.system.config.Kafka.Topics.Registrations[0])
	defer load.Close(inputs) //nolint:errcheck // it has written all that it was given
	began := time.Now()
	r := &d.result
	var proving time.Duration

	if err := d.phase(ctx, "registered", proof.Created, &r.Registered, inputs, d.load.Registrations()); err != nil {
		return err
	}
	if err := d.phase(ctx, "ready", becameReady, &r.Ready, nil, nil); err != nil {
		return err
	}
	// Both run side by side: the rate of the second counts from the first.
	r.steps[1].took = time.Since(began)
	r.Rates["ready"] = rate(r.Ready, r.steps[1].took)
	if err := d.phase(ctx, "updated", proof.Changed, &r.Updated, inputs, d.load.Updates()); err != nil {
		return err
	}
	paused := time.Now()
	if err := d.proveRows(ctx); err != nil {
		return err
	}
	proving += time.Since(paused)
	if err := d.phase(ctx, "removed", proof.Deleted, &r.Removed, inputs, d.load.Removals()); err != nil {
		return err
	}
	took := time.Since(began) - proving
	r.Seconds = round(took.Seconds(), 3)
	if err := d.proveEvents(ctx); err != nil {
		return err
	}
	r.step("LCM events", "lcmEvents", r.LCMEvents, took)
	return nil
}

// phase sends events, if there are any, and waits until a fact was told of
// every handle.
func (d *demo) phase(ctx context.Context, name string, fact proof.Fact, reached *int, w *kafka.Writer, events iter.Seq[load.Event]) error {
	began := time.Now()
	bar := d.newProgress(fmt.Sprintf("%-10s", name), d.options.handles)
	g, ctx := errgroup.WithContext(ctx)
	if events != nil {
		g.Go(func() error { return load.Send(ctx, w, events, nil) })
	}
	g.Go(func() error {
		return d.standIn.await(ctx, demoStall, func() bool {
			now := d.standIn.count(fact)
			bar.add(now - *reached)
			*reached = now
			return now >= d.options.handles
		})
	})
	if err := g.Wait(); err != nil {
		return fmt.Errorf("%d of %d CM handles %s: %w", *reached, d.options.handles, name, err)
	}
	bar.end()
	d.result.step(name, name, *reached, time.Since(began))
	return nil
}

// counted is a number and its noun.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return grouped(n) + " " + noun + "s"
}
