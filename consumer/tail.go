package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"

	kafka "github.com/segmentio/kafka-go"

	"ncmp-inventory/inventory"
)

// TailRecord is a record of a topic that somebody follows. It may be kept: its
// bytes are its own batch's and never written to again.
type TailRecord struct {
	Topic     string
	TopicID   [16]byte
	Partition int32
	inventory.Record
}

// tailBytes bounds one answer per partition of a followed topic.
const tailBytes = 1 << 20

// Follow reads committed records of all partitions of a topic, from the given
// offset of each on (see ListOffsets and OffsetsAt), without a group. It calls
// fn for each from one goroutine, in order within a partition, until fn wants
// no more, or fails, or ctx ends (then it returns ctx's error). Brokers that
// cannot be reached are waited for; an offset that is gone is an error.
// Partitions added later are read from their beginning.
func (k *Cluster) Follow(ctx context.Context, topic string, from []int64, fn func(*TailRecord) (more bool, err error)) error {
	return k.follow(ctx, topic, from, nil, fn)
}

// Read is Follow up to an offset of each partition: it ends when all have been
// reached, whatever invisible offsets lie before them. Partitions beyond the
// given ones are left out.
func (k *Cluster) Read(ctx context.Context, topic string, from, to []int64, fn func(*TailRecord) (more bool, err error)) error {
	return k.follow(ctx, topic, from, to, fn)
}

func (k *Cluster) follow(ctx context.Context, topic string, from, to []int64, fn func(*TailRecord) (more bool, err error)) error {
	t := tail{k: k, topic: topic, next: append([]int64(nil), from...), to: to, heads: newHeaders()}
	if t.done() {
		return nil
	}
	for attempt := 0; ; {
		err := t.look(ctx)
		for err == nil {
			if t.done() {
				return nil
			}
			attempt = 0
			var stop bool
			if stop, err = t.round(ctx, fn); stop {
				return err
			}
		}
		var broken *tailError
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &broken):
			return fmt.Errorf("following topic %s: %w", topic, broken.err)
		}
		if !sleep(ctx, pauseFor(attempt)) {
			return ctx.Err()
		}
		attempt++
	}
}

// tailError is an error that no retry mends.
type tailError struct{ err error }

func (e *tailError) Error() string { return e.err.Error() }

type tail struct {
	k     *Cluster
	topic string
	info  TopicInfo
	known bool
	next  []int64
	to    []int64 // nil: no end
	heads *headers
	looks int
}

// ended reports whether a partition has come to its end.
func (t *tail) ended(i int) bool {
	if t.to == nil {
		return false
	}
	return i >= len(t.to) || t.next[i] >= t.to[i]
}

func (t *tail) done() bool {
	for i := range t.next {
		if !t.ended(i) {
			return false
		}
	}
	return t.to != nil
}

// look finds the leaders. The topic must stay the one it was.
func (t *tail) look(ctx context.Context) error {
	md, err := t.k.Metadata(ctx, t.topic)
	if err != nil {
		return err
	}
	info := md.Topics[t.topic]
	switch {
	case info.Err != nil && !t.known && errors.Is(info.Err, kafka.UnknownTopicOrPartition), errors.Is(info.Err, kafka.TopicAuthorizationFailed):
		return &tailError{info.Err}
	case info.Err != nil:
		return info.Err
	case t.known && info.ID != t.info.ID:
		return &tailError{errors.New("the topic was deleted and created anew")}
	}
	t.info, t.known = info, true
	for len(t.next) < len(info.Leaders) {
		t.next = append(t.next, 0)
	}
	return nil
}

// round polls every leader once, side by side, and hands out what came. It
// looks for added partitions every now and then.
func (t *tail) round(ctx context.Context, fn func(*TailRecord) (bool, error)) (stop bool, err error) {
	if t.looks++; t.looks%50 == 0 {
		if err := t.look(ctx); err != nil {
			return false, err
		}
	}
	byLeader := map[int32][]fetchPart{}
	for n := range t.info.Leaders {
		i := (n + t.looks) % len(t.info.Leaders)
		if t.ended(i) {
			continue
		}
		leader := t.info.Leaders[i]
		if leader < 0 {
			return false, kafka.LeaderNotAvailable
		}
		byLeader[leader] = append(byLeader[leader], fetchPart{
			topicID: t.info.ID, topic: t.topic, index: int32(i), offset: t.next[i], epoch: -1, maxBytes: tailBytes,
		})
	}
	type answer struct {
		parts []fetched
		err   error
	}
	answers := make([]answer, 0, len(byLeader))
	var mu sync.Mutex
	var wg sync.WaitGroup
	for leader, parts := range byLeader {
		wg.Go(func() {
			got, err := t.k.fetch(ctx, leader, parts, maxWait, 16<<20)
			mu.Lock()
			defer mu.Unlock()
			answers = append(answers, answer{got, err})
		})
	}
	wg.Wait()
	for _, a := range answers {
		if a.err != nil {
			err = a.err
			continue
		}
		for i := range a.parts {
			stop, perr := t.deliver(&a.parts[i], fn)
			if stop {
				return true, perr
			}
			if perr != nil {
				err = perr
			}
		}
	}
	return false, err
}

func (t *tail) deliver(f *fetched, fn func(*TailRecord) (bool, error)) (stop bool, err error) {
	if f.index < 0 || int(f.index) >= len(t.next) {
		return false, nil
	}
	at := &t.next[f.index]
	switch f.code {
	case 0:
	case kafka.OffsetOutOfRange:
		if *at < f.start { // retention was faster than the reader, or a partition was added
			*at = f.start
			return false, nil
		}
		return false, &tailError{fmt.Errorf("partition %d, offset %d: %w", f.index, *at, f.code)}
	default:
		return false, f.code
	}
	spans, next, _, err := scan(f.set, *at, f.aborted, nil)
	for i := range spans {
		r, oerr := spans[i].open(tailExpanded)
		if oerr != nil {
			return false, &tailError{fmt.Errorf("partition %d: %w", f.index, oerr)}
		}
		t.heads.arena = nil // records may be kept
		for r.left > 0 {
			rec := TailRecord{Topic: t.topic, TopicID: t.info.ID, Partition: f.index}
			if err := r.next(&rec.Record, t.heads); err != nil {
				return false, &tailError{fmt.Errorf("partition %d: %w", f.index, err)}
			}
			if rec.Offset < *at {
				continue
			}
			if *at = rec.Offset; t.ended(int(f.index)) {
				return false, nil
			}
			*at = rec.Offset + 1
			if more, err := fn(&rec); !more || err != nil {
				return true, err
			}
		}
	}
	*at = max(*at, next)
	return false, err
}

// tailExpanded bounds a decompressed record batch.
const tailExpanded = 256 << 20
