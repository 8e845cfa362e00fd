package store

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"ncmp-inventory/inventory"
)

// factTexts are the visible attributes before and after a change, as JSON
// objects with NCMP's names; nil if there is nothing to show. Private
// properties never are.
func factTexts(f *inventory.Fact) (before, after []byte) {
	var o, n members
	switch f.Step {
	case inventory.StepTrust:
		o.text("trustLevel", string(f.OldTrust))
		n.text("trustLevel", string(f.NewTrust))
	case inventory.StepCreate:
		n.all(f.New)
		n.properties(f.New.Public)
	case inventory.StepDeleting:
		o.state(f.Old.State.State)
		n.state(inventory.Deleting)
	case inventory.StepDelete:
		// Properties are not read for a removal.
		gone := *f.Old
		gone.State = inventory.CompositeState{State: inventory.Deleting}
		o.all(&gone)
	default:
		difference(&o, &n, f.Old, f.New)
	}
	return o.close(), n.close()
}

// difference writes the attributes in which two versions of a handle differ.
func difference(o, n *members, old, now *inventory.Handle) {
	if old.State.State != now.State.State {
		o.state(old.State.State)
		n.state(now.State.State)
	}
	if a, b := old.State, now.State; a.DataSync != b.DataSync {
		o.dataSync(&a)
		n.dataSync(&b)
	}
	if !equalLock(old.State.Lock, now.State.Lock) {
		o.lock(old.State.Lock)
		n.lock(now.State.Lock)
	}
	if a, b := syncOf(&old.State), syncOf(&now.State); a != b {
		o.sync(a)
		n.sync(b)
	}
	for _, t := range [...]struct{ name, old, now string }{
		{"alternateId", old.AlternateID, now.AlternateID},
		{"moduleSetTag", old.ModuleSetTag, now.ModuleSetTag},
		{"dataProducerIdentifier", old.DataProducerID, now.DataProducerID},
	} {
		if t.old != t.now {
			o.text(t.name, t.old)
			n.text(t.name, t.now)
		}
	}
	if !equalProperties(old.Public, now.Public) {
		o.properties(old.Public)
		n.properties(now.Public)
	}
}

func equalLock(a, b *inventory.LockReason) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

func syncOf(s *inventory.CompositeState) inventory.SyncState {
	if s.Operational == nil {
		return inventory.SyncState{}
	}
	return *s.Operational
}

// members builds a JSON object, "" until the first member.
type members struct{ b []byte }

func (m *members) name(name string) {
	if m.b == nil {
		m.b = append(make([]byte, 0, 96), '{')
	} else {
		m.b = append(m.b, ',')
	}
	m.b = append(append(append(m.b, '"'), name...), `":`...)
}

// quote appends a string. Stored text is valid UTF-8; if it is not after all,
// history is no reason to refuse the change.
func (m *members) quote(value string) {
	b, err := jsontext.AppendQuote(m.b, value)
	if err != nil {
		b, _ = jsontext.AppendQuote(m.b, strings.ToValidUTF8(value, "\uFFFD"))
	}
	m.b = b
}

func (m *members) text(name, value string) {
	m.name(name)
	m.quote(value)
}

func (m *members) state(s inventory.State) { m.text("cmHandleState", string(s)) }

// dataSync shows the flag where events show it: in READY only.
func (m *members) dataSync(s *inventory.CompositeState) {
	if s.State != inventory.Ready || s.DataSync == inventory.Unset {
		return
	}
	m.name("dataSyncEnabled")
	if s.DataSync == inventory.True {
		m.b = append(m.b, "true"...)
	} else {
		m.b = append(m.b, "false"...)
	}
}

func (m *members) lock(l *inventory.LockReason) {
	if l == nil {
		return
	}
	m.name("lockReason")
	var in members
	in.optional("reason", l.Reason)
	in.optional("details", l.Details)
	m.nest(&in)
}

func (m *members) sync(s inventory.SyncState) {
	m.optional("syncState", s.State)
	m.optional("lastSyncTime", s.LastSyncTime)
}

func (m *members) optional(name string, t inventory.Text) {
	if t.Set {
		m.text(name, t.Value)
	}
}

func (m *members) properties(ps []inventory.Property) {
	m.name("publicCmHandleProperties")
	var in members
	for _, p := range ps {
		if in.b == nil {
			in.b = append(make([]byte, 0, 64), '{')
		} else {
			in.b = append(in.b, ',')
		}
		in.quote(p.Name)
		in.b = append(in.b, ':')
		in.quote(p.Value)
	}
	m.nest(&in)
}

func (m *members) nest(in *members) {
	if in.b == nil {
		m.b = append(m.b, "{}"...)
		return
	}
	m.b = append(m.b, in.close()...)
}

// all writes what a handle has, but for its properties.
func (m *members) all(h *inventory.Handle) {
	m.state(h.State.State)
	m.dataSync(&h.State)
	m.lock(h.State.Lock)
	for _, t := range [...]struct{ name, value string }{
		{"alternateId", h.AlternateID}, {"moduleSetTag", h.ModuleSetTag}, {"dataProducerIdentifier", h.DataProducerID},
	} {
		if t.value != "" {
			m.text(t.name, t.value)
		}
	}
}

func (m *members) close() []byte {
	if m.b == nil {
		return nil
	}
	m.b = append(m.b, '}')
	return m.b
}
