package lcm

import (
	"github.com/go-json-experiment/json/jsontext"

	"ncmp-inventory/inventory"
)

// What NCMP writes into every LCM event.
const (
	eventSource   = "org.onap.ncmp"
	schemaVersion = "1.0" // also in v2
)

// eventTypes by inventory.TransitionKind.
var eventTypes = [...]string{
	inventory.Created: "org.onap.ncmp.cmhandle-lcm-event.create",
	inventory.Updated: "org.onap.ncmp.cmhandle-lcm-event.update",
	inventory.Removed: "org.onap.ncmp.cmhandle-lcm-event.delete",
}

// schema names one version of the body.
type schema struct{ name, dataSchema, javaClass string }

var (
	schemaV1 = schema{
		name:       "org.onap.ncmp:cmhandle-lcm-event",
		dataSchema: "urn:onap:ncmp:cmhandle-lcm-event:v1",
		javaClass:  "org.onap.cps.ncmp.events.lcm.LcmEventV1",
	}
	schemaV2 = schema{
		name:       "org.onap.ncmp:cmhandle-lcm-event.v2",
		dataSchema: "urn:onap:ncmp:cmhandle-lcm-event:v2",
		javaClass:  "org.onap.cps.ncmp.events.lcm.LcmEventV2",
	}
)

// appendBody appends the JSON that NCMP's mapper writes: `event` first, the
// other members by name. Members without a value are left out; inside the
// value maps of v2 they are null.
func (e *Encoder) appendBody(b []byte, t *inventory.Transition, m *meta) []byte {
	v2 := e.cfg.Version == V2
	b = append(b, `{"event":{"cmHandleId":`...)
	b = appendString(b, t.ID)
	b = append(b, `,"alternateId":`...)
	b = appendString(b, t.New.AlternateID)
	if !v2 {
		b = append(b, `,"moduleSetTag":`...)
		b = appendString(b, t.New.ModuleSetTag)
		b = append(b, `,"dataProducerIdentifier":`...)
		b = appendString(b, t.New.DataProducerID)
	}
	values := appendValuesV1
	if v2 {
		values = appendValuesV2
	}
	switch {
	case t.Kind == inventory.Created:
		b = append(b, `,"newValues":`...)
		b = values(b, &t.New, inventory.AllAttrs)
	case t.Kind == inventory.Updated && t.Changed != 0:
		b = append(b, `,"oldValues":`...)
		b = values(b, &t.Old, t.Changed)
		b = append(b, `,"newValues":`...)
		b = values(b, &t.New, t.Changed)
	}
	b = append(b, `},"eventCorrelationId":`...)
	b = appendString(b, t.ID)
	b = append(b, `,"eventId":"`...)
	b = append(b, m.id...)
	b = append(b, `","eventSchema":"`...)
	b = append(b, e.schema.name...)
	b = append(b, `","eventSchemaVersion":"`+schemaVersion+`","eventSource":"`+eventSource+`","eventTime":"`...)
	b = appendNCMPTime(b, m.at)
	b = append(b, `","eventType":"`...)
	b = append(b, m.kind...)
	return append(b, `"}`...)
}

// appendValuesV1 writes the three attributes that v1 has a place for. The
// public properties are a list of one map: consumers rely on it.
func appendValuesV1(b []byte, v *inventory.Values, shown inventory.Attr) []byte {
	o := object{b: append(b, '{')}
	if shown&inventory.AttrDataSync != 0 && v.DataSync != inventory.Unset {
		o.name(`"dataSyncEnabled":`)
		o.b = appendTri(o.b, v.DataSync)
	}
	if shown&inventory.AttrState != 0 {
		o.name(`"cmHandleState":`)
		o.b = appendString(o.b, string(v.State))
	}
	if shown&inventory.AttrPublic != 0 {
		o.name(`"cmHandleProperties":`)
		o.b = append(o.b, '[')
		o.b = appendProperties(o.b, v.Public)
		o.b = append(o.b, ']')
	}
	return append(o.b, '}')
}

// appendValuesV2 writes every attribute shown, in the order of NCMP's map.
func appendValuesV2(b []byte, v *inventory.Values, shown inventory.Attr) []byte {
	o := object{b: append(b, '{')}
	if shown&inventory.AttrAlternateID != 0 {
		o.name(`"alternateId":`)
		o.b = appendString(o.b, v.AlternateID)
	}
	if shown&inventory.AttrDataSync != 0 {
		o.name(`"dataSyncEnabled":`)
		o.b = appendTri(o.b, v.DataSync)
	}
	if shown&inventory.AttrDataProducerID != 0 {
		o.name(`"dataProducerIdentifier":`)
		o.b = appendString(o.b, v.DataProducerID)
	}
	if shown&inventory.AttrState != 0 {
		o.name(`"cmHandleState":`)
		o.b = appendString(o.b, string(v.State))
	}
	if shown&inventory.AttrModuleSetTag != 0 {
		o.name(`"moduleSetTag":`)
		o.b = appendString(o.b, v.ModuleSetTag)
	}
	if shown&inventory.AttrPublic != 0 {
		o.name(`"cmHandleProperties":`)
		o.b = appendProperties(o.b, v.Public)
	}
	return append(o.b, '}')
}

// object puts the commas between the members of a JSON object.
type object struct {
	b    []byte
	more bool
}

func (o *object) name(quoted string) {
	if o.more {
		o.b = append(o.b, ',')
	}
	o.more = true
	o.b = append(o.b, quoted...)
}

func appendProperties(b []byte, ps []inventory.Property) []byte {
	b = append(b, '{')
	for i := range ps {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, ps[i].Name)
		b = append(b, ':')
		b = appendString(b, ps[i].Value)
	}
	return append(b, '}')
}

func appendTri(b []byte, t inventory.Tri) []byte {
	switch t {
	case inventory.True:
		return append(b, "true"...)
	case inventory.False:
		return append(b, "false"...)
	}
	return append(b, "null"...)
}

// appendString appends s as a JSON string. What is no UTF-8 becomes U+FFFD:
// an event that cannot be told exactly is still told.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			b, _ = jsontext.AppendQuote(b, s) // the error only tells of a replacement
			return b
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
