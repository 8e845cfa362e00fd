package schemas

import (
	"fmt"

	"github.com/openconfig/goyang/pkg/yang"
)

// graph holds which statement needs which: children, and the definitions that
// uses, type and base name. A loop through a definition is what goyang's
// expansion never comes back from.
type graph struct {
	order []*yang.Statement // as added, for stable reports
	needs map[*yang.Statement][]*yang.Statement
	refs  map[*yang.Statement]*yang.Statement // uses, type, base to definition
}

func newGraph() graph {
	return graph{needs: map[*yang.Statement][]*yang.Statement{}, refs: map[*yang.Statement]*yang.Statement{}}
}

func (g *graph) add(s *yang.Statement) { g.order = append(g.order, s) }

func (g *graph) child(s, c *yang.Statement) { g.needs[s] = append(g.needs[s], c) }

func (g *graph) edge(s, t *yang.Statement) {
	g.needs[s] = append(g.needs[s], t)
	g.refs[s] = t
}

// cycles names one statement of each loop.
func (g *graph) cycles() (errs []error) {
	const (
		open = iota + 1
		done
	)
	color := make(map[*yang.Statement]int, len(g.order))
	var visit func(s *yang.Statement)
	visit = func(s *yang.Statement) {
		color[s] = open
		for _, t := range g.needs[s] {
			switch color[t] {
			case 0:
				visit(t)
			case open:
				errs = append(errs, fmt.Errorf("%s: %s %s leads back to itself", t.Location(), t.Keyword, t.Argument))
			}
		}
		color[s] = done
	}
	for _, s := range g.order {
		if color[s] == 0 {
			visit(s)
		}
	}
	return errs
}

// check refuses loops, long chains of definitions, and expansions that grow
// out of hand.
func (g *graph) check() []error {
	if errs := g.cycles(); len(errs) > 0 {
		return errs
	}
	if err := g.measure(); err != nil {
		return []error{err}
	}
	if err := g.identities(); err != nil {
		return []error{err}
	}
	return nil
}

// measure bounds what each statement expands to.
func (g *graph) measure() error {
	type extent struct{ size, chain int }
	memo := make(map[*yang.Statement]extent, len(g.order))
	var visit func(s *yang.Statement) extent
	visit = func(s *yang.Statement) extent {
		if e, ok := memo[s]; ok {
			return e
		}
		var e extent
		switch s.Keyword {
		case "enum", "bit", "description", "reference":
			// Not copied by an expansion.
		default:
			e.size = 1
		}
		for _, t := range g.needs[s] {
			n := visit(t)
			if g.refs[s] == t {
				n.chain++
			}
			e.size = min(e.size+n.size, maxExpansion+1)
			e.chain = max(e.chain, n.chain)
		}
		memo[s] = e
		return e
	}
	total := 0
	for _, s := range g.order {
		e := visit(s)
		if e.chain > maxChain {
			return fmt.Errorf("%s: %s %s is built on more than %d definitions in a row", s.Location(), s.Keyword, s.Argument, maxChain)
		}
		if s.Keyword == "module" || s.Keyword == "submodule" {
			total += e.size
		}
		if total > maxExpansion {
			return fmt.Errorf("%s: %s %s expands to more than %d statements", s.Location(), s.Keyword, s.Argument, maxExpansion)
		}
	}
	return nil
}

// identities bounds goyang's search for derived identities: it walks every
// path down, again through lists that it has already completed, so that the
// steps for one identity are one plus those of all that are derived from it.
func (g *graph) identities() error {
	derived := map[*yang.Statement][]*yang.Statement{}
	for _, s := range g.order {
		if s.Keyword != "identity" {
			continue
		}
		for _, c := range g.needs[s] {
			if b := g.refs[c]; b != nil && c.Keyword == "base" {
				derived[b] = append(derived[b], s)
			}
		}
	}
	steps, total := map[*yang.Statement]int{}, 0
	var cost func(s *yang.Statement) int
	cost = func(s *yang.Statement) int {
		if n, ok := steps[s]; ok {
			return n
		}
		n := 1
		seen := map[*yang.Statement]bool{}
		var below func(s *yang.Statement)
		below = func(s *yang.Statement) {
			for _, d := range derived[s] {
				if total++; total > maxExpansion || n > maxExpansion {
					return
				}
				if !seen[d] {
					seen[d] = true
					n += cost(d)
					below(d)
				}
			}
		}
		below(s)
		steps[s] = min(n, maxExpansion+1)
		return steps[s]
	}
	for _, s := range g.order {
		if len(derived[s]) > 0 && (cost(s) > maxExpansion || total > maxExpansion) {
			return fmt.Errorf("%s: too many identities are derived from %s", s.Location(), s.Argument)
		}
	}
	return nil
}
