package inventory

import "github.com/google/uuid"

// tell encodes a transition as it stands now: what the planner does next
// cannot change it any more.
func (p *planner) tell(t *Transition, step Step) {
	t.EventID = p.eventID(step)
	t.At, t.Cause = p.now, p.ev
	p.staged = append(p.staged, p.enc.LCMEvent(t))
}

func (p *planner) tellTrust(id string, old, level TrustLevel) {
	p.staged = append(p.staged, p.enc.InventoryEvent(&TrustChange{
		EventID: p.eventID(StepTrust), ID: id, Old: old, New: level, At: p.now, Cause: p.ev,
	}))
}

func (p *planner) eventID(step Step) uuid.UUID {
	return EventID(p.batch.Partition, p.rec.LeaderEpoch, p.rec.Offset, p.ev.Element, p.item.Op, p.item.Index, step)
}
