package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Key is one key leaf of a list element and its value.
type Key struct{ Name, Value string }

// Step writes the last step of a data node's xpath as CPS stores it: the name,
// and for a list element its keys, sorted by their text, with apostrophes in
// values doubled. Nothing else is escaped.
func Step(name string, keys ...Key) string {
	if len(keys) == 0 {
		return name
	}
	if len(keys) == 1 {
		return name + "[@" + keys[0].Name + "='" + quoteKey(keys[0].Value) + "']"
	}
	// CPS sorts the finished conditions, not the names: "@a1='…'" stands
	// before "@a='…'" because 1 sorts before the equals sign.
	conditions := make([]string, len(keys))
	for i, k := range keys {
		conditions[i] = "@" + k.Name + "='" + quoteKey(k.Value) + "'"
	}
	slices.Sort(conditions)
	return name + "[" + strings.Join(conditions, " and ") + "]"
}

// quoteKey doubles the apostrophes of a value that stands between apostrophes.
func quoteKey(v string) string {
	if strings.IndexByte(v, '\'') < 0 {
		return v
	}
	return strings.ReplaceAll(v, "'", "''")
}

// ErrBadXPath means that a text is no xpath of a data node.
var ErrBadXPath = errors.New("not the xpath of a data node")

// xpathStep is one step of a parsed xpath.
type xpathStep struct {
	name string
	keys []Key
	end  int // offset behind the step in the text
}

// parseXPath takes the xpath of a data node apart: absolute, steps separated by
// a slash, each a name and, for a list element, conditions on its keys. Values
// stand in apostrophes, doubled inside, or in quotation marks, doubled inside.
func parseXPath(x string) ([]xpathStep, error) {
	if x == "" || x[0] != '/' {
		return nil, fmt.Errorf("%w: %q does not start with a slash", ErrBadXPath, x)
	}
	var steps []xpathStep
	for at := 0; at < len(x); {
		if x[at] != '/' {
			return nil, fmt.Errorf("%w: %q lacks a slash at byte %d", ErrBadXPath, x, at)
		}
		at++
		nameEnd := at
		for nameEnd < len(x) && x[nameEnd] != '/' && x[nameEnd] != '[' {
			if strings.IndexByte(" '\"]@=", x[nameEnd]) >= 0 {
				return nil, fmt.Errorf("%w: %q has a bad name at byte %d", ErrBadXPath, x, nameEnd)
			}
			nameEnd++
		}
		if nameEnd == at {
			return nil, fmt.Errorf("%w: %q has an empty step at byte %d", ErrBadXPath, x, at)
		}
		step := xpathStep{name: x[at:nameEnd]}
		at = nameEnd
		if at < len(x) && x[at] == '[' {
			var err error
			if step.keys, at, err = parseConditions(x, at+1); err != nil {
				return nil, err
			}
		}
		step.end = at
		steps = append(steps, step)
	}
	return steps, nil
}

func parseConditions(x string, at int) ([]Key, int, error) {
	bad := func() ([]Key, int, error) {
		return nil, 0, fmt.Errorf("%w: %q has a bad condition at byte %d", ErrBadXPath, x, at)
	}
	skip := func() {
		for at < len(x) && x[at] == ' ' {
			at++
		}
	}
	var keys []Key
	for {
		skip()
		if at >= len(x) || x[at] != '@' {
			return bad()
		}
		eq := strings.IndexByte(x[at:], '=')
		if eq < 0 {
			return bad()
		}
		name := strings.TrimSpace(x[at+1 : at+eq])
		if name == "" || strings.ContainsAny(name, " '\"[]/") {
			return bad()
		}
		at += eq + 1
		skip()
		value, next, ok := parseQuoted(x, at)
		if !ok {
			return bad()
		}
		keys = append(keys, Key{Name: name, Value: value})
		at = next
		skip()
		switch {
		case strings.HasPrefix(x[at:], "]"):
			return keys, at + 1, nil
		case strings.HasPrefix(x[at:], "and "):
			at += len("and ")
		default:
			return bad()
		}
	}
}

// parseQuoted reads a quoted value that starts at byte at of x.
func parseQuoted(x string, at int) (value string, next int, ok bool) {
	if at >= len(x) || (x[at] != '\'' && x[at] != '"') {
		return "", 0, false
	}
	quote := x[at]
	at++
	start, doubled := at, false
	for at < len(x) {
		if x[at] != quote {
			at++
			continue
		}
		if at+1 < len(x) && x[at+1] == quote {
			doubled = true
			at += 2
			continue
		}
		value = x[start:at]
		if doubled {
			q := string(quote)
			value = strings.ReplaceAll(value, q+q, q)
		}
		return value, at + 1, true
	}
	return "", 0, false
}

// NormalizeXPath brings an xpath into the form in which it is stored: values
// in apostrophes, single spaces, sorted conditions. "/" and "" are the root.
func NormalizeXPath(x string) (string, error) {
	if x == "" || x == "/" {
		return "", nil
	}
	steps, err := parseXPath(strings.TrimSuffix(x, "/"))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.Grow(len(x))
	for _, s := range steps {
		b.WriteByte('/')
		b.WriteString(Step(s.name, s.keys...))
	}
	return b.String(), nil
}

// lastStep is the last step of a stored xpath, or all of it if it cannot be
// parsed: older systems stored some without doubling apostrophes.
func lastStep(x string) string {
	steps, err := parseXPath(x)
	switch {
	case err != nil:
		return x
	case len(steps) == 1:
		return x[1:]
	}
	return x[steps[len(steps)-2].end+1:]
}

// target is what an xpath given by a caller asks for. A path that does not end
// in a key can name a container or a whole list: only the rows tell.
type target struct {
	xpath  string // as stored
	parent string // "" is the root
	prefix string // every element of the list starts with it; "" for an element
}

func parseTarget(x string) (target, error) {
	n, err := NormalizeXPath(x)
	if err != nil || n == "" {
		return target{}, err
	}
	steps, err := parseXPath(n)
	if err != nil {
		return target{}, err
	}
	t := target{xpath: n}
	if len(steps) > 1 {
		t.parent = n[:steps[len(steps)-2].end]
	}
	if len(steps[len(steps)-1].keys) == 0 {
		t.prefix = n + "[@"
	}
	return t, nil
}
