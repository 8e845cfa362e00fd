package store

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// chunkRows bounds one statement: with many more rows the planner turns from
// the index to reading the whole table.
const chunkRows = 2000

// rowSet is new data nodes as columns, the form in which they travel.
type rowSet struct {
	ids, parents []int64 // a parent of 0 is none: a root
	xpaths       []string
	attributes   [][]byte // JSON objects
}

func (r *rowSet) add(id, parent int64, xpath string, attributes []byte) {
	r.ids = append(r.ids, id)
	r.parents = append(r.parents, parent)
	r.xpaths = append(r.xpaths, xpath)
	r.attributes = append(r.attributes, attributes)
}

func (r *rowSet) len() int { return len(r.ids) }

func (r *rowSet) reset() {
	r.ids, r.parents, r.xpaths, r.attributes = r.ids[:0], r.parents[:0], r.xpaths[:0], r.attributes[:0]
}

// sqlInsertFragments writes children and parents in any order: the foreign key
// is checked at the end of the statement.
const sqlInsertFragments = `
insert into fragment (id, parent_id, anchor_id, xpath, attributes)
select u.id, nullif(u.parent_id, 0), $1, u.xpath, u.attributes
from unnest($2::bigint[], $3::bigint[], $4::text[], $5::jsonb[]) as u (id, parent_id, xpath, attributes)`

// queueInsert inserts data nodes of one anchor.
func queueInsert(b *pgx.Batch, anchor int64, r *rowSet) {
	for from := 0; from < r.len(); from += chunkRows {
		to := min(from+chunkRows, r.len())
		b.Queue(sqlInsertFragments, anchor, r.ids[from:to], r.parents[from:to], r.xpaths[from:to], arrayOf(r.attributes[from:to]))
	}
}

// leafSet is changed leaves by row id. Where replace is true they are all that
// is left, else they are merged into what is stored.
type leafSet struct {
	ids        []int64
	attributes [][]byte
	replace    []bool
}

func (l *leafSet) add(id int64, attributes []byte, replace bool) {
	l.ids = append(l.ids, id)
	l.attributes = append(l.attributes, attributes)
	l.replace = append(l.replace, replace)
}

func (l *leafSet) len() int { return len(l.ids) }

func (l *leafSet) reset() {
	l.ids, l.attributes, l.replace = l.ids[:0], l.attributes[:0], l.replace[:0]
}

// sqlMergeLeaves finds rows by id and leaves xpath and keys alone, so that the
// update stays on its page. The arrays come out of a sub-query to hide their
// length: knowing it, the planner reads a table of middling size as a whole.
const sqlMergeLeaves = `
update fragment f
set attributes = case when u.replace then u.attributes else coalesce(f.attributes, '{}') || u.attributes end
from (select $1::bigint[] as ids, $2::jsonb[] as attributes, $3::boolean[] as replaces offset 0) p,
     unnest(p.ids, p.attributes, p.replaces) as u (id, attributes, replace)
where f.id = u.id`

// queueMerge changes leaves of rows named by id; a row that is gone is passed over.
func queueMerge(b *pgx.Batch, ids []int64, attributes [][]byte, replace []bool) {
	for from := 0; from < len(ids); from += chunkRows {
		to := min(from+chunkRows, len(ids))
		b.Queue(sqlMergeLeaves, ids[from:to], arrayOf(attributes[from:to]), replace[from:to])
	}
}

// sqlDeleteFragments takes what lies below along, by the cascade of parent_id.
// The sub-query hides the array's length, as above.
const sqlDeleteFragments = `delete from fragment where id = any((select $1::bigint[])::bigint[])`

// queueDelete removes rows named by id with all that lies below them.
func queueDelete(b *pgx.Batch, ids []int64) {
	for from := 0; from < len(ids); from += chunkRows {
		to := min(from+chunkRows, len(ids))
		b.Queue(sqlDeleteFragments, ids[from:to])
	}
}

// arrayOf is values in the form that pgx encodes without reflection.
func arrayOf(values [][]byte) pgtype.FlatArray[[]byte] { return values }
