package consumer

import (
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"ncmp-inventory/inventory"
)

// entries gathers the entries of one event in scratch space. emit then copies
// them into slices of exactly the right size, a few for the whole event.
type entries struct {
	lists   [inventory.OpHeartbeat + 1][]inventory.Item // by operation, which is their order
	fields  [inventory.OpHeartbeat + 1][]fields         // parallel, create and update only
	changes []inventory.StateChange                     // parallel to the list of OpState
	props   []inventory.Property
	dmi     inventory.DMINames
	// reject is the first fault of the entry in hand.
	reject *inventory.Rejection
}

// fields are an entry's attributes; its properties are ranges of props.
type fields struct {
	inventory.Fields
	public, private propRange
}

type propRange struct{ from, to int }

// reset forgets the event before and its strings.
func (e *entries) reset() {
	for i := range e.lists {
		clear(e.lists[i])
		e.lists[i] = e.lists[i][:0]
		clear(e.fields[i])
		e.fields[i] = e.fields[i][:0]
	}
	clear(e.changes)
	e.changes = e.changes[:0]
	clear(e.props)
	e.props = e.props[:0]
	e.dmi, e.reject = inventory.DMINames{}, nil
}

// release is reset, and frees space that an unusually large event took.
func (e *entries) release() {
	const keep = 4096
	e.reset()
	n := cap(e.props) + cap(e.changes)
	for i := range e.lists {
		n += cap(e.lists[i]) + cap(e.fields[i])
	}
	if n > 4*keep {
		*e = entries{}
	}
}

// add appends an entry to its operation's list. list is the member that holds
// it, "" if the entry is the whole event.
func (w *work) add(op inventory.Op, list, id string, f fields) {
	items := &w.lists[op]
	if w.handlesLeft--; w.handlesLeft < 0 {
		w.in.die(ReasonTooManyHandles, fmt.Sprintf("more than %d entries in one event", w.cfg.HandlesPerEvent), fieldPath(w.in.path, w.in.dec.StackPointer()), int64(w.in.at))
		return
	}
	if w.reject != nil && w.reject.Details == "" && list != "" {
		w.reject.Details = place(list, len(*items))
	}
	*items = append(*items, inventory.Item{Op: op, Index: int32(len(*items)), ID: id, Reject: w.reject})
	if op == inventory.OpCreate || op == inventory.OpUpdate {
		w.fields[op] = append(w.fields[op], f)
	}
	w.reject = nil
}

// refuse notes the entry's first fault.
func (w *work) refuse(r *inventory.Rejection) {
	if w.reject == nil {
		w.reject = r
	}
}

// wrong notes that a member of the entry has the wrong type. It costs the
// entry, not the event.
func (w *work) wrong(member, want string, got jsontext.Kind) {
	if w.reject == nil && w.in.dead == nil {
		w.refuse(unknownError(member + ": want " + want + ", got " + kindName(got)))
	}
}

// unknownError is a rejection with NCMP's code 108, whose text is its cause.
func unknownError(text string) *inventory.Rejection {
	return &inventory.Rejection{Code: inventory.CodeUnknownError, Text: text}
}

// str reads a member that must be a string or null.
func (w *work) str(member string) inventory.Text {
	s, kind := w.in.scalar()
	switch kind {
	case jsontext.KindString:
		return inventory.SetText(s)
	case jsontext.KindNull:
	default:
		w.wrong(member, "a string", kind)
	}
	return inventory.Text{}
}

// label reads a member that may also be a number or boolean, then taken as its
// JSON text: ids, tags and values, which producers write either way.
func (w *work) label(member string) inventory.Text {
	s, kind := w.in.scalar()
	switch kind {
	case jsontext.KindBeginObject, jsontext.KindBeginArray:
		w.wrong(member, "a string", kind)
	case jsontext.KindNull, jsontext.KindInvalid:
	default:
		return inventory.SetText(s)
	}
	return inventory.Text{}
}

// object reports whether the next value is an object, which is then to be
// opened. Null is none; anything else is wrong.
func (w *work) object(member string) bool {
	kind := w.in.kind()
	switch kind {
	case jsontext.KindBeginObject, jsontext.KindInvalid: // reading on fails
		return w.in.dead == nil
	case jsontext.KindNull:
	default:
		w.wrong(member, "an object", kind)
	}
	w.in.skip()
	return false
}

// single is the whole result of the most frequent record, in one allocation.
type single struct {
	events [1]inventory.Event
	items  [1]inventory.Item
	change inventory.StateChange
}

// emit appends the event in hand, with its entries, to the record.
func (w *work) emit() {
	n := 0
	for _, list := range w.lists {
		n += len(list)
	}
	if n == 1 && len(w.lists[inventory.OpState]) == 1 && w.r.Events == nil {
		s := &single{events: [1]inventory.Event{w.env.event()}, items: [1]inventory.Item(w.lists[inventory.OpState]), change: w.changes[0]}
		if s.items[0].Reject == nil {
			s.items[0].State = &s.change
		}
		s.events[0].Items = s.items[:]
		w.r.Events = s.events[:]
		w.reset()
		return
	}
	ev := w.env.event()
	if n > 0 {
		ev.Items = make([]inventory.Item, 0, n)
	}
	if w.r.Events == nil {
		w.r.Events = make([]inventory.Event, 0, 1)
	}
	for _, list := range w.lists {
		ev.Items = append(ev.Items, list...)
	}
	w.linkFields(ev.Items)
	w.linkChanges(ev.Items)
	w.r.Events = append(w.r.Events, ev)
	w.reset()
}

// linkFields gives create and update items their attributes.
func (w *work) linkFields(items []inventory.Item) {
	n := len(w.fields[inventory.OpCreate]) + len(w.fields[inventory.OpUpdate])
	if n == 0 {
		return
	}
	slab := make([]inventory.Fields, 0, n)
	props := make([]inventory.Property, len(w.props))
	copy(props, w.props)
	var dmi *inventory.DMINames
	if len(w.fields[inventory.OpCreate]) > 0 {
		dmi = new(w.dmi)
	}
	for i := range items {
		it := &items[i]
		if it.Op != inventory.OpCreate && it.Op != inventory.OpUpdate || it.Reject != nil {
			continue
		}
		f := &w.fields[it.Op][it.Index]
		f.Public, f.Private = f.public.of(props), f.private.of(props)
		if it.Op == inventory.OpCreate {
			f.DMI = dmi
		}
		slab = append(slab, f.Fields)
		it.Fields = &slab[len(slab)-1]
	}
}

func (s propRange) of(props []inventory.Property) []inventory.Property {
	if s.from == s.to {
		return nil
	}
	return props[s.from:s.to:s.to] // capped: an append elsewhere must not reach a neighbour
}

func (w *work) linkChanges(items []inventory.Item) {
	if len(w.changes) == 0 {
		return
	}
	slab := make([]inventory.StateChange, len(w.changes))
	copy(slab, w.changes)
	for i := range items {
		if items[i].Op == inventory.OpState && items[i].Reject == nil {
			items[i].State = &slab[items[i].Index]
		}
	}
}
