package schemas

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// encoder appends the stored JSON form of a value given as text. On an error
// dst is returned as it was.
type encoder func(dst []byte, value string) ([]byte, error)

// Leaf checks and encodes values of one leaf or leaf-list. It may be used from
// many goroutines.
type Leaf struct {
	path      string
	encode    encoder
	list      bool
	userOrder bool
	empty     bool
}

// ValueError says why a model refuses a value. It never quotes the value:
// values may be private.
type ValueError struct {
	Path string // schema path of the leaf
	Text string
}

func (e *ValueError) Error() string { return fmt.Sprintf("leaf %s: %s", e.Path, e.Text) }

// Append appends the form in which CPS stores a value of the leaf: strings and
// enumerations as JSON strings, booleans as such, every integer and decimal64
// as a JSON number with all its digits. It allocates nothing of its own for
// strings, booleans, integers and enumerations. The error is a *ValueError.
func (l *Leaf) Append(dst []byte, value string) ([]byte, error) {
	if l.list {
		return dst, &ValueError{l.path, "is a leaf-list"}
	}
	out, err := l.encode(dst, value)
	if err != nil {
		return dst, &ValueError{l.path, err.Error()}
	}
	return out, nil
}

// AppendList appends the array that CPS stores for a leaf-list: without
// duplicates, and sorted unless the model says that the user orders it.
func (l *Leaf) AppendList(dst []byte, values []string) ([]byte, error) {
	if !l.list {
		return dst, &ValueError{l.path, "is no leaf-list"}
	}
	elems := make([][]byte, 0, len(values))
	for _, v := range values {
		e, err := l.encode(nil, v)
		if err != nil {
			return dst, &ValueError{l.path, err.Error()}
		}
		elems = append(elems, e)
	}
	return appendArray(dst, elems, l.userOrder), nil
}

// appendArray may reorder elems.
func appendArray(dst []byte, elems [][]byte, userOrder bool) []byte {
	if userOrder {
		seen := make(map[string]struct{}, len(elems))
		elems = slices.DeleteFunc(elems, func(e []byte) bool {
			_, dup := seen[string(e)]
			seen[string(e)] = struct{}{}
			return dup
		})
	} else {
		slices.SortFunc(elems, compareJSON)
		elems = slices.CompactFunc(elems, bytes.Equal)
	}
	dst = append(dst, '[')
	for i, e := range elems {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, e...)
	}
	return append(dst, ']')
}

// compareJSON is Java's natural order of the values: numbers by value, strings
// by UTF-16 code units, false before true. Kinds mix only in a union.
func compareJSON(a, b []byte) int {
	ka, kb := jsontext.Value(a).Kind(), jsontext.Value(b).Kind()
	switch {
	case ka != kb:
		return int(ka) - int(kb)
	case ka == '"':
		return compareUTF16(unquoted(a), unquoted(b))
	case ka == '0':
		return compareNumbers(a, b)
	}
	return bytes.Compare(a, b)
}

func unquoted(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	s, _ := jsontext.AppendUnquote(nil, quoted) // our own encoding: always valid
	return string(s)
}

// compareUTF16 compares bytes, which is the order of code points, but for one
// thing: characters above U+FFFF (first byte F0 and up) are surrogate pairs in
// UTF-16 and come before U+E000 to U+FFFF (first byte EE or EF).
func compareUTF16(a, b string) int {
	for i := range min(len(a), len(b)) {
		x, y := a[i], b[i]
		if x == y {
			continue
		}
		if x >= 0xee && y >= 0xee && (x >= 0xf0) != (y >= 0xf0) {
			return int(y) - int(x)
		}
		return int(x) - int(y)
	}
	return len(a) - len(b)
}

// compareNumbers compares numbers in our canonical form by value, however
// many digits they have.
func compareNumbers(a, b []byte) int {
	na, nb := a[0] == '-', b[0] == '-'
	switch {
	case na && nb:
		return -compareNumbers(a[1:], b[1:])
	case na:
		return -1
	case nb:
		return 1
	}
	wa, fa, _ := bytes.Cut(a, []byte("."))
	wb, fb, _ := bytes.Cut(b, []byte("."))
	if len(wa) != len(wb) {
		return len(wa) - len(wb)
	}
	if c := bytes.Compare(wa, wb); c != 0 {
		return c
	}
	return bytes.Compare(fa, fb)
}
