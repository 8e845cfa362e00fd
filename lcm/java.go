package lcm

import (
	"encoding/binary"
	"unicode/utf8"
)

// A string as java.io.ObjectOutputStream writes it (Java Object Serialization
// Specification 6.4): stream magic and version, then TC_STRING with a two-byte
// length, or TC_LONGSTRING with eight bytes, then modified UTF-8.
const (
	javaHeader     = "\xac\xed\x00\x05"
	javaString     = 0x74
	javaLongString = 0x7c
	javaShortMax   = 1<<16 - 1
)

// javaText writes a header whose value is a Java string.
func (h *headerBlock) javaText(k, v string) {
	h.javaPrefix(k, modifiedLen(v))
	h.b = appendModified(h.b, v)
}

// javaASCII does so for a value that needs no modification.
func (h *headerBlock) javaASCII(k string, v []byte) {
	h.javaPrefix(k, len(v))
	h.b = append(h.b, v...)
}

func (h *headerBlock) javaPrefix(k string, n int) {
	h.key(k)
	if n > javaShortMax {
		h.b = binary.AppendVarint(h.b, int64(len(javaHeader)+1+8+n))
		h.b = append(h.b, javaHeader...)
		h.b = append(h.b, javaLongString)
		h.b = binary.BigEndian.AppendUint64(h.b, uint64(n))
		return
	}
	h.b = binary.AppendVarint(h.b, int64(len(javaHeader)+1+2+n))
	h.b = append(h.b, javaHeader...)
	h.b = append(h.b, javaString)
	h.b = binary.BigEndian.AppendUint16(h.b, uint16(n))
}

// modifiedLen is the length of v in modified UTF-8.
func modifiedLen(v string) int {
	n := 0
	for _, r := range v {
		switch {
		case r == 0:
			n += 2
		case r < 0x10000:
			n += utf8.RuneLen(r)
		default:
			n += 6
		}
	}
	return n
}

// appendModified appends v in Java's modified UTF-8: NUL takes two bytes, and
// a code point beyond the basic plane is two surrogates of three bytes each.
// What is no UTF-8 becomes U+FFFD.
func appendModified(dst []byte, v string) []byte {
	for _, r := range v {
		switch {
		case r == 0:
			dst = append(dst, 0xc0, 0x80)
		case r < 0x10000:
			dst = utf8.AppendRune(dst, r)
		default:
			r -= 0x10000
			dst = appendSurrogate(dst, 0xd800+r>>10)
			dst = appendSurrogate(dst, 0xdc00+r&0x3ff)
		}
	}
	return dst
}

func appendSurrogate(dst []byte, r rune) []byte {
	return append(dst, 0xe0|byte(r>>12), 0x80|byte(r>>6)&0x3f, 0x80|byte(r)&0x3f)
}
