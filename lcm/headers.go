package lcm

import (
	"encoding/binary"
	"time"

	"github.com/google/uuid"

	"ncmp-inventory/inventory"
)

// headerBlock writes record headers in Kafka's own form: a varint count, then
// for each header a varint key length, the key, a varint value length (-1 is a
// null value) and the value. Varints are zigzag-encoded, as all of a record's.
type headerBlock struct {
	b     []byte
	start int
	n     int
}

// maxHeaders is the largest count whose varint takes one byte. No message of
// ours comes near it; dead letters, whose headers are foreign, count first.
const maxHeaders = 63

func (h *headerBlock) open()  { h.start = len(h.b); h.b = append(h.b, 0) }
func (h *headerBlock) close() { h.b[h.start] = byte(h.n << 1) }

func (h *headerBlock) key(k string) {
	h.b = binary.AppendVarint(h.b, int64(len(k)))
	h.b = append(h.b, k...)
	h.n++
}

func (h *headerBlock) text(k, v string) {
	h.key(k)
	h.b = binary.AppendVarint(h.b, int64(len(v)))
	h.b = append(h.b, v...)
}

func (h *headerBlock) bytes(k string, v []byte) {
	h.key(k)
	if v == nil {
		h.b = binary.AppendVarint(h.b, -1)
		return
	}
	h.b = binary.AppendVarint(h.b, int64(len(v)))
	h.b = append(h.b, v...)
}

// meta are the CloudEvents context attributes of an output event.
type meta struct {
	id          []byte
	at          time.Time // in UTC
	source      string
	kind        string
	schema      string // "" is none
	subject     string // "" is none
	correlation string // "" is none
}

const contentType = "application/json"

// cloudEvent writes the context attributes in Kafka's binary mode.
func (h *headerBlock) cloudEvent(m *meta) {
	h.text("ce_specversion", "1.0")
	h.bytes("ce_id", m.id)
	h.text("ce_source", m.source)
	h.text("ce_type", m.kind)
	var at [40]byte
	h.bytes("ce_time", appendTime(at[:0], m.at))
	if m.subject != "" {
		h.text("ce_subject", m.subject)
	}
	if m.schema != "" {
		h.text("ce_dataschema", m.schema)
	}
	h.text("content-type", contentType)
	if m.correlation != "" {
		h.text("ce_correlationid", m.correlation)
	}
}

// cause says which input event an output event comes from, and continues its
// trace.
func (h *headerBlock) cause(ev *inventory.Event, id uuid.UUID) {
	if ev == nil {
		return
	}
	if ev.ID != "" {
		h.text("ce_causationid", ev.ID)
	}
	if ev.Source != "" {
		h.text("ce_causationsource", ev.Source)
	}
	if !validTraceParent(ev.TraceParent) {
		return
	}
	h.key("ce_traceparent")
	h.b = append(h.b, traceParentLen<<1)
	h.b = appendTraceParent(h.b, ev.TraceParent, id)
	if ev.TraceState != "" {
		h.text("ce_tracestate", ev.TraceState)
	}
}

// legacyHeaders writes NCMP's own headers, in the order in which NCMP sends
// them: their names and values are the body's.
func (e *Encoder) legacyHeaders(h *headerBlock, t *inventory.Transition, m *meta) {
	var at [40]byte
	switch e.cfg.LegacyHeaders {
	case LegacyUTF8:
		h.bytes("eventId", m.id)
		h.text("eventSchema", e.schema.name)
		h.text("eventCorrelationId", t.ID)
		h.bytes("eventTime", appendNCMPTime(at[:0], m.at))
		h.text("eventSource", eventSource)
		h.text("eventType", m.kind)
		h.text("eventSchemaVersion", schemaVersion)
	case LegacyJava:
		h.javaASCII("eventId", m.id)
		h.javaText("eventSchema", e.schema.name)
		h.javaText("eventCorrelationId", t.ID)
		h.javaASCII("eventTime", appendNCMPTime(at[:0], m.at))
		h.javaText("eventSource", eventSource)
		h.javaText("eventType", m.kind)
		h.javaText("eventSchemaVersion", schemaVersion)
		h.text("__TypeId__", e.schema.javaClass)
	}
}

// appendNCMPTime appends t, which is in UTC, in NCMP's format.
func appendNCMPTime(dst []byte, t time.Time) []byte {
	return t.AppendFormat(dst, "2006-01-02T15:04:05.000+0000")
}
