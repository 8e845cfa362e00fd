package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/segmentio/kafka-go"
	"github.com/spf13/cobra"

	"ncmp-inventory/cmd/ncmp-inventory/config"
	"ncmp-inventory/consumer"
	"ncmp-inventory/lcm"
	"ncmp-inventory/store"
)

const (
	// replayBytes bounds the dead letters that are held in memory: they are
	// replayed in the order of their sources, which takes all of them.
	replayBytes = 256 << 20
	// replayStep is how many records are judged and sent at once, at most.
	replayStep = 100
)

func newReplayCommand(a *app) *cobra.Command {
	r := replay{app: a}
	cmd := &cobra.Command{
		Use:   "replay [ID…]",
		Short: "Sends dead letters through their input topic again",
		Long: `Sends the dead letters that the filters choose, or that are named, through the
input topic that they came from: key, value and headers as they came, and
headers that say where the record first stood and how often it was sent again.
They go in the order in which they came.

An old record does not overwrite what came later: one that names a CM handle
which changed after the record was sent is refused, with the position of that
change. The worker looks again when it applies the record, with the handles
locked: what was overtaken on the way is a dead letter once more, of the reason
overtaken, whose text names the later position. Refused as well is one that
would only fail again. --force sends both, and the worker then applies them. A
record that failed again after 3 replays is parked: it is not sent any more.

What was sent is kept in the database: after a crash, run the same command again.
Nothing is sent twice. With --dry-run everything but the sending is done, and
what would come of it is printed. The command exits with 3 if a record was
refused.`,
		Example: `  ncmp-inventory dead-letters replay --reason too-many-handles --dry-run
  ncmp-inventory dead-letters replay --topic ncmp-inventory-registrations --from 1h --rate 50
  ncmp-inventory dead-letters replay 2/17`,
		RunE: func(cmd *cobra.Command, ids []string) error {
			c, err := a.load("kafka.brokers", "database.url")
			if err != nil {
				return err
			}
			if r.rate < 0 {
				return usage("--rate %v: want records per second, 0 for no limit", r.rate)
			}
			if err := r.filter.prepare(&c.Config, ids); err != nil {
				return err
			}
			s, err := a.openStore(cmd.Context(), c)
			if err != nil {
				return err
			}
			defer s.Close()
			r.cfg, r.store = &c.Config, s
			return r.run(cmd.Context())
		},
	}
	r.filter.flags(cmd)
	f := cmd.Flags()
	f.BoolVar(&r.dryRun, "dry-run", false, "send nothing, print what would be written")
	f.Float64Var(&r.rate, "rate", 100, "records per second; 0 is no limit")
	f.BoolVar(&r.force, "force", false, "also send what would overwrite later changes, or fail again")
	f.DurationVar(&r.patience, "timeout", 30*time.Second, "how long to wait until the workers have applied what was sent before")
	f.BoolVar(&r.json, "json", false, "a line of JSON for each dead letter")
	return cmd
}

// replay is one run of the command.
type replay struct {
	*app
	cfg    *config.Config
	store  *store.Store
	filter deadLetters

	dryRun, force, json bool
	rate                float64
	patience            time.Duration

	cluster *consumer.Cluster
	client  *kafka.Client
	encoder *lcm.Encoder
	maxLCM  int
	topics  map[string]consumer.TopicInfo
	done    map[sourceKey]store.Replay
	table   *table
	counts  map[string]int // by verdict
}

// connect prepares for judging and sending.
func (r *replay) connect(ctx context.Context) (disconnect func(), err error) {
	k := r.cfg.Kafka
	if r.encoder, err = lcm.NewEncoder(lcm.Config{Version: lcm.Version(r.cfg.LCM.Version), LegacyHeaders: lcm.LegacyHeaders(r.cfg.LCM.LegacyHeaders)}); err != nil {
		return nil, err
	}
	t, err := newTransport(k, append(k.Topics.Inputs(), k.Topics.LCMEvents)...)
	if err != nil {
		return nil, err
	}
	r.cluster, r.client, r.counts = consumer.NewCluster(kafka.TCP(k.Brokers...), t), newClient(k, t), map[string]int{}
	if r.maxLCM, err = lcm.MaxMessageBytes(ctx, r.client, k.Topics.LCMEvents); err != nil {
		r.maxLCM = lcm.DefaultMaxMessageBytes // a hint only: the worker decides
	}
	md, err := r.cluster.Metadata(ctx, k.Topics.Inputs()...)
	if err != nil {
		t.CloseIdleConnections()
		return nil, err
	}
	r.topics = md.Topics
	return t.CloseIdleConnections, nil
}

func (r *replay) run(ctx context.Context) error {
	disconnect, err := r.connect(ctx)
	if err != nil {
		return err
	}
	defer disconnect()
	if !r.dryRun {
		unlock, err := r.store.LockReplay(ctx)
		if err != nil {
			return err
		}
		defer unlock()
	}
	if r.done, err = replaysOf(ctx, r.store); err != nil {
		return err
	}
	if err := r.settle(ctx); err != nil {
		return err
	}
	list, err := r.choose(ctx)
	if err != nil {
		return err
	}
	err = r.steps(ctx, list)
	if r.table != nil {
		err = errors.Join(err, r.table.flush())
	}
	r.tellForeign(&r.filter)
	r.summary()
	if err == nil && r.counts[verdictLater]+r.counts[verdictFails]+r.counts[verdictElsewhere]+r.counts[verdictTooLarge] > 0 {
		return &exitError{code: exitWrong}
	}
	return err
}

func (r *replay) summary() {
	var parts []string
	for _, v := range verdicts {
		if n := r.counts[v]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, v))
		}
	}
	if len(parts) == 0 {
		parts = []string{"no dead letter is chosen"}
	}
	fmt.Fprintln(r.stderr, strings.Join(parts, ", "))
	if r.dryRun {
		fmt.Fprintln(r.stderr, "nothing was sent")
	}
}

// replaysOf is what was replayed, by the source of the dead letter.
func replaysOf(ctx context.Context, s *store.Store) (map[sourceKey]store.Replay, error) {
	all, err := s.Replays(ctx)
	if err != nil {
		return nil, err
	}
	done := make(map[sourceKey]store.Replay, len(all))
	for _, one := range all {
		done[keyOf(one.Source)] = one
	}
	return done, nil
}

// choose reads the dead letters, each record once, and puts them in the order
// in which the records came.
func (r *replay) choose(ctx context.Context) ([]*deadLetter, error) {
	var list []*deadLetter
	seen := map[sourceKey]bool{}
	size := 0
	err := r.filter.read(ctx, r.cfg.Kafka, func(d *deadLetter) (bool, error) {
		if key := keyOf(d.source); !seen[key] {
			seen[key] = true
			list = append(list, d)
			if size += len(d.key) + len(d.value); size > replayBytes {
				return false, &exitError{exitFailed, fmt.Errorf("the dead letters that are chosen hold more than %d MiB: choose fewer with --from and --to", replayBytes>>20)}
			}
		}
		return true, nil
	})
	sortByOrigin(list)
	return list, err
}

// sortByOrigin orders by offset within a partition and by time between
// partitions. A time that is not the partition's latest counts as that.
func sortByOrigin(list []*deadLetter) {
	type partition struct {
		topicID [16]byte
		index   int32
	}
	slices.SortStableFunc(list, func(a, b *deadLetter) int { return comparePlaces(a.origin, b.origin) })
	latest := map[partition]time.Time{}
	when := make(map[*deadLetter]time.Time, len(list))
	for _, d := range list {
		p := partition{d.origin.TopicID, d.origin.Index}
		if d.origin.Time.After(latest[p]) {
			latest[p] = d.origin.Time
		}
		when[d] = latest[p]
	}
	slices.SortStableFunc(list, func(a, b *deadLetter) int { return when[a].Compare(when[b]) })
}

// comparePlaces orders by partition and offset.
func comparePlaces(a, b store.Place) int {
	if c := strings.Compare(string(a.TopicID[:]), string(b.TopicID[:])); c != 0 {
		return c
	}
	if a.Index != b.Index {
		return int(a.Index) - int(b.Index)
	}
	return int(a.Offset - b.Offset)
}

// steps judges and sends a few records at a time, at the rate that is asked for.
func (r *replay) steps(ctx context.Context, list []*deadLetter) error {
	n := replayStep
	if r.rate > 0 {
		n = min(n, max(1, int(r.rate)))
	}
	for step := range slices.Chunk(list, n) {
		began := time.Now()
		cases, err := r.judge(ctx, step)
		if err != nil {
			return err
		}
		if !r.dryRun {
			if err := r.send(ctx, cases); err != nil {
				return err
			}
		}
		sent := 0
		for _, c := range cases {
			r.counts[c.verdict]++
			if c.verdict == verdictSend || c.verdict == verdictSent {
				sent++
			}
			if err := r.print(c); err != nil {
				return err
			}
		}
		if r.rate > 0 && !r.dryRun && !wait(ctx, time.Duration(float64(sent)/r.rate*float64(time.Second))-time.Since(began)) {
			return ctx.Err()
		}
	}
	return nil
}

// wait reports false when ctx ended first.
func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// caseJSON is what became of a dead letter, for programs.
type caseJSON struct {
	ID       string          `json:"id"`
	Verdict  string          `json:"verdict"`
	Reason   string          `json:"reason"`
	Why      string          `json:"why,omitzero"`
	Source   sourceJSON      `json:"source"`
	Target   *sourceJSON     `json:"target,omitzero"`
	Attempt  int             `json:"attempt"`
	Changes  []changeJSON    `json:"changes"`
	Rejected []rejectionJSON `json:"rejected"`
	Later    []laterJSON     `json:"later,omitzero"`
}

type changeJSON struct {
	ID   string `json:"cmHandle"`
	What string `json:"what"`
}

type rejectionJSON struct {
	ID        string `json:"cmHandle"`
	Operation string `json:"operation"`
	Code      string `json:"errorCode"`
	Text      string `json:"errorText"`
	Details   string `json:"details,omitzero"`
}

type laterJSON struct {
	ID     string     `json:"cmHandle"`
	What   string     `json:"what,omitzero"`
	At     string     `json:"time"`
	Source sourceJSON `json:"source,omitzero"`
}

func (r *replay) print(c *judged) error {
	if r.json {
		return writeJSON(r.stdout, c.view())
	}
	if r.table == nil {
		r.table = newTable(r.stdout, "ID", "VERDICT", "REASON", "SOURCE", "KEY", "WHAT COMES OF IT")
	}
	r.table.row(c.id(), c.verdict, c.reason, placeText(c.source), string(c.key), c.effect())
	return nil
}

func (c *judged) view() caseJSON {
	v := caseJSON{
		ID: c.id(), Verdict: c.verdict, Reason: c.reason, Why: c.why, Source: viewPlace(c.source), Attempt: c.replays + 1,
		Changes: []changeJSON{}, Rejected: []rejectionJSON{},
	}
	if c.sent != nil && c.sent.TargetOffset >= 0 {
		v.Target = &sourceJSON{c.sent.Target.Topic, uuid.UUID(c.sent.Target.TopicID).String(), c.sent.Target.Index, c.sent.TargetOffset, ""}
	}
	for _, f := range c.changes {
		v.Changes = append(v.Changes, changeJSON{f.ID, stepNames[f.Step]})
	}
	for _, f := range c.rejected {
		v.Rejected = append(v.Rejected, rejectionJSON{f.ID, f.Op.String(), string(f.Code), f.Text, f.Details})
	}
	for _, l := range c.later {
		x := laterJSON{ID: l.Handle, At: l.At.UTC().Format(timeMillis)}
		if l.Step != 0 {
			x.What, x.Source = stepNames[l.Step], viewPlace(l.Source)
		}
		v.Later = append(v.Later, x)
	}
	return v
}

func viewPlace(p store.Place) sourceJSON {
	v := sourceJSON{Topic: p.Topic, TopicID: uuid.UUID(p.TopicID).String(), Partition: p.Index, Offset: p.Offset}
	if !p.Time.IsZero() {
		v.Time = p.Time.UTC().Format(timeMillis)
	}
	return v
}
