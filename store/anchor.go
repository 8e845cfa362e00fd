package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Anchor is a tree of data nodes of one schema set.
type Anchor struct {
	ID              int64
	Dataspace, Name string
}

// YANGSource is one YANG module as its author wrote it.
type YANGSource struct {
	Module, Revision string // Revision "" if the module has none
	Content          string
}

// SchemaSet names the YANG modules that an anchor's data follow.
type SchemaSet struct {
	Name    string
	Sources []YANGSource
}

var (
	// ErrNoAnchor means that there is no anchor of that name.
	ErrNoAnchor = errors.New("no such anchor")
	// ErrAnchorExists means that there is one already.
	ErrAnchorExists = errors.New("anchor exists")
)

const findAnchor = `
select a.id from anchor a join dataspace d on d.id = a.dataspace_id
where d.name = $1 and a.name = $2`

// FindAnchor looks an anchor up. It fails with ErrNoAnchor if there is none.
func (s *Store) FindAnchor(ctx context.Context, dataspace, name string) (Anchor, error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	a := Anchor{Dataspace: dataspace, Name: name}
	err := s.pool.QueryRow(ctx, findAnchor, dataspace, name).Scan(&a.ID)
	if errors.Is(err, pgx.ErrNoRows) {
		return Anchor{}, fmt.Errorf("%w: %q in dataspace %q", ErrNoAnchor, name, dataspace)
	}
	return a, s.classify("finding an anchor", err)
}

const (
	addDataspace = `insert into dataspace (name) values ($1) on conflict (name) do nothing`
	addSchemaSet = `
insert into schema_set (name, dataspace_id)
select $2, id from dataspace where name = $1
on conflict (name, dataspace_id) do nothing`
	// A YANG source is one row for all dataspaces, known by its checksum.
	addSources = `
insert into yang_resource (file_name, content, checksum, module_name, revision)
select module || '@' || revision || '.yang', content, checksum, module, revision
from unnest($1::text[], $2::text[], $3::text[], $4::text[]) as u (module, revision, content, checksum)
on conflict (checksum) do nothing`
	// The link table has no key of its own.
	linkSources = `
insert into schema_set_yang_resources (schema_set_id, yang_resource_id)
select s.id, y.id
from schema_set s join dataspace d on d.id = s.dataspace_id, yang_resource y
where d.name = $1 and s.name = $2 and y.checksum = any($3::text[])
and not exists (select from schema_set_yang_resources l where l.schema_set_id = s.id and l.yang_resource_id = y.id)`
	addAnchor = `
insert into anchor (name, schema_set_id, dataspace_id)
select $3, s.id, d.id
from schema_set s join dataspace d on d.id = s.dataspace_id
where d.name = $1 and s.name = $2
on conflict (dataspace_id, name) do nothing
returning id`
)

// CreateAnchor makes an anchor, and the dataspace, schema set and YANG sources
// that it needs as far as they are missing. It fails with ErrAnchorExists if
// there is one of that name.
func (s *Store) CreateAnchor(ctx context.Context, dataspace, name string, set SchemaSet) (Anchor, error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	var modules, revisions, contents, checksums []string
	for _, y := range set.Sources {
		sum := sha256.Sum256([]byte(y.Content))
		modules = append(modules, y.Module)
		revisions = append(revisions, y.Revision)
		contents = append(contents, y.Content)
		checksums = append(checksums, hex.EncodeToString(sum[:]))
	}
	b := &pgx.Batch{}
	b.Queue(addDataspace, dataspace)
	b.Queue(addSchemaSet, dataspace, set.Name)
	b.Queue(addSources, modules, revisions, contents, checksums)
	b.Queue(linkSources, dataspace, set.Name, checksums)
	a := Anchor{Dataspace: dataspace, Name: name}
	b.Queue(addAnchor, dataspace, set.Name, name).QueryRow(func(row pgx.Row) error { return row.Scan(&a.ID) })
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error { return tx.SendBatch(ctx, b).Close() })
	if errors.Is(err, pgx.ErrNoRows) {
		return Anchor{}, fmt.Errorf("%w: %q in dataspace %q", ErrAnchorExists, name, dataspace)
	}
	return a, s.classify("creating an anchor", err)
}

// DeleteAnchor removes an anchor with all its data nodes, in one transaction.
// The dataspace, the schema set and the YANG sources stay. It fails with
// ErrNoAnchor if the anchor is gone already.
func (s *Store) DeleteAnchor(ctx context.Context, a Anchor) error {
	ctx, cancel := context.WithTimeout(ctx, s.longest())
	defer cancel()
	gone := false
	b := &pgx.Batch{}
	b.Queue(sqlLongStatements, millis(s.longest()))
	b.Queue(`delete from fragment where anchor_id = $1`, a.ID)
	b.Queue(`delete from anchor where id = $1 returning true`, a.ID).QueryRow(func(row pgx.Row) error { return row.Scan(&gone) })
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error { return tx.SendBatch(ctx, b).Close() })
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("%w: %q in dataspace %q", ErrNoAnchor, a.Name, a.Dataspace)
	}
	return s.classify("deleting an anchor", err)
}
