package lcm

import (
	"encoding/binary"

	"github.com/google/uuid"
)

// A W3C traceparent is version-traceid-parentid-flags in lower-case hex:
// 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.
const (
	traceParentLen = 55
	zeroTrace      = "00000000000000000000000000000000"
)

// validTraceParent reports whether s names a trace that can be continued. A
// later version may have more members behind the flags; those are dropped.
func validTraceParent(s string) bool {
	if len(s) < traceParentLen || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return false
	}
	if s[:2] == "ff" || s[:2] == "00" && len(s) != traceParentLen ||
		len(s) > traceParentLen && s[traceParentLen] != '-' {
		return false
	}
	for _, i := range [...][2]int{{0, 2}, {3, 35}, {36, 52}, {53, 55}} {
		for _, c := range []byte(s[i[0]:i[1]]) {
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
				return false
			}
		}
	}
	return s[3:35] != zeroTrace && s[36:52] != zeroTrace[:16]
}

// SpanID is the id of the span that an output event is in its trace. It comes
// from the event's id, so that every repeat of the event has equal bytes.
func SpanID(event uuid.UUID) (id [8]byte) {
	span := binary.BigEndian.Uint64(event[:8]) ^ binary.BigEndian.Uint64(event[8:])
	if span == 0 {
		span = 1 // W3C: an id of zeros is none
	}
	binary.BigEndian.PutUint64(id[:], span)
	return id
}

// appendTraceParent appends the event's span in parent's trace, with parent's
// flags.
func appendTraceParent(dst []byte, parent string, event uuid.UUID) []byte {
	dst = append(dst, "00-"...)
	dst = append(dst, parent[3:36]...)
	for _, b := range SpanID(event) {
		dst = append(dst, hexDigits[b>>4], hexDigits[b&15])
	}
	return append(dst, parent[52:55]...)
}

// TraceOf finds the traceparent and tracestate of a message whose headers are in
// Kafka's own form, the form of inventory.Message; "" if it has none. A dead
// letter has those of the record that it was.
func TraceOf(headers []byte) (parent, state string) {
	count, n := binary.Varint(headers)
	if n <= 0 {
		return "", ""
	}
	rest := headers[n:]
	next := func() (text []byte, ok bool) {
		size, n := binary.Varint(rest)
		if n <= 0 || size > int64(len(rest)-n) {
			return nil, false
		}
		rest = rest[n:]
		if size > 0 {
			text, rest = rest[:size], rest[size:]
		}
		return text, true
	}
	for range count {
		name, ok := next()
		if !ok {
			break
		}
		value, ok := next()
		if !ok {
			break
		}
		switch string(name) {
		case "ce_traceparent":
			parent = string(value)
		case "ce_tracestate":
			state = string(value)
		}
	}
	return parent, state
}
