package inventory

import "github.com/google/uuid"

// tell encodes a transition as it stands now: what the planner does next
// cannot change it any more. It returns the event's id.
func (p *planner) tell(t *Transition, step Step) uuid.UUID {
	t.EventID = p.eventID(step)
	t.At, t.Cause = p.now, p.ev
	p.staged = append(p.staged, p.enc.LCMEvent(t))
	return t.EventID
}

func (p *planner) tellTrust(id string, old, level TrustLevel) {
	event := p.eventID(StepTrust)
	p.staged = append(p.staged, p.enc.InventoryEvent(&TrustChange{
		EventID: event, ID: id, Old: old, New: level, At: p.now, Cause: p.ev,
	}))
	p.note(Fact{Step: StepTrust, EventID: event, ID: id, OldTrust: old, NewTrust: level})
}

// note keeps a change for the history, if there is one.
func (p *planner) note(f Fact) {
	if !p.cfg.Facts {
		return
	}
	f.Offset, f.Time, f.At, f.Cause = p.rec.Offset, p.rec.Timestamp, p.now, p.ev
	if p.rec.Replay != nil {
		f.Origin = &p.rec.Replay.Origin
	}
	p.facts = append(p.facts, f)
}

func (p *planner) eventID(step Step) uuid.UUID {
	return EventID(p.batch.Partition, p.rec.LeaderEpoch, p.rec.Offset, p.ev.Element, p.item.Op, p.item.Index, step)
}
