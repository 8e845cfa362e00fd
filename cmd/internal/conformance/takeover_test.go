package conformance_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
	"ncmp-inventory/store"
	"ncmp-inventory/store/storetest"
)

// newTakenOver is a worker on a database that NCMP has used, with all that
// NCMP's rules let in.
func newTakenOver(t *testing.T) *worker {
	t.Helper()
	db := storetest.OpenEmpty(t)
	pool := db.Pool(t)
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	for _, f := range []string{"cps.sql", "taken_over.sql"} {
		sql, err := os.ReadFile("../../../store/testdata/" + f)
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), string(sql))
		require.NoError(t, err)
	}
	return newWorkerOn(t, db, func(s *settings) { s.store = func(c *store.Config) { c.Migrate = true } })
}

// What an older system let in can be updated and removed under today's rules;
// what names a handle twice belongs to one of the two.
func TestTakenOverInventory(t *testing.T) {
	t.Parallel()
	w := newTakenOver(t)
	handle := func(id string) store.HandleView {
		t.Helper()
		h, err := w.store.GetHandle(t.Context(), id)
		require.NoError(t, err, id)
		return h
	}
	require.Equal(t, inventory.Deleting, handle("left-over").State.State)
	require.Equal(t, []string{"e: 0 ok; create left-over " + exists}, w.send(t, created(`"cmHandle":"left-over"`)), "a leftover is no handle that could be repeated")
	require.Equal(t, []string{"left-over delete", "e: 1 ok"}, w.send(t, register(`{"removedCmHandles":["left-over"]}`)), "its removal was announced")
	require.Equal(t, []string{"left-over create " + advised, "e: 1 ok"}, w.send(t, created(`"cmHandle":"left-over"`)))

	told := w.send(t, register(`{"updatedCmHandles":[{"cmHandle":"O'Brien","publicCmHandleProperties":{"it's":"even"}},{"cmHandle":"a/b c","publicCmHandleProperties":{"new":"1"}}]}`))
	require.Len(t, told, 3)
	require.Equal(t, "e: 2 ok", told[2])
	require.Equal(t, []inventory.Property{{Name: "it's", Value: "even"}}, handle("O'Brien").Public, "found by its name, whatever its xpath")
	require.Equal(t, "e: 1 ok", w.send(t, register(`{"removedCmHandles":["a/b c"]}`))[2], "an id that would be refused today")

	require.Equal(t, "twin-early", handle("/twice").ID, "of two handles with one alternate id the older has it")
	require.Equal(t, []string{"e: 0 ok; create x " + exists}, w.send(t, created(`"cmHandle":"x","alternateId":"/twice"`)))
	require.Len(t, w.send(t, register(`{"removedCmHandles":["twin-late"]}`)), 3)
	require.Equal(t, "twin-early", handle("/twice").ID, "and keeps it when the other goes")
	require.Equal(t, "shadowed", handle("shadowed").ID, "an id wins over an alternate id")
}

// The anchor that NCMP keeps of a synced handle goes with it, with its data.
func TestSyncedDataGoesWithItsHandle(t *testing.T) {
	t.Parallel()
	w := newTakenOver(t)
	anchors := func() []string {
		return w.column(t, `select a.name from anchor a join dataspace d on d.id = a.dataspace_id where d.name = 'NFP-Operational' order by 1`)
	}
	before := anchors()
	require.Contains(t, before, "synced")
	w.send(t, register(`{"removedCmHandles":["synced"]}`))
	require.NotContains(t, anchors(), "synced")
	require.Len(t, anchors(), len(before)-1)
}

// NCMP sets no limit to an alternate id: one that no index row holds cannot be
// found by it, but its handle works and can be removed.
func TestAlternateIDThatNoIndexHolds(t *testing.T) {
	t.Parallel()
	w := newTakenOver(t)
	w.exec(t, `
		update fragment set attributes = attributes || jsonb_build_object('alternate-id', (select string_agg(md5(n::text || random()::text), '') from generate_series(1, 300) n))
		where xpath in ('/dmi-registry/cm-handles[@id=''long'']', '/dmi-registry/cm-handles[@id=''synced'']')`)
	told := w.send(t, register(`{"updatedCmHandles":[{"cmHandle":"long","dataProducerIdentifier":"p"}]}`), to("READY", "long"))
	require.Len(t, told, 4)
	require.Equal(t, []string{"a create " + advised, "e: 1 ok"}, w.send(t, created(`"cmHandle":"a"`)))
	told = w.send(t, register(`{"removedCmHandles":["long","synced","a"]}`))
	require.Len(t, told, 7)
	require.Equal(t, "e: 3 ok", told[6])
	require.Empty(t, w.stored(t, "long"))
}
