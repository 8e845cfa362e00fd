package inventory

import (
	"cmp"
	"slices"
	"time"
)

// EventMode says which changes an LCM event tells.
type EventMode uint8

const (
	// EventsAll tells every transition and every change of a visible
	// attribute.
	EventsAll EventMode = iota
	// EventsNCMP tells what NCMP does: transitions, and changes of the data
	// producer identifier.
	EventsNCMP
)

// PlannerConfig is what planning depends on besides batch and snapshot.
type PlannerConfig struct {
	Events EventMode
	// Outcomes holds for events that do not choose for themselves.
	// OutcomesDefault means OutcomesFailures.
	Outcomes OutcomeMode
	// MaxLCMBytes is the largest LCM message (key, headers and value) that
	// the output topic takes; 0 is no limit. An entry whose event would be
	// larger is refused: it could be stored but never told.
	MaxLCMBytes int
	// Facts asks for Plan.Facts.
	Facts bool
}

// PlanBatch decides what a batch does to what is stored. It is pure and total.
// Items of refused handles (a map from handle id) are rejected unseen.
func PlanBatch(b *Batch, s *Snapshot, now time.Time, cfg PlannerConfig, enc Encoder, refused map[string]*Rejection) *Plan {
	p := &planner{
		batch: b, snap: s, now: now, stamp: FormatTime(now), cfg: cfg, enc: enc, refused: refused,
		work:   make(map[string]*working, len(s.Handles)),
		owners: make(map[string]string),
		plan: &Plan{Tally: Tally{
			Succeeded: map[Op]int{}, Rejected: map[OpCode]int{},
			Transitions: map[Move]int{}, DeadLetters: map[string]int{},
		}},
	}
	if cfg.Facts {
		p.plan.Facts = make([]Fact, 0, b.mostFacts())
	}
	for i := range b.Records {
		if b.Records[i].judged() {
			p.trail = map[string][]Later{}
			break
		}
	}
	for i := range b.Records {
		p.record(&b.Records[i])
	}
	p.finish()
	return p.plan
}

// mostFacts is about how many facts a batch can have: a removal is two.
func (b *Batch) mostFacts() (n int) {
	for i := range b.Records {
		for j := range b.Records[i].Events {
			for k := range b.Records[i].Events[j].Items {
				if n++; b.Records[i].Events[j].Items[k].Op == OpRemove {
					n++
				}
			}
		}
	}
	return n
}

// working is one handle while its batch is planned.
type working struct {
	stored  *Stored
	cur     *Handle // nil: does not exist now
	removed bool    // the stored one was removed on the way
	// createdIn and removedIn are the serials of the last event whose list
	// accepted the id; 0 is none.
	createdIn, removedIn int
	trust                TrustLevel // TrustUnset: as stored
}

type planner struct {
	batch   *Batch
	snap    *Snapshot
	now     time.Time
	stamp   string
	cfg     PlannerConfig
	enc     Encoder
	refused map[string]*Rejection

	work   map[string]*working
	owners map[string]string // changed owners; "" is freed
	plan   *Plan
	// trail is what the batch changed so far, by handle; nil unless a record
	// of it has to be judged by that.
	trail map[string][]Later

	// the event and item being planned
	serial int
	rec    *Record
	ev     *Event
	item   *Item
	undo   undo
	staged []Message // messages of the item, kept only if it succeeds
	facts  []Fact    // the same
	moves  []Move
}

// undo takes back what one item did. An item touches one handle and a few keys.
type undo struct {
	w      *working
	before working
	owners []ownerChange
}

type ownerChange struct {
	key, before string
	had         bool
}

func (p *planner) record(r *Record) {
	p.rec = r
	switch {
	case r.Empty:
		p.plan.Tally.Empty++
	case r.Dead != nil:
		p.dead(r)
	default:
		if r.judged() {
			if l := p.overtaken(r); l != nil {
				p.setAside(r, l)
				return
			}
		}
		for i := range r.Events {
			p.event(&r.Events[i])
		}
	}
}

func (p *planner) dead(r *Record) {
	p.plan.Tally.DeadLetters[r.Dead.Reason]++
	p.emit(p.enc.DeadLetter(&DeadLetterOf{Source: p.batch, Record: r, At: p.now}))
	for i := range r.Events {
		ev := &r.Events[i]
		if ev.ID == "" || p.mode(ev) == OutcomesOff {
			continue
		}
		p.emit(p.enc.Outcome(&Outcome{
			EventID: EventID(p.batch.Partition, r.LeaderEpoch, r.Offset, ev.Element, 0, 0, StepOutcome),
			Source:  p.batch, Record: r, Cause: ev, At: p.now, Dead: r.Dead,
		}))
	}
}

func (p *planner) mode(ev *Event) OutcomeMode {
	switch {
	case ev.Outcomes != OutcomesDefault:
		return ev.Outcomes
	case p.cfg.Outcomes != OutcomesDefault:
		return p.cfg.Outcomes
	}
	return OutcomesFailures
}

// verdict is what became of an item that was not rejected.
type verdict uint8

const (
	applied verdict = iota
	unchanged
	again // the same removal twice: neither a success nor a failure
)

func (p *planner) event(ev *Event) {
	p.serial++
	p.ev = ev
	var failures []Failure
	succeeded := 0
	for i := range ev.Items {
		it := &ev.Items[i]
		v, rej := p.try(it)
		if rej != nil {
			p.plan.Tally.Rejected[OpCode{it.Op, rej.Code}]++
			failures = append(failures, Failure{ID: it.ID, Op: it.Op, Rejection: *rej})
			continue
		}
		if v == again {
			continue
		}
		succeeded++
		p.plan.Tally.Succeeded[it.Op]++
		if v == unchanged {
			p.plan.Tally.Unchanged++
		}
	}
	if m := p.mode(ev); m == OutcomesAll || m == OutcomesFailures && len(failures) > 0 {
		p.emit(p.enc.Outcome(&Outcome{
			EventID: EventID(p.batch.Partition, p.rec.LeaderEpoch, p.rec.Offset, ev.Element, 0, 0, StepOutcome),
			Source:  p.batch, Record: p.rec, Cause: ev, At: p.now, Succeeded: succeeded, Failures: failures,
		}))
	}
}

// try applies one item, whole or not at all.
func (p *planner) try(it *Item) (verdict, *Rejection) {
	if it.Reject != nil {
		return 0, it.Reject
	}
	if rej := p.refused[it.ID]; rej != nil {
		return 0, rej
	}
	p.item = it
	p.staged, p.facts, p.moves = p.staged[:0], p.facts[:0], p.moves[:0]
	p.undo.w, p.undo.owners = nil, p.undo.owners[:0]
	v, rej := p.apply(it)
	if rej == nil {
		rej = p.tooLarge()
	}
	if rej != nil {
		p.rollback()
		return 0, rej
	}
	p.plan.Messages = append(p.plan.Messages, p.staged...)
	p.plan.Facts = append(p.plan.Facts, p.facts...)
	if p.trail != nil {
		p.follow()
	}
	for _, m := range p.moves {
		p.plan.Tally.Transitions[m]++
	}
	return v, nil
}

func (p *planner) apply(it *Item) (verdict, *Rejection) {
	switch it.Op {
	case OpRemove:
		return p.remove(it)
	case OpCreate:
		return p.create(it)
	case OpUpdate:
		return p.update(it)
	case OpUpgrade:
		return p.upgrade(it)
	case OpState:
		return p.changeState(it)
	case OpHeartbeat:
		return p.heartbeat(it)
	}
	return 0, Reject(CodeUnknownError, "unknown operation")
}

// tooLarge refuses an item one of whose LCM events the topic would not take.
func (p *planner) tooLarge() *Rejection {
	if p.cfg.MaxLCMBytes <= 0 {
		return nil
	}
	for i := range p.staged {
		m := &p.staged[i]
		if m.Kind == LCMEvent && len(m.Key)+len(m.Headers)+len(m.Value) > p.cfg.MaxLCMBytes {
			return Reject(CodeTooLarge, "the LCM event would be larger than the topic takes")
		}
	}
	return nil
}

func (p *planner) rollback() {
	if p.undo.w != nil {
		*p.undo.w = p.undo.before
	}
	for i := len(p.undo.owners) - 1; i >= 0; i-- {
		o := p.undo.owners[i]
		if o.had {
			p.owners[o.key] = o.before
		} else {
			delete(p.owners, o.key)
		}
	}
}

// touch finds the item's handle and makes it the one that rollback restores.
func (p *planner) touch(id string) *working {
	w := p.work[id]
	if w == nil {
		w = &working{stored: p.snap.Handles[id]}
		if w.stored != nil {
			w.cur = &w.stored.Handle
		}
		p.work[id] = w
	}
	p.undo.w, p.undo.before = w, *w
	return w
}

// owner is the handle that a key belongs to now, "" if to none.
func (p *planner) owner(key string) string {
	if o, ok := p.owners[key]; ok {
		return o
	}
	return p.snap.Owners[key]
}

func (p *planner) setOwner(key, id string) {
	before, had := p.owners[key]
	p.undo.owners = append(p.undo.owners, ownerChange{key, before, had})
	p.owners[key] = id
}

// free gives up a key, unless it belongs to somebody else: an older system may
// have stored one alternate id twice.
func (p *planner) free(key, id string) {
	if key != "" && p.owner(key) == id {
		p.setOwner(key, "")
	}
}

func (p *planner) emit(m Message) { p.plan.Messages = append(p.plan.Messages, m) }

func (p *planner) finish() {
	for _, w := range p.work {
		if c, ok := w.change(); ok {
			p.plan.Changes = append(p.plan.Changes, c)
		}
	}
	slices.SortFunc(p.plan.Changes, func(a, b Change) int { return cmp.Compare(a.id(), b.id()) })
	for key, owner := range p.owners {
		switch before := p.snap.Owners[key]; {
		case owner == before:
		case owner == "":
			p.plan.Releases = append(p.plan.Releases, key)
		default:
			p.plan.Claims = append(p.plan.Claims, Claim{Key: key, Owner: owner})
		}
	}
	slices.Sort(p.plan.Releases)
	slices.SortFunc(p.plan.Claims, func(a, b Claim) int { return cmp.Compare(a.Key, b.Key) })
}

func (c *Change) id() string {
	if c.After != nil {
		return c.After.ID
	}
	return c.Before.ID
}

// change is the net effect on one handle; ok is false when there is none.
func (w *working) change() (c Change, ok bool) {
	switch {
	case w.stored == nil && w.cur == nil:
		return Change{}, false
	case w.stored != nil && w.cur == &w.stored.Handle && !w.removed && w.trust == TrustUnset:
		return Change{}, false
	}
	return Change{Before: w.stored, After: w.cur, Removed: w.removed, Trust: w.trust}, true
}
