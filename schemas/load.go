package schemas

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/openconfig/goyang/pkg/yang"
)

// Load compiles YANG modules and submodules, keyed by file name, to a Model.
// Everything that they import or include has to be among them; no file is
// read. Errors say file:line:col; several are joined. Any input gives a Model
// or an error: sources are vetted before goyang expands them.
func Load(sources map[string][]byte) (*Model, error) {
	files, texts, err := vet(sources)
	if err != nil {
		return nil, fmt.Errorf("YANG: %w", err)
	}
	m, err := compile(files, texts)
	if err != nil {
		return nil, fmt.Errorf("YANG: %w", err)
	}
	return m, nil
}

// compile runs goyang and turns its tree into ours. goyang dereferences nil on
// some invalid input that it does not report.
func compile(files []string, texts map[string]string) (m *Model, err error) {
	defer func() {
		if r := recover(); r != nil {
			m, err = nil, fmt.Errorf("goyang cannot process these modules: %v", r)
		}
	}()
	ms := yang.NewModules()
	for _, f := range files {
		if err := ms.Parse(texts[f], f); err != nil {
			return nil, err
		}
	}
	if errs := ms.Process(); len(errs) > 0 {
		return nil, errors.Join(errs[:min(len(errs), maxVetReports)]...)
	}
	c := &compiler{modules: ms, patterns: map[string]*regexp.Regexp{}}
	m = &Model{root: newNode("", ""), modules: map[string]bool{}, qualified: map[string]*node{}}
	for _, name := range c.moduleNames() {
		m.modules[name] = true
		top := newNode("", "")
		if err := c.children(top, yang.ToEntry(ms.Modules[name])); err != nil {
			return nil, err
		}
		for _, k := range top.order {
			m.qualified[k.module+":"+k.name] = k
			if _, taken := m.root.kids[k.name]; taken {
				m.root.kids[k.name] = nil // ambiguous without its module's name
			} else {
				m.root.kids[k.name] = k
			}
			k.ordinal = len(m.root.order)
			m.root.order = append(m.root.order, k)
		}
	}
	return m, nil
}

type compiler struct {
	modules  *yang.Modules
	patterns map[string]*regexp.Regexp
}

// moduleNames leaves out the second key, name@revision, under which goyang
// keeps each module.
func (c *compiler) moduleNames() []string {
	var names []string
	for key, m := range c.modules.Modules {
		if key == m.Name {
			names = append(names, key)
		}
	}
	slices.Sort(names)
	return names
}

// children compiles the data nodes below e into n; choices and cases are
// invisible in data, so theirs become n's.
func (c *compiler) children(n *node, e *yang.Entry, branches ...branch) error {
	names := make([]string, 0, len(e.Dir))
	for name := range e.Dir {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		k := e.Dir[name]
		switch k.Node.Kind() {
		case "rpc", "action", "notification":
			continue
		}
		var err error
		switch {
		case k.IsChoice():
			for _, alt := range k.Dir {
				if err = c.children(n, alt, append(slices.Clip(branches), branch{choice: k, name: alt.Name})...); err != nil {
					break
				}
			}
		case k.IsCase():
			err = c.children(n, k, branches...)
		default:
			err = c.child(n, k, branches)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *compiler) child(n *node, e *yang.Entry, branches []branch) error {
	module, err := e.InstantiatingModule()
	if err != nil {
		return at(e, "%v", err)
	}
	if n.kids[e.Name] != nil {
		return at(e, "a second node named %s in %s", e.Name, e.Parent.Name)
	}
	k := newNode(e.Name, module)
	k.path, k.branches, k.ordinal = n.path+"/"+e.Name, branches, len(n.order)
	n.kids[e.Name], n.order = k, append(n.order, k)
	switch {
	case e.Kind == yang.AnyDataEntry || e.Kind == yang.AnyXMLEntry:
		k.kind = opaque
		return nil
	case e.Kind == yang.LeafEntry:
		return c.leaf(k, e)
	case e.IsList() && e.Key == "":
		k.kind = opaque
		return nil
	case e.IsList():
		k.kind = list
	default:
		k.kind = container
	}
	if err := c.children(k, e); err != nil {
		return err
	}
	for key := range strings.FieldsSeq(e.Key) {
		if _, bare, ok := strings.Cut(key, ":"); ok {
			key = bare
		}
		l := k.kids[key]
		if l == nil || l.kind != leaf || slices.Contains(k.keys, l) {
			return at(e, "key %s of list %s is not one leaf of it", key, e.Name)
		}
		k.keys = append(k.keys, l)
	}
	return nil
}

func (c *compiler) leaf(k *node, e *yang.Entry) error {
	k.kind = leaf
	if e.IsLeafList() {
		k.kind = leafList
	}
	enc, err := c.encoder(e.Type, e, nil)
	if err != nil {
		return at(e, "%v", err)
	}
	k.leaf = &Leaf{path: k.path, encode: enc, list: e.IsLeafList(), empty: e.Type.Kind == yang.Yempty}
	k.leaf.userOrder = e.ListAttr != nil && e.ListAttr.OrderedByUser
	return nil
}

// at puts a node's place in the source before a problem with it.
func at(e *yang.Entry, format string, args ...any) error {
	return fmt.Errorf("%s: %s", yang.Source(e.Node), fmt.Sprintf(format, args...))
}
