package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ncmp-inventory/inventory"
	"ncmp-inventory/store"
)

func newOutboxCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "outbox",
		Short: "Lists and retries messages that the broker would not take",
		Long: `What is to be published waits in the database until the broker has it. A message
that the broker refuses by its content, most often by its size, is parked there:
later LCM and inventory events of the same CM handle wait behind it, all others
go on.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newOutboxListCommand(a), newOutboxRetryCommand(a))
	return cmd
}

// outboxCommand is what list and retry share.
type outboxCommand struct {
	*app
	kinds  []string
	asJSON bool
}

func (o *outboxCommand) flags(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&o.kinds, "kind", nil, "only these: lcm, inventory, outcomes, dead-letters")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "a line of JSON for each message")
}

// open reaches the database's outbox, for a command that ends with done.
func (o *outboxCommand) open(ctx context.Context) (s *store.Store, box *store.Outbox, done func(), err error) {
	for _, k := range o.kinds {
		if err := checkKind(k); err != nil {
			return nil, nil, nil, err
		}
	}
	c, err := o.load("database.url")
	if err != nil {
		return nil, nil, nil, err
	}
	if s, err = o.openStore(ctx, c); err != nil {
		return nil, nil, nil, err
	}
	if box, err = store.NewOutbox(ctx, s); err != nil {
		s.Close()
		return nil, nil, nil, err
	}
	return s, box, func() { box.Close(); s.Close() }, nil
}

// parked are the parked messages of the chosen kinds.
func (o *outboxCommand) parked(ctx context.Context, box *store.Outbox) ([]store.Parked, error) {
	list, err := box.ListParked(ctx, math.MaxInt32)
	return slices.DeleteFunc(list, func(p store.Parked) bool {
		return len(o.kinds) > 0 && !slices.Contains(o.kinds, p.Kind.String())
	}), err
}

func checkKind(name string) error {
	var names []string
	for _, k := range inventory.MessageKinds {
		if k.String() == name {
			return nil
		}
		names = append(names, k.String())
	}
	return usage("%q is no kind of message: want one of %s", name, strings.Join(names, ", "))
}

// messageID names a message for people to type.
func messageID(p *store.Parked) string { return fmt.Sprintf("%s/%d", p.Kind, p.ID) }

func checkMessageID(id string) error {
	kind, number, ok := strings.Cut(id, "/")
	if _, err := strconv.ParseInt(number, 10, 64); !ok || err != nil {
		return usage("%q names no message: want KIND/ID, as outbox list shows it", id)
	}
	return checkKind(kind)
}

// parkedJSON is a parked message for programs.
type parkedJSON struct {
	ID      string `json:"id"`
	Kind    string `json:"kind"`
	Key     string `json:"key,omitzero"`
	Bytes   int64  `json:"bytes"`
	Created string `json:"created"`
	Behind  int64  `json:"behind"` // later messages of its key, which wait
	Reason  string `json:"reason"`
	Retried *bool  `json:"retried,omitzero"` // retry only
}

func viewParked(p *store.Parked) parkedJSON {
	return parkedJSON{
		ID: messageID(p), Kind: p.Kind.String(), Key: valid(p.Key), Bytes: p.Bytes,
		Created: p.Created.UTC().Format(timeMillis), Behind: p.Behind, Reason: p.Reason,
	}
}

func parkedRow(t *table, p *store.Parked) {
	t.row(messageID(p), p.Created.UTC().Format(timeMillis), valid(p.Key), strconv.FormatInt(p.Bytes, 10), strconv.FormatInt(p.Behind, 10), p.Reason)
}

var parkedColumns = []string{"ID", "TIME", "KEY", "BYTES", "BEHIND", "REASON"}

func newOutboxListCommand(a *app) *cobra.Command {
	o := outboxCommand{app: a}
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Lists parked messages",
		Long: `Lists the messages that the broker would not take, with its reason, and how many
later ones of the same key wait behind each. How much waits in all goes to stderr.`,
		Example: `  ncmp-inventory outbox list
  ncmp-inventory outbox list --kind lcm --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return usage("--limit %d: want at least 1, or 0 for all", limit)
			}
			ctx := cmd.Context()
			_, box, done, err := o.open(ctx)
			if err != nil {
				return err
			}
			defer done()
			load, err := box.Load(ctx)
			if err != nil {
				return err
			}
			list, err := o.parked(ctx, box)
			if err != nil {
				return err
			}
			fmt.Fprintf(a.stderr, "%d message(s) of %d bytes wait to be published, the oldest for %s; %d parked\n",
				load.Rows, load.Bytes, load.Age.Round(time.Second), load.Parked)
			shown := list
			if limit > 0 && len(list) > limit {
				shown = list[:limit]
			}
			if o.asJSON {
				for i := range shown {
					if err := writeJSON(a.stdout, viewParked(&shown[i])); err != nil {
						return err
					}
				}
			} else {
				t := newTable(a.stdout, parkedColumns...)
				for i := range shown {
					parkedRow(t, &shown[i])
				}
				if err := t.flush(); err != nil {
					return err
				}
			}
			if len(shown) < len(list) {
				fmt.Fprintf(a.stderr, "the first %d of %d; --limit 0 shows all\n", len(shown), len(list))
			}
			return nil
		},
	}
	o.flags(cmd)
	cmd.Flags().IntVar(&limit, "limit", 100, "at most so many; 0 is all")
	return cmd
}

func newOutboxRetryCommand(a *app) *cobra.Command {
	o := outboxCommand{app: a}
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "retry [ID…]",
		Short: "Lets parked messages be sent once more",
		Long: `Lets the parked messages that are named, or that --kind chooses, or all, be sent
once more, in their order; what waits behind them follows. Do it when the cause
is mended, most often the topic's max.message.bytes: a message that the broker
still refuses is parked again. A publisher that takes over does the same by itself.`,
		Example: `  ncmp-inventory outbox retry --dry-run
  ncmp-inventory outbox retry --kind lcm
  ncmp-inventory outbox retry lcm/4711`,
		RunE: func(cmd *cobra.Command, ids []string) error {
			for _, id := range ids {
				if err := checkMessageID(id); err != nil {
					return err
				}
			}
			ctx := cmd.Context()
			s, box, done, err := o.open(ctx)
			if err != nil {
				return err
			}
			defer done()
			list, err := o.parked(ctx, box)
			if err != nil {
				return err
			}
			if list, err = named(list, ids); err != nil {
				return err
			}
			n := 0
			if !dryRun {
				if n, err = unpark(ctx, s, box, list); err != nil {
					return err
				}
			}
			var t *table
			for i := range list {
				if o.asJSON {
					v := viewParked(&list[i])
					retried := !dryRun
					v.Retried = &retried
					err = writeJSON(a.stdout, v)
				} else {
					if t == nil {
						t = newTable(a.stdout, parkedColumns...)
					}
					parkedRow(t, &list[i])
				}
				if err != nil {
					return err
				}
			}
			if t != nil {
				if err := t.flush(); err != nil {
					return err
				}
			}
			if dryRun {
				fmt.Fprintf(a.stderr, "%d parked message(s) would be sent once more; nothing was changed\n", len(list))
				return nil
			}
			fmt.Fprintf(a.stderr, "%d parked message(s) are sent once more\n", n)
			return nil
		},
	}
	o.flags(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "change nothing, print what would be sent once more")
	return cmd
}

// named are those of the messages that ids name, all without ids. One that is
// not among them is an error: it was sent meanwhile, or never was.
func named(list []store.Parked, ids []string) ([]store.Parked, error) {
	if len(ids) == 0 {
		return list, nil
	}
	var found []store.Parked
	for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
		i := slices.IndexFunc(list, func(p store.Parked) bool { return messageID(&p) == id })
		if i < 0 {
			return nil, &exitError{exitFailed, fmt.Errorf("no message %s is parked", id)}
		}
		found = append(found, list[i])
	}
	return found, nil
}

// unpark returns how many messages were still parked, and wakes the publisher.
func unpark(ctx context.Context, s *store.Store, box *store.Outbox, list []store.Parked) (n int, err error) {
	byKind := map[inventory.MessageKind][]int64{}
	for i := range list {
		byKind[list[i].Kind] = append(byKind[list[i].Kind], list[i].ID)
	}
	for _, kind := range inventory.MessageKinds {
		if len(byKind[kind]) == 0 {
			continue
		}
		some, err := box.Unpark(ctx, kind, byKind[kind])
		if n += some; err != nil {
			return n, err
		}
	}
	if n == 0 {
		return 0, nil
	}
	return n, s.Notify(ctx)
}
