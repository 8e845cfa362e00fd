package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"

	"ncmp-inventory/cmd/internal/load"
	"ncmp-inventory/cmd/internal/proof"
	"ncmp-inventory/inventory"
)

// The facts of a handle's life in the demo, in order.
var (
	becameReady = proof.Transition(string(inventory.Advised), string(inventory.Ready))
	leaves      = proof.Transition(string(inventory.Ready), string(inventory.Deleting))

	demoLife = []proof.Fact{proof.Created, becameReady, proof.Changed, leaves, proof.Deleted}
)

// standIn plays the parts of a DMI plugin and of module sync: it reads the LCM
// events and answers each creation with a state change to READY. On the way it
// keeps account of all it reads.
type standIn struct {
	brokers      []string
	events       string        // topic of the LCM events
	stateChanges *kafka.Writer // where the answers go

	// created are the LCM events of creations to be answered. It is bounded,
	// so that reading waits for writing.
	created chan proof.Event

	mu     sync.Mutex
	proof  *proof.Proof
	facts  map[proof.Fact]int
	next   map[int]int64 // partition to the offset after the last record read
	change chan struct{} // holds a token when something was read
}

func newStandIn(brokers []string, events, stateChanges string) *standIn {
	return &standIn{
		brokers: brokers, events: events, stateChanges: load.Writer(brokers, stateChanges),
		created: make(chan proof.Event, 1000),
		proof:   proof.New(), facts: map[proof.Fact]int{}, next: map[int]int64{},
		change: make(chan struct{}, 1),
	}
}

// Run reads and answers until ctx ends.
func (s *standIn) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, load.Close(s.stateChanges)) }()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.answer(ctx) })
	g.Go(func() error {
		return proof.Follow(ctx, s.brokers, s.events, func(m *kafka.Message) error { return s.read(ctx, m) })
	})
	return g.Wait()
}

// read is called for one record at a time.
func (s *standIn) read(ctx context.Context, m *kafka.Message) error {
	e, err := s.take(m)
	if err != nil || e.Repeated || e.Fact != proof.Created {
		return err
	}
	select {
	case s.created <- e:
	case <-ctx.Done():
	}
	return nil
}

// take accounts for a record.
func (s *standIn) take(m *kafka.Message) (proof.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := s.proof.Observe(&proof.Record{Key: m.Key, Value: m.Value, Headers: proof.Headers(m)})
	if err != nil {
		return e, err
	}
	if !e.Repeated {
		s.facts[e.Fact]++
	}
	s.next[m.Partition] = m.Offset + 1
	select {
	case s.change <- struct{}{}:
	default:
	}
	return e, nil
}

// answer sends the state changes, as many at a time as there are.
func (s *standIn) answer(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-s.created:
			err := load.Send(ctx, s.stateChanges, s.answers(e), nil)
			if err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

// answers are those to first and to what waits behind it. The id of an answer
// comes from what it answers.
func (s *standIn) answers(first proof.Event) func(yield func(load.Event) bool) {
	return func(yield func(load.Event) bool) {
		for e := first; ; {
			if !yield(load.StateChange("ready-"+e.ID, e.Handle, inventory.Ready)) {
				return
			}
			select {
			case e = <-s.created:
			default:
				return
			}
		}
	}
}

// count is how many events told a fact.
func (s *standIn) count(f proof.Fact) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.facts[f]
}

// await returns when done says so. It is asked again whenever something was
// read; if nothing is for patience, something is wrong.
func (s *standIn) await(ctx context.Context, patience time.Duration, done func() bool) error {
	stalled := time.NewTimer(patience)
	defer stalled.Stop()
	for !done() {
		select {
		case <-s.change:
			stalled.Reset(patience)
		case <-stalled.C:
			return fmt.Errorf("no LCM event for %s", patience)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// awaitEnd returns when everything that is on the topic now was read.
func (s *standIn) awaitEnd(ctx context.Context, patience time.Duration) error {
	ends, err := proof.Ends(ctx, s.brokers, s.events)
	if err != nil {
		return err
	}
	return s.await(ctx, patience, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for p, end := range ends {
			if s.next[p] < end {
				return false
			}
		}
		return true
	})
}

// compare holds the events against what they should have been.
func (s *standIn) compare(expected func(yield func(string, []proof.Fact) bool)) proof.Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proof.Compare(expected)
}

// states are the handles that exist by what the events say.
func (s *standIn) states() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	states := map[string]string{}
	for id, state := range s.proof.States() {
		states[id] = state
	}
	return states
}
