package consumer

import (
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"ncmp-inventory/inventory"
)

// stateEntry is what one object of a state change says about one handle.
type stateEntry struct {
	id             string
	hasID, wrongID bool
	hasState       bool
	change         inventory.StateChange
	tag            inventory.Text // beside state; the same as inside it
	many           bool           // there is a cmHandles list
}

// stateChange decodes {"cmHandle":…,"state":…} or {"cmHandles":[{…},…]}.
func (w *work) stateChange() {
	in := &w.in
	if !w.dataObject() {
		return
	}
	var e stateEntry
	for in.open(); in.more(); {
		if name := in.name(); name == "cmHandles" {
			e.many = w.stateList()
		} else {
			w.stateMember(name, &e)
		}
	}
	switch {
	case in.dead != nil:
	case e.many && (e.hasID || e.hasState), !e.many && !e.hasID:
		in.die(ReasonBadShape, "want either cmHandle or cmHandles", in.path, 0)
	case !e.many:
		w.addState(&e, "")
	}
}

// stateList decodes the entries of cmHandles; null is no list.
func (w *work) stateList() bool {
	in := &w.in
	if !w.list() {
		return false
	}
	outer := w.reject
	w.reject = nil
	for in.open(); in.more(); {
		var e stateEntry
		if kind := in.kind(); kind == jsontext.KindBeginObject {
			for in.open(); in.more(); {
				w.stateMember(in.name(), &e)
			}
			w.addState(&e, "cmHandles")
		} else {
			in.skip()
			w.wrong("entry", "an object", kind)
			w.addItem(&e, "cmHandles")
		}
	}
	w.reject = outer
	return true
}

func (w *work) stateMember(name string, e *stateEntry) {
	switch name {
	case "cmHandle":
		id, kind := w.in.scalar()
		e.id, e.hasID = id, kind != jsontext.KindNull
		if kind == jsontext.KindBeginObject || kind == jsontext.KindBeginArray {
			w.wrong(name, "a string", kind)
			e.wrongID = true
		}
	case "state":
		if w.object(name) {
			e.hasState = true
			w.state(e)
		}
	case "moduleSetTag":
		e.tag = w.label(name)
	default:
		w.in.skip()
	}
}

// addState judges an entry as a whole and adds it.
func (w *work) addState(e *stateEntry, list string) {
	inner := e.change.ModuleSetTag
	if !inner.Set {
		e.change.ModuleSetTag = e.tag
	} else if e.tag.Set && e.tag.Value != inner.Value {
		w.refuse(unknownError("moduleSetTag: two different values"))
	}
	e.change.ModuleSetTag.Value = trimBlank(e.change.ModuleSetTag.Value)
	switch {
	case e.wrongID:
	case e.id == "":
		w.reject = inventory.Reject(inventory.CodeInvalidID, missingID(list, len(w.lists[inventory.OpState])))
	default:
		w.refuse(checkKnownID(e.id))
	}
	switch {
	case !e.hasState:
		w.refuse(unknownError("state: missing"))
	case e.change.To == "":
		w.refuse(unknownError("state.cmHandleState: missing"))
	}
	w.addItem(e, list)
}

func missingID(list string, n int) string {
	if list == "" {
		return "cmHandle is missing or empty"
	}
	return place(list, n) + ".cmHandle is missing or empty"
}

func (w *work) addItem(e *stateEntry, list string) {
	w.add(inventory.OpState, list, w.shownID(e.id), fields{})
	w.changes = append(w.changes, e.change)
}

// state decodes the state object, in NCMP's REST shape.
func (w *work) state(e *stateEntry) {
	in, c := &w.in, &e.change
	for in.open(); in.more(); {
		switch in.name() {
		case "cmHandleState":
			s := w.str("state.cmHandleState")
			// An empty text is unknown, too, and not a missing one.
			if s.Set && !inventory.State(s.Value).Known() {
				w.refuse(unknownError(fmt.Sprintf("state.cmHandleState: unknown state %q", clip(visible(s.Value)))))
			}
			c.To = knownState(s.Value)
		case "lockReason":
			if w.object("state.lockReason") {
				c.Lock = &inventory.LockReason{}
				for in.open(); in.more(); {
					switch in.name() {
					case "reason":
						c.Lock.Reason = w.str("state.lockReason.reason")
					case "details":
						c.Lock.Details = w.str("state.lockReason.details")
					default:
						in.skip()
					}
				}
			}
		case "dataSyncEnabled":
			switch _, kind := in.scalar(); kind {
			case jsontext.KindTrue:
				c.DataSync = inventory.True
			case jsontext.KindFalse:
				c.DataSync = inventory.False
			case jsontext.KindNull:
			default:
				w.wrong("state.dataSyncEnabled", "a boolean", kind)
			}
		case "dataSyncState":
			w.dataSyncState(c)
		case "moduleSetTag":
			c.ModuleSetTag = w.label("state.moduleSetTag")
		default:
			in.skip()
		}
	}
}

// knownState shares the constants' text.
func knownState(s string) inventory.State {
	for _, known := range [...]inventory.State{inventory.Ready, inventory.Advised, inventory.Locked, inventory.Deleting, inventory.Deleted} {
		if s == string(known) {
			return known
		}
	}
	return inventory.State(s)
}

func (w *work) dataSyncState(c *inventory.StateChange) {
	in := &w.in
	if !w.object("state.dataSyncState") {
		return
	}
	for in.open(); in.more(); {
		if in.name() != "operational" {
			in.skip()
			continue
		}
		if !w.object("state.dataSyncState.operational") {
			continue
		}
		for in.open(); in.more(); {
			switch in.name() {
			case "syncState":
				c.SyncState = w.str("state.dataSyncState.operational.syncState")
			case "lastSyncTime":
				c.LastSyncTime = w.str("state.dataSyncState.operational.lastSyncTime")
			default:
				in.skip()
			}
		}
	}
}
