package schemas

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/openconfig/goyang/pkg/yang"
)

// Bounds on YANG sources. They are far above real model sets (OpenROADM: 49
// files, 447 kB, 1,183 nodes) and keep goyang's recursion, which is not
// recoverable when it overflows, and its memory in hand.
const (
	maxSource     = 2 << 20  // bytes of one source
	maxSources    = 32 << 20 // bytes of all sources
	maxDepth      = 128      // nested statements
	maxChain      = 24       // definitions built on one another
	maxExpansion  = 250_000  // statements after groupings, typedefs and identities are expanded
	maxVetReports = 20       // problems told at once
)

var (
	identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.\-]*$`)
	reference  = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_.\-]*:)?[A-Za-z_][A-Za-z0-9_.\-]*$`)
)

// unit is one source: a module or a submodule.
type unit struct {
	root    *yang.Statement
	module  string            // the module it belongs to; its own name if it is one
	prefix  string            // by which it names its own module
	imports map[string]string // prefix to module
}

// vetter examines all sources together on goyang's generic statement tree.
// It refuses what would take the process down (goyang overflows the stack on
// loops of groupings, typedefs and identities, and expands exponentially) and
// what goyang would silently leave out.
type vetter struct {
	units map[string][]*unit // by module; submodules stand with their module
	defs  graph
	errs  []error
}

// vet returns the sources without byte order marks, in a stable order.
func vet(sources map[string][]byte) (files []string, texts map[string]string, err error) {
	v := &vetter{units: map[string][]*unit{}, defs: newGraph()}
	texts = make(map[string]string, len(sources))
	total := 0
	for name, src := range sources {
		files = append(files, name)
		total += len(src)
	}
	slices.Sort(files)
	if total > maxSources {
		return nil, nil, fmt.Errorf("YANG sources: %d bytes, more than %d", total, maxSources)
	}
	for _, name := range files {
		texts[name] = v.parse(name, sources[name])
	}
	if len(v.errs) == 0 {
		v.link()
	}
	if len(v.errs) == 0 {
		v.walkAll()
	}
	if len(v.errs) == 0 {
		v.errs = append(v.errs, v.defs.check()...)
	}
	if len(v.errs) > maxVetReports {
		v.errs = append(v.errs[:maxVetReports], fmt.Errorf("and %d more", len(v.errs)-maxVetReports))
	}
	return files, texts, errors.Join(v.errs...)
}

func (v *vetter) fail(s *yang.Statement, format string, args ...any) {
	v.errs = append(v.errs, fmt.Errorf("%s: %s", s.Location(), fmt.Sprintf(format, args...)))
}

func (v *vetter) parse(name string, src []byte) string {
	// goyang dereferences nil on a byte order mark.
	text := string(bytes.TrimPrefix(src, []byte("\ufeff")))
	switch {
	case len(text) > maxSource:
		v.errs = append(v.errs, fmt.Errorf("%s: %d bytes, more than %d", name, len(text), maxSource))
		return ""
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		v.errs = append(v.errs, fmt.Errorf("%s: not UTF-8 text", name))
		return ""
	}
	stmts, err := yang.Parse(text, name)
	if err != nil {
		v.errs = append(v.errs, err)
		return ""
	}
	if len(stmts) != 1 || stmts[0].Keyword != "module" && stmts[0].Keyword != "submodule" {
		v.errs = append(v.errs, fmt.Errorf("%s:1:1: want one module or submodule", name))
		return ""
	}
	u := &unit{root: stmts[0], module: stmts[0].Argument, imports: map[string]string{}}
	if !identifier.MatchString(u.root.Argument) {
		v.fail(u.root, "%q is no identifier", u.root.Argument)
		return ""
	}
	v.header(u)
	v.units[u.module] = append(v.units[u.module], u)
	return text
}

// header reads prefix, imports and belongs-to.
func (v *vetter) header(u *unit) {
	var named, spaced, belongs bool
	setPrefix := func(s *yang.Statement) {
		if !identifier.MatchString(s.Argument) {
			v.fail(s, "prefix %q is no identifier", s.Argument)
		}
		u.prefix, named = s.Argument, true
	}
	for _, s := range u.root.SubStatements() {
		switch s.Keyword {
		case "prefix":
			setPrefix(s)
		case "namespace":
			spaced = s.Argument != ""
		case "belongs-to":
			u.module, belongs = s.Argument, true
			if p := child(s, "prefix"); p != nil {
				setPrefix(p)
			}
		}
	}
	switch {
	case !named:
		v.fail(u.root, "%s %s has no prefix", u.root.Keyword, u.root.Argument)
	case u.root.Keyword == "module" && !spaced:
		v.fail(u.root, "module %s has no namespace", u.root.Argument)
	case u.root.Keyword == "submodule" && !belongs:
		v.fail(u.root, "submodule %s has no belongs-to", u.root.Argument)
	case u.root.Keyword == "module" && belongs:
		v.fail(u.root, "belongs-to in a module")
	}
	for _, s := range u.root.SubStatements() {
		if s.Keyword != "import" {
			continue
		}
		p := child(s, "prefix")
		switch {
		case p == nil || !identifier.MatchString(p.Argument):
			v.fail(s, "import %s has no usable prefix", s.Argument)
		case p.Argument == u.prefix || u.imports[p.Argument] != "":
			v.fail(p, "prefix %s is used twice", p.Argument)
		default:
			u.imports[p.Argument] = s.Argument
		}
	}
}

// link checks that every import and include is among the sources: for one
// that is not, goyang would look into the working directory.
func (v *vetter) link() {
	modules, subs := map[string]*unit{}, map[string]*unit{}
	order := v.inOrder()
	for _, u := range order {
		m := modules
		if u.root.Keyword == "submodule" {
			m = subs
		}
		if o := m[u.root.Argument]; o != nil {
			v.fail(u.root, "%s %s is also at %s", u.root.Keyword, u.root.Argument, o.root.Location())
		}
		m[u.root.Argument] = u
	}
	loops := newGraph()
	for _, u := range order {
		if u.root.Keyword == "submodule" && modules[u.module] == nil {
			v.fail(u.root, "belongs to module %s, which is not among the sources", u.module)
		}
		loops.add(u.root)
		for _, s := range u.root.SubStatements() {
			var to *unit
			switch s.Keyword {
			case "import":
				if to = modules[s.Argument]; to == nil {
					v.fail(s, "imported module %s is not among the sources", s.Argument)
				}
			case "include":
				if to = subs[s.Argument]; to == nil {
					v.fail(s, "included submodule %s is not among the sources", s.Argument)
				} else if to.module != u.module {
					v.fail(s, "submodule %s belongs to module %s", s.Argument, to.module)
				}
			}
			if to != nil {
				loops.edge(u.root, to.root)
			}
		}
	}
	v.errs = append(v.errs, loops.cycles()...)
}

// inOrder lists the units by place, so that problems come in a stable order.
func (v *vetter) inOrder() []*unit {
	var us []*unit
	for _, list := range v.units {
		us = append(us, list...)
	}
	slices.SortFunc(us, func(a, b *unit) int { return strings.Compare(a.root.Location(), b.root.Location()) })
	return us
}

func (v *vetter) walkAll() {
	order := v.inOrder()
	for _, u := range order {
		v.walk(u, u.root, nil)
	}
	for _, us := range v.units {
		v.unique(us)
	}
}

// defines maps a keyword that refers to a definition to the definition's own.
var defines = map[string]string{"uses": "grouping", "type": "typedef", "base": "identity"}

func (v *vetter) walk(u *unit, s *yang.Statement, up []*yang.Statement) {
	if len(up) > maxDepth {
		v.fail(s, "nested deeper than %d", maxDepth)
		return
	}
	if strings.Contains(s.Keyword, ":") {
		return // an extension's statement: goyang does not look inside either
	}
	parent := ""
	if len(up) > 0 {
		parent = up[len(up)-1].Keyword
	}
	if why := lost(s, parent); why != "" {
		v.fail(s, "%s", why)
	}
	switch s.Keyword {
	case "grouping", "typedef", "identity", "container", "list", "leaf", "leaf-list", "choice", "case", "anydata", "anyxml":
		// Names end up in xpaths and as JSON members.
		if !identifier.MatchString(s.Argument) {
			v.fail(s, "%s %q is no identifier", s.Keyword, s.Argument)
		}
		if s.Keyword == "typedef" && builtin(s.Argument) {
			v.fail(s, "typedef %s has the name of a built-in type", s.Argument)
		}
	case "module", "submodule":
	default:
		v.refer(u, s, up)
	}
	v.defs.add(s)
	up = append(up, s)
	for _, c := range s.SubStatements() {
		v.defs.child(s, c)
		v.walk(u, c, up)
	}
}

// refer adds the edge of a statement that names a definition.
func (v *vetter) refer(u *unit, s *yang.Statement, up []*yang.Statement) {
	kind := defines[s.Keyword]
	if kind == "" || kind == "typedef" && builtin(s.Argument) {
		return
	}
	if !reference.MatchString(s.Argument) {
		v.fail(s, "%s %q is no reference", s.Keyword, s.Argument)
		return
	}
	t := v.resolve(kind, s.Argument, u, up)
	if t == nil {
		v.fail(s, "unknown %s %s", kind, s.Argument)
		return
	}
	v.defs.edge(s, t)
}

// resolve finds a definition as YANG scopes it: in the enclosing statements,
// then anywhere in the module.
func (v *vetter) resolve(kind, name string, u *unit, up []*yang.Statement) *yang.Statement {
	module := u.module
	if p, n, ok := strings.Cut(name, ":"); ok {
		name = n
		if p != u.prefix {
			module, up = u.imports[p], nil
		}
	}
	for _, s := range slices.Backward(up) {
		if t := definition(s, kind, name); t != nil {
			return t
		}
	}
	for _, o := range v.units[module] {
		if t := definition(o.root, kind, name); t != nil {
			return t
		}
	}
	return nil
}

// unique refuses two definitions of one name in one scope: goyang takes one of
// them, not always the one that was vetted.
func (v *vetter) unique(us []*unit) {
	var scope func(s *yang.Statement, seen map[string]*yang.Statement)
	scope = func(s *yang.Statement, seen map[string]*yang.Statement) {
		for _, c := range s.SubStatements() {
			switch c.Keyword {
			case "grouping", "typedef", "identity":
				k := c.Keyword + " " + c.Argument
				if o := seen[k]; o != nil {
					v.fail(c, "%s is also at %s", k, o.Location())
				}
				seen[k] = c
			}
			scope(c, map[string]*yang.Statement{})
		}
	}
	top := map[string]*yang.Statement{}
	for _, u := range us {
		scope(u.root, top)
	}
}

// lost names what goyang accepts but leaves out, or refuses although it is
// legal YANG.
func lost(s *yang.Statement, parent string) string {
	switch {
	case s.Keyword == "refine":
		return "refine is not supported (it would be ignored)"
	case s.Keyword == "augment" && parent == "uses":
		return "augment inside uses is not supported (it would be dropped)"
	case s.Keyword == "augment" && !strings.HasPrefix(s.Argument, "/"):
		return "augment of a path that does not start with /"
	case s.Keyword == "modifier":
		return "pattern modifier is not supported (it would be ignored)"
	case s.Keyword == "choice" && parent == "choice":
		return "choice directly inside choice is not supported: put it into a case"
	case (s.Keyword == "leaf" || s.Keyword == "leaf-list" || s.Keyword == "typedef") && child(s, "type") == nil:
		return s.Keyword + " " + s.Argument + " has no type"
	}
	return ""
}

func builtin(name string) bool { return yang.BaseTypedefs[name] != nil }

func child(s *yang.Statement, keyword string) *yang.Statement {
	for _, c := range s.SubStatements() {
		if c.Keyword == keyword {
			return c
		}
	}
	return nil
}

func definition(s *yang.Statement, kind, name string) *yang.Statement {
	for _, c := range s.SubStatements() {
		if c.Keyword == kind && c.Argument == name {
			return c
		}
	}
	return nil
}
