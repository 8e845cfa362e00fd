package schemas

import (
	"fmt"
	"slices"
	"strings"
)

// parent finds the schema node of a stored xpath. "" and "/" are the root.
// Only the stored form is taken: local names, and for a list entry all its
// keys in apostrophes, in the order in which CPS sorts them.
func (m *Model) parent(xpath string) (*node, error) {
	n := m.root
	if xpath == "" || xpath == "/" {
		return n, nil
	}
	rest := xpath
	for rest != "" {
		if rest[0] != '/' {
			return nil, fmt.Errorf("xpath %q: want / at byte %d", xpath, len(xpath)-len(rest))
		}
		end := strings.IndexAny(rest[1:], "/[") + 1
		if end == 0 {
			end = len(rest)
		}
		name := rest[1:end]
		k := n.kids[name]
		if k == nil || k.kind != container && k.kind != list {
			return nil, fmt.Errorf("xpath %q: no container or list %q in the model", xpath, name)
		}
		n, rest = k, rest[end:]
		if n.kind != list {
			continue
		}
		var err error
		if rest, err = n.predicate(rest); err != nil {
			return nil, fmt.Errorf("xpath %q: %s: %w", xpath, n.path, err)
		}
	}
	return n, nil
}

// predicate takes [@key='value' and …] off the front of rest.
func (n *node) predicate(rest string) (string, error) {
	whole := rest
	rest, ok := strings.CutPrefix(rest, "[")
	if !ok {
		return "", fmt.Errorf("the list entry's keys are missing")
	}
	var conditions, names []string
	for {
		start := rest
		name, value, ok := strings.Cut(rest, "='")
		if !ok || !strings.HasPrefix(name, "@") {
			return "", fmt.Errorf("want @key='value' at %q", rest)
		}
		end := quoted(value)
		if end < 0 {
			return "", fmt.Errorf("unclosed apostrophe in %q", whole)
		}
		rest = value[end+1:]
		names = append(names, name[1:])
		conditions = append(conditions, start[:len(start)-len(rest)])
		if after, ok := strings.CutPrefix(rest, "]"); ok {
			rest = after
			break
		}
		if rest, ok = strings.CutPrefix(rest, " and "); !ok {
			return "", fmt.Errorf("want ] or and in %q", whole)
		}
	}
	if !slices.IsSorted(conditions) {
		return "", fmt.Errorf("conditions are not sorted in %q", whole)
	}
	want := make([]string, len(n.keys))
	for i, k := range n.keys {
		want[i] = k.name
	}
	slices.Sort(names)
	slices.Sort(want)
	if !slices.Equal(names, want) {
		return "", fmt.Errorf("keys are %v, not %v", want, names)
	}
	return rest, nil
}

// quoted is the place of the apostrophe that ends a value; a doubled one does
// not.
func quoted(s string) int {
	for i := 0; i < len(s); i++ {
		if s[i] != '\'' {
			continue
		}
		if i+1 == len(s) || s[i+1] != '\'' {
			return i
		}
		i++
	}
	return -1
}
