package chaos

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// A mutant is a worker with one planted bug: the history that it would leave.
type mutant struct {
	bug string
	// found is the kind of fault that the checker has to report.
	found func(*Report) int
	make  func(all []Sent) *History
}

func lost(r *Report) int       { return r.Lost }
func doubled(r *Report) int    { return r.Doubled }
func outOfOrder(r *Report) int { return r.OutOfOrder }
func wrong(r *Report) int      { return r.Wrong }

func anything(r *Report) int { return r.Lost + r.Doubled + r.OutOfOrder + r.Wrong }

const mutantSeed = 3

// during runs a worker that does the records that it is given in its own way.
func during(around func(w *ideal, s *Sent)) func([]Sent) *History {
	return func(all []Sent) *History {
		w := newIdeal()
		return w.run(mutantSeed, all, func(s *Sent) { around(w, s) })
	}
}

// after doctors what a good worker left.
func after(change func(h *History)) func([]Sent) *History {
	return func(all []Sent) *History {
		h := newIdeal().run(mutantSeed, all, nil)
		change(h)
		return h
	}
}

// busy says that a record is in the middle of its partition and changes something.
func busy(w *ideal, s *Sent) bool {
	if s.Offset != 100 && (s.Offset < 100 || s.Cluster >= 0) || len(s.Events) != 1 {
		return false
	}
	return len(w.m.clone().apply(&s.Events[0], s.Key).effects) > 0
}

// creates says that a record of one partition's own creates a handle.
func creates(w *ideal, s *Sent) bool {
	return busy(w, s) && s.Cluster < 0 && w.m.clone().apply(&s.Events[0], s.Key).effects[0].kind == "create"
}

// once does something at the first record that fits, else what is right.
func once(fits func(*ideal, *Sent) bool, instead func(*ideal, *Sent)) func([]Sent) *History {
	return func(all []Sent) *History {
		did := false
		return during(func(w *ideal, s *Sent) {
			if !did && fits(w, s) {
				did = true
				instead(w, s)
				return
			}
			w.record(s)
		})(all)
	}
}

// at is the place of the n-th LCM event that fits.
func at(h *History, n int, fits func(told) bool) int {
	for i := range h.LCM {
		if t, err := decodeLCM(&h.LCM[i]); err == nil && fits(t) {
			if n--; n < 0 {
				return i
			}
		}
	}
	panic("no such event")
}

func ownUpdate(t told) bool { return t.kind == "update" && strings.HasPrefix(t.handle, "own-") }

var mutants = []mutant{
	{"the position is moved in a transaction of its own, and the worker dies before the other", lost,
		once(busy, func(*ideal, *Sent) {})},
	{"the position is moved after the commit, and the worker dies in between", doubled,
		once(busy, func(w *ideal, s *Sent) { w.record(s); w.record(s) })},
	{"events are published before the commit, which fails; the plan that is made then is another one", doubled,
		once(busy, func(w *ideal, s *Sent) {
			w.publish(s, 0, &s.Events[0], w.m.clone().apply(&s.Events[0], s.Key))
			w.record(s)
		})},
	{"an event of a change that was never committed", lost,
		once(creates, func(w *ideal, s *Sent) {
			e := &s.Events[0]
			res := w.m.clone().apply(e, s.Key)
			w.publish(s, 0, e, res)
			w.answer(s, 0, e, res)
		})},
	{"no claim is checked: a worker that lost the partition writes what it still holds", doubled,
		func(all []Sent) *History {
			var held []*Sent
			return during(func(w *ideal, s *Sent) {
				w.record(s)
				if s.Topic == "states" && s.Partition == 0 && s.Offset >= 60 {
					if len(held) < 20 {
						held = append(held, s)
					}
					if s.Offset == 120 {
						for _, s := range held {
							w.record(s)
						}
					}
				}
			})(all)
		}},
	{"rows of the outbox are deleted by range, one that committed late among them", lost,
		after(func(h *History) { i := at(h, 40, ownUpdate); h.LCM = slices.Delete(h.LCM, i, i+1) })},
	{"lock and join are one statement: two transactions see one state", outOfOrder, staleReads},
	{"sequences come from a block that a connection caches", outOfOrder,
		func(all []Sent) *History {
			w := newIdeal()
			blocks, next := map[string]int64{}, int64(0)
			w.number = func(s *Sent) int64 {
				lane := fmt.Sprintf("%s/%d", s.Topic, s.Partition)
				if blocks[lane]%20 == 0 {
					blocks[lane], next = next*20, next+1
				}
				blocks[lane]++
				return blocks[lane]
			}
			return w.run(mutantSeed, all, nil)
		}},
	{"the publisher has no epoch: what an old one sent arrives after a newer event", outOfOrder,
		after(func(h *History) {
			i := at(h, 30, ownUpdate)
			old := h.LCM[i]
			for j := i + 1; j < len(h.LCM); j++ {
				if bytes.Equal(h.LCM[j].Key, old.Key) {
					h.LCM = slices.Insert(h.LCM, j+1, old)
					return
				}
			}
		})},
	{"positions go by topic name: a topic created anew is read from where the old one was", lost,
		during(func(w *ideal, s *Sent) {
			if s.Topic != "registrations" || s.Partition != 1 || s.Offset >= 25 {
				w.record(s)
			}
		})},
	{"a dead letter is written outside of the transaction, and again by the next try", doubled,
		once(func(_ *ideal, s *Sent) bool { return s.Garbage != nil }, func(w *ideal, s *Sent) {
			w.deadLetter(s, 1)
			w.record(s)
			w.h.DeadLetters[len(w.h.DeadLetters)-1].Headers[len(s.Headers)+9].Value = []byte("2")
		})},
	{"a dead letter is dropped", lost, after(func(h *History) { h.DeadLetters = slices.Delete(h.DeadLetters, 5, 6) })},
	{"a dead letter loses a header", wrong, after(func(h *History) {
		i := slices.IndexFunc(h.DeadLetters, func(r Record) bool { return len(r.Headers) > 12 })
		h.DeadLetters[i].Headers = slices.Delete(h.DeadLetters[i].Headers, 1, 2)
	})},
	{"event ids are counted over what is published", func(r *Report) int { return min(r.Lost, r.Doubled) },
		func(all []Sent) *History {
			w := newIdeal()
			w.id = func(s *Sent, element int, f effect, n int) string {
				f.index = n
				return s.eventID(element, f.place)
			}
			return w.run(mutantSeed, all, nil)
		}},
	{"event ids are drawn at random: a repeat has another one", doubled,
		after(func(h *History) {
			i := at(h, 50, ownUpdate)
			again := h.LCM[i]
			again.Headers = slices.Clone(again.Headers)
			id := uuid.NewString()
			again.Value = bytes.ReplaceAll(again.Value, []byte(again.header("ce_id")), []byte(id))
			again.Headers[0].Value = []byte(id)
			h.LCM = slices.Insert(h.LCM, i+1, again)
		})},
	{"a repeat has another sequence", doubled,
		after(func(h *History) {
			i := at(h, 50, ownUpdate)
			again := h.LCM[i]
			again.Headers = set(again.Headers, "ce_sequence", fmt.Sprintf("%019d", 1_000_000))
			h.LCM = slices.Insert(h.LCM, i+1, again)
		})},
	{"two events of a handle are swapped", outOfOrder,
		after(func(h *History) {
			i := at(h, 0, func(t told) bool { return t.new["cmHandleState"] == deleting })
			h.LCM[i], h.LCM[i+1] = h.LCM[i+1], h.LCM[i]
		})},
	{"sequences start anew with a handle that is created again", outOfOrder,
		after(func(h *History) {
			seen := map[string]bool{}
			i := at(h, 10, func(t told) bool {
				again := t.kind == "create" && seen[t.handle]
				seen[t.handle] = true
				return again
			})
			h.LCM[i].Headers = set(h.LCM[i].Headers, "ce_sequence", fmt.Sprintf("%019d", 1))
		})},
	{"an event is applied twice within one transaction", anything,
		once(creates, func(w *ideal, s *Sent) {
			w.m.apply(&s.Events[0], s.Key)
			w.record(s)
		})},
	{"an outcome is lost", lost, after(func(h *History) { h.Outcomes = slices.Delete(h.Outcomes, 200, 201) })},
	{"an outcome is told twice under two ids", doubled,
		after(func(h *History) {
			again := h.Outcomes[77]
			again.Headers = set(again.Headers, "ce_id", uuid.NewString())
			h.Outcomes = append(h.Outcomes, again)
		})},
	{"a change that no event shows is lost: a private property", func(r *Report) int { return r.Wrong + r.Lost },
		after(func(h *History) {
			for _, xpath := range slices.Sorted(maps.Keys(h.Rows)) {
				if strings.Contains(xpath, "additional-properties") {
					h.Rows[xpath]["value"] = "what it was before"
					return
				}
			}
		})},
	{"a removed handle leaves a row behind", doubled,
		after(func(h *History) {
			h.Rows["/dmi-registry/cm-handles[@id='own-0-99']/state"] = map[string]any{"cm-handle-state": ready}
		})},
	{"a removed handle keeps its trust level", wrong, after(func(h *History) { h.Trust["own-0-99"] = trustNone })},
	{"garbage takes a neighbour along: the record after it is skipped", lost,
		func(all []Sent) *History {
			poisoned := map[string]bool{}
			done := false
			return during(func(w *ideal, s *Sent) {
				lane := fmt.Sprintf("%s/%d", s.Topic, s.Partition)
				if poisoned[lane] && !done && busy(w, s) {
					done = true
					return
				}
				poisoned[lane] = s.Garbage != nil
				w.record(s)
			})(all)
		}},
	{"one bad entry refuses its whole event", func(r *Report) int { return r.Lost + r.Wrong },
		during(func(w *ideal, s *Sent) {
			if len(s.Events) == 1 && s.Cluster < 0 {
				if res := w.m.clone().apply(&s.Events[0], s.Key); len(res.failures) > 0 {
					w.answer(s, 0, &s.Events[0], result{failures: res.failures})
					return
				}
			}
			w.record(s)
		})},
	{"a private value stands in an event", wrong,
		after(func(h *History) {
			i := at(h, 3, ownUpdate)
			h.LCM[i].Headers = append(h.LCM[i].Headers, Header{"ce_leak", []byte(secret + "1")})
		})},
}

// staleReads lets events about one shared handle see the state that it had before
// another partition's transaction: each of the two changes it.
func staleReads(all []Sent) *History {
	stale := map[int]*model{}
	return during(func(w *ideal, s *Sent) {
		if s.Cluster < 0 || s.Topic != "states" || s.Partition != 0 {
			if s.Cluster >= 0 {
				stale[s.Cluster] = w.m.clone()
			}
			w.record(s)
			return
		}
		before, e := stale[s.Cluster], &s.Events[0]
		if before == nil {
			before = w.m.clone()
		}
		res := before.apply(e, s.Key)
		w.publish(s, 0, e, res)
		w.answer(s, 0, e, res)
		for i := range handlesOfCluster { // its rows replace what was there
			id := sharedID(s.Cluster, i)
			if h := before.handles[id]; h != nil && len(res.effects) > 0 && res.effects[0].handle == id {
				w.m.handles[id] = h
			}
		}
	})(all)
}

// Every planted bug is found, as what it is.
func TestPlantedBugsAreFound(t *testing.T) {
	t.Parallel()
	all := sent(mutantSeed, 1100)
	require.True(t, Check(newIdeal().run(mutantSeed, all, nil)).OK())
	for _, m := range mutants {
		t.Run(m.bug, func(t *testing.T) {
			t.Parallel()
			r := Check(m.make(slices.Clone(all)))
			require.Positive(t, m.found(r), "%+v", r)
		})
	}
}

// What a consumer has to put up with is no fault: the tail of a topic sent again,
// in order, byte by byte the same.
func TestATailThatIsSentAgainIsNoFault(t *testing.T) {
	t.Parallel()
	h := newIdeal().run(mutantSeed, sent(mutantSeed, 1100), nil)
	resend := func(records []Record, from, to int) []Record {
		return slices.Insert(records, to, slices.Clone(records[from:to])...)
	}
	h.LCM = resend(resend(h.LCM, 600, 640), 100, 220)
	h.Outcomes = resend(h.Outcomes, 40, 90)
	h.Inventory = resend(h.Inventory, 10, 20)
	h.DeadLetters = resend(h.DeadLetters, 3, 9)
	r := Check(h)
	require.True(t, r.OK(), "%+v", r)
	require.Equal(t, 40+120+50+10+6, r.Repeated)
}
