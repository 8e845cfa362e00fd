package schemas

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxXPath is the longest xpath in bytes: the tables' unique index takes rows
// of up to 2,704 bytes, and the anchor's id is one of its columns.
const MaxXPath = 2600

// ErrNoNodes means that a document holds no data node.
var ErrNoNodes = errors.New("the document holds no data node")

// DataNode is one row of the fragment table, ids apart.
type DataNode struct {
	XPath string
	// Parent is the parent's place in the same slice, always a lower one; -1
	// is the node that the document was given for.
	Parent int
	Leaves []byte // a JSON object, {} without leaves
}

// DocumentError says where a document does not fit the model. It never quotes
// a value.
type DocumentError struct {
	Pointer string // JSON pointer
	Byte    int64
	Text    string
}

func (e *DocumentError) Error() string {
	return fmt.Sprintf("document at %q, byte %d: %s", e.Pointer, e.Byte, e.Text)
}

// Nodes checks a JSON document against the model and turns it into data nodes
// as CPS stores them: parents before children, entries in the document's
// order. The document is an object of containers and lists below parent, a
// stored xpath ("" for the root). It is not changed, and the nodes do not
// refer to it; they share memory, so that keeping one keeps all. Errors are a
// *DocumentError, ErrNoNodes, or say what is wrong with parent, with the length
// of an xpath, or with two entries of equal keys.
func (m *Model) Nodes(parent string, doc []byte) ([]DataNode, error) {
	at, err := m.parent(parent)
	if err != nil {
		return nil, err
	}
	if parent == "/" {
		parent = ""
	}
	b := builder{
		model: m,
		// Members are checked against the schema, which finds those that
		// stand twice also under two spellings.
		dec:  jsontext.NewDecoder(bytes.NewBuffer(doc), jsontext.AllowDuplicateNames(true)),
		text: string(doc),
	}
	if err := b.document(at); err != nil {
		return nil, err
	}
	return b.finish(parent)
}

// builder reads one document. Everything that is written lies in one arena
// until all of it is known.
type builder struct {
	model  *Model
	dec    *jsontext.Decoder
	text   string // the document: values are cut out of it, not copied
	arena  []byte
	nodes  []draft
	levels []*level
}

// draft is a data node whose bytes lie in the arena.
type draft struct {
	parent       int
	step, leaves span
}

type span struct{ from, to int }

// level is the scratch space of one depth of objects.
type level struct {
	leaves []byte
	seen   []uint64 // by ordinal
	keys   []span   // into leaves, by position of the key
	taken  []branch
}

func (b *builder) fail(format string, args ...any) error {
	return &DocumentError{
		Pointer: string(b.dec.StackPointer()),
		Byte:    b.dec.InputOffset(),
		Text:    fmt.Sprintf(format, args...),
	}
}

// syntax wraps the decoder's error, which can quote the input, by its kind
// alone.
func (b *builder) syntax(err error) error {
	text := "is no valid JSON"
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		text = "ends too early"
	}
	if s, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return &DocumentError{Pointer: string(s.JSONPointer), Byte: s.ByteOffset, Text: text}
	}
	return b.fail("%s", text)
}

// want is the failure of a value that is of the wrong kind, or no value at all.
func (b *builder) want(text string) error {
	if b.dec.PeekKind() == jsontext.KindInvalid {
		_, err := b.dec.ReadToken()
		return b.syntax(err)
	}
	return b.fail("%s", text)
}

func (b *builder) document(at *node) error {
	if b.dec.PeekKind() != '{' {
		return b.want("want a JSON object")
	}
	if err := b.object(at, -1, 0); err != nil {
		return err
	}
	if _, err := b.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return b.fail("something follows the JSON object")
	}
	if len(b.nodes) == 0 {
		return ErrNoNodes
	}
	return nil
}

func (b *builder) level(depth int, n *node) *level {
	if depth == len(b.levels) {
		b.levels = append(b.levels, new(level))
	}
	l := b.levels[depth]
	l.leaves = append(l.leaves[:0], '{')
	l.seen = append(l.seen[:0], make([]uint64, (len(n.order)+63)/64)...)
	l.keys = append(l.keys[:0], make([]span, len(n.keys))...)
	l.taken = l.taken[:0]
	return l
}

// object reads the members of a container or list entry, or of the document.
// self is its draft, -1 for the document's parent.
func (b *builder) object(n *node, self, depth int) error {
	if _, err := b.dec.ReadToken(); err != nil {
		return b.syntax(err)
	}
	l := b.level(depth, n)
	for {
		kind := b.dec.PeekKind()
		if kind == '}' {
			break
		}
		k, err := b.member(n, l)
		if err != nil {
			return err
		}
		switch k.kind {
		case container:
			err = b.container(k, self, depth)
		case list:
			err = b.list(k, self, depth)
		case leaf, leafList:
			if self < 0 {
				return b.fail("a leaf needs a container or list entry around it")
			}
			err = b.leafMember(n, k, l)
		case opaque:
			return b.fail("cannot be stored: anydata, anyxml or a list without key")
		}
		if err != nil {
			return err
		}
	}
	if _, err := b.dec.ReadToken(); err != nil {
		return b.syntax(err)
	}
	if self < 0 {
		return nil
	}
	if n.kind == list {
		step, err := b.step(n, l)
		if err != nil {
			return err
		}
		b.nodes[self].step = step
	}
	b.nodes[self].leaves = b.store(append(l.leaves, '}'))
	return nil
}

func (b *builder) store(p []byte) span {
	from := len(b.arena)
	b.arena = append(b.arena, p...)
	return span{from, len(b.arena)}
}

// value reads a scalar or a name and returns its text in the document.
func (b *builder) value() (string, error) {
	raw, err := b.dec.ReadValue()
	if err != nil {
		return "", b.syntax(err)
	}
	end := int(b.dec.InputOffset())
	s := b.text[end-len(raw) : end]
	if s[0] != '"' {
		return s, nil
	}
	if strings.IndexByte(s, '\\') < 0 {
		return s[1 : len(s)-1], nil
	}
	u, err := jsontext.AppendUnquote(nil, s)
	if err != nil {
		return "", b.syntax(err)
	}
	return string(u), nil
}

// member reads a member's name and finds its schema node.
func (b *builder) member(n *node, l *level) (*node, error) {
	name, err := b.value()
	if err != nil {
		return nil, err
	}
	k := b.model.lookup(n, name)
	if k == nil {
		return nil, b.fail("is not in the model, or needs its module's name in front")
	}
	if word, bit := &l.seen[k.ordinal/64], uint64(1)<<(k.ordinal%64); *word&bit != 0 {
		return nil, b.fail("stands twice")
	} else {
		*word |= bit
	}
	for _, br := range k.branches {
		for _, other := range l.taken {
			if other.choice == br.choice && other.name != br.name {
				return nil, b.fail("belongs to another case of choice %s than a member before it", br.choice.Name)
			}
		}
	}
	l.taken = append(l.taken, k.branches...)
	return k, nil
}

// lookup takes local names and module:local. As with CPS, what stands before
// the colon is ignored when it is no known module.
func (m *Model) lookup(n *node, name string) *node {
	module, local, ok := strings.Cut(name, ":")
	if !ok {
		return n.kids[name]
	}
	if !m.modules[module] {
		return n.kids[local]
	}
	if n == m.root {
		return m.qualified[name]
	}
	if k := n.kids[local]; k != nil && k.module == module {
		return k
	}
	return nil
}

func (b *builder) container(k *node, self, depth int) error {
	b.nodes = append(b.nodes, draft{parent: self, step: b.store([]byte("/" + k.name))})
	at := len(b.nodes) - 1
	switch b.dec.PeekKind() {
	case '{':
		return b.object(k, at, depth+1)
	case '[': // CPS takes an empty array as an empty container
		raw, err := b.dec.ReadValue()
		if err != nil {
			return b.syntax(err)
		}
		if len(bytes.TrimSpace(raw[1:len(raw)-1])) == 0 {
			b.nodes[at].leaves = b.store([]byte("{}"))
			return nil
		}
	}
	return b.want("is a container: want an object")
}

// list takes an array of entries, or one entry alone.
func (b *builder) list(k *node, self, depth int) error {
	entry := func() error {
		if b.dec.PeekKind() != '{' {
			return b.want("is a list: want an array of objects")
		}
		b.nodes = append(b.nodes, draft{parent: self})
		return b.object(k, len(b.nodes)-1, depth+1)
	}
	if b.dec.PeekKind() != '[' {
		return entry()
	}
	if _, err := b.dec.ReadToken(); err != nil {
		return b.syntax(err)
	}
	for b.dec.PeekKind() != ']' {
		if err := entry(); err != nil {
			return err
		}
	}
	if _, err := b.dec.ReadToken(); err != nil {
		return b.syntax(err)
	}
	return nil
}
