package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/segmentio/kafka-go"

	"ncmp-inventory/consumer"
	"ncmp-inventory/inventory"
	"ncmp-inventory/store"
)

const (
	// sendPatience is how long a batch is tried for.
	sendPatience = time.Minute
	// batchBytes bounds a batch, below the brokers' default limit; a larger
	// record goes alone.
	batchBytes = 900_000
)

// replayID is the value of a replayed record's header: it and the count name
// the record.
func replayID(p store.Place) string {
	return fmt.Sprintf("%s/%d/%d", uuid.UUID(p.TopicID), p.Index, p.Offset)
}

// outgoing is the record as it is sent again.
func (c *judged) outgoing(force bool) kafka.Record {
	out := kafka.Record{Key: kafka.NewBytes(c.key), Value: kafka.NewBytes(c.value)}
	for _, h := range c.headers {
		out.Headers = append(out.Headers, kafka.Header(h))
	}
	at := ""
	if !c.origin.Time.IsZero() {
		at = c.origin.Time.UTC().Format(timeMillis)
	}
	out.Headers = append(out.Headers,
		kafka.Header{Key: consumer.HeaderReplayCount, Value: strconv.AppendInt(nil, int64(c.replays+1), 10)},
		kafka.Header{Key: consumer.HeaderReplayOf, Value: []byte(replayID(c.origin))},
		kafka.Header{Key: consumer.HeaderReplayTime, Value: []byte(at)})
	if force {
		out.Headers = append(out.Headers, kafka.Header{Key: consumer.HeaderReplayForce, Value: []byte("true")})
	}
	return out
}

// target is the partition that the record came from or, in a topic that was
// created anew with fewer, the one of its key.
func (r *replay) target(c *judged) inventory.Partition {
	info := r.topics[c.source.Topic]
	p := inventory.Partition{TopicID: info.ID, Topic: c.source.Topic, Index: c.source.Index}
	if int(p.Index) >= len(info.Leaders) {
		all := make([]int, len(info.Leaders))
		for i := range all {
			all[i] = i
		}
		p.Index = int32(kafka.Murmur2Balancer{Consistent: true}.Balance(kafka.Message{Key: c.key}, all...))
	}
	return p
}

// send sends what passed, a batch for each target partition. It is first noted
// as about to be sent, with the end of the target partition: whatever happens
// then, what stands behind that end tells whether it was.
func (r *replay) send(ctx context.Context, cases []*judged) error {
	type batch struct {
		target inventory.Partition
		cases  []*judged
		bytes  int
	}
	var batches []*batch
	byTarget := map[inventory.Partition]*batch{}
	for _, c := range cases {
		if c.verdict != verdictSend {
			continue
		}
		p := r.target(c)
		b, size := byTarget[p], len(c.key)+len(c.value)+1000
		if b == nil || b.bytes+size > batchBytes {
			b = &batch{target: p}
			byTarget[p] = b
			batches = append(batches, b)
		}
		b.cases = append(b.cases, c)
		b.bytes += size
	}
	for _, b := range batches {
		bounds, err := r.cluster.ListOffsets(ctx, b.target.Topic)
		if err != nil {
			return err
		}
		if int(b.target.Index) >= len(bounds) {
			return fmt.Errorf("topic %s changed meanwhile: run this again", b.target.Topic)
		}
		rs := make([]store.Replay, len(b.cases))
		for i, c := range b.cases {
			rs[i] = store.Replay{
				Source: c.source, Origin: c.origin, Attempt: c.replays + 1,
				Target: b.target, From: bounds[b.target.Index].End, TargetOffset: -1,
			}
			c.sent = &rs[i]
		}
		if err := r.store.BeginReplays(ctx, rs); err != nil {
			return err
		}
		if err := r.deliver(ctx, b.cases); err != nil {
			return err
		}
	}
	return nil
}

// deliver sends a batch of one partition until it is known to stand there.
func (r *replay) deliver(ctx context.Context, cases []*judged) error {
	deadline := time.Now().Add(sendPatience)
	for attempt := 0; ; attempt++ {
		offset, err := r.produce(ctx, cases)
		var code kafka.Error
		switch {
		case err == nil:
			sent := make([]store.Replay, len(cases))
			for i, c := range cases {
				c.sent.TargetOffset, c.verdict = offset+int64(i), verdictSent
				sent[i] = *c.sent
			}
			return r.store.FinishReplays(ctx, sent)
		case errors.As(err, &code) && (code == kafka.MessageSizeTooLarge || code == kafka.RecordListTooLarge):
			return r.split(ctx, cases)
		case errors.As(err, &code) && !code.Temporary(), time.Now().After(deadline), ctx.Err() != nil:
			return fmt.Errorf("send to %s: %w; run this again", cases[0].sent.Target.Topic, err)
		}
		// The answer is not definite: look before sending again.
		if !pause(ctx, attempt) {
			return ctx.Err()
		}
		left, err := r.missing(ctx, cases)
		if err != nil || len(left) == 0 {
			return err
		}
		cases = left
	}
}

// split sends the halves of a batch that the topic does not take whole. A
// single record that it does not take never fitted.
func (r *replay) split(ctx context.Context, cases []*judged) error {
	if len(cases) > 1 {
		mid := len(cases) / 2
		if err := r.deliver(ctx, cases[:mid]); err != nil {
			return err
		}
		return r.deliver(ctx, cases[mid:])
	}
	c := cases[0]
	dropped := []store.Replay{*c.sent}
	c.verdict, c.sent = verdictTooLarge, nil
	return r.store.DropReplays(ctx, dropped)
}

func (r *replay) produce(ctx context.Context, cases []*judged) (offset int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	records := make([]kafka.Record, len(cases))
	for i, c := range cases {
		records[i] = c.outgoing(r.force)
	}
	p := cases[0].sent.Target
	res, err := r.client.Produce(ctx, &kafka.ProduceRequest{
		Topic: p.Topic, Partition: int(p.Index), RequiredAcks: kafka.RequireAll, Records: kafka.NewRecordReader(records...),
	})
	if err == nil {
		err = res.Error
	}
	if err != nil {
		return 0, err
	}
	return res.BaseOffset, nil
}

// missing notes those of the records that stand in the target partition and
// returns the others.
func (r *replay) missing(ctx context.Context, cases []*judged) (left []*judged, err error) {
	rs := make([]store.Replay, len(cases))
	for i, c := range cases {
		rs[i] = *c.sent
	}
	if err := r.find(ctx, rs); err != nil {
		return nil, err
	}
	var sent []store.Replay
	for i, c := range cases {
		if rs[i].TargetOffset < 0 {
			left = append(left, c)
			continue
		}
		c.sent.TargetOffset, c.verdict = rs[i].TargetOffset, verdictSent
		sent = append(sent, rs[i])
	}
	return left, r.store.FinishReplays(ctx, sent)
}

// find looks for records in their target partitions, from where these ended
// before they were sent, and sets their offsets.
func (r *replay) find(ctx context.Context, rs []store.Replay) error {
	byTopic := map[string]map[string]*store.Replay{}
	from := map[string]map[int32]int64{}
	for i := range rs {
		one := &rs[i]
		topic := one.Target.Topic
		if byTopic[topic] == nil {
			byTopic[topic], from[topic] = map[string]*store.Replay{}, map[int32]int64{}
		}
		byTopic[topic][fmt.Sprintf("%d %s", one.Attempt, replayID(one.Origin))] = one
		if at, ok := from[topic][one.Target.Index]; !ok || one.From < at {
			from[topic][one.Target.Index] = one.From
		}
	}
	for topic, wanted := range byTopic {
		bounds, err := r.cluster.ListOffsets(ctx, topic)
		if errors.Is(err, kafka.UnknownTopicOrPartition) {
			continue // the topic is gone, and what was sent to it
		}
		if err != nil {
			return err
		}
		begin, end := make([]int64, len(bounds)), make([]int64, len(bounds))
		for i, b := range bounds {
			begin[i], end[i] = b.Stable, b.Stable
			if at, ok := from[topic][int32(i)]; ok {
				begin[i] = min(max(at, b.Start), b.Stable)
			}
		}
		if err := r.cluster.Read(ctx, topic, begin, end, func(rec *consumer.TailRecord) (bool, error) {
			one := wanted[header(rec, consumer.HeaderReplayCount)+" "+header(rec, consumer.HeaderReplayOf)]
			if one != nil && one.TargetOffset < 0 && rec.TopicID == one.Target.TopicID && rec.Partition == one.Target.Index {
				one.TargetOffset = rec.Offset
			}
			return true, nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// settle finds out what became of records that an earlier command was about to
// send when it ended. What does not stand in its topic is to be sent again.
func (r *replay) settle(ctx context.Context) error {
	var open []store.Replay
	for _, one := range r.done {
		if one.TargetOffset < 0 {
			open = append(open, one)
		}
	}
	if len(open) == 0 {
		return nil
	}
	if err := r.find(ctx, open); err != nil {
		return err
	}
	var sent, dropped []store.Replay
	for _, one := range open {
		if one.TargetOffset >= 0 {
			sent = append(sent, one)
			r.done[keyOf(one.Source)] = one
		} else {
			dropped = append(dropped, one)
			delete(r.done, keyOf(one.Source))
		}
	}
	if r.dryRun {
		return nil
	}
	if err := r.store.FinishReplays(ctx, sent); err != nil {
		return err
	}
	return r.store.DropReplays(ctx, dropped)
}
