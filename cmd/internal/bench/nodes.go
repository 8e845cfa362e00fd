package bench

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"ncmp-inventory/schemas"
	"ncmp-inventory/store"
)

// insertDevices is how many devices one call inserts.
const insertDevices = 100

// insert compares InsertNodes with bare inserts; once from trees, and once from
// JSON documents, which are checked against the YANG model first.
func (r *run) insert(ctx context.Context, _ []string) ([]Result, error) {
	model, err := schemas.BenchDevice().Load()
	if err != nil {
		return nil, err
	}
	const fromTrees, fromJSON = "trees", "JSON documents, checked against their YANG model"
	n := r.devices()
	per := min(insertDevices, n)
	turns := n / per
	var all cases
	for i := range r.cfg.Repeat {
		for _, name := range []string{fromTrees, fromJSON} {
			r.repetition("insert "+name, i)
			err := r.withPlant(ctx, func(p *plant) error {
				trees, rows, documents := make([][]store.Node, turns), make([]*nodes, turns), make([][]byte, turns)
				for t := range turns {
					for d := range per {
						trees[t] = append(trees[t], deviceTree(t*per+d, degrees))
					}
					rows[t], documents[t] = p.rows(trees[t]), deviceDocument(t*per, per)
				}
				// A fresh table has no statistics: both sides get them.
				if err := p.fill(ctx, 0, 0); err != nil {
					return err
				}
				s, err := contest(turns, false, func(t int) error {
					list := trees[t]
					if name == fromJSON {
						checked, err := model.Nodes(devicesRoot, documents[t])
						if err != nil {
							return err
						}
						list = treesOf(devicesRoot, checked)
					}
					return p.store.InsertNodes(ctx, p.ours, devicesRoot, list)
				}, func(t int) error { return p.insertBare(ctx, rows[t]) })
				s.handles, s.fragments = turns*per, turns*per*deviceNodes
				all.add(name, s)
				if err != nil {
					return err
				}
				return p.same(ctx, 1+turns*per*deviceNodes)
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return []Result{all.result("insert", fromTrees)}, nil
}

// same checks that both anchors hold so many data nodes.
func (p *plant) same(ctx context.Context, want int) error {
	for _, a := range []store.Anchor{p.ours, p.bare} {
		var n int
		if err := p.pool.QueryRow(ctx, `select count(*) from fragment where anchor_id = $1`, a.ID).Scan(&n); err != nil {
			return err
		}
		if n != want {
			return fmt.Errorf("anchor %s holds %d data nodes instead of %d", a.Name, n, want)
		}
	}
	return nil
}

// upTo are the sizes that fit, and the largest possible.
func upTo(most int, sizes ...int) []int {
	fit := slices.DeleteFunc(sizes, func(n int) bool { return n >= most })
	return append(fit, most)
}

const bareUpdate = `
update fragment f set attributes = f.attributes || u.leaves
from unnest($2::text[], $3::jsonb[]) as u (xpath, leaves) where f.anchor_id = $1 and f.xpath = u.xpath`

// leaves compares UpdateNodeLeaves with a bare update by xpath, on two leaves of
// so many devices at a time.
func (r *run) leaves(ctx context.Context, _ []string) ([]Result, error) {
	n := r.devices()
	var all cases
	var sizes []int
	err := r.withPlant(ctx, func(p *plant) error {
		if err := p.fill(ctx, n, degrees); err != nil {
			return err
		}
		sizes = upTo(n, 1, 10, 100, 1000, 3000)
		for i := range r.cfg.Repeat {
			for _, size := range sizes {
				r.repetition(fmt.Sprintf("leaves of %d devices", size), i)
				s, err := p.updateLeaves(ctx, n, size)
				if err != nil {
					return err
				}
				all.add(devicesAtATime(size), s)
			}
		}
		return p.same(ctx, 1+n*deviceNodes)
	})
	if err != nil {
		return nil, err
	}
	return []Result{all.result("leaves", devicesAtATime(sizes[len(sizes)-1]))}, nil
}

func devicesAtATime(n int) string { return strconv.Itoa(n) + " at a time" }

// leastTurns keeps a median from being a single value.
const leastTurns = 3

func (p *plant) updateLeaves(ctx context.Context, devices, size int) (sample, error) {
	xpaths := make([]string, devices)
	for i := range xpaths {
		xpaths[i] = deviceXPath(i)
	}
	slices.Sort(xpaths) // as the store wants them; a bare writer may as well
	turns := max(leastTurns, devices/size)
	part := func(turn int) []string {
		from := max(turn, 0) * size % (devices - size + 1)
		return xpaths[from : from+size]
	}
	value := func(turn int) []byte {
		return fmt.Appendf(nil, `{"status":"fail-%d","ne-state":"maintenance"}`, turn)
	}
	updates, values := make([]store.LeafUpdate, size), make([][]byte, size)
	s, err := contest(turns, true, func(turn int) error {
		v := value(turn)
		for i, x := range part(turn) {
			updates[i] = store.LeafUpdate{XPath: x, Leaves: v}
		}
		missing, err := p.store.UpdateNodeLeaves(ctx, p.ours, updates)
		if err == nil && len(missing) > 0 {
			err = fmt.Errorf("%d devices were not found", len(missing))
		}
		return err
	}, func(turn int) error {
		v := value(turn)
		for i := range values {
			values[i] = v
		}
		tag, err := p.pool.Exec(ctx, bareUpdate, p.bare.ID, part(turn), values)
		if err == nil && tag.RowsAffected() != int64(size) {
			err = fmt.Errorf("%d of %d devices were updated", tag.RowsAffected(), size)
		}
		return err
	})
	s.handles, s.fragments = devices, turns*size
	return s, err
}

// deletion is one kind of data nodes to delete.
type deletion struct {
	name    string
	degrees int // of each device
	rows    int // that go with one
	// target is what is deleted of a device.
	target func(device string) string
	list   bool
}

func below(path string) func(string) string {
	return func(device string) string { return device + path }
}

const firstDegree = "/org-openroadm-device/degree[@degree-number='1']"

// deletions, each one by one and all at once, are the twelve cases.
var deletions = []deletion{
	{"data nodes with descendants", degrees, 1 + 3*degrees, below("/org-openroadm-device"), false},
	{"list elements with descendants", degrees, deviceNodes, below(""), false},
	{"whole lists with descendants", degrees, 3 * degrees, below("/org-openroadm-device/degree"), true},
	{"data nodes without descendants", 0, 1, below("/org-openroadm-device"), false},
	{"list elements without descendants", degrees, 1, below(firstDegree + "/connection-ports[@index='1']"), false},
	{"whole lists without descendants", degrees, 1, below(firstDegree + "/circuit-packs"), true},
}

const (
	bareDeleteNodes = `delete from fragment where anchor_id = $1 and xpath = any($2::text[])`
	bareDeleteLists = `
delete from fragment where id = any(array(
    select c.id from unnest($2::text[], $3::text[]) as l (parent, prefix)
    join fragment p on p.anchor_id = $1 and p.xpath = l.parent
    join fragment c on c.parent_id = p.id and starts_with(c.xpath, l.prefix)))`
	// deletedDevices is how many are deleted, as in CPS's tests.
	deletedDevices = 100
)

// delete compares DeleteNodes with bare deletes.
func (r *run) delete(ctx context.Context, _ []string) ([]Result, error) {
	n := min(deletedDevices, r.devices())
	var all cases
	name := func(d deletion, atOnce bool) string {
		if atOnce {
			return d.name + ", at once"
		}
		return d.name + ", one by one"
	}
	err := r.withPlant(ctx, func(p *plant) error {
		for i := range r.cfg.Repeat {
			for _, d := range deletions {
				for _, atOnce := range []bool{false, true} {
					r.repetition("delete "+name(d, atOnce), i)
					s, err := p.deleteDevices(ctx, d, n, atOnce)
					if err != nil {
						return fmt.Errorf("%s: %w", name(d, atOnce), err)
					}
					all.add(name(d, atOnce), s)
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return []Result{all.result("delete", name(deletions[2], true))}, nil
}

func (p *plant) deleteDevices(ctx context.Context, d deletion, n int, atOnce bool) (s sample, err error) {
	if err := p.fill(ctx, n, d.degrees); err != nil {
		return s, err
	}
	targets := make([]string, n)
	for i := range targets {
		targets[i] = d.target(deviceXPath(i))
	}
	per := 1
	if atOnce {
		per = n
	}
	s, err = contest(n/per, false, func(turn int) error {
		deleted, err := p.store.DeleteNodes(ctx, p.ours, targets[turn*per:(turn+1)*per])
		if err == nil && deleted == 0 {
			err = fmt.Errorf("nothing was deleted")
		}
		return err
	}, func(turn int) error { return p.deleteBare(ctx, d, targets[turn*per:(turn+1)*per]) })
	if err != nil {
		return s, err
	}
	s.handles, s.fragments = n, n*d.rows
	if err := p.same(ctx, 1+n*(2+3*d.degrees-d.rows)); err != nil {
		return s, err
	}
	_, err = p.pool.Exec(ctx, `delete from fragment where anchor_id = any($1) and parent_id is not null`, []int64{p.ours.ID, p.bare.ID})
	return s, err
}

func (p *plant) deleteBare(ctx context.Context, d deletion, targets []string) error {
	if !d.list {
		_, err := p.pool.Exec(ctx, bareDeleteNodes, p.bare.ID, targets)
		return err
	}
	parents, prefixes := make([]string, len(targets)), make([]string, len(targets))
	for i, t := range targets {
		parents[i], prefixes[i] = t[:strings.LastIndexByte(t, '/')], t+"["
	}
	_, err := p.pool.Exec(ctx, bareDeleteLists, p.bare.ID, parents, prefixes)
	return err
}

const (
	bareReadNodes = `select id, parent_id, xpath, attributes from fragment where anchor_id = $1 and xpath = any($2::text[])`
	bareReadBelow = `
select f.id, f.parent_id, f.xpath, f.attributes
from unnest($2::text[]) as u (xpath)
join fragment t on t.anchor_id = $1 and t.xpath = u.xpath
join fragment f on f.parent_id = t.id`
	bareReadAll = `
select f.id, f.parent_id, f.xpath, f.attributes
from unnest($2::text[]) as u (xpath)
cross join lateral (
    select id, parent_id, xpath, attributes from fragment
    where anchor_id = $1 and xpath >= u.xpath and xpath < u.xpath || '0' order by xpath offset 0) f`
)

// read compares ReadNodes with bare scans of the same rows.
func (r *run) read(ctx context.Context, _ []string) ([]Result, error) {
	const most = 1000
	n := min(most, r.devices())
	depths := []struct {
		name  string
		depth store.Depth
		rows  int
		sqls  []string
	}{
		{"one node each", store.DepthNone, 1, []string{bareReadNodes}},
		{"with children", store.DepthDirect, 2, []string{bareReadNodes, bareReadBelow}},
		{"with all descendants", store.DepthAll, deviceNodes, []string{bareReadAll}},
	}
	sizes := upTo(n, 1, 10, 100)
	var all cases
	name := func(size int, depth string) string { return fmt.Sprintf("%d devices %s", size, depth) }
	err := r.withPlant(ctx, func(p *plant) error {
		if err := p.fill(ctx, n, degrees); err != nil {
			return err
		}
		for i := range r.cfg.Repeat {
			for _, d := range depths {
				for _, size := range sizes {
					r.repetition("read "+name(size, d.name), i)
					s, err := p.read(ctx, n, size, d.depth, d.rows, d.sqls)
					if err != nil {
						return err
					}
					all.add(name(size, d.name), s)
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return []Result{all.result("read", name(n, depths[2].name))}, nil
}

func (p *plant) read(ctx context.Context, devices, size int, depth store.Depth, rows int, sqls []string) (sample, error) {
	xpaths := make([]string, devices)
	for i := range xpaths {
		xpaths[i] = deviceXPath(i)
	}
	turns := max(leastTurns, devices/size)
	part := func(turn int) []string {
		from := max(turn, 0) * size % (devices - size + 1)
		return xpaths[from : from+size]
	}
	want := size * rows
	s, err := contest(turns, true, func(turn int) error {
		got := 0
		for t, err := range p.store.ReadNodes(ctx, p.ours, part(turn), depth) {
			if err != nil {
				return err
			}
			got += countNodes(&t.Node)
		}
		return expect(got, want)
	}, func(turn int) error {
		got := 0
		b := &pgx.Batch{}
		for _, sql := range sqls {
			b.Queue(sql, p.bare.ID, part(turn)).Query(func(rows pgx.Rows) error {
				for rows.Next() {
					got++
				}
				return rows.Err()
			})
		}
		if err := p.pool.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		return expect(got, want)
	})
	s.handles, s.fragments = devices, turns*want
	return s, err
}

func countNodes(n *store.Node) int {
	c := 1
	for i := range n.Children {
		c += countNodes(&n.Children[i])
	}
	return c
}

func expect(got, want int) error {
	if got != want {
		return fmt.Errorf("%d data nodes were read instead of %d", got, want)
	}
	return nil
}
