package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/segmentio/kafka-go"
	"github.com/spf13/cobra"

	"ncmp-inventory/consumer"
	"ncmp-inventory/inventory"
)

func newWatchCommand(a *app) *cobra.Command {
	var (
		from            string
		handles, states []string
		asJSON          bool
	)
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Follows LCM events",
		Long: `Prints LCM events as they come, a line each, until it is interrupted. Per CM
handle the lines are in order; a line can come again after the publisher failed
over, with the same sequence.`,
		Example: `  ncmp-inventory watch --from earliest --handle lab-17
  ncmp-inventory watch --from 2026-02-03T04:00:00Z --state LOCKED --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, s := range states {
				if !inventory.State(strings.ToUpper(s)).Known() {
					return usage("--state %s: want ADVISED, READY, LOCKED, DELETING or DELETED", s)
				}
			}
			c, err := a.load("kafka.brokers")
			if err != nil {
				return err
			}
			topic := c.Kafka.Topics.LCMEvents
			t, err := newTransport(c.Kafka, topic)
			if err != nil {
				return err
			}
			defer t.CloseIdleConnections()
			cluster := consumer.NewCluster(kafka.TCP(c.Kafka.Brokers...), t)
			start, err := startAt(cmd.Context(), cluster, topic, from)
			if err != nil {
				return err
			}
			if !asJSON {
				fmt.Fprintf(a.stderr, "following %s, %d partition(s)\n", topic, len(start))
			}
			err = cluster.Follow(cmd.Context(), topic, start, func(r *consumer.TailRecord) (bool, error) {
				if len(handles) > 0 && !slices.Contains(handles, string(r.Key)) {
					return true, nil
				}
				e := readLCMEvent(r)
				if len(states) > 0 && !slices.ContainsFunc(states, func(s string) bool { return strings.EqualFold(s, e.state()) }) {
					return true, nil
				}
				if asJSON {
					err := writeWatched(a.stdout, r)
					return err == nil, err
				}
				_, err := fmt.Fprintln(a.stdout, e.line())
				return err == nil, err
			})
			if cmd.Context().Err() != nil {
				return nil // interrupted, as it is meant to end
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&from, "from", "latest", "where to begin: earliest, latest, or a time such as 2026-02-03T04:05:06Z or 10m (ago)")
	f.StringSliceVar(&handles, "handle", nil, "only these CM handles")
	f.StringSliceVar(&states, "state", nil, "only events that lead to these states; DELETED is the removal")
	f.BoolVar(&asJSON, "json", false, "a line of JSON for each event: its body, and beside its members ce_id, sequence, partition and offset")
	return cmd
}

// watchedJSON is an event for programs: the members of its body, and what the
// record tells beside it.
type watchedJSON struct {
	ID        string         `json:"ce_id"`
	Sequence  string         `json:"sequence"`
	Partition int32          `json:"partition"`
	Offset    int64          `json:"offset"`
	Body      jsontext.Value `json:",embed"`
	Value     string         `json:"value,omitzero"` // of a foreign record, which is no JSON object
}

func writeWatched(w io.Writer, r *consumer.TailRecord) error {
	v := watchedJSON{ID: valid([]byte(header(r, "ce_id"))), Sequence: sequenceOf(r), Partition: r.Partition, Offset: r.Offset}
	v.Body = r.Value
	if v.Body.Kind() == '{' {
		if line, err := json.Marshal(v); err == nil {
			_, err := fmt.Fprintf(w, "%s\n", line)
			return err
		}
	}
	v.Body, v.Value = nil, valid(r.Value)
	return writeJSON(w, v)
}

// sequenceOf is a record's sequence without the zeros that make it sort as text.
func sequenceOf(r *consumer.TailRecord) string {
	return strings.TrimLeft(header(r, "ce_sequence"), "0")
}

// startAt turns --from into an offset for each partition.
func startAt(ctx context.Context, cluster *consumer.Cluster, topic, from string) ([]int64, error) {
	switch from {
	case "latest":
		return ends(ctx, cluster, topic)
	case "earliest":
		all, err := cluster.ListOffsets(ctx, topic)
		if err != nil {
			return nil, fmt.Errorf("look up %s: %w", topic, err)
		}
		start := make([]int64, len(all))
		for i, o := range all {
			start[i] = o.Start
		}
		return start, nil
	}
	at, err := parseTime(from)
	if err != nil {
		return nil, usage("--from %s: %w; or earliest or latest", from, err)
	}
	start, err := cluster.OffsetsAt(ctx, topic, at)
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", topic, err)
	}
	return start, nil
}

// ends is where the next record of each partition will stand.
func ends(ctx context.Context, cluster *consumer.Cluster, topic string) ([]int64, error) {
	all, err := cluster.ListOffsets(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", topic, err)
	}
	end := make([]int64, len(all))
	for i, o := range all {
		end[i] = o.End
	}
	return end, nil
}

// lcmEvent is what a line shows of an LCM event, version 1 or 2.
type lcmEvent struct {
	Event struct {
		ID  string         `json:"cmHandleId"`
		Old map[string]any `json:"oldValues"`
		New map[string]any `json:"newValues"`
	} `json:"event"`
	Time string `json:"eventTime"`
	Type string `json:"eventType"`

	sequence string
}

// readLCMEvent reads what it can: a foreign record shows as an empty event.
func readLCMEvent(r *consumer.TailRecord) lcmEvent {
	e := lcmEvent{sequence: sequenceOf(r)}
	_ = json.Unmarshal(r.Value, &e)
	if e.Event.ID == "" {
		e.Event.ID = string(r.Key)
	}
	return e
}

// kind is create, update or delete.
func (e *lcmEvent) kind() string { return e.Type[strings.LastIndexByte(e.Type, '.')+1:] }

// state is where the event leads to, "" if it is no transition.
func (e *lcmEvent) state() string {
	if e.kind() == "delete" {
		return string(inventory.Deleted)
	}
	s, _ := e.Event.New["cmHandleState"].(string)
	return s
}

func (e *lcmEvent) line() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %-6s  %s", e.Time, e.kind(), e.Event.ID)
	old, _ := e.Event.Old["cmHandleState"].(string)
	switch to := e.state(); {
	case to == "":
	case old == "":
		b.WriteString("  " + to)
	default:
		b.WriteString("  " + old + " -> " + to)
	}
	names := make([]string, 0, len(e.Event.New))
	for name := range e.Event.New {
		if name != "cmHandleState" && e.kind() == "update" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(&b, "  %s: %s -> %s", name, shown(e.Event.Old[name]), shown(e.Event.New[name]))
	}
	if e.sequence != "" {
		b.WriteString("  #" + e.sequence)
	}
	return printable(b.String())
}

// shown is a value in a line.
func shown(v any) string {
	if v == nil {
		return "-"
	}
	b, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return "?"
	}
	return string(b)
}
