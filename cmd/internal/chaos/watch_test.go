package chaos

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// watch follows the outcomes as a user does, and measures pauses: how long a
// partition's records stayed unanswered while none of it was answered.
type watch struct {
	w      *world
	client *kgo.Client
	count  atomic.Int64 // outcomes seen

	mu     sync.Mutex
	homes  map[source]*progress
	pauses []pausing
}

type progress struct {
	waiting  []written // not yet answered, in order
	answered time.Time // when the last answer came
}

type written struct {
	offset int64
	at     time.Time
}

// pausing is one pause of a partition.
type pausing struct {
	home     source
	from, to time.Time
}

// notable is the shortest pause that is kept.
const notable = 200 * time.Millisecond

func newWatch(w *world) *watch {
	return &watch{w: w, homes: map[source]*progress{}, client: w.client(kgo.ConsumeTopics(topicOutcomes), kgo.FetchMaxWait(100*time.Millisecond))}
}

func (a *watch) home(h source) *progress {
	p := a.homes[h]
	if p == nil {
		p = &progress{}
		a.homes[h] = p
	}
	return p
}

// wrote notes a record that waits for its outcome from now on.
func (a *watch) wrote(h source, offset int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.home(h)
	p.waiting = append(p.waiting, written{offset, time.Now()})
}

func (a *watch) run(ctx context.Context) error {
	for {
		fetches := a.client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		fetches.EachRecord(a.outcome) // errors are those of an outage; the client goes on
	}
}

func (a *watch) outcome(r *kgo.Record) {
	var b struct {
		Source struct {
			Topic     string
			Partition int32
			Offset    int64
		}
	}
	if err := json.Unmarshal(r.Value, &b); err != nil {
		a.w.fault("outcome at %d/%d: %v", r.Partition, r.Offset, err)
		return
	}
	a.count.Add(1)
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.home(source{b.Source.Topic, b.Source.Partition})
	if len(p.waiting) == 0 || p.waiting[0].offset > b.Source.Offset {
		return
	}
	now, from := time.Now(), p.waiting[0].at
	if from.Before(p.answered) {
		from = p.answered
	}
	if now.Sub(from) >= notable {
		a.pauses = append(a.pauses, pausing{source{b.Source.Topic, b.Source.Partition}, from, now})
	}
	p.answered = now
	for len(p.waiting) > 0 && p.waiting[0].offset <= b.Source.Offset {
		p.waiting = p.waiting[1:]
	}
}

// worst is the longest pause that overlaps a time, and the longest one when the
// time is left out during which servers were away.
func (a *watch) worst(from, to time.Time, away []injected) (pause, up time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.pauses {
		if p.to.Before(from) || p.from.After(to) {
			continue
		}
		pause, up = max(pause, p.to.Sub(p.from)), max(up, p.without(away))
	}
	return pause, up
}

// longest are the n longest pauses by what of them servers were up.
func (a *watch) longest(n int, away []injected) []pausing {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := slices.Clone(a.pauses)
	slices.SortFunc(all, func(p, q pausing) int { return cmp.Compare(q.without(away), p.without(away)) })
	return all[:min(n, len(all))]
}

// without is how long a pause was, less the time of outages, which are in order.
func (p pausing) without(away []injected) time.Duration {
	left, done := p.to.Sub(p.from), p.from
	for _, o := range away {
		from, to := o.from, o.to
		if from.Before(done) {
			from = done
		}
		if to.After(p.to) {
			to = p.to
		}
		if to.After(from) {
			left, done = left-to.Sub(from), to
		}
	}
	return left
}
