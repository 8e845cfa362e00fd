package consumer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"ncmp-inventory/inventory"
)

// reader walks one JSON text strictly: a duplicate member, invalid UTF-8, an
// unpaired surrogate, U+0000 in a string and trailing data are failures. A
// failure is sticky, as with bufio.Scanner: loops end and the caller looks at
// dead once. Strings without escapes are substrings of text.
type reader struct {
	dec  *jsontext.Decoder
	buf  bytes.Buffer
	tmp  []byte // for unescaping
	text string // the same bytes that dec reads
	base int64  // where text begins in the record's value, -1 if it is not a part of it
	path string // where text stands in the record's value
	at   int    // where the value read last begins in text
	dead *inventory.DeadLetter
}

func (r *reader) reset(b []byte, text string, base int64, path string) {
	r.start(b, text, base, path)
	// The escape is the only way in: a raw NUL is no JSON.
	if strings.Contains(text, `\u0000`) {
		r.findNUL()
		if r.dead == nil {
			r.start(b, text, base, path)
		}
	}
}

// resetLenient reads on where strictness would stop, to rescue the attributes
// of an event that is a dead letter anyway.
func (r *reader) resetLenient(b []byte, text string) {
	r.start(b, text, 0, "", jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

func (r *reader) start(b []byte, text string, base int64, path string, opts ...jsontext.Options) {
	// The decoder takes a bytes.Buffer's content as it is, without a copy.
	r.buf = *bytes.NewBuffer(b)
	if r.dec == nil {
		r.dec = jsontext.NewDecoder(&r.buf, opts...)
	} else {
		r.dec.Reset(&r.buf, opts...)
	}
	r.text, r.base, r.path, r.at, r.dead = text, base, path, 0, nil
}

// release drops what was read, so that a pooled reader pins no record.
func (r *reader) release() {
	r.buf = bytes.Buffer{}
	r.dec.Reset(&r.buf)
	r.text, r.path, r.dead = "", "", nil
}

// kind peeks at the next value; 0 means that reading it will fail.
func (r *reader) kind() jsontext.Kind { return r.dec.PeekKind() }

// open enters an object or array, which kind has shown.
func (r *reader) open() {
	if r.dead == nil {
		if _, err := r.dec.ReadToken(); err != nil {
			r.fail(err)
		}
	}
}

// more reports whether a member or element follows; if not, it leaves the
// object or array.
func (r *reader) more() bool {
	if r.dead != nil {
		return false
	}
	switch r.dec.PeekKind() {
	case jsontext.KindEndObject, jsontext.KindEndArray:
		if _, err := r.dec.ReadToken(); err != nil {
			r.fail(err)
		}
		return false
	}
	return true
}

// raw reads any value and returns its place in text.
func (r *reader) raw() (start, end int) {
	if r.dead != nil {
		return 0, 0
	}
	v, err := r.dec.ReadValue()
	if err != nil {
		r.fail(err)
		return 0, 0
	}
	end = int(r.dec.InputOffset())
	r.at = end - len(v)
	return r.at, end
}

func (r *reader) skip() { r.raw() }

// name reads a member's name.
func (r *reader) name() string {
	s, _ := r.scalar()
	return s
}

// scalar reads a value: a string's content, or the JSON text of a number or
// boolean. Of an object or array only the kind is returned.
func (r *reader) scalar() (string, jsontext.Kind) {
	start, end := r.raw()
	if r.dead != nil {
		return "", 0
	}
	v := r.text[start:end]
	switch k := kindOf(v[0]); k {
	case jsontext.KindString:
		inner := v[1 : len(v)-1]
		if strings.IndexByte(inner, '\\') < 0 {
			return inner, k
		}
		// The decoder has checked the string: unquoting cannot fail, but
		// for what the lenient mode lets through.
		r.tmp, _ = jsontext.AppendUnquote(r.tmp[:0], v)
		return string(r.tmp), k
	case jsontext.KindBeginObject, jsontext.KindBeginArray, jsontext.KindNull:
		return "", k
	default:
		return v, k
	}
}

// finish fails if anything but white space follows.
func (r *reader) finish() {
	if r.dead != nil {
		return
	}
	rest := strings.TrimLeft(r.text[r.dec.InputOffset():], " \t\r\n")
	if rest != "" {
		r.die(ReasonTrailingData, "data after the JSON value", r.path, int64(len(r.text)-len(rest)))
	}
}

// shape fails because the value read last is of the wrong kind.
func (r *reader) shape(want string, got jsontext.Kind) {
	if r.dead == nil {
		r.die(ReasonBadShape, "want "+want+", got "+kindName(got), fieldPath(r.path, r.dec.StackPointer()), int64(r.at))
	}
}

func (r *reader) die(reason, text, field string, at int64) {
	if r.dead != nil {
		return
	}
	if r.base < 0 {
		at = -1
	} else {
		at += r.base
	}
	r.dead = &inventory.DeadLetter{Reason: reason, Text: text, Field: field, Byte: at}
}

// fail turns the decoder's error into a dead letter. The error's own text is
// not used: it quotes the input, which may be private.
func (r *reader) fail(err error) {
	var syntax *jsontext.SyntacticError
	if !errors.As(err, &syntax) {
		// io.EOF where a value was due: nothing but white space.
		r.die(ReasonBadJSON, "unexpected end of JSON", r.path, int64(len(r.text)))
		return
	}
	at := min(int(syntax.ByteOffset), len(r.text))
	reason, text := ReasonBadJSON, "invalid JSON"
	rest := r.text[at:]
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		reason, text = ReasonDuplicateMember, "the member stands twice in its object"
	case errors.Is(err, io.ErrUnexpectedEOF):
		text = "unexpected end of JSON"
	case isSurrogateEscape(rest):
		reason, text = ReasonUnpairedSurrogate, "a surrogate escape without its other half"
	case rest != "" && invalidRune(rest):
		reason, text = ReasonInvalidUTF8, "invalid UTF-8"
	}
	r.die(reason, text, fieldPath(r.path, syntax.JSONPointer), int64(at))
}

func isSurrogateEscape(s string) bool {
	return len(s) >= 4 && s[:2] == `\u` && (s[2]|0x20) == 'd' && strings.IndexByte("89abcdefABCDEF", s[3]) >= 0
}

func invalidRune(s string) bool {
	c, n := utf8.DecodeRuneInString(s)
	return c == utf8.RuneError && n == 1
}

// findNUL looks for the first string, names included, that holds U+0000. It is
// slow and runs only when the escape's six characters occur, which may also be
// an escaped backslash and text.
func (r *reader) findNUL() {
	for {
		before := int(r.dec.InputOffset())
		tok, err := r.dec.ReadToken()
		if err != nil {
			return // the real walk reports it
		}
		if tok.Kind() == jsontext.KindString && strings.IndexByte(tok.String(), 0) >= 0 {
			r.die(ReasonNUL, "U+0000 in a string", fieldPath(r.path, r.dec.StackPointer()),
				int64(before+strings.IndexByte(r.text[before:], '"')))
			return
		}
	}
}

// The maps of properties. Names and values of the private one appear nowhere
// but in the store.
const (
	publicMember  = "publicCmHandleProperties"
	privateMember = "cmHandleProperties"
)

// fieldPath writes a pointer as createdCmHandles[3].cmHandle, below prefix.
// What stands below the private map is left out.
func fieldPath(prefix string, p jsontext.Pointer) string {
	var b strings.Builder
	b.WriteString(prefix)
	parent := ""
	for token := range p.Tokens() {
		if _, err := strconv.ParseUint(token, 10, 32); err == nil {
			fmt.Fprintf(&b, "[%s]", token)
			continue
		}
		if parent == publicMember {
			b.WriteString("[" + clip(visible(token)) + "]")
			continue
		}
		parent = token
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(clip(visible(token)))
		if token == privateMember {
			if p.LastToken() != token {
				b.WriteString("[…]")
			}
			break
		}
	}
	return b.String()
}

// visible makes text fit for a header, a log line and PostgreSQL.
func visible(s string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return utf8.RuneError
		}
		return c
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

// kindOf tells a value's kind from its first byte.
func kindOf(c byte) jsontext.Kind {
	if c == '-' || '0' <= c && c <= '9' {
		return jsontext.KindNumber
	}
	return jsontext.Kind(c)
}

func kindName(k jsontext.Kind) string {
	switch k {
	case jsontext.KindNull:
		return "null"
	case jsontext.KindFalse, jsontext.KindTrue:
		return "a boolean"
	case jsontext.KindNumber:
		return "a number"
	case jsontext.KindString:
		return "a string"
	case jsontext.KindBeginObject:
		return "an object"
	case jsontext.KindBeginArray:
		return "an array"
	}
	return "no value"
}
