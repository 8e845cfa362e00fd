package schemas

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/openconfig/goyang/pkg/yang"
)

// leafref compiles to the target's type. That the target instance exists is
// not checked, as CPS does not.
func (c *compiler) leafref(t *yang.YangType, e *yang.Entry, through []*yang.Entry) (encoder, error) {
	if slices.Contains(through, e) {
		return nil, errors.New("leafref leads back to itself")
	}
	target, err := c.target(t.Path, e)
	if err != nil {
		return nil, fmt.Errorf("leafref %s: %w", t.Path, err)
	}
	return c.encoder(target.Type, target, append(slices.Clip(through), e))
}

// target walks a leafref's path in the data tree, in which choices and cases
// have no place; goyang's own Find counts them as steps.
func (c *compiler) target(path string, e *yang.Entry) (*yang.Entry, error) {
	path, err := withoutPredicates(path)
	if err != nil {
		return nil, err
	}
	at := e
	if rest, ok := strings.CutPrefix(path, "/"); ok {
		path = rest
		first, _, _ := strings.Cut(path, "/")
		if at, err = c.top(first, e); err != nil {
			return nil, err
		}
	}
	for step := range strings.SplitSeq(path, "/") {
		if at == nil {
			return nil, errors.New("leads above the root")
		}
		if step == ".." {
			at = dataParent(at)
			continue
		}
		if _, bare, ok := strings.Cut(step, ":"); ok {
			step = bare
		}
		next := dataChild(at, step)
		if next == nil {
			return nil, fmt.Errorf("no node %q", step)
		}
		at = next
	}
	if at == nil || at.Type == nil {
		return nil, errors.New("does not lead to a leaf")
	}
	return at, nil
}

// top finds the module in which an absolute path starts.
func (c *compiler) top(first string, e *yang.Entry) (*yang.Entry, error) {
	prefix, _, ok := strings.Cut(first, ":")
	name := ""
	if m := yang.FindModuleByPrefix(e.Node, prefix); ok && m != nil {
		name = m.Name
		if m.BelongsTo != nil {
			name = m.BelongsTo.Name
		}
	} else if ok {
		return nil, fmt.Errorf("unknown prefix %q", prefix)
	} else {
		var err error
		if name, err = e.InstantiatingModule(); err != nil {
			return nil, err
		}
	}
	return yang.ToEntry(c.modules.Modules[name]), nil
}

func dataParent(e *yang.Entry) *yang.Entry {
	for e = e.Parent; e != nil && (e.IsCase() || e.IsChoice()); e = e.Parent {
	}
	return e
}

func dataChild(e *yang.Entry, name string) *yang.Entry {
	if k := e.Dir[name]; k != nil && !k.IsCase() && !k.IsChoice() {
		return k
	}
	for _, k := range e.Dir {
		if k.IsCase() || k.IsChoice() {
			if t := dataChild(k, name); t != nil {
				return t
			}
		}
	}
	return nil
}

func withoutPredicates(path string) (string, error) {
	for {
		open := strings.IndexByte(path, '[')
		if open < 0 {
			return strings.ReplaceAll(path, " ", ""), nil
		}
		n := strings.IndexByte(path[open:], ']')
		if n < 0 {
			return "", errors.New("[ without ]")
		}
		path = path[:open] + path[open+n+1:]
	}
}
