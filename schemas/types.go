package schemas

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openconfig/goyang/pkg/yang"
)

// The refusals that need no detail of the type. None quotes the value.
var (
	errText    = errors.New("is no valid UTF-8 text without U+0000")
	errBoolean = errors.New("is neither true nor false")
	errInteger = errors.New("is no decimal integer")
	errDecimal = errors.New("is no decimal number")
	errEnum    = errors.New("is not one of the enumeration")
	errIdent   = errors.New("names no identity derived from the base")
	errBits    = errors.New("names a bit that the type does not have, or one twice")
	errBase64  = errors.New("is no base64")
	errUnion   = errors.New("matches no member type of the union")
	errEmpty   = errors.New("has a value, but its type is empty")
)

// encoder compiles a type to the closure that checks and encodes its values.
// through holds the leaves of a leafref chain.
func (c *compiler) encoder(t *yang.YangType, e *yang.Entry, through []*yang.Entry) (encoder, error) {
	switch t.Kind {
	case yang.Ystring:
		return c.text(t)
	case yang.Ybool:
		return boolean, nil
	case yang.Yint8, yang.Yint16, yang.Yint32, yang.Yint64, yang.Yuint8, yang.Yuint16, yang.Yuint32, yang.Yuint64:
		return integer(t.Range), nil
	case yang.Ydecimal64:
		return decimal(t), nil
	case yang.Yenum:
		return enumeration(t.Enum.NameMap()), nil
	case yang.Ybits:
		return bits(t.Bit.NameMap()), nil
	case yang.Yidentityref:
		return c.identityref(t.IdentityBase)
	case yang.Ybinary:
		return binary(t.Length), nil
	case yang.Yempty:
		return empty, nil
	case yang.YinstanceIdentifier:
		return quote, nil
	case yang.Yunion:
		return c.union(t, e, through)
	case yang.Yleafref:
		return c.leafref(t, e, through)
	}
	return nil, fmt.Errorf("type %s is not supported", t.Name)
}

func quote(dst []byte, value string) ([]byte, error) {
	// jsonb has no form for U+0000.
	if strings.IndexByte(value, 0) >= 0 {
		return dst, errText
	}
	out, err := jsontext.AppendQuote(dst, value)
	if err != nil {
		return dst, errText
	}
	return out, nil
}

func (c *compiler) text(t *yang.YangType) (encoder, error) {
	if len(t.Length) == 0 && len(t.Pattern) == 0 {
		return quote, nil
	}
	patterns := make([]pattern, len(t.Pattern))
	for i, p := range t.Pattern {
		re, err := c.pattern(p)
		if err != nil {
			return nil, err
		}
		patterns[i] = pattern{re, fmt.Errorf("does not match the pattern %s", p)}
	}
	length := t.Length
	return func(dst []byte, value string) ([]byte, error) {
		if err := checkLength(length, value); err != nil {
			return dst, err
		}
		for _, p := range patterns {
			if !p.re.MatchString(value) {
				return dst, p.refusal
			}
		}
		return quote(dst, value)
	}, nil
}

func checkLength(r yang.YangRange, value string) error {
	if len(r) == 0 {
		return nil
	}
	if n := utf8.RuneCountInString(value); !within(r, yang.FromUint(uint64(n))) {
		return fmt.Errorf("has %d characters, not %s", n, r)
	}
	return nil
}

func within(r yang.YangRange, n yang.Number) bool {
	for _, p := range r {
		if !n.Less(p.Min) && !p.Max.Less(n) {
			return true
		}
	}
	return len(r) == 0
}

func boolean(dst []byte, value string) ([]byte, error) {
	if value != "true" && value != "false" {
		return dst, errBoolean
	}
	return append(dst, value...), nil
}

// digits splits a number's sign off and reports whether the rest is digits
// only. Leading zeros are refused: YANG could read them as octal.
func digits(value string) (neg bool, num string, ok bool) {
	num = value
	if num != "" && (num[0] == '-' || num[0] == '+') {
		neg, num = num[0] == '-', num[1:]
	}
	if num == "" || len(num) > 1 && num[0] == '0' {
		return neg, num, false
	}
	for i := range len(num) {
		if num[i] < '0' || num[i] > '9' {
			return neg, num, false
		}
	}
	return neg, num, true
}

// magnitude is the value of at most 20 digits; ok is false when it overflows.
func magnitude(num string) (n uint64, ok bool) {
	for i := range len(num) {
		d := uint64(num[i] - '0')
		if n > (1<<64-1-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}

func integer(r yang.YangRange) encoder {
	refusal := fmt.Errorf("is not in %s", r)
	return func(dst []byte, value string) ([]byte, error) {
		neg, num, ok := digits(value)
		if !ok {
			return dst, errInteger
		}
		n, ok := magnitude(num)
		neg = neg && n != 0
		if !ok || !within(r, yang.Number{Value: n, Negative: neg}) {
			return dst, refusal
		}
		if neg {
			dst = append(dst, '-')
		}
		return append(dst, num...), nil
	}
}

// decimal writes YANG's canonical form, as CPS does: at least one digit on
// each side of the point, and no zeros at the end but that one.
func decimal(t *yang.YangType) encoder {
	r, places := t.Range, t.FractionDigits
	refusal := fmt.Errorf("is not in %s", r)
	precision := fmt.Errorf("has more than %d fraction digits", places)
	return func(dst []byte, value string) ([]byte, error) {
		whole, frac, point := strings.Cut(value, ".")
		neg, num, ok := digits(whole)
		if point && ok {
			_, _, ok = digits("1" + frac)
			ok = ok && frac != ""
		}
		if !ok {
			return dst, errDecimal
		}
		frac = strings.TrimRight(frac, "0")
		if len(frac) > places {
			return dst, precision
		}
		n, ok := magnitude(num + frac + "000000000000000000"[:places-len(frac)])
		neg = neg && n != 0
		if !ok || !within(r, yang.Number{Value: n, Negative: neg, FractionDigits: uint8(places)}) {
			return dst, refusal
		}
		if neg {
			dst = append(dst, '-')
		}
		if frac == "" {
			frac = "0"
		}
		return append(append(append(dst, num...), '.'), frac...), nil
	}
}

func enumeration(names map[string]int64) encoder {
	return func(dst []byte, value string) ([]byte, error) {
		if _, ok := names[value]; !ok {
			return dst, errEnum
		}
		return quote(dst, value)
	}
}

// bits writes the names as an array in the order of their positions.
func bits(positions map[string]int64) encoder {
	return func(dst []byte, value string) ([]byte, error) {
		names := strings.Fields(value)
		for _, n := range names {
			if _, ok := positions[n]; !ok {
				return dst, errBits
			}
		}
		slices.SortFunc(names, func(a, b string) int { return int(positions[a] - positions[b]) })
		if len(slices.Compact(slices.Clone(names))) != len(names) {
			return dst, errBits
		}
		dst = append(dst, '[')
		for i, n := range names {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst, _ = jsontext.AppendQuote(dst, n) // a YANG identifier
		}
		return append(dst, ']'), nil
	}
}

// identityref writes module:name always. It takes the bare name as well where
// only one module has it.
func (c *compiler) identityref(base *yang.Identity) (encoder, error) {
	if base == nil {
		return nil, errors.New("identityref without a base")
	}
	stored := map[string]string{}
	for _, id := range base.Values {
		root := yang.RootNode(id)
		module := root.Name
		if root.BelongsTo != nil {
			module = root.BelongsTo.Name
		}
		full := module + ":" + id.Name
		stored[full] = full
		if other, taken := stored[id.Name]; taken && other != full {
			full = ""
		}
		stored[id.Name] = full
	}
	return func(dst []byte, value string) ([]byte, error) {
		full := stored[value]
		if full == "" {
			return dst, errIdent
		}
		return quote(dst, full)
	}, nil
}

func binary(length yang.YangRange) encoder {
	return func(dst []byte, value string) ([]byte, error) {
		b, err := base64.StdEncoding.DecodeString(value)
		if err != nil {
			return dst, errBase64
		}
		if !within(length, yang.FromUint(uint64(len(b)))) {
			return dst, fmt.Errorf("has %d bytes, not %s", len(b), length)
		}
		return quote(dst, value)
	}
}

// empty has RFC 7951's form.
func empty(dst []byte, value string) ([]byte, error) {
	if value != "" {
		return dst, errEmpty
	}
	return append(dst, "[null]"...), nil
}

// union takes the first member type that accepts the text.
func (c *compiler) union(t *yang.YangType, e *yang.Entry, through []*yang.Entry) (encoder, error) {
	members := make([]encoder, len(t.Type))
	for i, mt := range t.Type {
		enc, err := c.encoder(mt, e, through)
		if err != nil {
			return nil, err
		}
		members[i] = enc
	}
	return func(dst []byte, value string) ([]byte, error) {
		for _, enc := range members {
			if out, err := enc(dst, value); err == nil {
				return out, nil
			}
		}
		return dst, errUnion
	}, nil
}
