package main

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ncmp-inventory/consumer"
	"ncmp-inventory/inventory"
)

func newStateCommand(a *app) *cobra.Command {
	var (
		to, tag, reason, details string
		dataSync                 bool
		s                        sending
	)
	cmd := &cobra.Command{
		Use:     "state ID…",
		Short:   "Sends state changes of CM handles",
		Example: `  ncmp-inventory state lab-17 lab-18 --to READY --wait`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, ids []string) error {
			change := inventory.StateChange{To: inventory.State(strings.ToUpper(to))}
			if !change.To.Known() || change.To == inventory.Deleting {
				return &exitError{exitUsage, fmt.Errorf("--to %q: want ADVISED, READY, LOCKED or DELETED", to)}
			}
			if slices.Contains(ids, "") {
				return usage("an id is empty")
			}
			given := cmd.Flags().Changed
			if given("data-sync") && change.To != inventory.Ready {
				return usage("--data-sync goes with --to READY only, not with %s", change.To)
			}
			if given("lock-reason") || given("lock-details") {
				change.Lock = &inventory.LockReason{
					Reason:  inventory.Text{Value: reason, Set: given("lock-reason")},
					Details: inventory.Text{Value: details, Set: given("lock-details")},
				}
			}
			if given("data-sync") {
				change.DataSync = inventory.TriOf(dataSync)
			}
			change.ModuleSetTag = inventory.Text{Value: tag, Set: given("tag")}
			c, err := a.load("kafka.brokers")
			if err != nil {
				return err
			}
			return a.sendEvents(cmd.Context(), c, consumer.TypeStateChange, stateEvents(ids, change, s.wait), s)
		},
	}
	f := cmd.Flags()
	f.StringVar(&to, "to", "", "state to go to: ADVISED, READY, LOCKED or DELETED")
	f.StringVar(&reason, "lock-reason", "", "category of the lock, for example MODULE_SYNC_FAILED")
	f.StringVar(&details, "lock-details", "", "details of the lock")
	f.BoolVar(&dataSync, "data-sync", false, "data-sync flag to set (READY only)")
	f.StringVar(&tag, "tag", "", `module set tag to set; "" clears it`)
	s.flags(cmd)
	return cmd
}

// stateEvents is one event for each handle, keyed by it, so that the events of
// a handle stay in one partition.
func stateEvents(ids []string, change inventory.StateChange, wait bool) iter.Seq2[event, error] {
	return func(yield func(event, error) bool) {
		for _, id := range ids {
			at := attributes(wait)
			out, err := consumer.NewStateChangeEvent(at, consumer.StateOf{ID: id, Change: change})
			if !yield(event{at.ID, out}, err) {
				return
			}
		}
	}
}
