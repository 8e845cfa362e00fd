package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"ncmp-inventory/inventory"
	"ncmp-inventory/store"
)

func newMigrateCommand(a *app) *cobra.Command {
	var tune, dryRun bool
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Creates or upgrades the worker's tables",
		Long: `Creates or upgrades the worker's own tables. On an empty database it also creates
those for data nodes; on a CPS database it finds them and leaves them as they
are. The worker does the same when it starts, unless database.migrate is off.

With --tune it then applies to a CPS database, step by step, the leaner layout
that an empty one gets. --dry-run says what each step brings and locks.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.load("database.url")
			if err != nil {
				return err
			}
			log, _ := newLogger(c.Log, a.stderr, prometheus.NewRegistry())
			defer log.Sync() //nolint:errcheck // a terminal cannot be synced
			sc, err := storeConfig(&c.Config, log, prometheus.NewRegistry())
			if err != nil {
				return err
			}
			sc.Instance, sc.MaxConnections, sc.Migrate = "migrate", 2, !dryRun
			s, err := store.Open(cmd.Context(), sc)
			switch {
			case dryRun && errors.Is(err, store.ErrNotMigrated):
				_, err = fmt.Fprintln(a.stdout, err)
				return err
			case errors.Is(err, inventory.ErrTransient):
				return err
			case err != nil:
				return databaseFault(err)
			}
			defer s.Close()
			if tune {
				return a.tune(cmd.Context(), s, dryRun)
			}
			return a.printMigrations(cmd.Context(), s)
		},
	}
	cmd.Flags().BoolVar(&tune, "tune", false, "apply the leaner layout to tables that CPS made")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say what is due")
	return cmd
}

func (a *app) printMigrations(ctx context.Context, s *store.Store) error {
	list, err := s.Applied(ctx)
	if err != nil {
		return err
	}
	t := newTable(a.stdout, "VERSION", "STEP", "APPLIED")
	for _, m := range list {
		t.row(strconv.Itoa(m.Version), m.Name, m.At.UTC().Format(time.RFC3339))
	}
	return t.flush()
}

// tune goes through the steps. A step is told before it runs: it may lock a
// table for a while.
func (a *app) tune(ctx context.Context, s *store.Store, dryRun bool) error {
	return s.Tune(ctx, func(step store.TuneStep, run func() error) error {
		if step.Done {
			_, err := fmt.Fprintf(a.stdout, "%s: nothing to do\n", step.Name)
			return err
		}
		if _, err := fmt.Fprintf(a.stdout, "%s\n  brings: %s\n  locks:  %s\n", step.Name, step.Brings, step.Locks); err != nil || dryRun {
			return err
		}
		began := time.Now()
		if err := run(); err != nil {
			return err
		}
		_, err := fmt.Fprintf(a.stdout, "  done in %s\n", time.Since(began).Round(time.Millisecond))
		return err
	})
}
