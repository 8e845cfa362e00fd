package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ncmp-inventory/schemas"
	"ncmp-inventory/store"
)

// A device is shaped as in CPS's performance tests: the device, its container,
// and for each of 28 degrees the degree, a circuit pack and a connection port.
const (
	degrees     = 28
	deviceNodes = 2 + 3*degrees
	devicesRoot = "/openroadm-devices"
	// MaxDevices bounds the workloads of data nodes: three times as many as
	// CPS's tests have.
	MaxDevices = 3_000
	// bareIDs keeps the ids of bare rows apart from those that the store draws.
	bareIDs = 1 << 40
)

func deviceStep(i int) string {
	return store.Step("openroadm-device", store.Key{Name: "device-id", Value: "C201-7-1A-" + strconv.Itoa(i)})
}

func deviceXPath(i int) string { return devicesRoot + "/" + deviceStep(i) }

// deviceTree is the i-th device with so many degrees.
func deviceTree(i, degrees int) store.Node {
	container := store.Node{Step: "org-openroadm-device"}
	for d := 1; d <= degrees; d++ {
		number := strconv.Itoa(d)
		container.Children = append(container.Children, store.Node{
			Step:   store.Step("degree", store.Key{Name: "degree-number", Value: number}),
			Leaves: []byte(`{"degree-number":` + number + `,"max-wavelengths":128}`),
			Children: []store.Node{
				{Step: store.Step("circuit-packs", store.Key{Name: "index", Value: "1"}), Leaves: []byte(`{"index":1}`)},
				{Step: store.Step("connection-ports", store.Key{Name: "index", Value: "1"}), Leaves: []byte(`{"index":1}`)},
			},
		})
	}
	return store.Node{
		Step: deviceStep(i),
		Leaves: []byte(`{"device-id":"C201-7-1A-` + strconv.Itoa(i) +
			`","ne-state":"inservice","commission-date-time":"2022-11-06T14:12:23.260487-06:00","status":"success"}`),
		Children: []store.Node{container},
	}
}

// deviceDocument is some devices as their JSON document.
func deviceDocument(first, n int) []byte {
	var b strings.Builder
	b.WriteString(`{"openroadm-device":[`)
	for i := first; i < first+n; i++ {
		if i > first {
			b.WriteByte(',')
		}
		leaves := string(deviceTree(i, 0).Leaves)
		b.WriteString(leaves[:len(leaves)-1] + `,"org-openroadm-device":{"degree":[`)
		for d := 1; d <= degrees; d++ {
			if d > 1 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `{"degree-number":%d,"max-wavelengths":128,"circuit-packs":[{"index":1}],"connection-ports":[{"index":1}]}`, d)
		}
		b.WriteString(`]}}`)
	}
	b.WriteString(`]}`)
	return []byte(b.String())
}

// treesOf builds trees from the nodes of a document.
func treesOf(parent string, list []schemas.DataNode) []store.Node {
	children := make([][]int, len(list))
	var tops []int
	for i, n := range list {
		if n.Parent < 0 {
			tops = append(tops, i)
		} else {
			children[n.Parent] = append(children[n.Parent], i)
		}
	}
	var build func(at []int, above string) []store.Node
	build = func(at []int, above string) []store.Node {
		trees := make([]store.Node, len(at))
		for k, i := range at {
			trees[k] = store.Node{Step: list[i].XPath[len(above)+1:], Leaves: list[i].Leaves, Children: build(children[i], list[i].XPath)}
		}
		return trees
	}
	return build(tops, parent)
}

// plant is a database of devices: an anchor for the store, and one for bare
// statements.
type plant struct {
	s          *servers
	url        string
	store      *store.Store
	pool       *pgxpool.Pool // one connection, as the store's calls use one
	ours, bare store.Anchor
	bareRoot   int64
	nextID     int64
}

// withPlant gives use a fresh plant without devices.
func (r *run) withPlant(ctx context.Context, use func(*plant) error) error {
	p, err := r.s.newPlant(ctx)
	if err != nil {
		return err
	}
	return errors.Join(use(p), p.close(ctx))
}

func (s *servers) newPlant(ctx context.Context) (p *plant, err error) {
	p = &plant{s: s, nextID: bareIDs}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close(ctx))
			p = nil
		}
	}()
	if p.url, err = s.createDatabase(ctx); err != nil {
		return p, err
	}
	if p.store, err = s.openStore(ctx, p.url); err != nil {
		return p, err
	}
	if p.pool, err = s.pool(ctx, p.url, 1, sessionSettings); err != nil {
		return p, err
	}
	m := schemas.BenchDevice()
	set := store.SchemaSet{Name: "bench", Sources: []store.YANGSource{{Module: m.Name, Revision: m.Revision, Content: string(m.Content)}}}
	for name, a := range map[string]*store.Anchor{"store": &p.ours, "bare": &p.bare} {
		if *a, err = p.store.CreateAnchor(ctx, "bench", name, set); err != nil {
			return p, err
		}
		if err := p.store.InsertNodes(ctx, *a, "", []store.Node{{Step: devicesRoot[1:]}}); err != nil {
			return p, err
		}
	}
	err = p.pool.QueryRow(ctx, `select id from fragment where anchor_id = $1`, p.bare.ID).Scan(&p.bareRoot)
	return p, err
}

func (p *plant) close(ctx context.Context) error {
	if p.pool != nil {
		p.pool.Close()
	}
	if p.store != nil {
		p.store.Close()
	}
	if p.url == "" {
		return nil
	}
	return p.s.dropDatabase(context.WithoutCancel(ctx), p.url)
}

// rows makes columns of trees below the bare anchor's root.
func (p *plant) rows(trees []store.Node) *nodes {
	n := &nodes{}
	var add func(parent int64, above string, list []store.Node)
	add = func(parent int64, above string, list []store.Node) {
		for i := range list {
			id, xpath := p.nextID, above+"/"+list[i].Step
			p.nextID++
			leaves := list[i].Leaves
			if leaves == nil {
				leaves = []byte("{}")
			}
			n.ids, n.parents = append(n.ids, id), append(n.parents, parent)
			n.xpaths, n.attributes = append(n.xpaths, xpath), append(n.attributes, leaves)
			add(id, xpath, list[i].Children)
		}
	}
	add(p.bareRoot, devicesRoot, trees)
	return n
}

// insertBare writes rows in one round trip and one transaction.
func (p *plant) insertBare(ctx context.Context, n *nodes) error {
	t := &transaction{}
	t.insert(p.bare.ID, n)
	b := &pgx.Batch{}
	for _, s := range t.statements {
		b.Queue(s.sql, s.args...)
	}
	return p.pool.SendBatch(ctx, b).Close()
}

// fillChunk is how many devices are stored in one transaction.
const fillChunk = 100

// fill stores devices under both anchors, not measured, and takes statistics.
func (p *plant) fill(ctx context.Context, devices, degrees int) error {
	for first := 0; first < devices; first += fillChunk {
		trees := make([]store.Node, 0, fillChunk)
		for i := first; i < min(first+fillChunk, devices); i++ {
			trees = append(trees, deviceTree(i, degrees))
		}
		if err := p.store.InsertNodes(ctx, p.ours, devicesRoot, trees); err != nil {
			return err
		}
		if err := p.insertBare(ctx, p.rows(trees)); err != nil {
			return err
		}
	}
	_, err := p.pool.Exec(ctx, `analyze fragment`)
	return err
}

// contest lets the store and a bare statement do the same work in turns, and
// changes who is first each time. Both are called once before, not measured, if
// there is a call to spare: warm is then called with -1.
func contest(turns int, warm bool, ours, bare func(turn int) error) (s sample, err error) {
	if warm {
		if err := errors.Join(ours(-1), bare(-1)); err != nil {
			return s, err
		}
	}
	latencies := make([]time.Duration, 0, turns)
	for i := range turns {
		calls := [2]func(int) error{ours, bare}
		var took [2]time.Duration
		for k := range calls {
			who := (k + i) % 2
			began := time.Now()
			if err := calls[who](i); err != nil {
				return s, err
			}
			took[who] = time.Since(began)
		}
		latencies = append(latencies, took[0])
		s.took += took[0]
		s.bare += took[1]
	}
	slices.Sort(latencies)
	s.p50, s.p99 = percentile(latencies, 0.5), percentile(latencies, 0.99)
	return s, nil
}

// devices is how many devices the workloads of data nodes have.
func (r *run) devices() int { return min(r.cfg.Handles, MaxDevices) }

// cases gathers the repetitions of each case, in the order of their first.
type cases struct {
	names   []string
	samples map[string][]sample
}

func (c *cases) add(name string, s sample) {
	if c.samples == nil {
		c.samples = map[string][]sample{}
	}
	if _, known := c.samples[name]; !known {
		c.names = append(c.names, name)
	}
	c.samples[name] = append(c.samples[name], s)
}

// result is the workload's: that of the case named, with all cases below it.
func (c *cases) result(workload, headline string) Result {
	var all []Result
	var top Result
	for _, name := range c.names {
		r := summarize(c.samples[name], false)
		if name == headline {
			top = r
		}
		r.Case, r.at = name, leading(name)
		all = append(all, r)
	}
	top.Workload, top.Cases = workload, all
	return top
}

// leading is the number that a case's name starts with, 0 if it starts with none.
func leading(name string) float64 {
	text, _, _ := strings.Cut(name, " ")
	n, _ := strconv.ParseFloat(text, 64)
	return n
}
