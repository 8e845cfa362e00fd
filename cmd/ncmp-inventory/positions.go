package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/spf13/cobra"

	"ncmp-inventory/cmd/ncmp-inventory/config"
	"ncmp-inventory/consumer"
	"ncmp-inventory/store"
)

func newPositionsCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "positions",
		Short: "Shows how far each input partition is",
		Long: `Shows for each input partition the position stored in the database, the end of
the partition, and the lag in records and seconds.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.load("kafka.brokers", "database.url")
			if err != nil {
				return err
			}
			s, err := a.openStore(cmd.Context(), c)
			if err != nil {
				return err
			}
			defer s.Close()
			list, err := readPositions(cmd.Context(), c.Kafka, s)
			if err != nil {
				return err
			}
			return a.printPositions(list, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "a line of JSON for each partition")
	cmd.AddCommand(newPositionsSetCommand(a))
	return cmd
}

// Notes on positions that are nobody's fault.
const (
	noteNone   = "no position is stored yet"
	noteUnused = "no such partition among the input topics"
)

// position is where one input partition stands.
type position struct {
	Topic      string `json:"topic"`
	TopicID    string `json:"topicId,omitzero"`
	Partition  int32  `json:"partition"`
	Stored     bool   `json:"stored"`
	Position   int64  `json:"position"`
	Start      int64  `json:"logStart"`
	End        int64  `json:"logEnd"`
	Lag        int64  `json:"lagRecords"`
	LagSeconds int64  `json:"lagSeconds"`
	Owner      string `json:"owner,omitzero"`
	Updated    string `json:"updated,omitzero"`
	// Halted is why a worker halted the partition, "" if none did.
	Halted string `json:"halted,omitzero"`
	// Note says what does not fit together, "" if all does.
	Note string `json:"note,omitzero"`
}

// readPositions holds the stored positions against the brokers' logs.
func readPositions(ctx context.Context, k config.Kafka, s *store.Store) ([]position, error) {
	stored, err := s.Positions(ctx)
	if err != nil {
		return nil, err
	}
	inputs := k.Topics.Inputs()
	t, err := newTransport(k, inputs...)
	if err != nil {
		return nil, err
	}
	defer t.CloseIdleConnections()
	cluster := consumer.NewCluster(kafka.TCP(k.Brokers...), t)
	md, err := cluster.Metadata(ctx, inputs...)
	if err != nil {
		return nil, err
	}
	var list []position
	for _, topic := range inputs {
		info := md.Topics[topic]
		if info.Err != nil {
			list = append(list, position{Topic: topic, Partition: -1, Note: info.Err.Error()})
			continue
		}
		bounds, err := cluster.ListOffsets(ctx, topic)
		if err != nil {
			return nil, err
		}
		for i, b := range bounds {
			p := position{Topic: topic, TopicID: hex.EncodeToString(info.ID[:]), Partition: int32(i), Start: b.Start, End: b.Stable}
			at := slices.IndexFunc(stored, func(sp store.Position) bool { return sp.TopicID == info.ID && sp.Index == int32(i) })
			if at >= 0 {
				p.take(&stored[at])
				stored = slices.Delete(stored, at, at+1)
			} else {
				p.Note = noteNone
			}
			list = append(list, p)
		}
	}
	// What is left has no partition: the topic was deleted, or is no input now.
	for i := range stored {
		sp := &stored[i]
		p := position{Topic: sp.Topic, TopicID: hex.EncodeToString(sp.TopicID[:]), Partition: sp.Index, Start: -1, End: -1}
		p.take(sp)
		p.Note = noteUnused
		if info, ok := md.Topics[sp.Topic]; ok && info.Err == nil && info.ID != sp.TopicID && !goneOn(list, sp) {
			p.Note = "the topic was deleted and created anew"
		}
		list = append(list, p)
	}
	if err := addHalts(ctx, s, list); err != nil {
		return nil, err
	}
	return list, addLagSeconds(ctx, cluster, list)
}

// addHalts marks the partitions of topics as they are now that a worker halted.
func addHalts(ctx context.Context, s *store.Store, list []position) error {
	halts, err := s.Halts(ctx)
	if err != nil {
		return err
	}
	for i := range list {
		p := &list[i]
		for j := range halts {
			if h := &halts[j]; p.End >= 0 && h.Topic == p.Topic && h.Index == p.Partition {
				p.Halted, p.Note = h.Reason, "halted: "+h.Reason
			}
		}
	}
	return nil
}

// goneOn says that the topic which took the name has a position of its own: a
// worker consumes it, and the old one's is history.
func goneOn(list []position, old *store.Position) bool {
	return slices.ContainsFunc(list, func(p position) bool {
		return p.Stored && p.End >= 0 && p.Topic == old.Topic && p.Partition == old.Index
	})
}

func (p *position) take(s *store.Position) {
	p.Stored, p.Position, p.Owner = true, s.Next, s.Owner
	p.Updated = s.Updated.UTC().Format(time.RFC3339)
	if p.End < 0 {
		return
	}
	p.Lag = max(0, p.End-s.Next)
	switch {
	case s.Next < p.Start:
		p.Note = fmt.Sprintf("records %d to %d are gone from the topic", s.Next, p.Start-1)
	case s.Next > p.End:
		p.Note = "the position is beyond the end of the partition"
	}
}

// addLagSeconds reads the first record that was not applied in each partition
// that lags: its age is the lag in seconds.
func addLagSeconds(ctx context.Context, cluster *consumer.Cluster, list []position) error {
	type partition struct {
		topic string
		index int32
	}
	waiting := map[partition]*position{}
	topics := map[string][]int64{}
	for i := range list {
		p := &list[i]
		if p.End < 0 || p.Partition < 0 {
			continue
		}
		from := p.End
		if p.Stored && p.Lag > 0 {
			from = max(p.Position, p.Start)
			waiting[partition{p.Topic, p.Partition}] = p
		}
		topics[p.Topic] = append(topics[p.Topic], from)
	}
	ctx, cancel := context.WithTimeout(ctx, lagTimeout)
	defer cancel()
	for topic, from := range topics {
		left := 0
		for p := range waiting {
			if p.topic == topic {
				left++
			}
		}
		if left == 0 {
			continue
		}
		err := cluster.Follow(ctx, topic, from, func(r *consumer.TailRecord) (bool, error) {
			key := partition{topic, r.Partition}
			if p := waiting[key]; p != nil {
				p.LagSeconds = int64(max(0, time.Since(r.Timestamp).Seconds()))
				delete(waiting, key)
				left--
			}
			return left > 0, nil
		})
		// What lags by invisible offsets alone has no record to look at.
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
	return nil
}

// lagTimeout bounds the look at the records that wait.
const lagTimeout = 5 * time.Second

func (a *app) printPositions(list []position, asJSON bool) error {
	if asJSON {
		for i := range list {
			if err := writeJSON(a.stdout, &list[i]); err != nil {
				return err
			}
		}
		return nil
	}
	t := newTable(a.stdout, "TOPIC", "PARTITION", "POSITION", "END", "LAG", "SECONDS", "OWNER", "UPDATED", "NOTE")
	for _, p := range list {
		index, at, end := strconv.Itoa(int(p.Partition)), "-", "-"
		if p.Partition < 0 {
			index = "-"
		}
		if p.Stored {
			at = strconv.FormatInt(p.Position, 10)
		}
		if p.End >= 0 {
			end = strconv.FormatInt(p.End, 10)
		}
		t.row(p.Topic, index, at, end, strconv.FormatInt(p.Lag, 10), strconv.FormatInt(p.LagSeconds, 10), p.Owner, p.Updated, p.Note)
	}
	return t.flush()
}
