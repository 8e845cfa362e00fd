// Package proof follows LCM events per CM handle and says what is wrong with
// them: lost, doubled, out of order. It stands outside the product and shares
// no code with what it checks, so that it can contradict it.
//
// # Non-obvious
//
//   - A record sent again (after a publisher died, say) is no fault: it has the
//     id, the sequence and the bytes it had before. Those are counted apart.
//   - Order is that of first occurrences, per handle. It is judged twice: by
//     the sequence, and by the old values of each event, which have to be the
//     new ones of the event before.
package proof

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"iter"
	"strconv"
	"strings"
)

// Fact is what an LCM event says about a handle, in short.
type Fact string

// The facts of a handle's usual life; see Transition for others.
const (
	Created Fact = "create"
	Deleted Fact = "delete"
	// Changed is an update of something other than the state.
	Changed Fact = "update"
)

// Transition is the fact that the state moved.
func Transition(from, to string) Fact { return Fact(from + ">" + to) }

// Record is one record of the topic of LCM events.
type Record struct {
	Key, Value []byte
	Headers    iter.Seq2[string, []byte]
}

// Proof collects what the events say. It is not safe for concurrent use.
type Proof struct {
	handles map[string]*handle
	seed    maphash.Seed

	events, repeated, doubled, outOfOrder int
	faults                                []string
}

type handle struct {
	state    string // as the last fact left it, "" is none
	sequence int64  // the greatest so far
	seen     []sighting
}

// sighting is the first occurrence of an event.
type sighting struct {
	fact     Fact
	id       string
	sequence int64
	hash     uint64
}

// New is a Proof that has seen nothing.
func New() *Proof {
	return &Proof{handles: map[string]*handle{}, seed: maphash.MakeSeed()}
}

// maxFaults bounds how many faults are told in words; all are counted.
const maxFaults = 20

func (p *Proof) fault(format string, args ...any) {
	if len(p.faults) < maxFaults {
		p.faults = append(p.faults, fmt.Sprintf(format, args...))
	}
}

// Event is a decoded LCM event.
type Event struct {
	ID, Handle string
	Sequence   int64
	Fact       Fact
	// State is the handle's after the event, "" if the event does not tell.
	State string
	// Repeated says that the same event was seen before.
	Repeated bool
}

// Observe takes the next record of a partition. It fails if the record is no
// LCM event at all.
func (p *Proof) Observe(r *Record) (Event, error) {
	e, old, err := decode(r)
	if err != nil {
		return e, err
	}
	h := p.handles[e.Handle]
	if h == nil {
		h = &handle{}
		p.handles[e.Handle] = h
	}
	p.events++
	s := sighting{fact: e.Fact, id: e.ID, sequence: e.Sequence, hash: maphash.Bytes(p.seed, r.Value)}
	for _, before := range h.seen {
		if before.id != s.id {
			continue
		}
		e.Repeated = true
		if before == s {
			p.repeated++
		} else {
			p.doubled++
			p.fault("%s: event %s came as %s (sequence %d) and as %s (sequence %d)",
				e.Handle, e.ID, before.fact, before.sequence, s.fact, s.sequence)
		}
		return e, nil
	}
	switch {
	case s.sequence <= h.sequence:
		p.outOfOrder++
		p.fault("%s: %s with sequence %d came after sequence %d", e.Handle, s.fact, s.sequence, h.sequence)
	case (e.Fact == Created) != (h.state == ""), old != "" && old != h.state:
		p.outOfOrder++
		p.fault("%s: %s came in state %q", e.Handle, s.fact, h.state)
	}
	h.sequence = max(h.sequence, s.sequence)
	h.seen = append(h.seen, s)
	switch {
	case e.Fact == Deleted:
		h.state = ""
	case e.State != "":
		h.state = e.State
	}
	return e, nil
}

// States are the handles that exist by what the events say, and their states.
func (p *Proof) States() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for id, h := range p.handles {
			if h.state != "" && !yield(id, h.state) {
				return
			}
		}
	}
}

// Report is what became of the expected facts.
type Report struct {
	Events   int `json:"events"`   // records, all told
	Repeated int `json:"repeated"` // the same event again, byte by byte
	Lost     int `json:"lost"`     // expected, not seen
	// Doubled counts facts seen more often than expected, and events with
	// one id and different content.
	Doubled    int `json:"doubled"`
	OutOfOrder int `json:"outOfOrder"`
	// Faults are the first ones in words.
	Faults []string `json:"faults,omitempty"`
}

// OK says that nothing is wrong.
func (r *Report) OK() bool { return r.Lost == 0 && r.Doubled == 0 && r.OutOfOrder == 0 }

// Compare holds what was seen against what should have been: each handle once,
// with its facts in order. Handles that are not expected count as doubled.
func (p *Proof) Compare(expected iter.Seq2[string, []Fact]) Report {
	r := Report{Events: p.events, Repeated: p.repeated, Doubled: p.doubled, OutOfOrder: p.outOfOrder}
	known := make(map[string]bool, len(p.handles))
	for id, facts := range expected {
		known[id] = true
		var seen []sighting
		if h := p.handles[id]; h != nil {
			seen = h.seen
		}
		lost, extra, moved := match(facts, seen)
		r.Lost += lost
		r.Doubled += extra
		r.OutOfOrder += moved
		if lost+extra+moved > 0 {
			p.fault("%s: expected %s, saw %s", id, list(facts), seenList(seen))
		}
	}
	for id, h := range p.handles {
		if !known[id] {
			r.Doubled += len(h.seen)
			p.fault("%s: expected nothing, saw %s", id, seenList(h.seen))
		}
	}
	r.Faults = p.faults
	return r
}

// match compares as multisets first, so that one lost fact is one fault and not
// as many as there are places behind it.
func match(want []Fact, seen []sighting) (lost, extra, moved int) {
	count := make(map[Fact]int, len(want))
	for _, f := range want {
		count[f]++
	}
	for _, s := range seen {
		count[s.fact]--
	}
	for _, n := range count {
		if n > 0 {
			lost += n
		} else {
			extra -= n
		}
	}
	if lost+extra > 0 {
		return lost, extra, 0
	}
	for i, f := range want {
		if seen[i].fact != f {
			moved++
		}
	}
	return 0, 0, moved
}

func list(facts []Fact) string {
	var b strings.Builder
	for i, f := range facts {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(f))
	}
	return b.String()
}

func seenList(seen []sighting) string {
	facts := make([]Fact, len(seen))
	for i, s := range seen {
		facts[i] = s.fact
	}
	if len(facts) == 0 {
		return "nothing"
	}
	return list(facts)
}

// body is what v1 and v2 of an LCM event have in common.
type body struct {
	ID     string `json:"eventId"`
	Handle string `json:"eventCorrelationId"`
	Type   string `json:"eventType"`
	Event  struct {
		Handle string          `json:"cmHandleId"`
		Old    json.RawMessage `json:"oldValues"`
		New    json.RawMessage `json:"newValues"`
	} `json:"event"`
}

// stateOf is the state among old or new values, "" if they do not tell.
func stateOf(values json.RawMessage) (string, error) {
	if values == nil {
		return "", nil
	}
	var v struct {
		State string `json:"cmHandleState"`
	}
	err := json.Unmarshal(values, &v)
	return v.State, err
}

const typePrefix = "org.onap.ncmp.cmhandle-lcm-event."

// decode reads an event and the state that it says the handle was in.
func decode(r *Record) (e Event, old string, err error) {
	var b body
	if err := json.Unmarshal(r.Value, &b); err != nil {
		return e, "", fmt.Errorf("LCM event of key %q: %w", r.Key, err)
	}
	header := map[string][]byte{}
	for k, v := range r.Headers {
		header[k] = v
	}
	for _, c := range []struct {
		name      string
		got, want []byte
	}{
		{"key", r.Key, []byte(b.Handle)},
		{"event.cmHandleId", []byte(b.Event.Handle), []byte(b.Handle)},
		{"ce_id", header["ce_id"], []byte(b.ID)},
		{"ce_type", header["ce_type"], []byte(b.Type)},
		{"ce_subject", header["ce_subject"], []byte(b.Handle)},
	} {
		if !bytes.Equal(c.got, c.want) {
			return e, "", fmt.Errorf("LCM event %s of %s: %s is %q", b.ID, b.Handle, c.name, c.got)
		}
	}
	sequence, err := strconv.ParseInt(string(header["ce_sequence"]), 10, 64)
	if err != nil || sequence <= 0 {
		return e, "", fmt.Errorf("LCM event %s of %s: ce_sequence is %q", b.ID, b.Handle, header["ce_sequence"])
	}
	old, err = stateOf(b.Event.Old)
	if err != nil {
		return e, "", fmt.Errorf("LCM event %s of %s: old values: %w", b.ID, b.Handle, err)
	}
	state, err := stateOf(b.Event.New)
	if err != nil {
		return e, "", fmt.Errorf("LCM event %s of %s: new values: %w", b.ID, b.Handle, err)
	}
	e = Event{ID: b.ID, Handle: b.Handle, Sequence: sequence, State: state}
	switch kind := strings.TrimPrefix(b.Type, typePrefix); {
	case kind == "create" && state == "ADVISED" && b.Event.Old == nil:
		e.Fact = Created
	case kind == "delete" && b.Event.Old == nil && b.Event.New == nil:
		e.Fact = Deleted
	case kind == "update" && state != old:
		e.Fact = Transition(old, state)
	case kind == "update":
		e.Fact = Changed
	default:
		return e, "", fmt.Errorf("LCM event %s of %s: type %q with state %q", b.ID, b.Handle, b.Type, state)
	}
	return e, old, nil
}
