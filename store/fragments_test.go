package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
	"ncmp-inventory/store"
	"ncmp-inventory/store/storetest"
)

// newAnchor gives a test an empty anchor of its own.
func newAnchor(t testing.TB, s *store.Store) store.Anchor {
	t.Helper()
	a, err := s.CreateAnchor(t.Context(), "Lab", "devices", store.SchemaSet{
		Name:    "devices-set",
		Sources: []store.YANGSource{{Module: "lab-devices", Revision: "2026-01-01", Content: "module lab-devices { }"}},
	})
	require.NoError(t, err)
	return a
}

// device is a tree of 1 + interfaces nodes.
func device(id string, interfaces int) store.Node {
	n := store.Node{Step: store.Step("device", store.Key{Name: "id", Value: id}), Leaves: fmt.Appendf(nil, `{"id": %q}`, id)}
	for i := range interfaces {
		name := fmt.Sprintf("if-%d", i)
		n.Children = append(n.Children, store.Node{
			Step:   store.Step("interface", store.Key{Name: "name", Value: name}),
			Leaves: fmt.Appendf(nil, `{"name": %q, "speed": %d}`, name, i),
		})
	}
	return n
}

func read(t testing.TB, s *store.Store, a store.Anchor, depth store.Depth, xpaths ...string) ([]store.Tree, error) {
	t.Helper()
	var trees []store.Tree
	for tree, err := range s.ReadNodes(t.Context(), a, xpaths, depth) {
		if err != nil {
			return trees, err
		}
		trees = append(trees, tree)
	}
	return trees, nil
}

// flat is a tree's xpaths, sorted.
func flat(trees ...store.Tree) (xpaths []string) {
	var walk func(xpath string, n store.Node)
	walk = func(xpath string, n store.Node) {
		xpaths = append(xpaths, xpath)
		for _, c := range n.Children {
			walk(xpath+"/"+c.Step, c)
		}
	}
	for _, tree := range trees {
		walk(tree.XPath, tree.Node)
	}
	slices.Sort(xpaths)
	return xpaths
}

func leaves(t testing.TB, s *store.Store, a store.Anchor, xpath string) string {
	t.Helper()
	trees, err := read(t, s, a, store.DepthNone, xpath)
	require.NoError(t, err)
	require.Len(t, trees, 1)
	return string(trees[0].Leaves)
}

func TestInsertedTreesAreReadBackAtAnyDepth(t *testing.T) {
	t.Parallel()
	s := storetest.Open(t).New(t)
	a := newAnchor(t, s)
	ctx := t.Context()
	require.NoError(t, s.InsertNodes(ctx, a, "", []store.Node{{Step: "network"}}))
	tricky := store.Node{Step: "device[@id='it''s 100%_']/x']", Children: []store.Node{{Step: "state", Children: []store.Node{{Step: "lock"}}}, {Step: "state-foo"}}}
	require.NoError(t, s.InsertNodes(ctx, a, "/network", []store.Node{device("a", 3), device("b", 0), tricky}))

	all, err := read(t, s, a, store.DepthAll, "/")
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, []string{
		"/network", "/network/device[@id='a']",
		"/network/device[@id='a']/interface[@name='if-0']", "/network/device[@id='a']/interface[@name='if-1']", "/network/device[@id='a']/interface[@name='if-2']",
		"/network/device[@id='b']",
		"/network/device[@id='it''s 100%_']/x']", "/network/device[@id='it''s 100%_']/x']/state", "/network/device[@id='it''s 100%_']/x']/state-foo", "/network/device[@id='it''s 100%_']/x']/state/lock",
	}, flat(all...))

	direct, err := read(t, s, a, store.DepthDirect, "/network")
	require.NoError(t, err)
	require.Len(t, flat(direct...), 4)
	two, err := read(t, s, a, 2, "/network")
	require.NoError(t, err)
	require.Len(t, flat(two...), 9)
	none, err := read(t, s, a, store.DepthNone, "/network", "/network/device", "/network/device[@id=\"a\"]", "/network/device[@id='zz']", "/network/nothing")
	var missing *store.MissingError
	require.ErrorAs(t, err, &missing)
	require.Equal(t, []string{"/network/device[@id='zz']", "/network/nothing"}, missing.XPaths)
	require.Len(t, none, 4, "the root and the three devices, each once")
	require.Equal(t, none[1].XPath, "/network/"+none[1].Step)

	// A node and one above it, each with all below.
	both, err := read(t, s, a, store.DepthAll, "/network/device[@id='a']", "/network")
	require.NoError(t, err)
	require.Len(t, both, 2)
	require.Len(t, flat(both...), 10+4)

	_, err = read(t, s, a, store.DepthAll, "network")
	require.ErrorIs(t, err, store.ErrBadXPath)
}

func TestReadsAreTheSameWithAnyCollation(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	s := db.New(t)
	a := newAnchor(t, s)
	var devices []store.Node
	for i := range 1200 {
		devices = append(devices, device(fmt.Sprint(i), 2))
	}
	// In the order of xpaths, slot-type comes between slot and what is below it.
	devices[7].Children = []store.Node{
		{Step: "slot", Children: []store.Node{{Step: "card", Children: []store.Node{{Step: "port"}}}, {Step: "fan"}}},
		{Step: "slot-type", Children: []store.Node{{Step: "class"}}},
	}
	require.NoError(t, s.InsertNodes(t.Context(), a, "", devices))
	byRange, err := read(t, s, a, store.DepthAll, "/device")
	require.NoError(t, err)
	require.Len(t, byRange, 1200)

	_, err = db.Pool(t).Exec(t.Context(), `alter table fragment alter xpath type text collate "und-x-icu"`)
	require.NoError(t, err)
	s = db.New(t)
	byLevel, err := read(t, s, a, store.DepthAll, "/device")
	require.NoError(t, err)
	require.Equal(t, flat(byRange...), flat(byLevel...))
	require.Len(t, flat(byLevel...), 3604)

	for _, err := range s.ReadNodes(t.Context(), a, []string{"/device"}, store.DepthAll) {
		require.NoError(t, err)
		break // stopping early leaves nothing behind
	}
}

func TestDuplicatesAreNamedAndNothingIsStored(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	s := db.New(t)
	a := newAnchor(t, s)
	require.NoError(t, s.InsertNodes(t.Context(), a, "", []store.Node{device("a", 2)}))
	before := db.Rows(t)

	err := s.InsertNodes(t.Context(), a, "", []store.Node{device("b", 1), device("a", 1), device("c", 0), device("c", 0)})
	var exists *store.AlreadyDefinedError
	require.ErrorAs(t, err, &exists)
	require.Equal(t, []string{"/device[@id='a']", "/device[@id='a']/interface[@name='if-0']", "/device[@id='c']"}, exists.XPaths)
	require.Equal(t, before, db.Rows(t))

	err = s.InsertNodes(t.Context(), a, "/device[@id='x']", []store.Node{{Step: "state"}})
	var missing *store.MissingError
	require.ErrorAs(t, err, &missing)
	require.Equal(t, []string{"/device[@id='x']"}, missing.XPaths)

	err = s.InsertNodes(t.Context(), a, "", []store.Node{{Step: "bad", Leaves: []byte("{")}})
	require.ErrorIs(t, err, inventory.ErrData)
}

func TestChunksOfALargeInsertAreOneTransaction(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	s := db.New(t)
	a := newAnchor(t, s)
	before := db.Rows(t)
	trees := []store.Node{device("a", 5000)}
	trees[0].Children[4999].Leaves = []byte(`{"name": "\u0000"}`)
	require.ErrorIs(t, s.InsertNodes(t.Context(), a, "", trees), inventory.ErrData)
	require.Equal(t, before, db.Rows(t))
	trees[0].Children[4999].Leaves = nil
	require.NoError(t, s.InsertNodes(t.Context(), a, "", trees))
	require.Len(t, db.Rows(t), len(before)+5001)
}

func TestLeavesAreMergedAndTheMissingAreNamed(t *testing.T) {
	t.Parallel()
	s := storetest.Open(t).New(t)
	a := newAnchor(t, s)
	ctx := t.Context()
	require.NoError(t, s.InsertNodes(ctx, a, "", []store.Node{
		{Step: "n[@k='1']", Leaves: []byte(`{"k": "1", "big": 9007199254740993, "small": 5, "dec": 1.50, "list": [1, 2]}`)},
		{Step: "n[@k='2']"},
	}))
	missing, err := s.UpdateNodeLeaves(ctx, a, []store.LeafUpdate{
		{XPath: "/n[@k='zz']", Leaves: []byte(`{"x": 1}`)},
		{XPath: "/n[@k='2']", Leaves: []byte(`{"x": "first", "y": 1}`)},
		{XPath: "/n[@k='1']", Leaves: []byte(`{"list": [3], "new": null}`)},
		{XPath: "/n[@k='2']", Leaves: []byte(`{"x": "second"}`)},
		{XPath: "/n", Leaves: []byte(`{}`)},
	})
	require.NoError(t, err)
	require.Equal(t, []string{"/n", "/n[@k='zz']"}, missing)
	require.Equal(t, `{"k": "1", "big": 9007199254740993, "dec": 1.50, "new": null, "list": [3], "small": 5}`, leaves(t, s, a, "/n[@k='1']"))
	require.Equal(t, `{"x": "second", "y": 1}`, leaves(t, s, a, "/n[@k='2']"))

	missing, err = s.UpdateNodeLeaves(ctx, a, nil)
	require.NoError(t, err)
	require.Empty(t, missing)
	_, err = s.UpdateNodeLeaves(ctx, a, []store.LeafUpdate{{XPath: "/n[@k='1']", Leaves: []byte(`{"x": 1}`)}, {XPath: "/n[@k='2']", Leaves: []byte(`nonsense`)}})
	require.ErrorIs(t, err, inventory.ErrData)
	require.NotContains(t, leaves(t, s, a, "/n[@k='1']"), `"x"`)
}

func TestConcurrentWritersOfOneNodeLoseNoLeafAndNeverDeadlock(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	s := db.New(t)
	a := newAnchor(t, s)
	const nodes, writers, rounds = 60, 6, 15
	require.NoError(t, s.InsertNodes(t.Context(), a, "", []store.Node{device("a", nodes)}))
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for r := range rounds {
				var updates []store.LeafUpdate
				for i := range nodes {
					n := i
					if w%2 == 1 {
						n = nodes - 1 - i
					}
					updates = append(updates, store.LeafUpdate{
						XPath:  fmt.Sprintf("/device[@id='a']/interface[@name='if-%d']", n),
						Leaves: fmt.Appendf(nil, `{"w%d-%d": %d}`, w, r, r),
					})
				}
				if _, err := s.UpdateNodeLeaves(context.Background(), a, updates); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	for _, row := range db.Rows(t) {
		if strings.Contains(row.XPath, "/interface[") {
			require.Equal(t, writers*rounds, strings.Count(row.Attributes, `"w`), row.XPath)
		}
	}
	var deadlocks int
	require.NoError(t, db.Pool(t).QueryRow(t.Context(), `select deadlocks from pg_stat_database where datname = current_database()`).Scan(&deadlocks))
	require.Zero(t, deadlocks)
}

func TestDeletesHitWhatWasNamedAndNoStranger(t *testing.T) {
	t.Parallel()
	s := storetest.Open(t).New(t)
	a := newAnchor(t, s)
	ctx := t.Context()
	node := func(step string, children ...store.Node) store.Node {
		return store.Node{Step: step, Children: children}
	}
	require.NoError(t, s.InsertNodes(ctx, a, "", []store.Node{
		node("top",
			node("list[@id='ch_1']", node("state")), node("list[@id='chA1']", node("state")), node("list[@id='100%']"),
			node("list-b[@id='1']"), node("state", node("lock")), node("state-foo"), node("state.bar"), node("statex[@id='1']"),
		),
		node("roots[@id='1']"), node("roots[@id='2']"), node("roots-b[@id='1']"),
	}))
	n, err := s.DeleteNodes(ctx, a, []string{"/top/list[@id='ch_1']", "/top/list[@id='100%']", `/top/list[@id="ch_1"]`})
	require.NoError(t, err)
	require.Equal(t, 2, n)
	n, err = s.DeleteNodes(ctx, a, []string{"/top/state", "/roots"})
	require.NoError(t, err)
	require.Equal(t, 3, n)
	left, err := read(t, s, a, store.DepthAll, "/")
	require.NoError(t, err)
	require.Equal(t, []string{
		"/roots-b[@id='1']", "/top", "/top/list-b[@id='1']", "/top/list[@id='chA1']", "/top/list[@id='chA1']/state",
		"/top/state-foo", "/top/state.bar", "/top/statex[@id='1']",
	}, flat(left...))

	_, err = s.DeleteNodes(ctx, a, []string{"/top/list-b", "/top/list", "/top/list[@id='gone']", "/top/nothing"})
	var missing *store.MissingError
	require.ErrorAs(t, err, &missing)
	require.Equal(t, []string{"/top/list[@id='gone']", "/top/nothing"}, missing.XPaths)
	_, err = s.DeleteNodes(ctx, a, []string{"/top/list-b", "/top/list[@id='x'"})
	require.ErrorIs(t, err, store.ErrBadXPath)
	left, err = read(t, s, a, store.DepthNone, "/top/list-b", "/top/list")
	require.NoError(t, err)
	require.Len(t, left, 2, "all or nothing")

	// A node and one below it count as the two that were named.
	n, err = s.DeleteNodes(ctx, a, []string{"/top", "/top/list[@id='chA1']"})
	require.NoError(t, err)
	require.Equal(t, 2, n)
}

func TestConcurrentDeletesOfOneNodeSucceedOnce(t *testing.T) {
	t.Parallel()
	s := storetest.Open(t).New(t)
	a := newAnchor(t, s)
	var nodes []store.Node
	var xpaths []string
	for i := range 50 {
		nodes = append(nodes, device(fmt.Sprint(i), 3))
		xpaths = append(xpaths, fmt.Sprintf("/device[@id='%d']", i))
	}
	require.NoError(t, s.InsertNodes(t.Context(), a, "", nodes))
	const deleters = 4
	results := make(chan error, deleters)
	for range deleters {
		go func() {
			_, err := s.DeleteNodes(context.Background(), a, xpaths)
			results <- err
		}()
	}
	won := 0
	for range deleters {
		err := <-results
		var missing *store.MissingError
		switch {
		case err == nil:
			won++
		case !errors.As(err, &missing):
			t.Error(err)
		}
	}
	require.Equal(t, 1, won)
}

func TestAnchors(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	s := db.New(t)
	before := db.Rows(t)
	a := newAnchor(t, s)
	found, err := s.FindAnchor(t.Context(), "Lab", "devices")
	require.NoError(t, err)
	require.Equal(t, a, found)
	_, err = s.CreateAnchor(t.Context(), "Lab", "devices", store.SchemaSet{Name: "other"})
	require.ErrorIs(t, err, store.ErrAnchorExists)
	_, err = s.FindAnchor(t.Context(), "Lab", "nothing")
	require.ErrorIs(t, err, store.ErrNoAnchor)
	second, err := s.CreateAnchor(t.Context(), "Lab", "more", store.SchemaSet{Name: "devices-set"})
	require.NoError(t, err)
	require.NoError(t, s.InsertNodes(t.Context(), second, "", []store.Node{device("a", 2)}))
	require.NoError(t, s.InsertNodes(t.Context(), a, "", []store.Node{device("a", 2)}), "xpaths are unique within an anchor only")
	require.NoError(t, s.DeleteAnchor(t.Context(), second))
	require.ErrorIs(t, s.DeleteAnchor(t.Context(), second), store.ErrNoAnchor)
	require.Len(t, db.Rows(t), len(before)+3)
}
