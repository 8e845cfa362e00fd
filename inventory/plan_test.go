package inventory_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
)

// testingT is what the helpers need of a *testing.T or a *rapid.T.
type testingT interface {
	require.TestingT
	Helper()
}

var now = time.Date(2026, 2, 3, 4, 5, 6, 7e6, time.UTC)

// plain is an encoder whose messages a test can read.
type plain struct{}

func (plain) LCMEvent(t *inventory.Transition) inventory.Message {
	var b strings.Builder
	switch t.Kind {
	case inventory.Created:
		fmt.Fprintf(&b, "create %s", show(t.Changed, t.New))
	case inventory.Updated:
		fmt.Fprintf(&b, "update %s -> %s", show(t.Changed, t.Old), show(t.Changed, t.New))
	case inventory.Removed:
		b.WriteString("delete")
	}
	fmt.Fprintf(&b, " [%s|%s|%s]", t.New.AlternateID, t.New.ModuleSetTag, t.New.DataProducerID)
	return inventory.Message{Kind: inventory.LCMEvent, Key: []byte(t.ID), Headers: t.EventID[:], Value: []byte(b.String())}
}

func show(a inventory.Attr, v inventory.Values) string {
	var parts []string
	if a&inventory.AttrState != 0 {
		parts = append(parts, string(v.State))
	}
	if a&inventory.AttrDataSync != 0 {
		parts = append(parts, fmt.Sprintf("sync=%d", v.DataSync))
	}
	if a&inventory.AttrAlternateID != 0 {
		parts = append(parts, "alt="+v.AlternateID)
	}
	if a&inventory.AttrModuleSetTag != 0 {
		parts = append(parts, "tag="+v.ModuleSetTag)
	}
	if a&inventory.AttrDataProducerID != 0 {
		parts = append(parts, "producer="+v.DataProducerID)
	}
	if a&inventory.AttrPublic != 0 {
		parts = append(parts, fmt.Sprintf("public=%v", v.Public))
	}
	return strings.Join(parts, ",")
}

func (plain) InventoryEvent(c *inventory.TrustChange) inventory.Message {
	return inventory.Message{Kind: inventory.InventoryEvent, Key: []byte(c.ID), Headers: c.EventID[:], Value: fmt.Appendf(nil, "trust %q -> %q", c.Old, c.New)}
}

func (plain) Outcome(o *inventory.Outcome) inventory.Message {
	v := fmt.Appendf(nil, "%s succeeded %d", o.Cause.ID, o.Succeeded)
	for _, f := range o.Failures {
		v = fmt.Appendf(v, "; %s %s %s %s", f.Op, f.ID, f.Code, f.Text)
	}
	if o.Dead != nil {
		v = fmt.Appendf(v, "; dead %s", o.Dead.Reason)
	}
	return inventory.Message{Kind: inventory.OutcomeEvent, Headers: o.EventID[:], Value: v}
}

func (plain) DeadLetter(d *inventory.DeadLetterOf) inventory.Message {
	return inventory.Message{Kind: inventory.DeadLetterRecord, Key: d.Record.Key, Value: []byte(d.Record.Dead.Reason)}
}

// world is a store for plans: what PostgreSQL does, without PostgreSQL.
type world struct {
	handles map[string]*inventory.Stored
	owners  map[string]string
	trust   map[string]inventory.TrustLevel
	offset  int64
	cfg     inventory.PlannerConfig
	told    []string
	history []inventory.Later
	replays map[string]*inventory.Replay // by event id
}

// source is where the events of apply come from.
var source = inventory.Partition{TopicID: [16]byte{1}, Topic: "in"}

func newWorld() *world {
	return &world{handles: map[string]*inventory.Stored{}, owners: map[string]string{}, trust: map[string]inventory.TrustLevel{}}
}

// apply plans the events as one batch, one record each, and keeps the result.
func (w *world) apply(t testingT, events ...inventory.Event) *inventory.Plan {
	t.Helper()
	b := &inventory.Batch{Partition: source, First: w.offset}
	for _, e := range events {
		b.Records = append(b.Records, inventory.Record{
			Offset: w.offset, Timestamp: now.Add(time.Duration(w.offset) * time.Second),
			Events: []inventory.Event{e}, Replay: w.replays[e.ID],
		})
		w.offset++
	}
	b.Next = w.offset
	return w.plan(t, b)
}

func (w *world) plan(t testingT, b *inventory.Batch) *inventory.Plan {
	t.Helper()
	p := inventory.PlanBatch(b, w.snapshot(inventory.NeedOf(b)), now, w.cfg, plain{}, nil)
	w.keep(t, p)
	return p
}

// snapshot shows no more than the need names.
func (w *world) snapshot(n inventory.Need) *inventory.Snapshot {
	s := &inventory.Snapshot{Handles: map[string]*inventory.Stored{}, Owners: map[string]string{}, Trust: map[string]inventory.TrustLevel{}}
	for _, id := range n.Handles {
		if h := w.handles[id]; h != nil {
			c := *h
			if _, full := n.Full[id]; !full {
				c.Public, c.Private, c.Full = nil, nil, false
			}
			s.Handles[id] = &c
		}
	}
	for _, k := range n.Keys {
		if o := w.owners[k]; o != "" {
			s.Owners[k] = o
		}
	}
	for _, id := range n.Frees { // the store locks the alternate id as well
		if h := w.handles[id]; h != nil && h.AlternateID != "" {
			s.Owners[h.AlternateID] = w.owners[h.AlternateID]
		}
	}
	for _, id := range n.Trust {
		if l, ok := w.trust[id]; ok {
			s.Trust[id] = l
		}
	}
	s.Later, s.Seen = map[int64][]inventory.Later{}, map[string]time.Time{}
	for _, r := range n.Replayed {
		for _, id := range r.Handles {
			for _, l := range slices.Backward(w.history) {
				if l.Handle == id && s.Seen[id].IsZero() {
					s.Seen[id] = l.At
				}
				if l.Handle == id && l.Source.After(&r.Origin) {
					s.Later[r.Offset] = append(s.Later[r.Offset], l)
					break
				}
			}
		}
	}
	return s
}

func (w *world) keep(t testingT, p *inventory.Plan) {
	t.Helper()
	last := ""
	for _, c := range p.Changes {
		var id string
		if c.After != nil {
			id = c.After.ID
		} else {
			id = c.Before.ID
		}
		require.Less(t, last, id, "a change a handle, sorted")
		last = id
		if c.Removed || c.After == nil {
			delete(w.handles, id)
			delete(w.trust, id)
		}
		if c.After != nil {
			h := *c.After
			if old := w.handles[id]; old != nil && c.Before != nil && !c.Before.Full {
				h.Public, h.Private = old.Public, old.Private
			}
			w.handles[id] = &inventory.Stored{Handle: h, Full: true}
			switch c.Trust {
			case inventory.TrustNone:
				w.trust[id] = c.Trust
			case inventory.TrustComplete:
				delete(w.trust, id)
			}
		}
	}
	for _, c := range p.Claims {
		w.owners[c.Key] = c.Owner
	}
	for _, k := range p.Releases {
		delete(w.owners, k)
	}
	for _, f := range p.Facts {
		l := inventory.Later{Handle: f.ID, Step: f.Step, At: f.At, Source: inventory.Place{Partition: source, Offset: f.Offset, Time: f.SourceTime()}}
		if f.Origin != nil {
			l.Source = *f.Origin
		}
		w.history = append(w.history, l)
	}
	for _, m := range p.Messages {
		w.told = append(w.told, string(m.Key)+": "+string(m.Value))
	}
}

func (w *world) take() []string {
	t := w.told
	w.told = nil
	return t
}

func event(items ...inventory.Item) inventory.Event {
	index := map[inventory.Op]int32{}
	for i := range items {
		items[i].Index = index[items[i].Op]
		index[items[i].Op]++
	}
	return inventory.Event{ID: "e", Source: "/test", Items: items}
}

func create(id, alt string, public ...string) inventory.Item {
	f := &inventory.Fields{AlternateID: alt, DMI: &inventory.DMINames{}}
	for i := 0; i < len(public); i += 2 {
		f.Public = append(f.Public, inventory.Property{Name: public[i], Value: public[i+1]})
	}
	return inventory.Item{Op: inventory.OpCreate, ID: id, Fields: f}
}

func update(id, alt, producer string, public ...string) inventory.Item {
	it := create(id, alt, public...)
	it.Op, it.Fields.DataProducerID, it.Fields.DMI = inventory.OpUpdate, producer, nil
	for i := range it.Fields.Public {
		it.Fields.Public[i].Null = it.Fields.Public[i].Value == "-"
	}
	return it
}

func remove(id string) inventory.Item { return inventory.Item{Op: inventory.OpRemove, ID: id} }

func upgrade(id, tag string) inventory.Item {
	return inventory.Item{Op: inventory.OpUpgrade, ID: id, Tag: tag}
}

func state(id string, to inventory.State) inventory.Item {
	return inventory.Item{Op: inventory.OpState, ID: id, State: &inventory.StateChange{To: to}}
}

func beat(id string, l inventory.TrustLevel) inventory.Item {
	return inventory.Item{Op: inventory.OpHeartbeat, ID: id, Trust: l}
}
