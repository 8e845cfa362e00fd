package chaos

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// maxSteps bounds the search for one cluster. It needs a few hundred; one that
// needs more is reported, not passed over.
const maxSteps = 500_000

// cluster is the search for an order of the partitions' events that explains
// what was observed about a few handles.
type cluster struct {
	c     *checker
	n     int
	ops   [][]*operation // by partition, in order
	seen  map[stream][]told
	rows  map[string]map[string]any // stored in the end
	trust map[string]string

	visited map[string]bool
	steps   int
	deepest int
	stuck   string
}

// operation is one event of a cluster and how it was answered.
type operation struct {
	s      *Sent
	e      *Event
	answer *answer // nil if there is none, which is a fault of its own
	told   int     // events that it caused
}

// spot is how far the search is.
type spot struct {
	at   []int          // operations done, by partition
	told map[stream]int // events explained
	m    *model
}

func (c *checker) shared() {
	c.final, c.trust = map[string]map[string]any{}, map[string]string{}
	for _, n := range slices.Sorted(maps.Keys(c.clusters)) {
		c.r.Clusters++
		l := c.newCluster(n)
		l.chains()
		end := l.search(&spot{at: make([]int, len(l.ops)), told: map[stream]int{}, m: newModel()})
		switch {
		case end != nil:
			maps.Copy(c.final, end.m.rows())
			maps.Copy(c.trust, end.m.trust)
		case l.steps >= maxSteps:
			c.r.fault(&c.r.Wrong, "shared handles %d: not decided in %d steps", n, maxSteps)
		default:
			c.r.fault(&c.r.OutOfOrder, "shared handles %d: no order of the partitions' events explains what was observed; %s", n, l.stuck)
		}
		if end == nil { // that is one fault, the rows are no others
			maps.Copy(c.final, l.rows)
			maps.Copy(c.trust, l.trust)
		}
	}
}

func (c *checker) newCluster(n int) *cluster {
	l := &cluster{c: c, n: n, seen: map[stream][]told{}, rows: map[string]map[string]any{}, trust: map[string]string{}, visited: map[string]bool{}, deepest: -1}
	stored := levels(c.h.Trust)
	for i := range handlesOfCluster {
		id := sharedID(n, i)
		l.seen[stream{false, id}], l.seen[stream{true, id}] = c.lcm[id], c.inventory[id]
		c.r.Effects += len(c.lcm[id]) + len(c.inventory[id])
		c.r.Handles++
		root := "/dmi-registry/cm-handles[@id='" + id + "']"
		for xpath, attributes := range c.h.Rows {
			if strings.HasPrefix(xpath, root) {
				l.rows[xpath] = withoutTime(attributes)
			}
		}
		if level, ok := stored[id]; ok {
			l.trust[id] = level
		}
	}
	caused := map[string]bool{}
	for _, events := range l.seen {
		for _, t := range events {
			caused[t.id] = true
		}
	}
	byPartition := map[string][]*operation{}
	for _, s := range c.clusters[n] {
		op := &operation{s: s, e: &s.Events[0]}
		for _, at := range op.e.places() {
			if caused[s.eventID(0, at)] {
				op.told++
			}
		}
		id := s.eventID(0, place{step: stepOutcome})
		c.asked[id] = s.String()
		c.r.Outcomes++
		if a, ok := c.answers[id]; ok {
			op.answer = &a
		} else {
			c.r.fault(&c.r.Lost, "outcome of %s event %s is missing", s, op.e.ID)
		}
		key := fmt.Sprintf("%s/%d", s.Topic, s.Partition)
		byPartition[key] = append(byPartition[key], op)
	}
	for _, key := range slices.Sorted(maps.Keys(byPartition)) {
		ops := byPartition[key]
		slices.SortFunc(ops, func(a, b *operation) int { return cmp.Compare(a.s.Offset, b.s.Offset) })
		l.ops = append(l.ops, ops)
	}
	return l
}

// chains holds each event's old values against what the ones before it said:
// cheaper than the search, and it says where.
func (l *cluster) chains() {
	for at, events := range l.seen {
		if at.trust { // a new handle of an old id starts anew without a word
			continue
		}
		known := map[string]any{}
		for _, t := range events {
			for name, value := range t.old {
				if !reflect.DeepEqual(known[name], value) {
					l.c.r.fault(&l.c.r.OutOfOrder, "%s: event %s says that %s was %v, it was %v", at, t.id, name, value, known[name])
				}
			}
			if t.kind == "create" || t.kind == "delete" {
				clear(known)
			}
			maps.Copy(known, t.new)
			if known["cmHandleState"] != ready {
				known["dataSyncEnabled"] = nil
			}
		}
	}
}

// search tries every operation that can be the next one.
func (l *cluster) search(p *spot) *spot {
	for {
		if l.steps++; l.steps > maxSteps {
			return nil
		}
		next, settled := l.settle(p)
		if !settled {
			break
		}
		p = next
	}
	done := true
	for i, n := range p.at {
		done = done && n == len(l.ops[i])
	}
	if done {
		if l.explained(p) {
			return p
		}
		return nil
	}
	mark := fmt.Sprint(p.at, p.m.fingerprint())
	if l.visited[mark] {
		return nil
	}
	l.visited[mark] = true
	for i := range l.ops {
		if next, _ := l.try(p, i); next != nil {
			if end := l.search(next); end != nil {
				return end
			}
		}
	}
	return nil
}

// settle does an operation that changes nothing as soon as it fits: doing it
// later could not help any other.
func (l *cluster) settle(p *spot) (*spot, bool) {
	for i := range l.ops {
		if next, changes := l.try(p, i); next != nil && !changes {
			return next, true
		}
	}
	return nil, false
}

// try is the spot after the next operation of partition i, nil if it does not
// fit what was observed.
func (l *cluster) try(p *spot, i int) (next *spot, changes bool) {
	if p.at[i] == len(l.ops[i]) {
		return nil, false
	}
	op := l.ops[i][p.at[i]]
	m := p.m.clone()
	res := m.apply(op.e, op.s.Key)
	if op.answer != nil {
		if d := differs(op.answer, op.s, op.e.ID, &res); d != "" {
			l.note(p, op, d)
			return nil, false
		}
	}
	if op.told != len(res.effects) {
		l.note(p, op, fmt.Sprintf("it caused %d events, not %d", op.told, len(res.effects)))
		return nil, false
	}
	seen := maps.Clone(p.told)
	for _, f := range res.effects {
		at := stream{f.trust, f.handle}
		events := l.seen[at]
		if seen[at] == len(events) {
			l.note(p, op, "no event tells it")
			return nil, false
		}
		want := expectation{f, op.s.eventID(0, f.place), op.s, op.e}
		t := events[seen[at]]
		if t.id != want.id {
			l.note(p, op, "another event comes first: "+t.id)
			return nil, false
		}
		if d := contents(want, t); d != "" {
			l.note(p, op, d)
			return nil, false
		}
		seen[at]++
	}
	next = &spot{at: slices.Clone(p.at), told: seen, m: m}
	next.at[i]++
	return next, len(res.effects) > 0 || m.fingerprint() != p.m.fingerprint()
}

// note keeps, of the furthest spot, why it went no further.
func (l *cluster) note(p *spot, op *operation, why string) {
	depth := 0
	for _, n := range p.at {
		depth += n
	}
	if depth > l.deepest {
		l.deepest, l.stuck = depth, ""
	}
	if depth == l.deepest && len(l.stuck) < 600 {
		l.stuck += fmt.Sprintf("; after %d events, %s event %s: %s", depth, op.s, op.e.ID, why)
	}
}

// explained says that all is told and the rows are those that are stored.
func (l *cluster) explained(p *spot) bool {
	for at, events := range l.seen {
		if p.told[at] != len(events) {
			l.stuck = fmt.Sprintf("%s: %d events, %d of them explained", at, len(events), p.told[at])
			return false
		}
	}
	if !reflect.DeepEqual(p.m.rows(), l.rows) || !maps.Equal(p.m.trust, l.trust) {
		l.stuck = "the stored rows are those of no such order"
		return false
	}
	return true
}

// fingerprint tells models apart.
func (m *model) fingerprint() string {
	var b strings.Builder
	rows := m.rows()
	for _, xpath := range slices.Sorted(maps.Keys(rows)) {
		fmt.Fprintf(&b, "%s%v\n", xpath, rows[xpath]) // maps print sorted
	}
	fmt.Fprintf(&b, "%v", m.trust)
	return b.String()
}
