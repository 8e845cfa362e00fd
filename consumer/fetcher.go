package consumer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"go.uber.org/zap"
)

// maxWait bounds a long poll. A partition that is paused or has just been
// claimed waits for the poll that is under way, so it is short.
const maxWait = 100 * time.Millisecond

// fetcher fills the mailboxes of a session: one long-poll loop for each broker
// that leads some partition.
type fetcher struct {
	*serving
	lanes []*lane

	refresh chan struct{} // one slot: leaders may have moved

	mu      sync.Mutex
	leaders map[partitionKey]int32
	polls   map[int32]chan struct{} // by broker, one slot: look again
}

func newFetcher(v *serving) *fetcher {
	return &fetcher{serving: v, refresh: make(chan struct{}, 1), leaders: map[partitionKey]int32{}, polls: map[int32]chan struct{}{}}
}

// kick makes idle loops look whether there is something to fetch.
func (f *fetcher) kick() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.polls {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// stale asks for new metadata.
func (f *fetcher) stale() {
	select {
	case f.refresh <- struct{}{}:
	default:
	}
}

// run keeps a loop for every leader, and watches the topics: when they are not
// what the group assigned, it asks for a rebalance.
func (f *fetcher) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	tick := time.NewTicker(f.c.cfg.MetadataInterval)
	defer tick.Stop()
	doubt := false
	for attempt := 0; ctx.Err() == nil; {
		md, err := f.c.k.Metadata(ctx, f.c.cfg.Topics...)
		if err != nil {
			if ctx.Err() == nil {
				f.c.trouble(troubleKafka, err)
				sleep(ctx, pauseFor(attempt))
				attempt++
			}
			continue
		}
		attempt = 0
		f.c.noteTopics(md)
		switch {
		case !md.changed(f.session.view):
			doubt = false
		case doubt:
			f.session.reassign()
		default: // one broker may be behind the others: look twice
			doubt = true
			f.stale()
		}
		for broker, wake := range f.lead(md) {
			wg.Go(func() { f.poll(ctx, broker, wake) })
		}
		f.kick()
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-f.refresh:
			sleep(ctx, minPause) // leaders take a moment to be elected
		}
	}
}

// lead notes who leads what, and returns the brokers that have no loop yet.
func (f *fetcher) lead(md *Metadata) map[int32]chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	fresh := map[int32]chan struct{}{}
	clear(f.leaders)
	for _, t := range md.Topics {
		for i, leader := range t.Leaders {
			f.leaders[partitionKey{t.ID, int32(i)}] = leader
		}
	}
	for _, l := range f.lanes {
		leader, ok := f.leaders[keyOf(l.part)]
		if _, running := f.polls[leader]; !ok || leader < 0 || running {
			continue
		}
		wake := make(chan struct{}, 1)
		f.polls[leader], fresh[leader] = wake, wake
	}
	return fresh
}

// poll fetches from one broker until ctx ends. Partitions whose boxes are full
// are left out, so they hold up no other.
func (f *fetcher) poll(ctx context.Context, broker int32, wake <-chan struct{}) {
	var parts []fetchPart
	boxes := map[partitionKey]*mailbox{}
	for turn, attempt := 0, 0; ctx.Err() == nil; turn++ {
		if f.c.gate() != "" {
			sleep(ctx, gatePause)
			continue
		}
		clear(boxes)
		parts = f.request(parts[:0], boxes, broker, turn)
		if len(parts) == 0 {
			select {
			case <-ctx.Done():
			case <-wake:
			}
			continue
		}
		// The broker answers with at least one record batch, so a batch
		// beyond the bound comes when its partition stands first.
		most := int32(min(f.fetchBytes*len(parts), 16<<20))
		answers, err := f.c.k.fetch(ctx, broker, parts, maxWait, most)
		if err != nil {
			if ctx.Err() == nil {
				f.c.trouble(troubleKafka, err)
				f.c.m.retries.WithLabelValues("fetch").Inc()
				f.stale()
				sleep(ctx, pauseFor(attempt))
				attempt++
			}
			continue
		}
		attempt = 0
		if f.deliver(parts, boxes, answers) {
			f.stale()
			sleep(ctx, minPause)
			continue
		}
		f.c.calm(troubleKafka)
	}
}

// request lists what to fetch from a broker. Each turn another topic, and
// within it another partition, stands first.
func (f *fetcher) request(parts []fetchPart, boxes map[partitionKey]*mailbox, broker int32, turn int) []fetchPart {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.lanes)
	for i := range n {
		l := f.lanes[(i+turn)%n]
		key := keyOf(l.part)
		if leader, ok := f.leaders[key]; !ok || leader != broker {
			continue
		}
		offset, epoch, ok := l.box.wants()
		if !ok {
			continue
		}
		boxes[key] = l.box
		parts = append(parts, fetchPart{
			topicID: l.part.TopicID, topic: l.part.Topic, index: l.part.Index,
			offset: offset, epoch: epoch, maxBytes: int32(f.fetchBytes),
		})
	}
	// One topic's partitions must stand together, the first one first.
	if len(parts) > 0 {
		first := parts[0].topicID
		slices.SortStableFunc(parts, func(a, b fetchPart) int {
			if (a.topicID == first) != (b.topicID == first) {
				if a.topicID == first {
					return -1
				}
				return 1
			}
			return slices.Compare(a.topicID[:], b.topicID[:])
		})
	}
	return parts
}

// deliver puts answers into their boxes. It reports whether some partition could
// not be read here.
func (f *fetcher) deliver(parts []fetchPart, boxes map[partitionKey]*mailbox, answers []fetched) (moved bool) {
	from := make(map[partitionKey]int64, len(parts))
	for i := range parts {
		from[partitionKey{parts[i].topicID, parts[i].index}] = parts[i].offset
	}
	for i := range answers {
		a := &answers[i]
		key := partitionKey{a.topicID, a.index}
		box, at := boxes[key], from[key]
		if box == nil {
			continue
		}
		switch {
		case a.diverged >= 0:
			box.raise(at, &problem{diverged: a.diverged})
		case a.code == 0:
			spans, next, epoch, err := scan(a.set, at, a.aborted, nil)
			box.put(at, spans, next, epoch, a)
			if err != nil {
				f.c.log.Warn("fetched records are damaged", zap.Int32("partition", a.index), zap.Error(err))
				box.raise(next, &problem{diverged: -1, err: err})
			}
		case errors.Is(a.code, kafka.OffsetOutOfRange), errors.Is(a.code, kafka.UnknownTopicOrPartition),
			errors.Is(a.code, kafka.UnknownTopicID), errors.Is(a.code, kafka.InconsistentTopicID):
			box.raise(at, &problem{code: a.code, diverged: -1})
		default: // the leader moved or is not ready, or a right is missing
			f.c.trouble(troubleKafka, a.code)
			f.c.m.retries.WithLabelValues("fetch").Inc()
			moved = true
		}
	}
	return moved
}
