package schemas

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// step writes /name[@key='value' and …] of a list entry. CPS sorts the
// finished conditions as text.
func (b *builder) step(n *node, l *level) (span, error) {
	from := len(b.arena)
	b.arena = append(append(append(b.arena, '/'), n.name...), '[')
	if len(n.keys) == 1 {
		if err := b.condition(n.keys[0], l, 0); err != nil {
			return span{}, err
		}
	} else {
		parts := make([]string, len(n.keys))
		start := len(b.arena)
		for i, k := range n.keys {
			if err := b.condition(k, l, i); err != nil {
				return span{}, err
			}
			parts[i] = string(b.arena[start:])
			b.arena = b.arena[:start]
		}
		slices.Sort(parts)
		b.arena = append(b.arena, strings.Join(parts, " and ")...)
	}
	b.arena = append(b.arena, ']')
	return span{from, len(b.arena)}, nil
}

func (b *builder) condition(k *node, l *level, i int) error {
	value := l.leaves[l.keys[i].from:l.keys[i].to]
	if len(value) == 0 {
		return b.fail("list entry without its key %s", k.name)
	}
	b.arena = append(append(append(b.arena, '@'), k.name...), "='"...)
	switch {
	case value[0] == '[':
		return b.fail("key %s has a type that cannot be a key", k.name)
	case value[0] != '"':
		b.arena = append(b.arena, value...)
	default:
		text := value[1 : len(value)-1]
		if bytes.IndexByte(text, '\\') >= 0 {
			text = []byte(unquoted(value))
		}
		for _, c := range text {
			if c == '\'' {
				b.arena = append(b.arena, c)
			}
			b.arena = append(b.arena, c)
		}
	}
	b.arena = append(b.arena, '\'')
	return nil
}

// finish joins the steps to xpaths. All of them share one string.
func (b *builder) finish(parent string) ([]DataNode, error) {
	lengths, total := make([]int, len(b.nodes)), 0
	for i, d := range b.nodes {
		lengths[i] = len(parent) + d.step.to - d.step.from
		if d.parent >= 0 {
			lengths[i] += lengths[d.parent] - len(parent)
		}
		if lengths[i] > MaxXPath {
			return nil, fmt.Errorf("data node %d: xpath of %d bytes, more than %d", i, lengths[i], MaxXPath)
		}
		total += lengths[i]
	}
	var paths strings.Builder
	paths.Grow(total)
	out := make([]DataNode, len(b.nodes))
	seen := make(map[string]struct{})
	for i, d := range b.nodes {
		above := parent
		if d.parent >= 0 {
			above = out[d.parent].XPath
		}
		paths.WriteString(above)
		paths.Write(b.arena[d.step.from:d.step.to])
		s := paths.String()
		out[i] = DataNode{
			XPath:  s[len(s)-lengths[i]:],
			Parent: d.parent,
			Leaves: b.arena[d.leaves.from:d.leaves.to:d.leaves.to],
		}
		if strings.HasSuffix(out[i].XPath, "]") {
			if _, dup := seen[out[i].XPath]; dup {
				return nil, fmt.Errorf("data node %d: a list entry with these keys stands before it", i)
			}
			seen[out[i].XPath] = struct{}{}
		}
	}
	return out, nil
}
