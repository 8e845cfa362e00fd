package consumer

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"ncmp-inventory/inventory"
)

// Moments that ListOffsets can be asked about, beside a time in milliseconds.
const (
	atEnd   = -1
	atStart = -2
)

// Offsets are the bounds of a partition's log.
type Offsets struct {
	Start int64 // first offset still kept
	// Stable is the end for a reader of committed records: an open
	// transaction keeps it back from End.
	Stable, End int64
}

// ListOffsets asks the leader of each partition of a topic for its bounds,
// by partition.
func (k *Cluster) ListOffsets(ctx context.Context, topic string) ([]Offsets, error) {
	md, err := k.Metadata(ctx, topic)
	if err != nil {
		return nil, err
	}
	t := md.Topics[topic]
	if t.Err != nil {
		return nil, fmt.Errorf("topic %s: %w", topic, t.Err)
	}
	return k.bounds(ctx, t)
}

// OffsetsAt tells for each partition of a topic the first offset whose record
// is not older than at; the end where there is none.
func (k *Cluster) OffsetsAt(ctx context.Context, topic string, at time.Time) ([]int64, error) {
	md, err := k.Metadata(ctx, topic)
	if err != nil {
		return nil, err
	}
	t := md.Topics[topic]
	if t.Err != nil {
		return nil, fmt.Errorf("topic %s: %w", topic, t.Err)
	}
	found, err := k.listAll(ctx, t, at.UnixMilli(), true)
	if err != nil {
		return nil, err
	}
	for i, o := range found {
		if o >= 0 {
			continue
		}
		ends, err := k.listAll(ctx, t, atEnd, true)
		if err != nil {
			return nil, err
		}
		found[i] = ends[i]
	}
	return found, nil
}

func (k *Cluster) bounds(ctx context.Context, t TopicInfo) ([]Offsets, error) {
	out := make([]Offsets, len(t.Leaders))
	for _, q := range []struct {
		at        int64
		committed bool
		set       func(*Offsets, int64)
	}{
		{atStart, false, func(o *Offsets, v int64) { o.Start = v }},
		{atEnd, true, func(o *Offsets, v int64) { o.Stable = v }},
		{atEnd, false, func(o *Offsets, v int64) { o.End = v }},
	} {
		vs, err := k.listAll(ctx, t, q.at, q.committed)
		if err != nil {
			return nil, err
		}
		for i, v := range vs {
			q.set(&out[i], v)
		}
	}
	return out, nil
}

// boundsOf asks about one partition.
func (k *Cluster) boundsOf(ctx context.Context, p inventory.Partition) (Offsets, error) {
	md, err := k.Metadata(ctx, p.Topic)
	if err != nil {
		return Offsets{}, err
	}
	t := md.Topics[p.Topic]
	switch {
	case t.Err != nil:
		return Offsets{}, fmt.Errorf("topic %s: %w", p.Topic, t.Err)
	case t.ID != p.TopicID:
		return Offsets{}, fmt.Errorf("topic %s: %w", p.Topic, kafka.UnknownTopicID)
	case int(p.Index) >= len(t.Leaders):
		return Offsets{}, fmt.Errorf("topic %s has no partition %d: %w", p.Topic, p.Index, kafka.UnknownTopicOrPartition)
	}
	var o Offsets
	ask := func(at int64, committed bool) (v int64) {
		if err == nil {
			var vs map[int32]int64
			vs, err = k.list(ctx, t.Leaders[p.Index], p.Topic, []int32{p.Index}, at, committed)
			v = vs[p.Index]
		}
		return v
	}
	// The start is read last: it only grows, so that a log that is being cut
	// at its head while we look is not taken for one that ends before it.
	o.End, o.Stable, o.Start = ask(atEnd, false), ask(atEnd, true), ask(atStart, false)
	return o, err
}

func (k *Cluster) listAll(ctx context.Context, t TopicInfo, at int64, committed bool) ([]int64, error) {
	out := make([]int64, len(t.Leaders))
	byLeader := map[int32][]int32{}
	for i, l := range t.Leaders {
		byLeader[l] = append(byLeader[l], int32(i))
	}
	for leader, parts := range byLeader {
		vs, err := k.list(ctx, leader, t.Name, parts, at, committed)
		if err != nil {
			return nil, err
		}
		for p, v := range vs {
			if p >= 0 && int(p) < len(out) {
				out[p] = v
			}
		}
	}
	return out, nil
}

// list sends one ListOffsets request to the partitions' leader.
func (k *Cluster) list(ctx context.Context, leader int32, topic string, parts []int32, at int64, committed bool) (map[int32]int64, error) {
	out := make(map[int32]int64, len(parts))
	var failed error
	c := &call{key: protocol.ListOffsets, version: 4, client: k.clientID, read: func(r *wireReader) {
		r.i32()
		for n := r.count(); n > 0 && r.err == nil; n-- {
			r.str()
			for n := r.count(); n > 0 && r.err == nil; n-- {
				p, code := r.i32(), r.i16()
				r.i64()
				out[p] = r.i64()
				r.i32()
				if code != 0 {
					failed = errors.Join(failed, fmt.Errorf("partition %d: %w", p, kafka.Error(code)))
				}
			}
		}
	}}
	w := &c.body
	w.i32(-1)
	w.i8(map[bool]int8{true: 1}[committed])
	w.i32(1)
	w.str(topic)
	w.i32(int32(len(parts)))
	for _, p := range parts {
		w.i32(p)
		w.i32(-1)
		w.i64(at)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := error(kafka.LeaderNotAvailable)
	if leader >= 0 {
		err = k.exchange(ctx, brokerCall{c, leader})
	}
	if err == nil {
		err = failed
	}
	if err != nil {
		return nil, fmt.Errorf("listing offsets of topic %s: %w", topic, err)
	}
	return out, nil
}

// hint is what a group offset's metadata says about the database it came
// from. The offset itself is a hint for lag tools; this lets a worker notice
// that the database went back behind it.
type hint struct {
	identity inventory.Identity
	position int64
	topicID  [16]byte
}

const hintPrefix = "ncmp-inventory"

func (h hint) String() string {
	return fmt.Sprintf("%s %s %d %d %s", hintPrefix, h.identity.SystemID, h.identity.Timeline, h.position, hex.EncodeToString(h.topicID[:]))
}

// parseHint reads metadata written by String; anything else is no hint.
func parseHint(s string) (h hint, ok bool) {
	var id string
	if !strings.HasPrefix(s, hintPrefix+" ") {
		return h, false
	}
	if _, err := fmt.Sscanf(s, hintPrefix+" %s %d %d %s", &h.identity.SystemID, &h.identity.Timeline, &h.position, &id); err != nil {
		return h, false
	}
	b, err := hex.DecodeString(id)
	return h, err == nil && copy(h.topicID[:], b) == len(h.topicID)
}

// hints reads the group's offsets of the given partitions.
func (k *Cluster) hints(ctx context.Context, group string, parts map[string][]int) (map[partitionKey]hint, error) {
	out := map[partitionKey]hint{}
	if len(parts) == 0 {
		return out, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r, err := k.client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group, Topics: parts})
	if err == nil {
		err = r.Error
	}
	if err != nil {
		return nil, fmt.Errorf("reading the offsets of group %s: %w", group, err)
	}
	for _, ps := range r.Topics {
		for _, p := range ps {
			if p.Error != nil {
				return nil, fmt.Errorf("reading the offsets of group %s: %w", group, p.Error)
			}
			if h, ok := parseHint(p.Metadata); ok && p.CommittedOffset >= 0 {
				out[partitionKey{h.topicID, int32(p.Partition)}] = h
			}
		}
	}
	return out, nil
}

// partitionKey identifies a partition; the topic's name does not.
type partitionKey struct {
	topicID [16]byte
	index   int32
}

func keyOf(p inventory.Partition) partitionKey { return partitionKey{p.TopicID, p.Index} }
