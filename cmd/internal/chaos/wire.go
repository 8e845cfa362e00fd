package chaos

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
)

const (
	typeRegistration = "org.onap.ncmp.inventory.registration.v1"
	typeStateChange  = "org.onap.ncmp.inventory.state-change.v1"
	typeHeartbeat    = "org.onap.cps.ncmp.events.trustlevel.DeviceTrustLevel"
)

func (e *Event) kind() string {
	switch {
	case e.Registration != nil:
		return typeRegistration
	case e.Beat != nil:
		return typeHeartbeat
	}
	return typeStateChange
}

// data is the event's content as JSON.
func (e *Event) data() map[string]any {
	switch {
	case e.Registration != nil:
		return e.Registration.data()
	case e.Beat != nil:
		return map[string]any{"data": map[string]any{"trustLevel": e.Beat.Level}}
	case len(e.States) == 1 && !e.Many:
		return e.States[0].data()
	}
	list := make([]any, len(e.States))
	for i := range e.States {
		list[i] = e.States[i].data()
	}
	return map[string]any{"cmHandles": list}
}

func (g *Registration) data() map[string]any {
	d := map[string]any{}
	for member, name := range g.DMI {
		d[member] = name
	}
	if g.Removed != nil {
		d["removedCmHandles"] = g.Removed
	}
	for member, list := range map[string][]Entry{"createdCmHandles": g.Created, "updatedCmHandles": g.Updated} {
		var entries []any
		for i := range list {
			entries = append(entries, list[i].data())
		}
		if entries != nil {
			d[member] = entries
		}
	}
	if g.Upgraded != nil {
		d["upgradedCmHandles"] = map[string]any{"cmHandles": g.Upgraded.IDs, "moduleSetTag": g.Upgraded.Tag}
	}
	return d
}

func (e *Entry) data() map[string]any {
	d := map[string]any{"cmHandle": e.ID, "unknownMember": 1}
	for member, v := range map[string]*string{"alternateId": e.Alt, "moduleSetTag": e.Tag, "dataProducerIdentifier": e.Producer} {
		if v != nil {
			d[member] = *v
		}
	}
	if e.Public != nil {
		d["publicCmHandleProperties"] = e.Public
	}
	if e.Private != nil {
		d["cmHandleProperties"] = e.Private
	}
	if e.Trust != "" {
		d["trustLevel"] = e.Trust
	}
	if e.Bad {
		d["dataProducerIdentifier"] = map[string]any{"not": "text"}
	}
	return d
}

func (s *StateEntry) data() map[string]any {
	state := map[string]any{}
	if s.To != "" {
		state["cmHandleState"] = s.To
	}
	if s.Lock != nil {
		lock := map[string]any{}
		if s.Lock.Reason != nil {
			lock["reason"] = *s.Lock.Reason
		}
		if s.Lock.Details != nil {
			lock["details"] = *s.Lock.Details
		}
		state["lockReason"] = lock
	}
	if s.Sync != nil {
		state["dataSyncEnabled"] = *s.Sync
	}
	if s.SyncState != nil || s.LastSync != nil {
		op := map[string]any{}
		if s.SyncState != nil {
			op["syncState"] = *s.SyncState
		}
		if s.LastSync != nil {
			op["lastSyncTime"] = *s.LastSync
		}
		state["dataSyncState"] = map[string]any{"operational": op}
	}
	d := map[string]any{"cmHandle": s.ID, "state": state}
	if s.Tag != nil {
		d["moduleSetTag"] = *s.Tag
	}
	return d
}

// structured is the event in JSON form.
func (e *Event) structured() map[string]any {
	d := map[string]any{"specversion": "1.0", "id": e.ID, "source": e.Source, "type": e.kind(), "data": e.data()}
	if e.Outcome != "" {
		d["outcome"] = e.Outcome
	}
	if e.Correlation != "" {
		d["correlationid"] = e.Correlation
	}
	return d
}

func text(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps, lists and strings
	}
	return b
}

// binary are the event's headers in binary mode, their names as prefix spells it.
func (e *Event) binary(prefix string) []Header {
	hs := []Header{
		{prefix + "specversion", []byte("1.0")}, {prefix + "id", []byte(e.ID)}, {prefix + "source", []byte(e.Source)},
		{prefix + "type", []byte(e.kind())}, {"content-type", []byte("application/json")},
	}
	if e.Outcome != "" {
		hs = append(hs, Header{prefix + "outcome", []byte(e.Outcome)})
	}
	if e.Correlation != "" {
		hs = append(hs, Header{prefix + "correlationid", []byte(e.Correlation)})
	}
	return hs
}

// encode writes the input's events into value and headers, in one of the forms
// that producers use.
func (in *Input) encode(r *rand.Rand) {
	if len(in.Events) > 1 {
		list := make([]any, len(in.Events))
		for i := range in.Events {
			list[i] = in.Events[i].structured()
		}
		in.Value, in.Headers = text(list), []Header{{"content-type", []byte("application/cloudevents-batch+json")}}
		return
	}
	e := &in.Events[0]
	switch n := r.IntN(20); {
	case n < 4:
		in.Value = text(e.structured())
		if n < 3 {
			in.Headers = []Header{{"Content-Type", []byte([]string{"application/cloudevents+json", "application/cloudevents+json; charset=UTF-8"}[n%2])}}
		}
	case n == 4:
		in.Value, in.Headers = text(e.data()), e.binary("CE_")
	default:
		in.Value, in.Headers = text(e.data()), e.binary("ce_")
	}
}

// garbage are records that cannot be applied, each with the reason to expect.
// id is an event's id, handle one of the partition's own: nothing may happen to
// it.
var garbage = []func(in *Input, id, handle string) Garbage{
	func(in *Input, _, _ string) Garbage {
		in.Value = []byte{0x00, 0xff, 0x13}
		return Garbage{Reason: "not-a-cloudevent"}
	},
	func(in *Input, _, _ string) Garbage {
		in.Value = []byte("<html><body>502 Bad Gateway</body></html>")
		return Garbage{Reason: "not-a-cloudevent"}
	},
	registrationWith("bad-json", func(string) string { return `{` }),
	registrationWith("bad-shape", func(h string) string { return fmt.Sprintf(`{"removedCmHandles":%q}`, h) }),
	registrationWith("duplicate-member", func(h string) string { return fmt.Sprintf(`{"removedCmHandles":[%q],"removedCmHandles":[]}`, h) }),
	registrationWith("nul-character", func(h string) string {
		return fmt.Sprintf(`{"updatedCmHandles":[{"cmHandle":%q,"dataProducerIdentifier":"a\u0000b"}]}`, h)
	}),
	registrationWith("unpaired-surrogate", func(h string) string {
		return fmt.Sprintf(`{"updatedCmHandles":[{"cmHandle":%q,"dataProducerIdentifier":"\ud800"}]}`, h)
	}),
	registrationWith("invalid-utf8", func(h string) string {
		return fmt.Sprintf(`{"updatedCmHandles":[{"cmHandle":%q,"dataProducerIdentifier":"`, h) + "\xff\xfe" + `"}]}`
	}),
	registrationWith("trailing-data", func(h string) string { return fmt.Sprintf(`{"removedCmHandles":[%q]} true`, h) }),
	registrationWith("no-data", func(string) string { return "" }),
	withHeaders("missing-attribute", func(hs []Header) []Header { return drop(hs, "ce_id") }),
	withHeaders("unknown-type", func(hs []Header) []Header { return set(hs, "ce_type", "com.example.other") }),
	withHeaders("unsupported-specversion", func(hs []Header) []Header { return set(hs, "ce_specversion", "0.3") }),
	withHeaders("bad-content-type", func(hs []Header) []Header { return set(hs, "content-type", "text/xml") }),
	withHeaders("bad-time", func(hs []Header) []Header { return append(hs, Header{"ce_time", []byte("yesterday")}) }),
	withHeaders("duplicate-attribute", func(hs []Header) []Header {
		return append(hs, Header{"ce_type", []byte(typeRegistration)})
	}),
	func(in *Input, id, handle string) Garbage { // one bad event takes its neighbour along
		good := Event{ID: id, Source: "/chaos", Registration: &Registration{Removed: []string{handle}}}
		bad := good.structured()
		delete(bad, "id")
		in.Value, in.Headers = text([]any{good.structured(), bad}), []Header{{"content-type", []byte("application/cloudevents-batch+json")}}
		return Garbage{Reason: "missing-attribute"}
	},
}

func registrationWith(reason string, value func(handle string) string) func(*Input, string, string) Garbage {
	return func(in *Input, id, handle string) Garbage {
		e := Event{ID: id, Source: "/chaos", Registration: &Registration{}}
		in.Headers, in.Value = e.binary("ce_"), []byte(value(handle))
		return Garbage{Reason: reason, EventID: id}
	}
}

func withHeaders(reason string, change func([]Header) []Header) func(*Input, string, string) Garbage {
	return func(in *Input, id, handle string) Garbage {
		e := Event{ID: id, Source: "/chaos", Registration: &Registration{Removed: []string{handle}}}
		in.Headers, in.Value = change(e.binary("ce_")), text(e.data())
		g := Garbage{Reason: reason}
		if reason != "missing-attribute" {
			g.EventID = id
		}
		return g
	}
}

func drop(hs []Header, name string) []Header {
	var out []Header
	for _, h := range hs {
		if !strings.EqualFold(h.Key, name) {
			out = append(out, h)
		}
	}
	return out
}

func set(hs []Header, name, value string) []Header {
	return append(drop(hs, name), Header{name, []byte(value)})
}
