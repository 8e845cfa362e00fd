package inventory

import (
	"fmt"

	"github.com/google/uuid"
)

func (p *planner) changeState(it *Item) (verdict, *Rejection) {
	c := it.State
	w := p.touch(it.ID)
	if w.cur == nil {
		return 0, Reject(CodeNotFound, "")
	}
	old := w.cur
	switch {
	case c.To == Deleting, c.To != old.State.State && !old.State.State.CanMoveTo(c.To):
		return 0, &Rejection{Code: CodeUnknownError, Text: fmt.Sprintf("illegal state transition %s -> %s", old.State.State, c.To)}
	case c.To != Ready && (c.DataSync != Unset || c.SyncState.Set || c.LastSyncTime.Set):
		return 0, &Rejection{Code: CodeUnknownError, Text: fmt.Sprintf("Cm-Handle not in READY state. Cm handle state is: %s", c.To)}
	case c.To == Deleted:
		p.drop(w)
		return applied, nil
	}
	next := *old
	next.State = old.State.moved(c)
	if c.ModuleSetTag.Set {
		next.ModuleSetTag = c.ModuleSetTag.Value
	}
	if next.State.equal(&old.State) && next.ModuleSetTag == old.ModuleSetTag {
		return unchanged, nil
	}
	next.State.LastUpdate = p.stamp
	w.cur = &next
	event := p.tellStateChange(old, &next)
	p.note(Fact{Step: StepState, EventID: event, ID: it.ID, Old: old, New: &next})
	return applied, nil
}

// tellStateChange emits at most one event for a state change, with every
// visible attribute that it changed, and returns its id.
func (p *planner) tellStateChange(old, next *Handle) (event uuid.UUID) {
	before, after := old.values(), next.values()
	var changed Attr
	moved := before.State != after.State
	if moved {
		changed |= AttrState
		p.moves = append(p.moves, Move{before.State, after.State})
	}
	if after.State == Ready && before.DataSync != after.DataSync {
		changed |= AttrDataSync
	}
	if before.ModuleSetTag != after.ModuleSetTag {
		changed |= AttrModuleSetTag
	}
	if changed == 0 || !moved && p.cfg.Events == EventsNCMP {
		return event
	}
	return p.tell(&Transition{Kind: Updated, ID: next.ID, Changed: changed, Old: before, New: after}, StepState)
}

// moved is the composite state after a change. A transition replaces it with
// what NCMP keeps; values given explicitly win. The same state again keeps
// what is not given.
func (s CompositeState) moved(c *StateChange) CompositeState {
	next := s
	if c.To != s.State {
		next = CompositeState{State: c.To, LastUpdate: s.LastUpdate}
		switch {
		case c.To == Ready:
			next.DataSync = False
			next.Datastores, next.Operational = true, &SyncState{State: SetText(NoneRequested)}
		case c.To == Advised:
			next.Lock = s.Lock
			next.Datastores, next.Operational = s.Datastores, s.Operational
		case c.To == Locked && s.State == Advised:
			next.Datastores, next.Operational = s.Datastores, s.Operational
		}
	}
	if c.Lock != nil {
		next.Lock = c.Lock
	}
	// A flag that was never set counts as false.
	if c.DataSync != Unset && (c.DataSync == True) != (next.DataSync == True) {
		next.DataSync = c.DataSync
		sync := NoneRequested
		if c.DataSync == True {
			sync = Unsynchronized
		}
		next.Datastores, next.Operational = true, &SyncState{State: SetText(sync)}
	}
	if c.SyncState.Set || c.LastSyncTime.Set {
		op := SyncState{}
		if next.Operational != nil {
			op = *next.Operational
		}
		if c.SyncState.Set {
			op.State = c.SyncState
		}
		if c.LastSyncTime.Set {
			op.LastSyncTime = c.LastSyncTime
		}
		next.Datastores, next.Operational = true, &op
	}
	return next
}

// equal compares all but the time of the last update.
func (s *CompositeState) equal(o *CompositeState) bool {
	return s.State == o.State && s.DataSync == o.DataSync && s.Datastores == o.Datastores &&
		equalPtr(s.Lock, o.Lock) && equalPtr(s.Operational, o.Operational)
}

func equalPtr[T comparable](a, b *T) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
