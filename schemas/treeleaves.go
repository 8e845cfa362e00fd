package schemas

import (
	"bytes"
	"slices"
)

// leafMember appends one leaf or leaf-list to its node's leaves.
func (b *builder) leafMember(n, k *node, l *level) error {
	if len(l.leaves) > 1 {
		l.leaves = append(l.leaves, ',')
	}
	l.leaves = append(append(append(l.leaves, '"'), k.name...), '"', ':')
	from := len(l.leaves)
	var err error
	if k.kind == leafList {
		err = b.leafList(k, l)
	} else {
		l.leaves, err = b.scalar(k.leaf, l.leaves)
	}
	if err != nil {
		return err
	}
	if i := slices.Index(n.keys, k); i >= 0 {
		l.keys[i] = span{from, len(l.leaves)}
	}
	return nil
}

// scalar reads one value. CPS looks at its text, not at its JSON type.
func (b *builder) scalar(lf *Leaf, dst []byte) ([]byte, error) {
	text := ""
	switch kind := b.dec.PeekKind(); {
	case lf.empty && kind == '[':
		raw, err := b.dec.ReadValue()
		if err != nil {
			return dst, b.syntax(err)
		}
		if string(bytes.TrimSpace(raw[1:len(raw)-1])) != "null" {
			return dst, b.fail("want [null]")
		}
	case kind == '"' || kind == '0' || kind == 't' || kind == 'f':
		var err error
		if text, err = b.value(); err != nil {
			return dst, err
		}
	case kind == 'n':
		return dst, b.fail("is null")
	default:
		return dst, b.want("is a leaf: want a string, number or boolean")
	}
	out, err := lf.encode(dst, text)
	if err != nil {
		return dst, b.fail("%v", err)
	}
	return out, nil
}

// leafList takes an array of scalars, or one scalar alone.
func (b *builder) leafList(k *node, l *level) error {
	var elems [][]byte
	one := func() error {
		e, err := b.scalar(k.leaf, nil)
		elems = append(elems, e)
		return err
	}
	if b.dec.PeekKind() != '[' {
		if err := one(); err != nil {
			return err
		}
		l.leaves = appendArray(l.leaves, elems, k.leaf.userOrder)
		return nil
	}
	if _, err := b.dec.ReadToken(); err != nil {
		return b.syntax(err)
	}
	for b.dec.PeekKind() != ']' {
		if err := one(); err != nil {
			return err
		}
	}
	if _, err := b.dec.ReadToken(); err != nil {
		return b.syntax(err)
	}
	l.leaves = appendArray(l.leaves, elems, k.leaf.userOrder)
	return nil
}
