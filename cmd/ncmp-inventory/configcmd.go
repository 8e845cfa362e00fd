package main

import (
	"github.com/spf13/cobra"

	"ncmp-inventory/cmd/ncmp-inventory/config"
)

func newConfigCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Shows and checks the configuration"}
	cmd.AddCommand(newConfigPrint(a), newConfigKeys(a))
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
