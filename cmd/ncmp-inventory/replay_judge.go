package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"ncmp-inventory/inventory"
	"ncmp-inventory/lcm"
	"ncmp-inventory/store"
)

// The verdicts on a dead letter that was chosen for a replay.
const (
	verdictSend      = "to be sent" // of a dry run
	verdictSent      = "sent"
	verdictDone      = "sent before"
	verdictParked    = "parked"
	verdictLater     = "refused: later changes"
	verdictFails     = "refused: would fail again"
	verdictElsewhere = "refused: no input topic"
	verdictTooLarge  = "refused: too large for the topic"
)

var verdicts = []string{
	verdictSend, verdictSent, verdictDone, verdictParked, verdictLater, verdictFails, verdictElsewhere, verdictTooLarge,
}

// judged is a dead letter and what is to become of it.
type judged struct {
	*deadLetter
	verdict string
	why     string
	record  *inventory.Record // as it is decoded now

	changes  []inventory.Fact    // what it would do
	rejected []inventory.Failure // what of it would be refused
	later    []store.Later
	sent     *store.Replay
}

// effect is what comes of it, for people.
func (c *judged) effect() string {
	var parts []string
	if c.why != "" {
		parts = append(parts, c.why)
	}
	if c.sent != nil && c.sent.TargetOffset >= 0 {
		parts = append(parts, fmt.Sprintf("as %s/%d/%d", c.sent.Target.Topic, c.sent.Target.Index, c.sent.TargetOffset))
	}
	for _, l := range c.later {
		if l.Step == 0 {
			parts = append(parts, fmt.Sprintf("%s was updated at %s", l.Handle, l.At.UTC().Format(timeMillis)))
			continue
		}
		parts = append(parts, fmt.Sprintf("%s: %s by %s at %s", l.Handle, stepNames[l.Step], placeText(l.Source), l.Source.Time.UTC().Format(timeMillis)))
	}
	for _, f := range c.changes {
		parts = append(parts, stepNames[f.Step]+" "+f.ID)
	}
	for _, f := range c.rejected {
		parts = append(parts, fmt.Sprintf("%s %s is refused: %s %s", f.Op, f.ID, f.Code, why(f.Text, f.Details)))
	}
	if len(parts) == 0 && c.verdict == verdictSend {
		return "nothing changes"
	}
	const most = 5
	if n := len(parts); n > most {
		parts = append(parts[:most], fmt.Sprintf("and %d more", n-most))
	}
	return strings.Join(parts, "; ")
}

// judge decides about a few dead letters: what was sent before, what is parked,
// what would fail again or overwrite, and what the rest would do.
func (r *replay) judge(ctx context.Context, step []*deadLetter) ([]*judged, error) {
	cases := make([]*judged, len(step))
	checked := r.force
	for i, d := range step {
		c := &judged{deadLetter: d}
		cases[i] = c
		done, before := r.done[keyOf(d.source)]
		switch {
		case before && done.TargetOffset >= 0:
			c.verdict, c.sent = verdictDone, &done
			continue
		case d.parked():
			c.verdict, c.why = verdictParked, fmt.Sprintf("failed again after %d replays", d.replays)
			continue
		}
		if info, input := r.topics[d.source.Topic]; !input || info.Err != nil {
			c.verdict, c.why = verdictElsewhere, fmt.Sprintf("topic %s is not read by this configuration, or does not exist", d.source.Topic)
			continue
		}
		c.record = d.decode(r.filter.decoder, r.filter.heartbeats)
		if c.record.Dead != nil {
			c.why = c.record.Dead.Reason + ": " + c.record.Dead.Text
			if !r.force {
				c.verdict = verdictFails
				continue
			}
		}
		c.verdict = verdictSend
		if r.force || c.record.Dead != nil {
			continue
		}
		// What is applied is known to the history; what waits in the topics is not.
		if !checked {
			if err := r.applied(ctx); err != nil {
				return nil, err
			}
			checked = true
		}
		later, err := r.store.LaterChanges(ctx, d.origin, c.record.Handles())
		if err != nil {
			return nil, err
		}
		if len(later) > 0 {
			c.verdict, c.later = verdictLater, later
		}
	}
	return cases, r.rehearse(ctx, cases)
}

// applied waits until the workers have applied what stands in the input topics
// now: an event in front of the replay that is not applied yet would look as if
// it did not exist.
func (r *replay) applied(ctx context.Context) error {
	ends := map[sourceKey]int64{}
	names := map[sourceKey]string{}
	for _, topic := range r.cfg.Kafka.Topics.Inputs() {
		info := r.topics[topic]
		if info.Err != nil {
			continue
		}
		bounds, err := r.cluster.ListOffsets(ctx, topic)
		if err != nil {
			return err
		}
		for i, b := range bounds {
			if b.Stable > b.Start {
				key := sourceKey{topicID: info.ID, partition: int32(i)}
				ends[key], names[key] = b.Stable, fmt.Sprintf("%s/%d", topic, i)
			}
		}
	}
	deadline := time.Now().Add(r.patience)
	for attempt := 0; ; attempt++ {
		stored, err := r.store.Positions(ctx)
		if err != nil {
			return err
		}
		for _, p := range stored {
			key := sourceKey{topicID: p.TopicID, partition: p.Index}
			if end, waiting := ends[key]; waiting && p.Next >= end {
				delete(ends, key)
			}
		}
		if len(ends) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			var behind []string
			for key := range ends {
				behind = append(behind, names[key])
			}
			slices.Sort(behind)
			return fmt.Errorf("events in %s are not applied yet, so nobody knows whether they come later than a dead letter: let the workers catch up, or end the halt, and run this again; --force does not wait", strings.Join(behind, ", "))
		}
		if !pause(ctx, min(attempt, 2)) {
			return ctx.Err()
		}
	}
}

// rehearse finds out what the records that pass would do to what is stored now,
// one after the other, in a transaction that is rolled back.
func (r *replay) rehearse(ctx context.Context, cases []*judged) error {
	var pass []*judged
	for _, c := range cases {
		if c.verdict == verdictSend && c.record.Dead == nil && !c.record.Empty {
			pass = append(pass, c)
		}
	}
	if len(pass) == 0 {
		return nil
	}
	err := r.rehearseTogether(ctx, pass)
	if !errors.Is(err, inventory.ErrData) || len(pass) == 1 {
		return r.refusedAgain(pass, err)
	}
	for i := range pass { // one of them is to blame
		one := pass[i : i+1]
		if err := r.refusedAgain(one, r.rehearseTogether(ctx, one)); err != nil {
			return err
		}
	}
	return nil
}

// refusedAgain takes PostgreSQL's refusal of a single record for what the
// worker would do with it: handles that are refused become failures.
func (r *replay) refusedAgain(pass []*judged, err error) error {
	if err == nil || !errors.Is(err, inventory.ErrData) || len(pass) != 1 {
		return err
	}
	pass[0].why = "PostgreSQL refuses some of it: " + err.Error()
	return nil
}

// listener is an encoder that hears what is refused.
type listener struct {
	*lcm.Encoder
	failed func(*inventory.Record, []inventory.Failure)
}

// Outcome implements inventory.Encoder.
func (l listener) Outcome(o *inventory.Outcome) inventory.Message {
	l.failed(o.Record, o.Failures)
	return l.Encoder.Outcome(o)
}

func (r *replay) rehearseTogether(ctx context.Context, pass []*judged) error {
	b := &inventory.Batch{LeaderEpoch: -1, Next: int64(len(pass)), Records: make([]inventory.Record, len(pass))}
	for i, c := range pass {
		b.Records[i] = *c.record
		b.Records[i].Offset = int64(i)
		b.Records[i].Events = slices.Clone(c.record.Events)
		for j := range b.Records[i].Events {
			b.Records[i].Events[j].Outcomes = inventory.OutcomesAll // failures are to be heard
		}
	}
	cfg := inventory.PlannerConfig{Outcomes: inventory.OutcomesAll, MaxLCMBytes: lcm.PayloadLimit(r.maxLCM), Facts: true}
	return r.store.Rehearse(ctx, b, inventory.NeedOf(b), func(s *inventory.Snapshot) (*inventory.Plan, error) {
		for _, c := range pass { // it can be called again
			c.changes, c.rejected = nil, nil
		}
		enc := listener{r.encoder, func(rec *inventory.Record, failures []inventory.Failure) {
			c := pass[rec.Offset]
			c.rejected = append(c.rejected, failures...)
		}}
		plan := inventory.PlanBatch(b, s, time.Now(), cfg, enc, nil)
		for _, f := range plan.Facts {
			c := pass[f.Offset]
			c.changes = append(c.changes, f)
		}
		return plan, nil
	})
}
