package inventory

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// The rules of the four lists of a registration, each check in NCMP's order:
// the first hit decides. Where NCMP loses or hides something, the rule here
// does not; doc.go and the docs name the differences.

func (p *planner) create(it *Item) (verdict, *Rejection) {
	f := it.Fields
	w := p.touch(it.ID)
	if w.createdIn == p.serial {
		return 0, Reject(CodeExists, "the id stands twice in createdCmHandles")
	}
	if w.cur != nil {
		if w.cur.State.State == Deleting || !w.cur.registeredAs(f) {
			return 0, Reject(CodeExists, "stored already, with other attributes")
		}
		w.createdIn = p.serial // a producer's safe repeat
		return unchanged, nil
	}
	if o := p.owner(it.ID); o != "" && o != it.ID {
		return 0, Reject(CodeExists, fmt.Sprintf("the id is the alternate id of cm-handle %s", o))
	}
	if rej := p.alternateFree(f.AlternateID, it.ID); rej != nil {
		return 0, rej
	}
	h := &Handle{
		ID: it.ID, AlternateID: f.AlternateID, ModuleSetTag: f.ModuleSetTag, DataProducerID: f.DataProducerID,
		DMI: *f.DMI, Public: f.Public, Private: f.Private,
		State: CompositeState{State: Advised, LastUpdate: p.stamp},
	}
	w.cur, w.createdIn, w.trust = h, p.serial, TrustUnset
	p.setOwner(it.ID, it.ID)
	if f.AlternateID != "" && f.AlternateID != it.ID {
		p.setOwner(f.AlternateID, it.ID)
	}
	event := p.tell(&Transition{Kind: Created, ID: h.ID, Changed: AllAttrs, New: h.values()}, StepCreate)
	p.note(Fact{Step: StepCreate, EventID: event, ID: h.ID, New: h})
	p.moves = append(p.moves, Move{"", Advised})
	if f.Trust == TrustNone {
		w.trust = TrustNone
		p.tellTrust(h.ID, TrustUnset, TrustNone)
	}
	return applied, nil
}

func (p *planner) alternateFree(alt, id string) *Rejection {
	if alt == "" || alt == id {
		return nil
	}
	if o := p.owner(alt); o != "" && o != id {
		return Reject(CodeExists, fmt.Sprintf("the alternate id belongs to cm-handle %s", o))
	}
	return nil
}

func (p *planner) update(it *Item) (verdict, *Rejection) {
	f := it.Fields
	w := p.touch(it.ID)
	if w.cur == nil {
		return 0, Reject(CodeNotFound, "")
	}
	if f.AlternateID != "" && f.AlternateID != w.cur.AlternateID {
		if w.cur.AlternateID != "" {
			return 0, Reject(CodeExists, "another alternate id is stored")
		}
		if rej := p.alternateFree(f.AlternateID, it.ID); rej != nil {
			return 0, rej
		}
	}
	old, next := w.cur, *w.cur
	var changed Attr
	private := false
	if f.AlternateID != "" && f.AlternateID != old.AlternateID {
		next.AlternateID = f.AlternateID
		changed |= AttrAlternateID
		if f.AlternateID != it.ID {
			p.setOwner(f.AlternateID, it.ID)
		}
	}
	if f.DataProducerID != "" && f.DataProducerID != old.DataProducerID {
		next.DataProducerID = f.DataProducerID
		changed |= AttrDataProducerID
	}
	if merged, ok := mergeProperties(old.Public, f.Public); ok {
		next.Public = merged
		changed |= AttrPublic
	}
	if merged, ok := mergeProperties(old.Private, f.Private); ok {
		next.Private = merged
		private = true
	}
	if changed == 0 && !private {
		return unchanged, nil
	}
	w.cur = &next
	shown := changed
	if p.cfg.Events == EventsNCMP {
		shown = 0
		if changed&AttrDataProducerID != 0 {
			shown = changed & (AttrDataProducerID | AttrAlternateID)
		}
	}
	var event uuid.UUID
	if shown != 0 {
		event = p.tell(&Transition{Kind: Updated, ID: it.ID, Changed: shown, Old: old.values(), New: next.values()}, StepUpdate)
	}
	p.note(Fact{Step: StepUpdate, EventID: event, ID: it.ID, Old: old, New: &next})
	return applied, nil
}

func (p *planner) upgrade(it *Item) (verdict, *Rejection) {
	w := p.touch(it.ID)
	switch {
	case w.cur == nil:
		return 0, Reject(CodeNotFound, "")
	case w.cur.State.State != Ready:
		return 0, Reject(CodeNotReady, "the state is "+string(w.cur.State.State))
	case it.Tag != "" && it.Tag == w.cur.ModuleSetTag:
		return unchanged, nil
	}
	old, next := w.cur, *w.cur
	next.State = CompositeState{
		State: Locked, LastUpdate: p.stamp,
		Lock: &LockReason{Reason: SetText(ModuleUpgrade), Details: SetText("Upgrade to ModuleSetTag: " + it.Tag)},
	}
	w.cur = &next
	event := p.tell(&Transition{Kind: Updated, ID: it.ID, Changed: AttrState, Old: old.values(), New: next.values()}, StepUpgrade)
	p.note(Fact{Step: StepUpgrade, EventID: event, ID: it.ID, Old: old, New: &next})
	p.moves = append(p.moves, Move{Ready, Locked})
	return applied, nil
}

func (p *planner) remove(it *Item) (verdict, *Rejection) {
	w := p.touch(it.ID)
	if w.cur == nil {
		if w.removedIn == p.serial {
			return again, nil
		}
		return 0, Reject(CodeNotFound, "")
	}
	p.drop(w)
	return applied, nil
}

// drop removes a handle: two facts, DELETING and DELETED, in one transaction.
// A stored DELETING was told by the system that left it behind.
func (p *planner) drop(w *working) {
	h := w.cur
	from := h.State.State
	if from != Deleting {
		going := h.values()
		going.State, going.DataSync = Deleting, Unset
		event := p.tell(&Transition{Kind: Updated, ID: h.ID, Changed: AttrState, Old: h.values(), New: going}, StepDeleting)
		p.note(Fact{Step: StepDeleting, EventID: event, ID: h.ID, Old: h})
		p.moves = append(p.moves, Move{from, Deleting})
	}
	event := p.tell(&Transition{Kind: Removed, ID: h.ID, Old: h.values(), New: h.values()}, StepDelete)
	p.note(Fact{Step: StepDelete, EventID: event, ID: h.ID, Old: h})
	p.moves = append(p.moves, Move{Deleting, Deleted})
	p.free(h.ID, h.ID)
	p.free(h.AlternateID, h.ID)
	w.cur, w.removedIn, w.createdIn, w.trust = nil, p.serial, 0, TrustUnset
	w.removed = w.removed || w.stored != nil
}

// values are the attributes that events may show.
func (h *Handle) values() Values {
	v := Values{
		State: h.State.State, AlternateID: h.AlternateID, ModuleSetTag: h.ModuleSetTag,
		DataProducerID: h.DataProducerID, Public: h.Public,
	}
	if h.State.State == Ready {
		v.DataSync = h.State.DataSync
	}
	return v
}

// registeredAs reports whether a registration of f would store what is stored:
// all registered fields, but not trust level and state.
func (h *Handle) registeredAs(f *Fields) bool {
	return h.AlternateID == f.AlternateID && h.ModuleSetTag == f.ModuleSetTag &&
		h.DataProducerID == f.DataProducerID && h.DMI == *f.DMI &&
		slices.Equal(h.Public, f.Public) && slices.Equal(h.Private, f.Private)
}

// mergeProperties applies changes to stored properties; both are sorted by
// name. A null value removes a name. ok is false when nothing changes.
func mergeProperties(stored, changes []Property) (merged []Property, ok bool) {
	if len(changes) == 0 {
		return nil, false
	}
	merged = make([]Property, 0, len(stored)+len(changes))
	i, j := 0, 0
	for i < len(stored) || j < len(changes) {
		c := 1
		switch {
		case j == len(changes):
			c = -1
		case i < len(stored):
			c = strings.Compare(stored[i].Name, changes[j].Name)
		}
		switch {
		case c < 0:
			merged = append(merged, stored[i])
			i++
		case c > 0:
			if !changes[j].Null {
				merged = append(merged, changes[j])
				ok = true
			}
			j++
		default:
			if changes[j].Null {
				ok = true
			} else {
				merged = append(merged, changes[j])
				ok = ok || stored[i].Value != changes[j].Value
			}
			i, j = i+1, j+1
		}
	}
	return merged, ok
}
