package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"ncmp-inventory/cmd/ncmp-inventory/config"
	"ncmp-inventory/store"
)

func newDeadLettersCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dead-letters",
		Short: "Lists, shows and replays records that could not be applied",
		Long: `A record that a worker cannot decode, or that the database refuses even without
any handle in it, is set aside: it stands in the dead-letter topic as it came,
with headers that say why and where from.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newDeadLettersListCommand(a), newDeadLettersShowCommand(a), newReplayCommand(a))
	return cmd
}

// flags are the filters that list and replay share.
func (f *deadLetters) flags(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringSliceVar(&f.reasons, "reason", nil, "only these reasons, for example bad-json")
	fl.StringSliceVar(&f.topics, "topic", nil, "only records of these input topics")
	fl.StringArrayVar(&f.handles, "handle", nil, "only records that name this CM handle or have it as their key; can be repeated")
	fl.StringVar(&f.from, "from", "", "only records from this time on, by the record's own time: 2026-02-03T04:05:06Z, or an age such as 10m")
	fl.StringVar(&f.to, "to", "", "only records before this time")
}

func newDeadLettersListCommand(a *app) *cobra.Command {
	var (
		f      deadLetters
		limit  int
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Lists dead letters",
		Long: `Lists the dead letters that the filters choose, in order within each partition.
If database.url is set, those that were replayed are marked.`,
		Example: `  ncmp-inventory dead-letters list --reason bad-json --from 1h
  ncmp-inventory dead-letters list --handle lab-17 --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.load("kafka.brokers")
			if err != nil {
				return err
			}
			if limit < 0 {
				return usage("--limit %d: want at least 1, or 0 for all", limit)
			}
			if err := f.prepare(&c.Config, nil); err != nil {
				return err
			}
			done, err := a.replayed(cmd, c)
			if err != nil {
				return err
			}
			t := newTable(a.stdout, "ID", "TIME", "REASON", "SOURCE", "KEY", "FIELD", "STATUS", "TEXT")
			n, more := 0, false
			err = f.read(cmd.Context(), c.Kafka, func(d *deadLetter) (bool, error) {
				if more = limit > 0 && n == limit; more {
					return false, nil
				}
				n++
				if asJSON {
					return true, writeJSON(a.stdout, d.view(done))
				}
				t.row(d.id(), sourceTimeText(d), d.reason, placeText(d.source), string(d.key), d.field, d.status(done), d.text)
				return true, nil
			})
			if !asJSON && (err == nil || n > 0) {
				err = errors.Join(err, t.flush())
			}
			if err != nil {
				return err
			}
			if more {
				fmt.Fprintf(a.stderr, "the first %d; --limit 0 shows all\n", limit)
			}
			a.tellForeign(&f)
			return nil
		},
	}
	f.flags(cmd)
	cmd.Flags().IntVar(&limit, "limit", 100, "at most so many; 0 is all")
	cmd.Flags().BoolVar(&asJSON, "json", false, "a line of JSON for each dead letter")
	return cmd
}

func (a *app) tellForeign(f *deadLetters) {
	if f.foreign > 0 {
		fmt.Fprintf(a.stderr, "%d record(s) among the dead letters were not written by a worker and are passed over\n", f.foreign)
	}
}

// sourceKey identifies a dead letter by its record: the publisher can write
// one twice.
type sourceKey struct {
	topicID   [16]byte
	partition int32
	offset    int64
}

func keyOf(p store.Place) sourceKey { return sourceKey{p.TopicID, p.Index, p.Offset} }

// replayed reads what was replayed, if there is a database to ask.
func (a *app) replayed(cmd *cobra.Command, c *config.Loaded) (map[sourceKey]store.Replay, error) {
	if !c.Database.URL.IsSet() {
		return nil, nil
	}
	s, err := a.openStore(cmd.Context(), c)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return replaysOf(cmd.Context(), s)
}

// status is what became of a dead letter.
func (d *deadLetter) status(done map[sourceKey]store.Replay) string {
	r, replayed := done[keyOf(d.source)]
	switch {
	case replayed && r.TargetOffset >= 0:
		return fmt.Sprintf("replayed as %s/%d/%d", r.Target.Topic, r.Target.Index, r.TargetOffset)
	case d.parked():
		return fmt.Sprintf("parked: failed again after %d replays", d.replays)
	case d.replays > 0:
		return fmt.Sprintf("failed again after %d replay(s)", d.replays)
	}
	return "-"
}

func sourceTimeText(d *deadLetter) string {
	if d.source.Time.IsZero() {
		return "-"
	}
	return d.source.Time.UTC().Format(timeMillis)
}

// deadLetterJSON is a dead letter for programs, without its value.
type deadLetterJSON struct {
	ID       string       `json:"id"`
	Reason   string       `json:"reason"`
	Text     string       `json:"text"`
	Field    string       `json:"field,omitzero"`
	Byte     int64        `json:"byte"`
	Attempts int          `json:"attempts"`
	Key      string       `json:"key,omitzero"`
	EventID  string       `json:"eventId,omitzero"`
	Type     string       `json:"type,omitzero"`
	Source   sourceJSON   `json:"source"`
	Replays  int          `json:"replays"`
	Parked   bool         `json:"parked"`
	Replayed string       `json:"replayedAs,omitzero"`
	Headers  []headerJSON `json:"headers,omitzero"` // show only
	Value    *string      `json:"value,omitzero"`   // show only
}

type headerJSON struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type sourceJSON struct {
	Topic     string `json:"topic"`
	TopicID   string `json:"topicId"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Time      string `json:"time,omitzero"`
}

func (d *deadLetter) view(done map[sourceKey]store.Replay) deadLetterJSON {
	v := deadLetterJSON{
		ID: d.id(), Reason: d.reason, Text: d.text, Field: d.field, Key: valid(d.key),
		EventID: valid([]byte(d.attribute("id"))), Type: valid([]byte(d.attribute("type"))),
		Source:  sourceJSON{d.source.Topic, uuid.UUID(d.source.TopicID).String(), d.source.Index, d.source.Offset, ""},
		Replays: d.replays, Parked: d.parked(),
	}
	v.Byte, _ = strconv.ParseInt(d.byteOffset, 10, 64) // written by a worker: a number
	v.Attempts, _ = strconv.Atoi(d.attempts)
	if !d.source.Time.IsZero() {
		v.Source.Time = sourceTimeText(d)
	}
	if r, ok := done[keyOf(d.source)]; ok && r.TargetOffset >= 0 {
		v.Replayed = fmt.Sprintf("%s/%d/%d", r.Target.Topic, r.Target.Index, r.TargetOffset)
	}
	return v
}

// valid makes bytes that may be anything a JSON string.
func valid(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }
