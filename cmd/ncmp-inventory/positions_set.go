package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	groupapi "github.com/segmentio/kafka-go/protocol/consumer"
	"github.com/segmentio/kafka-go/protocol/describegroups"
	"github.com/spf13/cobra"

	"ncmp-inventory/cmd/ncmp-inventory/config"
	"ncmp-inventory/consumer"
	"ncmp-inventory/inventory"
	"ncmp-inventory/store"
)

// moveTarget is where a position is to be moved to; exactly one is given.
type moveTarget struct {
	earliest, latest bool
	at               string
	offset           int64 // -1 is none
}

func newPositionsSetCommand(a *app) *cobra.Command {
	var (
		to                             moveTarget
		dryRun, execute, force, asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "set TOPIC PARTITION [OFFSET]",
		Short: "Moves the position of one input partition",
		Long: `Moves the stored position of an input partition: to an offset, to the earliest
or latest, or to the first record that is not older than a time. It is also how
a halted partition goes on: at its own position after too many dead letters,
behind what is gone after a gap, anywhere in a topic that was created anew.

First run it with --dry-run: it prints what would be skipped or read again. Then
with --execute. While a worker holds the partition, and has not halted it, the
position is only moved with --force; that worker then goes on from there.`,
		Example: `  ncmp-inventory positions set ncmp-inventory-registrations 3 4711 --dry-run
  ncmp-inventory positions set ncmp-inventory-registrations 3 4711 --execute
  ncmp-inventory positions set ncmp-inventory-registrations 3 --to-time 2026-02-03T04:05:06Z --dry-run`,
		Args: cobra.RangeArgs(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			partition, err := strconv.ParseInt(args[1], 10, 32)
			if err != nil || partition < 0 {
				return usage("partition %q: want a number from 0", args[1])
			}
			if len(args) == 3 {
				if cmd.Flags().Changed("to-offset") {
					return usage("give the offset once")
				}
				if to.offset, err = strconv.ParseInt(args[2], 10, 64); err != nil || to.offset < 0 {
					return usage("offset %q: want a number from 0", args[2])
				}
			}
			if err := to.check(); err != nil {
				return err
			}
			if dryRun == execute {
				return usage("give --dry-run to see what would happen, then --execute")
			}
			c, err := a.load("kafka.brokers", "database.url")
			if err != nil {
				return err
			}
			s, err := a.openStore(cmd.Context(), c)
			if err != nil {
				return err
			}
			defer s.Close()
			m, err := planMove(cmd.Context(), c.Kafka, s, args[0], int32(partition), to)
			if err != nil {
				return err
			}
			return a.move(cmd.Context(), s, m, execute, force, asJSON)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&to.earliest, "to-earliest", false, "to the first record that is still there")
	f.BoolVar(&to.latest, "to-latest", false, "behind the last record")
	f.StringVar(&to.at, "to-time", "", "to the first record not older than a time such as 2026-02-03T04:05:06Z or 10m (ago)")
	f.Int64Var(&to.offset, "to-offset", -1, "to an offset, as the third argument")
	f.BoolVar(&dryRun, "dry-run", false, "only print what would be skipped or read again")
	f.BoolVar(&execute, "execute", false, "move the position")
	f.BoolVar(&force, "force", false, "move it although a worker holds the partition")
	f.BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

func usage(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

func (t *moveTarget) check() error {
	n := 0
	for _, given := range []bool{t.earliest, t.latest, t.at != "", t.offset >= 0} {
		if given {
			n++
		}
	}
	if n != 1 {
		return usage("give one of OFFSET, --to-offset, --to-earliest, --to-latest and --to-time")
	}
	return nil
}

// moving is a position that is to be moved, and what that means.
type moving struct {
	partition inventory.Partition
	clusterID string

	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Stored    bool   `json:"stored"`
	From      int64  `json:"from"`
	To        int64  `json:"to"`
	Start     int64  `json:"logStart"`
	End       int64  `json:"logEnd"`
	// Skipped and Again are records by offsets; of what is gone from the
	// topic nothing can be read again.
	Skipped int64  `json:"skippedRecords"`
	Again   int64  `json:"recordsReadAgain"`
	Seconds int64  `json:"seconds"`
	Halted  string `json:"halted,omitzero"`
	// Holder is the group member that the partition is assigned to.
	Holder string `json:"heldBy,omitzero"`
	Moved  bool   `json:"moved"`
}

func planMove(ctx context.Context, k config.Kafka, s *store.Store, topic string, index int32, to moveTarget) (*moving, error) {
	inputs := k.Topics.Inputs()
	if !slices.Contains(inputs, topic) {
		return nil, usage("topic %q is none of the input topics: %v", topic, inputs)
	}
	t, err := newTransport(k, inputs...)
	if err != nil {
		return nil, err
	}
	defer t.CloseIdleConnections()
	cluster := consumer.NewCluster(kafka.TCP(k.Brokers...), t)
	md, err := cluster.Metadata(ctx, topic)
	if err != nil {
		return nil, err
	}
	info := md.Topics[topic]
	if info.Err != nil {
		return nil, fmt.Errorf("topic %s: %w", topic, info.Err)
	}
	if int(index) >= len(info.Leaders) {
		return nil, usage("topic %s has %d partition(s), no partition %d", topic, len(info.Leaders), index)
	}
	bounds, err := cluster.ListOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	m := &moving{
		partition: inventory.Partition{TopicID: info.ID, Topic: topic, Index: index}, clusterID: md.ClusterID,
		Topic: topic, Partition: index, Start: bounds[index].Start, End: bounds[index].Stable,
	}
	if m.To, err = to.resolve(ctx, cluster, m); err != nil {
		return nil, err
	}
	if err := m.look(ctx, s); err != nil {
		return nil, err
	}
	if m.Holder, err = holder(ctx, newClient(k, t), k.Group, topic, index); err != nil {
		return nil, err
	}
	return m, m.measure(ctx, cluster, bounds)
}

// resolve turns the target into an offset within the log.
func (t *moveTarget) resolve(ctx context.Context, cluster *consumer.Cluster, m *moving) (int64, error) {
	switch {
	case t.earliest:
		return m.Start, nil
	case t.latest:
		return m.End, nil
	case t.at != "":
		at, err := parseTime(t.at)
		if err != nil {
			return 0, usage("--to-time %s: %w", t.at, err)
		}
		offsets, err := cluster.OffsetsAt(ctx, m.Topic, at)
		if err != nil {
			return 0, err
		}
		return min(max(offsets[m.Partition], m.Start), m.End), nil
	case t.offset < m.Start || t.offset > m.End:
		return 0, usage("offset %d: partition %d of %s holds offsets %d to %d", t.offset, m.Partition, m.Topic, m.Start, m.End)
	}
	return t.offset, nil
}

// parseTime reads a time, or an age.
func parseTime(text string) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	if ago, err := time.ParseDuration(text); err == nil {
		return time.Now().Add(-ago), nil
	}
	return time.Time{}, errors.New("want a time such as 2026-02-03T04:05:06Z, or an age such as 10m")
}

// look finds the position and the halt that are stored.
func (m *moving) look(ctx context.Context, s *store.Store) error {
	stored, err := s.Positions(ctx)
	if err != nil {
		return err
	}
	for i := range stored {
		if p := &stored[i]; p.TopicID == m.partition.TopicID && p.Index == m.Partition {
			m.Stored, m.From = true, p.Next
		}
	}
	halts, err := s.Halts(ctx)
	if err != nil {
		return err
	}
	for i := range halts {
		if h := &halts[i]; h.Topic == m.Topic && h.Index == m.Partition {
			m.Halted = h.Reason
		}
	}
	return nil
}

// holder is the member of the group that a partition is assigned to, "" if it
// is to none.
func holder(ctx context.Context, client *kafka.Client, group, topic string, index int32) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	res, err := client.Transport.RoundTrip(ctx, client.Addr, &describegroups.Request{Groups: []string{group}})
	if err != nil {
		return "", fmt.Errorf("look at group %s: %w", group, err)
	}
	for _, g := range res.(*describegroups.Response).Groups {
		if code := kafka.Error(g.ErrorCode); code != 0 && code != kafka.GroupIdNotFound {
			return "", fmt.Errorf("look at group %s: %w", group, code)
		}
		if len(g.Members) > 0 && strings.HasSuffix(g.GroupState, "Rebalance") {
			return "(the group is rebalancing)", nil
		}
		for _, member := range g.Members {
			var as groupapi.Assignment
			if len(member.MemberAssignment) == 0 || protocol.Unmarshal(member.MemberAssignment, groupapi.MaxVersionSupported, &as) != nil {
				continue
			}
			for _, p := range as.AssignedPartitions {
				if p.Topic == topic && slices.Contains(p.Partitions, index) {
					return member.MemberID, nil
				}
			}
		}
	}
	return "", nil
}

// measure tells what the move means, in records and seconds.
func (m *moving) measure(ctx context.Context, cluster *consumer.Cluster, bounds []consumer.Offsets) error {
	if !m.Stored {
		return nil
	}
	from := min(max(m.From, m.Start), m.End)
	m.Skipped, m.Again = max(0, m.To-from), max(0, from-m.To)
	if m.Skipped+m.Again == 0 {
		return nil
	}
	a, err := recordAge(ctx, cluster, m, bounds, from)
	if err != nil {
		return err
	}
	b, err := recordAge(ctx, cluster, m, bounds, m.To)
	m.Seconds = int64((a - b).Abs().Seconds())
	return err
}

// recordAge is how old the first record from an offset on is, 0 at the end.
func recordAge(ctx context.Context, cluster *consumer.Cluster, m *moving, bounds []consumer.Offsets, offset int64) (age time.Duration, err error) {
	if offset >= m.End {
		return 0, nil
	}
	from := make([]int64, len(bounds))
	for i, b := range bounds {
		from[i] = b.Stable
	}
	from[m.Partition] = offset
	ctx, cancel := context.WithTimeout(ctx, lagTimeout)
	defer cancel()
	err = cluster.Follow(ctx, m.Topic, from, func(r *consumer.TailRecord) (bool, error) {
		if r.Partition != m.Partition {
			return true, nil
		}
		age = max(0, time.Since(r.Timestamp))
		return false, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil // nothing but invisible offsets is left
	}
	return age, err
}

// effect is what the move means, for people.
func (m *moving) effect() string {
	switch {
	case !m.Stored:
		return "the first position of this partition"
	case m.Skipped > 0:
		return fmt.Sprintf("skips %d record(s), %d s", m.Skipped, m.Seconds)
	case m.Again > 0:
		return fmt.Sprintf("reads %d record(s) again, %d s", m.Again, m.Seconds)
	}
	return "skips nothing and reads nothing again"
}

// held says that a worker works on the partition right now.
func (m *moving) held() bool { return m.Holder != "" && m.Halted == "" }

func (a *app) move(ctx context.Context, s *store.Store, m *moving, execute, force, asJSON bool) error {
	refused := execute && m.held() && !force
	if execute && !refused {
		if err := s.SetPosition(ctx, m.partition, m.clusterID, m.To); err != nil {
			return err
		}
		m.Moved = true
	}
	if err := a.printMove(m, asJSON); err != nil {
		return err
	}
	switch {
	case refused:
		return fmt.Errorf("worker %s holds the partition: stop it, or add --force; nothing was changed", m.Holder)
	case m.Moved:
		fmt.Fprintf(a.stderr, "the position of %s/%d is %d now; its worker goes on from there within seconds\n", m.Topic, m.Partition, m.To)
	case m.held():
		fmt.Fprintf(a.stderr, "nothing was changed; worker %s holds the partition, so --execute needs --force\n", m.Holder)
	default:
		fmt.Fprintln(a.stderr, "nothing was changed; --execute does it")
	}
	return nil
}

func (a *app) printMove(m *moving, asJSON bool) error {
	if asJSON {
		return writeJSON(a.stdout, m)
	}
	t := newTable(a.stdout, "TOPIC", "PARTITION", "FROM", "TO", "LOG START", "LOG END", "EFFECT", "HALTED", "HELD BY")
	from := "-"
	if m.Stored {
		from = strconv.FormatInt(m.From, 10)
	}
	dash := func(s string) string {
		if s == "" {
			return "-"
		}
		return s
	}
	t.row(m.Topic, strconv.Itoa(int(m.Partition)), from, strconv.FormatInt(m.To, 10),
		strconv.FormatInt(m.Start, 10), strconv.FormatInt(m.End, 10), m.effect(), dash(m.Halted), dash(m.Holder))
	return t.flush()
}
