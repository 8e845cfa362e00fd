package store_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"ncmp-inventory/store"
	"ncmp-inventory/store/storetest"
)

// The benchmarks stand next to the barest statement that does the same to the
// same rows, so that what the store adds can be read off. A device has 86
// nodes, as an OpenROADM one.
const deviceNodes = 86

func benchStore(b *testing.B) (*store.Store, store.Anchor, *pgxpool.Pool) {
	b.Helper()
	db := storetest.Open(b)
	s := db.New(b)
	return s, newAnchor(b, s), db.Pool(b)
}

func devices(from, n int) (nodes []store.Node) {
	for i := range n {
		nodes = append(nodes, device(fmt.Sprint(from+i), deviceNodes-1))
	}
	return nodes
}

func deviceXPath(i int) string { return fmt.Sprintf("/device[@id='%d']", i) }

func reportRows(b *testing.B, rows int) {
	b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

func mustExec(b *testing.B, pool *pgxpool.Pool, sql string, args ...any) {
	b.Helper()
	_, err := pool.Exec(b.Context(), sql, args...)
	require.NoError(b, err)
}

func BenchmarkUpdateNodeLeaves(b *testing.B) {
	s, a, pool := benchStore(b)
	const stored = 100
	require.NoError(b, s.InsertNodes(b.Context(), a, "", devices(0, stored)))
	mustExec(b, pool, `analyze fragment`)
	for _, n := range []int{1, 100, 1000, 3000} {
		updates := make([]store.LeafUpdate, n)
		for i := range updates {
			updates[i].XPath = fmt.Sprintf("%s/interface[@name='if-%d']", deviceXPath(i%stored), i/stored)
		}
		slices.SortFunc(updates, func(a, b store.LeafUpdate) int { return compareText(a.XPath, b.XPath) })
		var xpaths []string
		leaves := make([][]byte, n)
		for _, u := range updates {
			xpaths = append(xpaths, u.XPath)
		}
		fill := func(round int) {
			for i := range updates {
				updates[i].Leaves = fmt.Appendf(nil, `{"operational-state": "state-%d", "speed": %d}`, round, i)
				leaves[i] = updates[i].Leaves
			}
		}
		b.Run(fmt.Sprint(n, "/store"), func(b *testing.B) {
			for round := range b.N {
				fill(round)
				missing, err := s.UpdateNodeLeaves(b.Context(), a, updates)
				require.NoError(b, err)
				require.Empty(b, missing)
			}
			reportRows(b, n)
		})
		b.Run(fmt.Sprint(n, "/bare"), func(b *testing.B) {
			for round := range b.N {
				fill(round)
				mustExec(b, pool, `
update fragment f set attributes = f.attributes || u.leaves
from unnest($2::text[], $3::jsonb[]) as u (xpath, leaves) where f.anchor_id = $1 and f.xpath = u.xpath`, a.ID, xpaths, leaves)
			}
			reportRows(b, n)
		})
	}
}

func BenchmarkInsertNodes(b *testing.B) {
	s, a, pool := benchStore(b)
	const n = 100
	b.Run("store", func(b *testing.B) {
		for b.Loop() {
			require.NoError(b, s.InsertNodes(b.Context(), a, "", devices(0, n)))
			b.StopTimer()
			mustExec(b, pool, `delete from fragment where anchor_id = $1`, a.ID)
			mustExec(b, pool, `vacuum analyze fragment`)
			b.StartTimer()
		}
		reportRows(b, n*deviceNodes)
	})
	b.Run("bare", func(b *testing.B) {
		for b.Loop() {
			ids, parents, xpaths, leaves := bareRows(devices(0, n))
			for from := 0; from < len(ids); from += 2000 {
				to := min(from+2000, len(ids))
				mustExec(b, pool, `
insert into fragment (id, parent_id, anchor_id, xpath, attributes)
select u.id, nullif(u.parent_id, 0), $1, u.xpath, u.attributes
from unnest($2::bigint[], $3::bigint[], $4::text[], $5::jsonb[]) as u (id, parent_id, xpath, attributes)`,
					a.ID, ids[from:to], parents[from:to], xpaths[from:to], leaves[from:to])
			}
			b.StopTimer()
			mustExec(b, pool, `delete from fragment where anchor_id = $1`, a.ID)
			mustExec(b, pool, `vacuum analyze fragment`)
			b.StartTimer()
		}
		reportRows(b, n*deviceNodes)
	})
}

func bareRows(nodes []store.Node) (ids, parents []int64, xpaths []string, leaves [][]byte) {
	for _, n := range nodes {
		id := int64(1<<40 + len(ids))
		ids, parents, xpaths, leaves = append(ids, id), append(parents, 0), append(xpaths, "/"+n.Step), append(leaves, n.Leaves)
		for _, c := range n.Children {
			ids, parents = append(ids, int64(1<<40+len(ids))), append(parents, id)
			xpaths, leaves = append(xpaths, "/"+n.Step+"/"+c.Step), append(leaves, c.Leaves)
		}
	}
	return ids, parents, xpaths, leaves
}

func BenchmarkDeleteNodes(b *testing.B) {
	s, a, pool := benchStore(b)
	const n = 100
	var whole, lists []string
	for i := range n {
		whole = append(whole, deviceXPath(i))
		lists = append(lists, deviceXPath(i)+"/interface")
	}
	run := func(name string, rows int, do func(b *testing.B)) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				mustExec(b, pool, `delete from fragment where anchor_id = $1`, a.ID)
				require.NoError(b, s.InsertNodes(b.Context(), a, "", devices(0, n)))
				mustExec(b, pool, `vacuum analyze fragment`)
				b.StartTimer()
				do(b)
			}
			reportRows(b, rows)
		})
	}
	run("elements/store", n*deviceNodes, func(b *testing.B) {
		_, err := s.DeleteNodes(b.Context(), a, whole)
		require.NoError(b, err)
	})
	run("elements/bare", n*deviceNodes, func(b *testing.B) {
		mustExec(b, pool, `delete from fragment where anchor_id = $1 and xpath = any($2::text[])`, a.ID, whole)
	})
	run("lists/store", n*(deviceNodes-1), func(b *testing.B) {
		_, err := s.DeleteNodes(b.Context(), a, lists)
		require.NoError(b, err)
	})
	run("lists/bare", n*(deviceNodes-1), func(b *testing.B) {
		mustExec(b, pool, `
delete from fragment where parent_id in (select id from fragment where anchor_id = $1 and xpath = any($2::text[]))`, a.ID, whole)
	})
}

func BenchmarkReadNodes(b *testing.B) {
	s, a, pool := benchStore(b)
	const n = 1000
	for i := range n / 100 {
		require.NoError(b, s.InsertNodes(b.Context(), a, "", devices(i*100, 100)))
	}
	mustExec(b, pool, `analyze fragment`)
	for name, depth := range map[string]store.Depth{"all": store.DepthAll, "none": store.DepthNone} {
		rows := n
		if depth == store.DepthAll {
			rows *= deviceNodes
		}
		b.Run(name+"/store", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				got := 0
				for _, err := range s.ReadNodes(b.Context(), a, []string{"/device"}, depth) {
					require.NoError(b, err)
					got++
				}
				require.Equal(b, n, got)
			}
			reportRows(b, rows)
		})
	}
	b.Run("all/bare", func(b *testing.B) {
		for b.Loop() {
			rows, err := pool.Query(b.Context(), `select id, parent_id, xpath, attributes from fragment where anchor_id = $1`, a.ID)
			require.NoError(b, err)
			got := 0
			for rows.Next() {
				got += len(rows.RawValues()) / 4
			}
			require.NoError(b, rows.Err())
			require.Equal(b, n*deviceNodes, got)
		}
		reportRows(b, n*deviceNodes)
	})
}

func compareText(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
