package store

import (
	"context"
	"encoding/binary"
	"errors"
	"iter"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Depth says how many levels below a data node are read.
type Depth int

// CPS's three depths; any other number of levels will do as well.
const (
	DepthAll    Depth = -1
	DepthNone   Depth = 0
	DepthDirect Depth = 1
)

// Tree is a data node that was read, with as much below it as was asked for.
type Tree struct {
	XPath string
	Node
}

// readChunk bounds how many nodes are read, with what lies below them, at once.
const readChunk = 500

// ReadNodes reads data nodes, list elements, and whole lists (the path to the
// list without a key); "/" is all roots. What is named twice comes once. An
// xpath that names nothing yields nothing: MissingError comes at the end, after
// what was found. Memory is bounded by 500 of the nodes named, with what
// lies below them. Each tree is consistent in itself; they are not read at one
// moment. After any other error the sequence ends.
//
// The trees' bytes are the caller's to keep.
func (s *Store) ReadNodes(ctx context.Context, a Anchor, xpaths []string, depth Depth) iter.Seq2[Tree, error] {
	return func(yield func(Tree, error) bool) {
		targets, err := parseTargets(xpaths)
		if err != nil {
			yield(Tree{}, err)
			return
		}
		ids, missing, err := s.resolveWithin(ctx, a, targets)
		if err != nil {
			yield(Tree{}, err)
			return
		}
		for chunk := range slices.Chunk(ids, readChunk) {
			trees, err := s.readTrees(ctx, a, chunk, depth)
			if err != nil {
				yield(Tree{}, err)
				return
			}
			for _, t := range trees {
				if !yield(t, nil) {
					return
				}
			}
		}
		if len(missing) > 0 {
			yield(Tree{}, &MissingError{XPaths: missing})
		}
	}
}

func (s *Store) resolveWithin(ctx context.Context, a Anchor, targets []target) ([]int64, []string, error) {
	if len(targets) == 0 {
		return nil, nil, nil
	}
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	return s.resolve(ctx, a, targets)
}

const (
	beginRead = `begin isolation level repeatable read read only`
	// readTops also tells where a node's last step begins.
	readTops = `
select t.id, coalesce(t.parent_id, 0), t.xpath, coalesce(t.attributes, '{}'), coalesce(octet_length(p.xpath), 0)
from fragment t left join fragment p on p.id = t.parent_id
where t.id = any($1::bigint[])`
	readChildren = `
select id, parent_id, xpath, coalesce(attributes, '{}'), 0 from fragment where parent_id = any($1::bigint[])`
	// readBelow is one index range for each node, half again as fast as going
	// down level by level. The range holds what lies below and nothing else:
	// "0" follows "/". It needs xpaths compared bytewise. Parents come
	// before their children, and offset 0 keeps the planner from turning the
	// ranges into one scan of the anchor.
	readBelow = `
select f.id, f.parent_id, f.xpath, coalesce(f.attributes, '{}'), 0
from fragment t cross join lateral (
  select id, parent_id, xpath, attributes from fragment
  where anchor_id = $2 and xpath > t.xpath || '/' and xpath < t.xpath || '0'
  order by xpath offset 0
) f
where t.id = any($1::bigint[])`
)

// readTrees reads the nodes with the given ids, which are sorted, and what lies below them. A node
// that is gone by now is left out.
func (s *Store) readTrees(ctx context.Context, a Anchor, ids []int64, depth Depth) ([]Tree, error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	byRange := false
	var err error
	if depth == DepthAll {
		if byRange, err = s.bytewise(ctx); err != nil {
			return nil, s.classify("reading the collation of xpaths", err)
		}
	}
	var f forest
	f.named = make(map[int64]int32, len(ids))
	if byRange || depth == DepthNone || depth == DepthDirect {
		err = s.readAtOnce(ctx, a, &f, ids, depth)
	} else {
		err = s.readLevels(ctx, &f, ids, depth)
	}
	if err != nil {
		return nil, s.classify("reading data nodes", err)
	}
	// A node that was named together with one above it gets a tree of its own.
	nested := f.twice
	if len(nested) == 0 {
		return f.trees(), nil
	}
	slices.Sort(nested)
	nested = slices.Compact(nested)
	upper := slices.DeleteFunc(slices.Clone(ids), func(id int64) bool {
		_, is := slices.BinarySearch(nested, id)
		return is
	})
	trees, err := s.readTrees(ctx, a, upper, depth)
	if err != nil {
		return nil, err
	}
	below, err := s.readTrees(ctx, a, nested, depth)
	return append(trees, below...), err
}

// readAtOnce reads in one round trip. All statements see one moment: a tree is
// never torn.
func (s *Store) readAtOnce(ctx context.Context, a Anchor, f *forest, ids []int64, depth Depth) error {
	b := &pgx.Batch{}
	if depth != DepthNone {
		b.Queue(beginRead)
	}
	b.Queue(readTops, ids).Query(f.addTops)
	switch depth {
	case DepthNone: // one statement is its own transaction
	case DepthDirect:
		b.Queue(readChildren, ids).Query(f.addBelow)
	default:
		b.Queue(readBelow, ids, a.ID).Query(f.addBelow)
	}
	if depth != DepthNone {
		b.Queue("commit")
	}
	return s.pool.SendBatch(ctx, b).Close()
}

// readLevels goes down level by level, where xpaths are not compared bytewise or
// only some levels are wanted.
func (s *Store) readLevels(ctx context.Context, f *forest, ids []int64, depth Depth) error {
	opts := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return pgx.BeginTxFunc(ctx, s.pool, opts, func(tx pgx.Tx) error {
		b := &pgx.Batch{}
		b.Queue(readTops, ids).Query(f.addTops)
		b.Queue(readChildren, ids).Query(f.addBelow)
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		from := f.tops
		for level := Depth(1); level != depth && from < len(f.rows); level++ {
			next := make([]int64, 0, len(f.rows)-from)
			for _, r := range f.rows[from:] {
				next = append(next, r.id)
			}
			from = len(f.rows)
			rows, err := tx.Query(ctx, readChildren, next)
			if err != nil {
				return err
			}
			if err := f.addBelow(rows); err != nil {
				return err
			}
		}
		return nil
	})
}

const xpathCollation = `
select coalesce(nullif(c.collname, 'default'), d.datcollate) in ('C', 'POSIX')
from pg_attribute t join pg_collation c on c.oid = t.attcollation, pg_database d
where t.attrelid = 'fragment'::regclass and t.attname = 'xpath' and d.datname = current_database()
and (c.collname <> 'default' or coalesce(to_jsonb(d) ->> 'datlocprovider', 'c') = 'c')`

// bytewise reports whether PostgreSQL compares xpaths byte by byte, so that an
// index range holds a node's descendants.
func (s *Store) bytewise(ctx context.Context) (bool, error) {
	if known := s.collation.Load(); known != nil {
		return *known, nil
	}
	var is bool
	err := s.pool.QueryRow(ctx, xpathCollation).Scan(&is)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	if err == nil {
		s.collation.Store(&is)
	}
	return is, err
}

// forest gathers rows and makes trees of them with few allocations: all text
// lies in two buffers, all nodes in one slice.
type forest struct {
	rows  []forestRow
	tops  int
	named map[int64]int32 // row of a top's id
	twice []int64         // tops that came again, because they lie below others
	// path leads from a top to the row before: in the order of xpaths it holds
	// most rows' parents. index, of all ids, is made when it does not.
	path  []int32
	index map[int64]int32
	steps []byte
	json  []byte
}

type forestRow struct {
	id       int64
	parent   int32 // row, -1 for a top
	children int32
	length   int32 // of the xpath
	step     int32 // length of the last step
	json     int32 // length of the leaves
}

func (f *forest) addTops(rows pgx.Rows) error {
	err := f.add(rows, true)
	f.tops = len(f.rows)
	return err
}

func (f *forest) addBelow(rows pgx.Rows) error { return f.add(rows, false) }

// add copies rows. Of a row below a top only the last step is kept. A row whose
// parent is not among the rows is a stranger and left out: such as one whose
// key holds what looks like the end of another's.
func (f *forest) add(rows pgx.Rows, top bool) error {
	defer rows.Close()
	for rows.Next() {
		// Numbers come in binary, text and JSON as text: pgx's own choice.
		v := rows.RawValues()
		id, parentID := int64(binary.BigEndian.Uint64(v[0])), int64(binary.BigEndian.Uint64(v[1]))
		xpath, leaves := v[2], v[3]
		r := forestRow{id: id, parent: -1, length: int32(len(xpath)), json: int32(len(leaves))}
		above := int32(binary.BigEndian.Uint32(v[4]))
		if !top {
			p, ok := f.parent(parentID)
			if !ok {
				continue
			}
			r.parent = p
			f.rows[p].children++
			above = f.rows[p].length
		}
		if int(above) >= len(xpath) || xpath[above] != '/' {
			// Some older rows do not repeat their parent's xpath.
			above = r.length - int32(len(lastStep(string(xpath)))) - 1
		}
		if top {
			f.steps = append(f.steps, xpath...)
		} else {
			f.steps = append(f.steps, xpath[above+1:]...)
		}
		r.step = r.length - above - 1
		f.json = append(f.json, leaves...)
		at := int32(len(f.rows))
		if top {
			f.named[id] = at
		} else {
			if _, again := f.named[id]; again {
				f.twice = append(f.twice, id)
			}
			f.path = append(f.path, at)
		}
		if f.index != nil {
			f.index[id] = at
		}
		f.rows = append(f.rows, r)
	}
	return rows.Err()
}

// parent finds a parent's row and makes the path lead to it.
func (f *forest) parent(id int64) (int32, bool) {
	for i := len(f.path) - 1; i >= 0; i-- {
		if p := f.path[i]; f.rows[p].id == id {
			f.path = f.path[:i+1]
			return p, true
		}
	}
	p, ok := f.named[id]
	if !ok {
		if f.index == nil {
			f.index = make(map[int64]int32, 2*len(f.rows))
			for i, r := range f.rows {
				f.index[r.id] = int32(i)
			}
		}
		p, ok = f.index[id]
	}
	if ok {
		f.path = append(f.path[:0], p)
	}
	return p, ok
}

// trees lays the nodes out so that siblings lie side by side.
func (f *forest) trees() []Tree {
	steps := string(f.steps)
	nodes := make([]Node, len(f.rows)-f.tops)
	next := make([]int32, len(f.rows)) // where a row's next child goes
	end := int32(0)
	for i, r := range f.rows {
		next[i] = end
		end += r.children
	}
	trees := make([]Tree, f.tops)
	textAt, jsonAt := 0, 0
	for i, r := range f.rows {
		n := Node{Leaves: f.json[jsonAt : jsonAt+int(r.json) : jsonAt+int(r.json)]}
		if r.children > 0 {
			n.Children = nodes[next[i] : next[i]+r.children : next[i]+r.children]
		}
		jsonAt += int(r.json)
		if r.parent < 0 {
			trees[i].XPath = steps[textAt : textAt+int(r.length)]
			textAt += int(r.length)
			n.Step = trees[i].XPath[r.length-r.step:]
			trees[i].Node = n
			continue
		}
		n.Step = steps[textAt : textAt+int(r.step)]
		textAt += int(r.step)
		nodes[next[r.parent]] = n
		next[r.parent]++
	}
	return trees
}
