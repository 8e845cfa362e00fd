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

// appendTraceParent appends a new span in parent's trace, with parent's flags.
// The span's id comes from the event's id, so that every repeat of the event
// has equal bytes.
func appendTraceParent(dst []byte, parent string, id uuid.UUID) []byte {
	span := binary.BigEndian.Uint64(id[:8]) ^ binary.BigEndian.Uint64(id[8:])
	if span == 0 {
		span = 1 // W3C: an id of zeros is none
	}
	dst = append(dst, "00-"...)
	dst = append(dst, parent[3:36]...)
	for shift := 60; shift >= 0; shift -= 4 {
		dst = append(dst, hexDigits[span>>shift&15])
	}
	return append(dst, parent[52:55]...)
}
