package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"ncmp-inventory/inventory"
	"ncmp-inventory/store"
)

func newHistoryCommand(a *app) *cobra.Command {
	var (
		limit  int
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "history ID",
		Short: "Shows what happened to a CM handle",
		Long: `Shows the last changes of a CM handle, also of one that is gone: when, what
changed, which event told it, and which record caused it. How much is kept is
up to history.keep and history.keep-events.`,
		Example: `  ncmp-inventory history lab-17
  ncmp-inventory history lab-17 --limit 5 --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 {
				return &exitError{exitUsage, fmt.Errorf("--limit %d: want at least 1", limit)}
			}
			c, err := a.load("database.url")
			if err != nil {
				return err
			}
			s, err := a.openStore(cmd.Context(), c)
			if err != nil {
				return err
			}
			defer s.Close()
			events, err := s.History(cmd.Context(), args[0], limit)
			if errors.Is(err, store.ErrNoHandle) {
				return &exitError{exitFailed, fmt.Errorf("no history is kept under the id or alternate id %q", args[0])}
			}
			if err != nil {
				return err
			}
			return a.printHistory(events, asJSON)
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "at most so many entries, the last ones")
	cmd.Flags().BoolVar(&asJSON, "json", false, "a line of JSON for each entry")
	return cmd
}

// historyJSON is an entry for programs.
type historyJSON struct {
	Time    string         `json:"time"`
	What    string         `json:"what"`
	EventID string         `json:"eventId,omitzero"`
	Before  jsontext.Value `json:"before,omitzero"`
	After   jsontext.Value `json:"after,omitzero"`
	Cause   causeJSON      `json:"cause"`
}

type causeJSON struct {
	Topic     string `json:"topic,omitzero"`
	TopicID   string `json:"topicId"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Time      string `json:"time"`
	ID        string `json:"id"`
	Source    string `json:"source"`
}

// stepNames are what an entry is called.
var stepNames = map[inventory.Step]string{
	inventory.StepCreate: "create", inventory.StepUpdate: "update", inventory.StepState: "state",
	inventory.StepDeleting: "remove", inventory.StepDelete: "delete", inventory.StepUpgrade: "upgrade", inventory.StepTrust: "trust",
}

// optionalJSON is nil for "": a creation has no side before, a deletion none
// after, and a change of private properties neither.
func optionalJSON(text string) jsontext.Value {
	if text == "" {
		return nil
	}
	return jsontext.Value(text)
}

const timeMillis = "2006-01-02T15:04:05.000Z"

func (a *app) printHistory(events []store.Event, asJSON bool) error {
	if asJSON {
		for _, e := range events {
			v := historyJSON{
				Time: e.At.UTC().Format(timeMillis), What: stepNames[e.Step], Before: optionalJSON(e.Before), After: optionalJSON(e.After),
				Cause: causeJSON{
					Topic: e.Source.Topic, TopicID: hex.EncodeToString(e.Source.TopicID[:]), Partition: e.Source.Index, Offset: e.Offset,
					Time: e.Time.UTC().Format(timeMillis), ID: e.CauseID, Source: e.CauseSource,
				},
			}
			if e.EventID != uuid.Nil {
				v.EventID = e.EventID.String()
			}
			if err := writeJSON(a.stdout, v); err != nil {
				return err
			}
		}
		return nil
	}
	t := newTable(a.stdout, "TIME", "WHAT", "CHANGE", "CAUSE", "CAUSED BY", "EVENT")
	for _, e := range events {
		event := "-"
		if e.EventID != uuid.Nil {
			event = e.EventID.String()
		}
		topic := e.Source.Topic
		if topic == "" {
			topic = hex.EncodeToString(e.Source.TopicID[:])
		}
		t.row(e.At.UTC().Format(timeMillis), stepNames[e.Step], changeText(&e),
			fmt.Sprintf("%s/%d/%d", topic, e.Source.Index, e.Offset), strings.TrimSpace(e.CauseID+" "+e.CauseSource), event)
	}
	return t.flush()
}

// changeText is what changed in a line, the state first.
func changeText(e *store.Event) string {
	if e.Before == "" && e.After == "" {
		return "(private properties)"
	}
	old, now := map[string]any{}, map[string]any{}
	_ = json.Unmarshal([]byte(e.Before), &old) // "" is none
	_ = json.Unmarshal([]byte(e.After), &now)
	names := map[string]bool{}
	for name := range old {
		names[name] = true
	}
	for name := range now {
		names[name] = true
	}
	parts := []string{}
	if names["cmHandleState"] {
		delete(names, "cmHandleState")
		parts = append(parts, arrow(old["cmHandleState"], now["cmHandleState"], e, func(v any) string { return fmt.Sprint(v) }))
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		parts = append(parts, name+": "+arrow(old[name], now[name], e, shown))
	}
	return strings.Join(parts, "  ")
}

// arrow is one value before and after. What a handle is created with or removed
// with has one side only.
func arrow(old, now any, e *store.Event, text func(any) string) string {
	side := func(v any) string {
		if v == nil {
			return "-"
		}
		return text(v)
	}
	switch {
	case e.Before == "":
		return side(now)
	case e.After == "":
		return side(old)
	}
	return side(old) + " -> " + side(now)
}
