package consumer

import (
	"fmt"
	"sync"

	kafka "github.com/segmentio/kafka-go"
)

// mailbox lies between the fetcher, which fills it, and one lane, which
// empties it. It is bounded by bytes and records: the fetcher leaves a
// partition out while its box holds enough, so the box never refuses and
// overshoots by one answer at most. Bytes count until the lane gives them back.
type mailbox struct {
	wake chan struct{} // one slot: something changed

	maxHeld, maxRecords int // beyond either the partition is paused

	mu      sync.Mutex
	open    bool // fetching is wanted
	paused  bool // left out of a fetch because it held enough
	spans   []span
	records int
	held    int   // bytes of the spans here and in the lane's hand
	next    int64 // where the next fetch begins
	epoch   int32 // leader epoch of what lies before next
	end     int64 // high watermark, -1 until known
	stable  int64 // last stable offset, -1 until known
	problem *problem
}

// problem is something that the fetcher met and that the lane has to judge.
type problem struct {
	code     kafka.Error // 0 if not from the broker
	diverged int64       // end of the common log, -1 if none
	err      error       // damaged batch
}

func (p *problem) Error() string {
	switch {
	case p.err != nil:
		return p.err.Error()
	case p.diverged >= 0:
		return fmt.Sprintf("the log was cut back to offset %d", p.diverged)
	}
	return p.code.Error()
}

func newMailbox(maxHeld, maxRecords int) *mailbox {
	return &mailbox{maxHeld: maxHeld, maxRecords: maxRecords, wake: make(chan struct{}, 1), end: -1, stable: -1}
}

func (m *mailbox) signal() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// reset empties the box and makes fetching begin at next. Answers to older
// requests no longer fit and are dropped.
func (m *mailbox) reset(next int64, epoch int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.spans, m.records, m.held, m.problem = nil, 0, 0, nil
	m.next, m.epoch, m.open = next, epoch, true
}

// bounds notes where the log ends, for whoever looks while nothing is fetched.
func (m *mailbox) bounds(o Offsets) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.end, m.stable = o.End, o.Stable
}

// shut stops fetching and drops what has not been taken.
func (m *mailbox) shut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.spans, m.records, m.held, m.open = nil, 0, 0, false
}

// wants reports whether more should be fetched, and from where.
func (m *mailbox) wants() (offset int64, epoch int32, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.open || m.problem != nil {
		return 0, 0, false
	}
	m.paused = m.full()
	return m.next, m.epoch, !m.paused
}

func (m *mailbox) full() bool { return m.held > m.maxHeld || m.records > m.maxRecords }

// put takes the answer to a fetch that began at from.
func (m *mailbox) put(from int64, spans []span, next int64, epoch int32, f *fetched) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.open || m.next != from {
		return
	}
	m.end, m.stable = f.end, f.stable
	if next == from {
		return
	}
	if len(m.spans) > 0 {
		// What is invisible at the front belongs to what stands before it.
		to := next
		if len(spans) > 0 {
			to = max(m.spans[len(m.spans)-1].next, min(next, spans[0].base))
		}
		m.spans[len(m.spans)-1].next = to
	}
	for i := range spans {
		m.held += spans[i].cost()
		m.records += int(spans[i].count)
	}
	m.spans = append(m.spans, spans...)
	m.next = next
	if epoch >= 0 {
		m.epoch = epoch
	}
	m.signal()
}

// raise stops fetching until the lane has judged p.
func (m *mailbox) raise(from int64, p *problem) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open && m.next == from && m.problem == nil {
		m.problem = p
		m.signal()
	}
}

// settle takes the problem away, so that fetching goes on as before.
func (m *mailbox) settle() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.problem = nil
}

// take hands out the oldest span; its bytes stay held until given back.
func (m *mailbox) take() (s span, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.spans) == 0 {
		return span{}, false
	}
	s = m.spans[0]
	m.spans[0] = span{}
	m.spans = m.spans[1:]
	m.records -= int(s.count)
	return s, true
}

// release gives bytes back. It reports whether a paused partition may be
// fetched again.
func (m *mailbox) release(bytes int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held = max(0, m.held-bytes)
	if !m.paused || m.full() {
		return false
	}
	m.paused = false
	return true
}

// idle reports what the lane should look at when the box is empty: where
// fetching stands and what the fetcher met there.
func (m *mailbox) idle() (next int64, epoch int32, p *problem, empty bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.next, m.epoch, m.problem, len(m.spans) == 0
}

// caughtUp reports whether fetching stands at the end of what can be read.
func (m *mailbox) caughtUp() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.next >= m.stable && len(m.spans) == 0
}

// boxState is a look from outside, for status and metrics.
type boxState struct {
	end, stable int64
	held        int
	oldest      int64 // timestamp of the first waiting record, -1 if none waits
	waiting     int
}

func (m *mailbox) state() boxState {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := boxState{end: m.end, stable: m.stable, held: m.held, oldest: -1, waiting: m.records}
	if len(m.spans) > 0 {
		s.oldest = m.spans[0].first
	}
	return s
}
