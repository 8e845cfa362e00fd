package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const fragmentID = `select id from fragment where anchor_id = $1 and xpath = $2`

// InsertNodes stores trees as children of a data node, or as roots of the
// anchor if parent is "". It is one transaction: when a node exists already,
// or is given twice, nothing is stored and the AlreadyDefinedError names all
// such nodes. A parent that does not exist is a MissingError. Nothing merges:
// a container that exists is an error even when it is empty.
//
// Source: CPS's saveData and saveListElements, which then go on to store the
// top-level nodes one by one.
func (s *Store) InsertNodes(ctx context.Context, a Anchor, parent string, trees []Node) error {
	rows, err := s.newRows(ctx, a, parent, trees)
	if err != nil || len(rows.ids) == 0 {
		return err
	}
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	const op = "inserting data nodes"
	b := &pgx.Batch{}
	queueInsert(b, a.ID, rows)
	// The statements of one pipeline are one transaction.
	err = s.pool.SendBatch(ctx, b).Close()
	if err == nil {
		s.analyzeOnce(ctx, len(rows.ids))
		return nil
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return s.classify(op, err)
	}
	switch pg.Code {
	case "23505":
		xpaths, err := s.clashes(ctx, a, rows.xpaths)
		if err != nil {
			return err
		}
		return &AlreadyDefinedError{XPaths: xpaths}
	case "23503":
		return &MissingError{XPaths: []string{parent}} // deleted in between
	}
	return s.classify(op, err)
}

// newRows flattens trees, parents before children, and gives them ids.
func (s *Store) newRows(ctx context.Context, a Anchor, parent string, trees []Node) (*rowSet, error) {
	total := 0
	for i := range trees {
		total += trees[i].count()
	}
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	var parentID int64
	if parent != "" {
		err := s.pool.QueryRow(ctx, fragmentID, a.ID, parent).Scan(&parentID)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil, &MissingError{XPaths: []string{parent}}
		}
		if err != nil {
			return nil, s.classify("finding a parent", err)
		}
	}
	ids, err := s.ids.take(ctx, total)
	if err != nil {
		return nil, fmt.Errorf("reserving ids: %w", err)
	}
	rows := &rowSet{}
	for i := range trees {
		ids = flatten(rows, &trees[i], parentID, parent, ids)
	}
	return rows, nil
}

// flatten adds a tree to rows and returns the ids that are left.
func flatten(rows *rowSet, n *Node, parentID int64, parent string, ids []int64) []int64 {
	id, xpath := ids[0], parent+"/"+n.Step
	ids = ids[1:]
	leaves := n.Leaves
	if len(leaves) == 0 {
		leaves = noLeaves
	}
	rows.add(id, parentID, xpath, leaves)
	for i := range n.Children {
		ids = flatten(rows, &n.Children[i], id, xpath, ids)
	}
	return ids
}

var noLeaves = []byte("{}")

const existingXPaths = `select xpath from fragment where anchor_id = $1 and xpath = any($2::text[])`

// clashes names the xpaths that are stored or stand twice in the list.
func (s *Store) clashes(ctx context.Context, a Anchor, xpaths []string) ([]string, error) {
	rows, err := s.pool.Query(ctx, existingXPaths, a.ID, xpaths)
	if err != nil {
		return nil, s.classify("finding data nodes that exist", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, s.classify("finding data nodes that exist", err)
	}
	sorted := slices.Sorted(slices.Values(xpaths))
	for i := 1; i < len(sorted); i++ {
		if sorted[i] == sorted[i-1] {
			found = append(found, sorted[i])
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}
