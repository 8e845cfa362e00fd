package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/cmd/internal/load"
	"ncmp-inventory/cmd/internal/proof"
	"ncmp-inventory/store/pgembed"
	"ncmp-inventory/store/storetest"
)

func unmarshal(text string, v any) error { return json.Unmarshal([]byte(text), v) }

// expectation is what a load has to leave behind, whatever died on the way.
type expectation struct {
	load *load.Load
	// kept says which handles are not removed.
	kept func(i int) bool
}

// facts are the LCM events of every handle, in order.
func (e expectation) facts(yield func(string, []proof.Fact) bool) {
	for i := range e.load.Handles() {
		life := demoLife
		if e.kept(i) {
			life = demoLife[:3]
		}
		if !yield(e.load.ID(i), life) {
			return
		}
	}
}

// rows are those of the handles that stay, updated.
func (e expectation) rows() map[string]map[string]any {
	all := map[string]map[string]any{}
	for i := range e.load.Handles() {
		if e.kept(i) {
			maps.Copy(all, handleRows(e.load.Handle(i), e.load.DMI(i), load.UpdatedProducer, load.UpdatedSystem))
		}
	}
	return all
}

// strangers are updates of handles that do not exist, numbered: each has to be
// refused, once, in an outcome of its own.
func strangers(from, to int) func(yield func(load.Event) bool) {
	return func(yield func(load.Event) bool) {
		for i := from; i < to; i++ {
			id := fmt.Sprintf("stranger-%d", i)
			if !yield(load.Event{
				ID: id, Type: load.RegistrationType, Key: id, Handles: 1,
				Data: fmt.Appendf(nil, `{"updatedCmHandles":[{"cmHandle":%q,"dataProducerIdentifier":"x"}]}`, id),
			}) {
				return
			}
		}
	}
}

// requireStrangersRefused reads the outcomes: one for each stranger and no
// other, repeats with equal ids aside.
func (l *lab) requireStrangersRefused(n int) {
	l.Helper()
	ids := map[string]string{} // outcome to what it answers
	answered := map[string]bool{}
	for _, m := range l.topic(l.config.Kafka.Topics.Outcomes) {
		id, cause := headerOf(&m, "ce_id"), headerOf(&m, "ce_causationid")
		if before, seen := ids[id]; seen {
			require.Equal(l, before, cause, "a repeat has the id that it had")
			continue
		}
		ids[id] = cause
		require.False(l, answered[cause], "%s is answered once", cause)
		answered[cause] = true
		var o struct {
			Source    struct{ ID string }
			Failures  []struct{ CmHandle, Operation, ErrorCode string }
			Succeeded int
		}
		require.NoError(l, json.Unmarshal(m.Value, &o))
		require.True(l, strings.HasPrefix(cause, "stranger-"), "%s was refused: %s", cause, m.Value)
		require.Equal(l, cause, o.Source.ID)
		require.Len(l, o.Failures, 1)
		require.Equal(l, []string{cause, "update", "100"},
			[]string{o.Failures[0].CmHandle, o.Failures[0].Operation, o.Failures[0].ErrorCode})
		require.Zero(l, o.Succeeded)
	}
	require.Len(l, answered, n)
	require.Empty(l, l.topic(l.config.Kafka.Topics.DeadLetters))
}

// requireAsIfNothingHappened compares everything that the workers left behind.
func (l *lab) requireAsIfNothingHappened(s *standIn, e expectation, refused int) proof.Report {
	l.Helper()
	l.awaitNothingWaits()
	require.NoError(l, s.awaitEnd(l.Context(), patience))
	r := s.compare(e.facts)
	require.Truef(l, r.OK(), "%+v", r)
	l.requireRows(e.rows())
	l.requireStrangersRefused(refused)
	l.requireVerified()
	return r
}

// Workers are killed in the middle of the work, one after the other, so that
// both a consumer and the publisher die at some point.
func TestKilledWorkersLeaveNoTrace(t *testing.T) {
	t.Parallel()
	newLab(t, storetest.OpenEmpty(t), 6).killWorkers(20_000, 500)
}

// killWorkers takes handles through their lives, and refuses some updates,
// while three workers are killed and replaced.
func (l *lab) killWorkers(handles, refused int) {
	l.Helper()
	ld, err := load.New(load.Config{Handles: handles, Seed: 7})
	require.NoError(l, err)
	removed, err := load.New(load.Config{Handles: handles / 2, Seed: 7}) // the first half
	require.NoError(l, err)
	s := l.standIn()
	first, second := l.startWorker("first"), l.startWorker("second")
	first.awaitLine(`"started"`)
	second.awaitLine(`"started"`)

	l.send(ld.Registrations())
	l.send(strangers(0, refused/2))
	l.awaitFact(s, proof.Created, handles/4)
	first.kill()
	third := l.startWorker("third")
	l.awaitFact(s, becameReady, handles/2)
	second.kill()
	fourth := l.startWorker("fourth")
	l.awaitFact(s, becameReady, handles)
	l.send(ld.Updates())
	l.awaitFact(s, proof.Changed, handles/4)
	third.kill()
	fifth := l.startWorker("fifth")
	l.awaitFact(s, proof.Changed, handles)
	l.send(removed.Removals())
	l.send(strangers(refused/2, refused))
	l.awaitFact(s, proof.Deleted, handles/2)

	r := l.requireAsIfNothingHappened(s, expectation{ld, func(i int) bool { return i >= handles/2 }}, refused)
	l.Logf("%d LCM events, %d of them repeats after a kill", r.Events, r.Repeated)
	fourth.terminate()
	fifth.terminate()
}

// A clean stop in the middle of the work loses nothing and repeats nothing.
func TestStoppedWorkersFinishWhatTheyHold(t *testing.T) {
	t.Parallel()
	const handles = 4_000
	l := newLab(t, storetest.OpenEmpty(t), 4)
	ld, err := load.New(load.Config{Handles: handles, Seed: 8})
	require.NoError(t, err)
	s := l.standIn()
	w := l.startWorker("first")
	w.awaitLine(`"started"`)
	l.send(ld.Registrations())
	for i, name := range []string{"second", "third", "fourth"} {
		l.awaitFact(s, proof.Created, handles/4*(i+1))
		next := l.startWorker(name)
		next.awaitLine(`"started"`)
		w.terminate()
		w = next
	}
	l.awaitFact(s, becameReady, handles)
	l.send(ld.Updates())
	l.awaitFact(s, proof.Changed, handles)
	r := l.requireAsIfNothingHappened(s, expectation{ld, func(int) bool { return true }}, 0)
	require.Zero(t, r.Repeated, "a clean stop publishes nothing twice")
	w.terminate()
}

// PostgreSQL crashes amid the work, and comes back.
func TestADatabaseThatCrashesIsWaitedFor(t *testing.T) {
	t.Parallel()
	const handles = 4_000
	db := storetest.OpenAlone(t, nil)
	l := newLab(t, db, 4)
	ld, err := load.New(load.Config{Handles: handles, Seed: 9})
	require.NoError(t, err)
	s := l.standIn()
	w := l.startWorker("worker")
	w.awaitLine(`"started"`)
	l.send(ld.Registrations())
	l.awaitFact(s, proof.Created, handles/4)
	require.NoError(t, db.Server().Halt(t.Context(), pgembed.Immediate))
	l.send(strangers(0, 10))
	require.NoError(t, db.Server().Restart(t.Context(), pgembed.Fast))
	l.awaitFact(s, becameReady, handles)
	l.send(ld.Updates())
	l.awaitFact(s, proof.Changed, handles/4)
	require.NoError(t, db.Server().Restart(t.Context(), pgembed.Immediate))
	l.awaitFact(s, proof.Changed, handles)
	l.requireAsIfNothingHappened(s, expectation{ld, func(int) bool { return true }}, 10)
	w.terminate()
}

// The broker goes away amid the work, and comes back where it was.
func TestABrokerThatRestartsIsWaitedFor(t *testing.T) {
	t.Parallel()
	const handles = 4_000
	l := newLab(t, storetest.OpenEmpty(t), 4)
	ld, err := load.New(load.Config{Handles: handles, Seed: 10})
	require.NoError(t, err)
	s := l.standIn()
	w := l.startWorker("worker")
	w.awaitLine(`"started"`)
	l.send(ld.Registrations())
	l.awaitFact(s, proof.Created, handles/4)
	l.restartBroker()
	l.awaitFact(s, becameReady, handles)
	l.send(ld.Updates())
	l.awaitFact(s, proof.Changed, handles)
	l.requireAsIfNothingHappened(s, expectation{ld, func(int) bool { return true }}, 0)
	w.terminate()
}
