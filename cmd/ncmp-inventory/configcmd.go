package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"ncmp-inventory/cmd/ncmp-inventory/config"
	"ncmp-inventory/inventory"
	"ncmp-inventory/store"
)

func newConfigCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "config", Short: "Shows and checks the configuration",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newConfigPrint(a), newConfigCheck(a), newConfigKeys(a))
	return cmd
}

func newConfigPrint(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Prints the effective configuration, secrets masked, and where each value comes from",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := a.load()
			if err != nil {
				return err
			}
			if asJSON {
				return c.WriteJSON(a.stdout)
			}
			return c.WriteYAML(a.stdout)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

func newConfigKeys(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "keys",
		Short: "Prints all keys as a Markdown table",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return config.WriteMarkdown(a.stdout) },
	}
}

func newConfigCheck(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Connects as a worker would and says what is wrong, and what to try",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.load("kafka.brokers", "database.url")
			if err != nil {
				return err
			}
			f, err := a.check(cmd.Context(), c)
			if err != nil {
				return err
			}
			return a.printFindings(c, f)
		},
	}
}

func (a *app) check(ctx context.Context, c *config.Loaded) (*findings, error) {
	t, err := newTransport(c.Kafka)
	if err != nil {
		return nil, err
	}
	defer t.CloseIdleConnections()
	f := checkKafka(ctx, c.Kafka, newClient(c.Kafka, t))
	a.checkDatabase(ctx, c, f)
	return f, ctx.Err()
}

func (a *app) checkDatabase(ctx context.Context, c *config.Loaded, f *findings) {
	s, err := a.openStore(ctx, c)
	var fault *config.Error
	switch {
	case err == nil:
		defer s.Close()
	case errors.Is(err, inventory.ErrTransient) && !untrusted(err):
		f.add(absent, "database", err.Error(), "database.url", "check that PostgreSQL listens there and that the network lets this host through")
		return
	case errors.Is(err, store.ErrNotMigrated) && c.Database.Migrate:
		f.add(good, "database", "the tables are missing or old; the worker will see to it", "database.migrate", "")
		return
	case errors.As(err, &fault):
		f.add(wrong, "database", fault.Reason, fault.Key, "")
		return
	default:
		f.add(wrong, "database", err.Error(), "database.url", "")
		return
	}
	id, err := s.Identity(ctx)
	if err != nil {
		f.add(wrong, "database", err.Error(), "database.url", "grant the right to run pg_control_system and to read the worker's tables")
		return
	}
	f.add(good, "database", fmt.Sprintf("system %s, timeline %d", id.SystemID, id.Timeline), "database.url", "")
	list, err := s.Applied(ctx)
	if err != nil {
		f.add(wrong, "tables", err.Error(), "database.url", "grant rights on the worker's tables")
		return
	}
	f.add(good, "tables", fmt.Sprintf("%d migration(s) applied", len(list)), "database.url", "")
}

// printFindings prints all checks, and below them what to do.
func (a *app) printFindings(c *config.Loaded, f *findings) error {
	t := newTable(a.stdout, "RESULT", "WHAT", "FOUND")
	for _, one := range f.list {
		t.row(one.verdict.String(), one.what, one.text)
	}
	if err := t.flush(); err != nil {
		return err
	}
	for _, one := range f.list {
		if one.verdict == good {
			continue
		}
		fmt.Fprintf(a.stderr, "\n%s: %s\n", one.what, one.text)
		if one.key != "" {
			fmt.Fprintf(a.stderr, "  key:  %s (from %s)\n", one.key, c.Source(one.key))
		}
		if one.try != "" {
			fmt.Fprintf(a.stderr, "  try:  %s\n", one.try)
		}
	}
	if f.worst() > warning {
		return &exitError{code: exitUsage}
	}
	return nil
}
