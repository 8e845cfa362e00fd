package store

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"ncmp-inventory/inventory"
)

// factTexts writes the visible attributes before and after a change, as JSON
// objects with NCMP's names. What has nothing to show stays empty. Private
// properties are never shown.
func factTexts(before, after *members, f *inventory.Fact) {
	switch f.Step {
	case inventory.StepTrust:
		before.text("trustLevel", string(f.OldTrust))
		after.text("trustLevel", string(f.NewTrust))
	case inventory.StepCreate:
		after.state(f.New.State.State)
		after.dataSync(&f.New.State)
		after.names(f.New)
		after.properties(f.New.Public)
	case inventory.StepDeleting:
		before.state(f.Old.State.State)
		after.state(inventory.Deleting)
	case inventory.StepDelete: // properties are not read for a removal
		before.state(inventory.Deleting)
		before.names(f.Old)
	default:
		difference(before, after, f.Old, f.New)
	}
}

// difference writes the attributes in which two versions of a handle differ.
func difference(before, after *members, old, now *inventory.Handle) {
	if old.State.State != now.State.State {
		before.state(old.State.State)
		after.state(now.State.State)
	}
	if old.State.DataSync != now.State.DataSync {
		before.dataSync(&old.State)
		after.dataSync(&now.State)
	}
	if !equalLock(old.State.Lock, now.State.Lock) {
		before.lock(old.State.Lock)
		after.lock(now.State.Lock)
	}
	if a, b := syncOf(&old.State), syncOf(&now.State); a != b {
		before.sync(a)
		after.sync(b)
	}
	for _, t := range [...]struct{ name, old, now string }{
		{"alternateId", old.AlternateID, now.AlternateID},
		{"moduleSetTag", old.ModuleSetTag, now.ModuleSetTag},
		{"dataProducerIdentifier", old.DataProducerID, now.DataProducerID},
	} {
		if t.old != t.now {
			before.text(t.name, t.old)
			after.text(t.name, t.now)
		}
	}
	if !equalProperties(old.Public, now.Public) {
		before.properties(old.Public)
		after.properties(now.Public)
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

// members builds JSON objects one behind the other, in one buffer.
type members struct {
	b     []byte
	start int // of the object in hand
}

// take ends the object in hand and returns it, nil if it has no member.
func (m *members) take() []byte {
	if len(m.b) == m.start {
		return nil
	}
	m.b = append(m.b, '}')
	o := m.b[m.start:len(m.b):len(m.b)]
	m.start = len(m.b)
	return o
}

// next opens the object at its first member and parts members.
func (m *members) next() {
	switch {
	case len(m.b) == m.start:
		m.b = append(m.b, '{')
	case m.b[len(m.b)-1] != '{':
		m.b = append(m.b, ',')
	}
}

func (m *members) name(name string) {
	m.next()
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

func (m *members) optional(name string, t inventory.Text) {
	if t.Set {
		m.text(name, t.Value)
	}
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
	m.b = append(m.b, '{')
	m.optional("reason", l.Reason)
	m.optional("details", l.Details)
	m.b = append(m.b, '}')
}

func (m *members) sync(s inventory.SyncState) {
	m.optional("syncState", s.State)
	m.optional("lastSyncTime", s.LastSyncTime)
}

func (m *members) properties(ps []inventory.Property) {
	m.name("publicCmHandleProperties")
	m.b = append(m.b, '{')
	for _, p := range ps {
		m.next()
		m.quote(p.Name)
		m.b = append(m.b, ':')
		m.quote(p.Value)
	}
	m.b = append(m.b, '}')
}

// names writes what a handle is called and belongs to.
func (m *members) names(h *inventory.Handle) {
	for _, t := range [...]struct{ name, value string }{
		{"alternateId", h.AlternateID}, {"moduleSetTag", h.ModuleSetTag}, {"dataProducerIdentifier", h.DataProducerID},
	} {
		if t.value != "" {
			m.text(t.name, t.value)
		}
	}
}
