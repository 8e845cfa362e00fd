package consumer

import (
	"context"
	"sync"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"go.uber.org/zap"

	"ncmp-inventory/inventory"
)

// commitEvery is how often the group's offsets follow the positions. They are
// hints: for lag tools, and to notice a database that went back.
const commitEvery = time.Second

// committer commits the positions of a session's lanes, the newest only.
type committer struct {
	*serving
	mu    sync.Mutex
	dirty map[inventory.Partition]int64
	first chan struct{} // one slot: a partition's first position came
	seen  map[inventory.Partition]bool
	turn  sync.Mutex // of flush: an older position must not come after a newer one
}

func newCommitter(v *serving) *committer {
	return &committer{serving: v, dirty: map[inventory.Partition]int64{}, seen: map[inventory.Partition]bool{}, first: make(chan struct{}, 1)}
}

// note tells a position that is durable.
func (o *committer) note(p inventory.Partition, next int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dirty[p] = next
	if !o.seen[p] {
		// At once, so that lag tools know the partition.
		o.seen[p] = true
		select {
		case o.first <- struct{}{}:
		default:
		}
	}
}

func (o *committer) run(ctx context.Context) {
	t := time.NewTicker(commitEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.first:
		case <-t.C:
		}
		_ = o.flush(ctx) // the next one does it
	}
}

// tell commits a position now.
func (o *committer) tell(ctx context.Context, p inventory.Partition, next int64) error {
	o.note(p, next)
	return o.flush(ctx)
}

// flush commits what is new. What fails is tried again with the next one.
func (o *committer) flush(ctx context.Context) error {
	o.turn.Lock()
	defer o.turn.Unlock()
	o.mu.Lock()
	dirty := o.dirty
	o.dirty = make(map[inventory.Partition]int64, len(dirty))
	o.mu.Unlock()
	id := o.c.identity()
	offsets := map[string][]kafka.OffsetCommit{}
	for p, next := range dirty {
		offsets[p.Topic] = append(offsets[p.Topic], kafka.OffsetCommit{
			Partition: int(p.Index), Offset: next, Metadata: hint{identity: id, position: next, topicID: p.TopicID}.String(),
		})
	}
	err := o.session.commit(ctx, offsets)
	if err == nil {
		return nil
	}
	o.c.m.retries.WithLabelValues("offset-commit").Inc()
	o.c.log.Debug("committing the group's offsets", zap.Error(err))
	o.mu.Lock()
	defer o.mu.Unlock()
	for p, next := range dirty {
		if _, newer := o.dirty[p]; !newer {
			o.dirty[p] = next
		}
	}
	return err
}
