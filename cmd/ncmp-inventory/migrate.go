package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"ncmp-inventory/inventory"
	"ncmp-inventory/store"
)

func newMigrateCommand(a *app) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Creates or upgrades the worker's tables",
		Long: `Creates or upgrades the worker's own tables. On an empty database it also creates
those for data nodes; on a CPS database it finds them and leaves them as they
are. The worker does the same when it starts, unless database.migrate is off.`,
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
				fmt.Fprintln(a.stdout, err)
				return nil
			case errors.Is(err, inventory.ErrTransient):
				return err
			case err != nil:
				log.Debug("migrate", zap.Error(err))
				return databaseFault(err)
			}
			defer s.Close()
			list, err := s.Applied(cmd.Context())
			if err != nil {
				return err
			}
			t := newTable(a.stdout, "VERSION", "STEP", "APPLIED")
			for _, m := range list {
				t.row(strconv.Itoa(m.Version), m.Name, m.At.UTC().Format(time.RFC3339))
			}
			return t.flush()
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say what is due")
	return cmd
}
