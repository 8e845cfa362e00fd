package schemas

import (
	"fmt"
	"strings"
	"sync"

	"github.com/openconfig/goyang/pkg/yang"
)

// Model is a set of YANG modules, compiled. It is read-only and may be used
// from many goroutines.
type Model struct {
	root      *node
	modules   map[string]bool  // known module names
	qualified map[string]*node // module:name of the top-level nodes
}

type nodeKind uint8

const (
	container nodeKind = iota
	list
	leaf
	leafList
	opaque // anydata, anyxml, list without key: the tables have no place for it
)

// node is one data node of the schema. Choices and cases have no node.
type node struct {
	name, module string
	path         string // schema path, for messages
	kind         nodeKind
	kids         map[string]*node // by local name; nil value: ambiguous
	order        []*node
	ordinal      int // place in the parent's order
	keys         []*node
	branches     []branch // the choices that the node is in, outermost first
	leaf         *Leaf
}

// branch is one case of one choice.
type branch struct {
	choice *yang.Entry
	name   string
}

func newNode(name, module string) *node {
	return &node{name: name, module: module, kids: map[string]*node{}}
}

// InventoryModel is Inventory, compiled once.
func InventoryModel() (*Model, error) { return inventoryModel() }

var inventoryModel = sync.OnceValues(func() (*Model, error) { return Inventory().Load() })

// Leaf finds a leaf or leaf-list by its schema path: local names, without keys
// and without choices, for example "/dmi-registry/cm-handles/state/cm-handle-state".
func (m *Model) Leaf(schemaPath string) (*Leaf, error) {
	n := m.root
	rest, ok := strings.CutPrefix(schemaPath, "/")
	if !ok {
		return nil, fmt.Errorf("schema path %q does not start with /", schemaPath)
	}
	for step := range strings.SplitSeq(rest, "/") {
		if n = n.kids[step]; n == nil {
			return nil, fmt.Errorf("schema path %q: no node %q in the model", schemaPath, step)
		}
	}
	if n.leaf == nil {
		return nil, fmt.Errorf("schema path %q is no leaf", schemaPath)
	}
	return n.leaf, nil
}
