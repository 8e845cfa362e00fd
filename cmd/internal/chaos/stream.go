package chaos

import (
	"fmt"
	"math/rand/v2"
)

// Home is one input partition and what is particular to it.
type Home struct {
	Topic     string
	Partition int32
	// Heartbeats says that any foreign type is a heartbeat there.
	Heartbeats bool
	// Shares says that its events also name handles of other partitions.
	Shares bool
	// From is the number of the first record that goes there: partitions
	// that are added later have one.
	From int
}

// Stream draws records, the same ones for the same seed and homes. It is not
// safe for concurrent use.
type Stream struct {
	pick  *rand.Rand
	homes []*home
	n     int
}

// handlesOfHome is how many ids of its own a partition has.
const handlesOfHome = 24

// secret marks private values: it may stand in no event, log or error.
const secret = "prv-s3cr3t-"

type home struct {
	Home
	index  int
	r      *rand.Rand
	m      *model // of its own handles
	n      int    // events so far
	shared int
	recent []Input
}

// NewStream makes the stream of a seed.
func NewStream(seed uint64, homes []Home) *Stream {
	s := &Stream{pick: rand.New(rand.NewPCG(seed, 0))}
	for i, h := range homes {
		s.homes = append(s.homes, &home{Home: h, index: i, r: rand.New(rand.NewPCG(seed, uint64(i)+1)), m: newModel()})
	}
	return s
}

// Next is the next record.
func (s *Stream) Next() Input {
	s.n++
	for {
		h := s.homes[s.pick.IntN(len(s.homes))]
		if s.n > h.From {
			return h.next()
		}
	}
}

func (h *home) next() Input {
	in := Input{Topic: h.Topic, Partition: h.Partition, Cluster: -1}
	if h.r.IntN(4) > 0 {
		in.Key = []byte(h.handle())
	}
	switch n := h.r.IntN(100); {
	case n < 4:
		g := garbage[h.r.IntN(len(garbage))](&in, h.eventID(), h.handle())
		// On the heartbeats topic a foreign type is a heartbeat without a level.
		if g.Reason == "unknown-type" && h.Heartbeats {
			g = garbage[0](&in, "", "")
			in.Headers = nil
		}
		in.Garbage = &g
	case n < 5:
		if h.r.IntN(2) == 0 {
			in.Value = []byte{}
		}
	case n < 9 && len(h.recent) > 0:
		in = h.recent[h.r.IntN(len(h.recent))]
	case n < 25 && h.Shares:
		in = h.sharedInput()
	case n < 28:
		for range 2 + h.r.IntN(2) {
			in.Events = append(in.Events, h.event(in.Key))
		}
	default:
		in.Events = []Event{h.event(in.Key)}
	}
	if in.Events != nil && in.Value == nil {
		in.encode(h.r)
	}
	// A batch was applied to the model while it was drawn.
	if len(in.Events) > 0 && in.Cluster < 0 && len(h.recent) > 0 && h.repeats(in) {
		for i := range in.Events {
			h.m.apply(&in.Events[i], in.Key)
		}
	}
	if h.recent = append(h.recent, in); len(h.recent) > 40 {
		h.recent = h.recent[1:]
	}
	return in
}

// repeats says that a record is one of the recent ones.
func (h *home) repeats(in Input) bool {
	for _, r := range h.recent {
		if len(r.Events) > 0 && &r.Events[0] == &in.Events[0] {
			return true
		}
	}
	return false
}

func (h *home) eventID() string {
	h.n++
	return fmt.Sprintf("e-%d-%d", h.index, h.n)
}

// handle is one of the home's own ids.
func (h *home) handle() string { return h.id(h.r.IntN(handlesOfHome)) }

func (h *home) id(n int) string {
	if n%8 == 7 {
		return fmt.Sprintf("Gerät_%d-%d", h.index, n)
	}
	return fmt.Sprintf("own-%d-%d", h.index, n)
}

// event draws an event about the home's own handles and applies it to the model,
// so that what follows makes sense.
func (h *home) event(key []byte) Event {
	e := Event{Source: "/chaos"}
	switch n := h.r.IntN(100); {
	case n < 50:
		e.ID, e.Registration = h.eventID(), h.registration()
	case n < 86:
		e.ID = h.eventID()
		for range 1 + h.r.IntN(2)*h.r.IntN(4) {
			e.States = append(e.States, h.state(h.handle()))
		}
		e.Many = h.r.IntN(4) == 0
	default:
		e.ID, e.Source = h.handle(), "DMI"
		e.Beat = &Beat{Level: pick(h.r, trustNone, trustNone, trustComplete, trustComplete, trustComplete, "HALF")}
	}
	switch h.r.IntN(25) {
	case 0:
		e.Outcome = "off"
	case 1:
		e.Outcome = "failures"
	case 2:
		e.Outcome = "all"
	case 3:
		e.Correlation = "corr-" + e.ID
	}
	h.m.apply(&e, key)
	return e
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func (h *home) registration() *Registration {
	r := h.r
	g := &Registration{DMI: map[string]*string{"dmiPlugin": ptr(fmt.Sprintf("http://dmi-%d:8080", h.index))}}
	switch r.IntN(30) {
	case 0:
		g.DMI["dmiDataPlugin"] = nil
	case 1:
		g.DMI["dmiModelPlugin"] = ptr("ftp://not-a-dmi")
	case 2:
		g.DMI["dmiDatajobsReadPlugin"] = ptr("https://jobs:1")
	}
	count := 1
	if r.IntN(3) == 0 {
		count += r.IntN(7)
	}
	for range count {
		h.place(g, h.handle())
	}
	return g
}

// place asks something of a handle, mostly what its state allows.
func (h *home) place(g *Registration, id string) {
	r, stored := h.r, h.m.handles[id]
	n := r.IntN(100)
	switch {
	case n < 2:
		g.Created = append(g.Created, pick(r, Entry{ID: "for/bidden"}, Entry{}, Entry{ID: id, Bad: true}, Entry{ID: id, Trust: "HALF"}))
	case n < 4:
		g.Updated = append(g.Updated, pick(r, Entry{}, Entry{ID: id, Bad: true}))
	case stored == nil && n < 90:
		g.Created = append(g.Created, h.created(id))
	case n < 50:
		g.Updated = append(g.Updated, h.updated(id))
	case n < 66:
		if g.Upgraded == nil {
			g.Upgraded = &Upgrade{Tag: pick(r, "", "set-a", "set-b", " set-c ")}
		}
		g.Upgraded.IDs = append(g.Upgraded.IDs, id)
	case n < 78:
		g.Removed = append(g.Removed, id)
		if r.IntN(10) == 0 {
			g.Removed = append(g.Removed, id)
		}
	case n < 86: // replaced
		g.Removed, g.Created = append(g.Removed, id), append(g.Created, h.created(id))
	case n < 93 && stored != nil: // a producer's safe repeat, if nobody changed what it registered
		g.Created = append(g.Created, again(stored))
	default:
		g.Created = append(g.Created, h.created(id))
	}
}

// again is the entry that would register what is stored.
func again(h *handle) Entry {
	e := Entry{ID: h.id, Alt: &h.alt, Tag: &h.tag, Producer: &h.producer, Public: map[string]*string{}, Private: map[string]*string{}}
	for name, value := range h.public {
		e.Public[name] = &value
	}
	for name, value := range h.private {
		e.Private[name] = &value
	}
	return e
}

func (h *home) created(id string) Entry {
	r := h.r
	e := Entry{ID: id, Public: h.properties(false), Private: h.properties(true)}
	if r.IntN(2) == 0 {
		e.Alt = ptr(h.alternate(id))
	}
	if r.IntN(2) == 0 {
		e.Tag = ptr(pick(r, "set-a", "set-b", "with space"))
	}
	if r.IntN(3) == 0 {
		e.Producer = ptr(pick(r, "prod-1", "prod-2"))
	}
	e.Trust = pick(r, "", "", "", trustComplete, trustNone)
	return e
}

// alternate is an alternate id; there are fewer of them than handles.
func (h *home) alternate(id string) string {
	switch n := h.r.IntN(20); n {
	case 0:
		return id
	case 1:
		return h.handle()
	case 2:
		return "  "
	default:
		return fmt.Sprintf("/SubNetwork=%d/ManagedElement=%d", h.index, n)
	}
}

func (h *home) updated(id string) Entry {
	r := h.r
	e := Entry{ID: id}
	if r.IntN(4) == 0 {
		e.Alt = ptr(h.alternate(id))
	}
	if r.IntN(3) == 0 {
		e.Producer = ptr(pick(r, "prod-1", "prod-2", "prod-3", ""))
	}
	if r.IntN(2) == 0 {
		e.Public = h.properties(false)
	}
	if r.IntN(2) == 0 {
		e.Private = h.properties(true)
	}
	if r.IntN(5) == 0 {
		e.Tag, e.Trust = ptr("ignored"), trustNone
	}
	return e
}

func (h *home) properties(private bool) map[string]*string {
	ps := map[string]*string{}
	for range h.r.IntN(4) {
		name := pick(h.r, "rack", "site", "it's", "naïve", "a b/c", `quo"te`)
		switch {
		case h.r.IntN(6) == 0:
			ps[name] = nil
		case private:
			ps[name] = ptr(fmt.Sprintf("%s%d", secret, h.r.IntN(1000)))
		default:
			ps[name] = ptr(fmt.Sprintf("v%d", h.r.IntN(8)))
		}
	}
	return ps
}

// state draws a state entry, mostly a legal one.
func (h *home) state(id string) StateEntry {
	r, s := h.r, StateEntry{ID: id}
	at := advised
	if stored := h.m.handles[id]; stored != nil {
		at = stored.state
	}
	switch n := r.IntN(100); {
	case n < 4:
		s.To = deleted
	case n < 12:
		s.To = pick(r, advised, ready, locked, deleting, "BROKEN", "")
	case n < 30:
		s.To = at
	default:
		s.To = map[string]string{advised: pick(r, ready, ready, locked), locked: advised, ready: pick(r, ready, locked)}[at]
	}
	if s.To == locked && r.IntN(4) > 0 {
		s.Lock = &Lock{Reason: ptr(pick(r, "MODULE_SYNC_FAILED", "LOCKED_MISBEHAVING", "OF_OUR_OWN"))}
		if r.IntN(3) > 0 {
			s.Lock.Details = ptr(fmt.Sprintf(" Attempt #%d failed: timed out", 1+r.IntN(5)))
		}
	}
	if s.To == ready || r.IntN(20) == 0 {
		if r.IntN(3) == 0 {
			s.Sync = ptr(r.IntN(2) == 0)
		}
		if r.IntN(4) == 0 {
			s.SyncState = ptr(pick(r, "SYNCHRONIZED", "UNSYNCHRONIZED"))
		}
		if r.IntN(6) == 0 {
			s.LastSync = ptr("2026-02-03T04:05:06.007+0000")
		}
	}
	if r.IntN(6) == 0 {
		s.Tag = ptr(pick(r, "", "set-a", "set-b", " set-c "))
	}
	return s
}

func ptr[T any](v T) *T { return &v }
