package inventory

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
)

// Place is where and when a record stood. The topic's name is for people.
type Place struct {
	Partition
	Offset int64
	Time   time.Time // the record's own
}

// After reports whether a record at p came later than one at o: by offset in
// one partition, by the records' own times elsewhere.
func (p *Place) After(o *Place) bool {
	if p.TopicID == o.TopicID && p.Index == o.Index {
		return p.Offset > o.Offset
	}
	return p.Time.After(o.Time)
}

// Later is a change of a handle that came after a record.
type Later struct {
	Handle string
	// Step is 0, and Source empty, for a change that the history does not
	// hold: then At is when the handle's state was last updated.
	Step Step
	At   time.Time
	// Source is the record that caused it; for a replayed one, the first of
	// the chain.
	Source Place
}

func (l *Later) String() string {
	if l.Step == 0 {
		return fmt.Sprintf("%s was updated at %s", l.Handle, FormatTime(l.At))
	}
	topic := l.Source.Topic
	if topic == "" {
		topic = uuid.UUID(l.Source.TopicID).String()
	}
	return fmt.Sprintf("%s was changed by %s/%d/%d of %s", l.Handle, topic, l.Source.Index, l.Source.Offset, FormatTime(l.Source.Time))
}

// Replay says that a record is a dead letter that was sent again.
type Replay struct {
	// Origin is where the record, or the first of a chain of replays, stood.
	Origin Place
	// Forced means that it may overwrite what came later.
	Forced bool
}

// ReasonOvertaken is why a record that was sent again becomes a dead letter
// once more: a handle that it names changed after the record had first stood.
const ReasonOvertaken = "overtaken"

// Replayed is a replayed record that has to be judged, and what it names.
type Replayed struct {
	Offset  int64 // of the record in its batch
	Origin  Place
	Handles []string
}

// Handles are the handles that a decoded record names, each once, sorted.
func (r *Record) Handles() []string {
	var ids []string
	for i := range r.Events {
		for j := range r.Events[i].Items {
			it := &r.Events[i].Items[j]
			if it.Reject != nil || it.ID == "" {
				continue
			}
			ids = append(ids, it.ID)
			if it.Fallback != "" {
				ids = append(ids, it.Fallback)
			}
		}
	}
	return sorted(ids)
}

// judged reports whether the record must not overwrite what came later.
func (r *Record) judged() bool {
	return r.Replay != nil && !r.Replay.Forced && r.Dead == nil && !r.Empty
}

// replayed collects the records that have to be judged.
func (b *Batch) replayed() (list []Replayed) {
	for i := range b.Records {
		if r := &b.Records[i]; r.judged() {
			list = append(list, Replayed{Offset: r.Offset, Origin: r.Replay.Origin, Handles: r.Handles()})
		}
	}
	return list
}

// overtaken finds a change of one of the record's handles that came after the
// place where the record first stood: one that is stored, or one that this
// batch made before it. The handles are locked: no other can come in between.
// Without a history only the time of the last update of a state tells.
func (p *planner) overtaken(r *Record) *Later {
	if later := p.snap.Later[r.Offset]; len(later) > 0 {
		return &later[0]
	}
	for _, id := range r.Handles() {
		for _, l := range slices.Backward(p.trail[id]) {
			if l.Source.After(&r.Replay.Origin) {
				return &l
			}
		}
		if at, ok := p.unknownUpdate(id, r.Replay.Origin.Time); ok {
			return &Later{Handle: id, At: at}
		}
	}
	return nil
}

// unknownUpdate is when a handle's state was last updated, if that was after
// since and the history knows of nothing as young.
func (p *planner) unknownUpdate(id string, since time.Time) (at time.Time, ok bool) {
	var h *Handle
	if w := p.work[id]; w != nil {
		h = w.cur
	} else if s := p.snap.Handles[id]; s != nil {
		h = &s.Handle
	}
	if h == nil || len(p.trail[id]) > 0 {
		return at, false
	}
	if at, ok = ParseTime(h.State.LastUpdate); !ok {
		return p.now, true // foreign: it may have come later
	}
	return at, at.After(since) && at.After(p.snap.Seen[id])
}

// setAside makes a dead letter of a replayed record. The record itself stays
// as it is: the batch may be planned again, on other rows.
func (p *planner) setAside(r *Record, l *Later) {
	dead := *r
	dead.Dead = &DeadLetter{Reason: ReasonOvertaken, Text: l.String(), Byte: -1, Attempts: 1}
	p.dead(&dead)
}

// follow remembers what an item changed, for replayed records behind it.
func (p *planner) follow() {
	for i := range p.facts {
		f := &p.facts[i]
		l := Later{Handle: f.ID, Step: f.Step, At: f.At, Source: Place{p.batch.Partition, f.Offset, f.SourceTime()}}
		if f.Origin != nil {
			l.Source = *f.Origin
		}
		p.trail[f.ID] = append(p.trail[f.ID], l)
	}
}
