package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"ncmp-inventory/inventory"
)

// LeafUpdate sets leaves of one data node.
type LeafUpdate struct {
	XPath  string // as stored, see NormalizeXPath
	Leaves []byte // a JSON object: what it names is set, the rest stays
}

// updateLeaves goes through the arrays in their order, one look-up by xpath for
// each: the condition is written so that nothing but a nested loop can meet it.
// So writers of overlapping nodes meet in one order. Only in a table of some
// hundred rows may the loop be the other way about, and a deadlock that comes of
// it is tried again. Locking the rows first would rule that out, at a fifth to a
// third more cost. The merge is computed from the row as it is under the lock:
// no writer's leaf is lost. A jsonb number keeps its digits, so a leaf that is
// not named comes out as it went in.
const updateLeaves = `
update fragment f
set attributes = coalesce(f.attributes, '{}') || u.leaves
from (select $2::text[] as xpaths, $3::jsonb[] as leaves offset 0) p,
     unnest(p.xpaths, p.leaves) with ordinality as u (xpath, leaves, n)
where f.anchor_id = $1 and f.xpath = any(array[u.xpath])
returning u.n`

// updatesPerStatement bounds one statement: with tens of thousands of rows the
// planner reads the whole table instead.
const updatesPerStatement = 3000

// UpdateNodeLeaves merges leaves into data nodes, all in one statement, and
// returns the xpaths that name no data node; the others are updated all the
// same. Updates of one node are merged in the order given. A leaf cannot be
// removed, and numbers keep their text.
//
// Source: CPS's updateNodeLeaves, which ignores missing nodes silently and
// reads before it writes without a lock.
func (s *Store) UpdateNodeLeaves(ctx context.Context, a Anchor, updates []LeafUpdate) (missing []string, err error) {
	if len(updates) == 0 {
		return nil, nil
	}
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	xpaths, leaves, err := sortUpdates(updates)
	if err != nil {
		return nil, err
	}
	var updated []bool
	err = s.repeated(ctx, "updating leaves", func() error {
		updated = make([]bool, len(xpaths))
		b := &pgx.Batch{}
		for from := 0; from < len(xpaths); from += updatesPerStatement {
			to := min(from+updatesPerStatement, len(xpaths))
			b.Queue(updateLeaves, a.ID, xpaths[from:to], leaves[from:to]).Query(func(rows pgx.Rows) error {
				var n int
				_, err := pgx.ForEachRow(rows, []any{&n}, func() error {
					updated[from+n-1] = true
					return nil
				})
				return err
			})
		}
		// The statements of one pipeline are one transaction.
		return s.pool.SendBatch(ctx, b).Close()
	})
	if err != nil {
		return nil, err
	}
	for i, ok := range updated {
		if !ok {
			missing = append(missing, xpaths[i])
		}
	}
	return missing, nil
}

// sortUpdates brings updates into the order of locks, one per node.
func sortUpdates(updates []LeafUpdate) (xpaths []string, leaves [][]byte, err error) {
	order := func(a, b LeafUpdate) int { return cmp.Compare(a.XPath, b.XPath) }
	if !slices.IsSortedFunc(updates, order) {
		updates = slices.Clone(updates)
		slices.SortStableFunc(updates, order)
	}
	xpaths, leaves = make([]string, 0, len(updates)), make([][]byte, 0, len(updates))
	for i, u := range updates {
		if i == 0 || u.XPath != updates[i-1].XPath {
			xpaths, leaves = append(xpaths, u.XPath), append(leaves, u.Leaves)
			continue
		}
		last := len(leaves) - 1
		if leaves[last], err = mergeObjects(leaves[last], u.Leaves); err != nil {
			return nil, nil, fmt.Errorf("updating leaves of %s: %w", u.XPath, err)
		}
	}
	return xpaths, leaves, nil
}

// mergeObjects is what two merges in a row amount to.
func mergeObjects(a, b []byte) ([]byte, error) {
	var merged map[string]json.RawMessage
	for _, o := range [][]byte{a, b} {
		if err := json.Unmarshal(o, &merged); err != nil {
			return nil, fmt.Errorf("%w: leaves are no JSON object", inventory.ErrData)
		}
	}
	return json.Marshal(merged)
}
