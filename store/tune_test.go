package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
	"ncmp-inventory/store"
	"ncmp-inventory/store/storetest"
)

func TestTuneBringsCPSsTablesToTheLeanerLayout(t *testing.T) {
	t.Parallel()
	db, fresh := storetest.OpenEmpty(t), storetest.Open(t)
	run(t, db, "cps.sql", "taken_over.sql")
	s := open(t, db.URL)
	rows, before := db.Rows(t), column(t, db, layout)

	var names []string
	require.NoError(t, s.Tune(t.Context(), func(step store.TuneStep, _ func() error) error {
		require.False(t, step.Done, step.Name)
		require.NotEmpty(t, step.Brings)
		require.NotEmpty(t, step.Locks)
		names = append(names, step.Name)
		return nil
	}))
	require.Equal(t, before, column(t, db, layout), "a dry run changes nothing")
	require.Len(t, names, 6)

	require.NoError(t, s.Tune(t.Context(), func(step store.TuneStep, run func() error) error { return run() }))
	require.Equal(t, rows, db.Rows(t))
	left := without(difference(column(t, db, layout), column(t, fresh, layout)),
		"relation", "schema_node ", "schema_node.", "schema_node_pkey", "perf_schema_node", "fki_relation", "databasechangelog")
	require.Equal(t, []string{"constraint fragment fragment_schema_node_id_fkey FOREIGN KEY (schema_node_id) REFERENCES schema_node(id)"}, left)
	require.Empty(t, difference(column(t, fresh, layout), column(t, db, layout)))
	const options = `select unnest(reloptions) from pg_class where oid = 'fragment'::regclass order by 1`
	require.Equal(t, column(t, fresh, options), column(t, db, options))

	require.NoError(t, s.Tune(t.Context(), func(step store.TuneStep, run func() error) error {
		require.True(t, step.Done, step.Name)
		return run()
	}))
	l := startLane(t, s, topic)
	l.create(t, handle("new", ""))
	l.change(t, "synced", func(h *inventory.Handle) { h.State.State = inventory.Locked })
	require.Equal(t, inventory.Locked, l.read(t, "synced").State.State)
}

func TestFreshTablesNeedNoTuning(t *testing.T) {
	t.Parallel()
	s := storetest.Open(t).New(t)
	require.NoError(t, s.Tune(t.Context(), func(step store.TuneStep, run func() error) error {
		require.True(t, step.Done, step.Name)
		return run()
	}))
}
