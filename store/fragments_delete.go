package store

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
)

const (
	// resolveNodes finds rows by their own xpath.
	resolveNodes = `
select n.n, f.id
from unnest($2::text[]) with ordinality as n (xpath, n)
join fragment f on f.anchor_id = $1 and f.xpath = n.xpath`
	// resolveLists finds a list's elements among its parent's children: a
	// pattern over all xpaths would take % and _ in keys for wildcards, and a
	// mere prefix would take state-foo for a part of state.
	resolveLists = `
select l.n, c.id
from unnest($2::text[], $3::text[], $4::int[]) as l (parent, prefix, n)
join fragment p on p.anchor_id = $1 and p.xpath = l.parent
join fragment c on c.parent_id = p.id and starts_with(c.xpath, l.prefix)`
	resolveRootLists = `
select l.n, c.id
from unnest($2::text[], $3::int[]) as l (prefix, n)
join fragment c on c.anchor_id = $1 and c.parent_id is null and starts_with(c.xpath, l.prefix)`
	resolveRoots = `select $2::int, id from fragment where anchor_id = $1 and parent_id is null`
)

// resolve finds the rows that targets name, without duplicates and in the
// order of their ids, and the targets that name none.
func (s *Store) resolve(ctx context.Context, a Anchor, targets []target) (ids []int64, missing []string, err error) {
	found := make([]bool, len(targets))
	collect := func(rows pgx.Rows) error {
		var n int
		var id int64
		_, err := pgx.ForEachRow(rows, []any{&n, &id}, func() error {
			found[n-1] = true
			ids = append(ids, id)
			return nil
		})
		return err
	}
	var xpaths, parents, prefixes, rootPrefixes []string
	var lists, rootLists []int
	roots := 0
	for i, t := range targets {
		xpaths = append(xpaths, t.xpath)
		switch {
		case t.xpath == "":
			roots = i + 1
		case t.prefix == "":
		case t.parent == "":
			rootPrefixes, rootLists = append(rootPrefixes, t.prefix), append(rootLists, i+1)
		default:
			parents, prefixes, lists = append(parents, t.parent), append(prefixes, t.prefix), append(lists, i+1)
		}
	}
	b := &pgx.Batch{}
	b.Queue(resolveNodes, a.ID, xpaths).Query(collect)
	if len(lists) > 0 {
		b.Queue(resolveLists, a.ID, parents, prefixes, lists).Query(collect)
	}
	if len(rootLists) > 0 {
		b.Queue(resolveRootLists, a.ID, rootPrefixes, rootLists).Query(collect)
	}
	if roots > 0 {
		b.Queue(resolveRoots, a.ID, roots).Query(collect)
	}
	if err := s.pool.SendBatch(ctx, b).Close(); err != nil {
		return nil, nil, s.classify("finding data nodes", err)
	}
	for i, ok := range found {
		if !ok {
			missing = append(missing, targets[i].xpath)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), missing, nil
}

// errVanished rolls a delete back: one of its rows went in between.
var errVanished = errors.New("a data node vanished")

// DeleteNodes deletes data nodes, list elements, and whole lists (the path to
// the list without a key), with everything below them, and returns how many
// of the nodes named that were. It is all or nothing: if an xpath names
// nothing, a MissingError names it and nothing is deleted. An xpath that
// cannot be parsed is an ErrBadXPath.
//
// Source: CPS's deleteDataNodes.
func (s *Store) DeleteNodes(ctx context.Context, a Anchor, xpaths []string) (deleted int, err error) {
	targets, err := parseTargets(xpaths)
	if err != nil || len(targets) == 0 {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.longest())
	defer cancel()
	for {
		ids, missing, err := s.resolveWithin(ctx, a, targets)
		if err != nil {
			return 0, err
		}
		if len(missing) > 0 {
			return 0, &MissingError{XPaths: missing}
		}
		err = s.repeated(ctx, "deleting data nodes", func() error {
			return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
				if len(ids) > chunkRows {
					if _, err := tx.Exec(ctx, sqlLongStatements, millis(s.longest())); err != nil {
						return err
					}
				}
				tag, err := tx.Exec(ctx, sqlDeleteFragments, ids)
				if err == nil && int(tag.RowsAffected()) != len(ids) {
					err = errVanished
				}
				return err
			})
		})
		if err == nil {
			return len(ids), nil
		}
		// What is missing now has to be found out again.
		if !errors.Is(err, errVanished) {
			return 0, err
		}
	}
}

// parseTargets parses xpaths and drops repeats.
func parseTargets(xpaths []string) ([]target, error) {
	targets := make([]target, 0, len(xpaths))
	seen := make(map[string]bool, len(xpaths))
	var bad []error
	for _, x := range xpaths {
		t, err := parseTarget(x)
		switch {
		case err != nil:
			bad = append(bad, err)
		case !seen[t.xpath]:
			seen[t.xpath] = true
			targets = append(targets, t)
		}
	}
	return targets, errors.Join(bad...)
}
