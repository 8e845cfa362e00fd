package store_test

import (
	"context"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"ncmp-inventory/inventory"
	"ncmp-inventory/store"
	"ncmp-inventory/store/storetest"
)

var testModel = store.Model{Module: "dmi-registry", Revision: "2026-01-28", Content: []byte("module dmi-registry {}")}

// open migrates a database and closes the store with the test.
func open(t *testing.T, url string, change ...func(*store.Config)) *store.Store {
	t.Helper()
	cfg := store.Config{URL: url, Migrate: true, Model: testModel, Codec: codec{}, Instance: t.Name()}
	for _, c := range change {
		c(&cfg)
	}
	s, err := store.Open(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func run(t *testing.T, db *storetest.DB, files ...string) {
	t.Helper()
	conn, err := db.Pool(t).Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	for _, f := range files {
		sql, err := os.ReadFile("testdata/" + f)
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), string(sql))
		require.NoError(t, err)
	}
}

func execute(t *testing.T, db *storetest.DB, sql string, args ...any) {
	t.Helper()
	_, err := db.Pool(t).Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

// layout describes every table, index and constraint of a schema.
const layout = `
select 'column ' || c.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || ' ' || a.attnotnull::text || ' ' || a.attidentity::text || ' ' || coalesce(l.collname, '')
from pg_attribute a join pg_class c on c.oid = a.attrelid left join pg_collation l on l.oid = a.attcollation
where c.relnamespace = 'public'::regnamespace and c.relkind = 'r' and a.attnum > 0 and not a.attisdropped
union all
select 'index ' || indexname || ' ' || indexdef from pg_indexes where schemaname = 'public'
union all
select 'constraint ' || conrelid::regclass || ' ' || conname || ' ' || pg_get_constraintdef(oid) from pg_constraint where connamespace = 'public'::regnamespace
order by 1`

func TestManyWorkersMigrateOneDatabaseAtOnce(t *testing.T) {
	t.Parallel()
	db := storetest.OpenEmpty(t)
	var g errgroup.Group
	for range 6 {
		g.Go(func() error {
			s, err := store.Open(t.Context(), store.Config{URL: db.URL, Migrate: true, Model: testModel, MaxConnections: 2})
			if err == nil {
				s.Close()
			}
			return err
		})
	}
	require.NoError(t, g.Wait())
	require.Equal(t, []string{"1 worker", "2 fragments", "3 references", "4 operations", "5 group", "6 origin"},
		column(t, db, `select version || ' ' || name from ncmp_inventory.migration order by 1`))
	require.Equal(t, []storetest.Row{{Anchor: "ncmp-dmi-registry", XPath: "/dmi-registry", Attributes: "{}"}}, db.Rows(t))
	require.Equal(t, []string{"NCMP-Admin", "NFP-Operational"}, column(t, db, `select name from dataspace order by 1`))
	require.Equal(t, []string{"dmi-registry-2026-01-28 dmi-registry@2026-01-28.yang dmi-registry 2026-01-28 64"}, column(t, db, `
		select s.name || ' ' || y.file_name || ' ' || y.module_name || ' ' || y.revision || ' ' || length(y.checksum)
		from schema_set s join schema_set_yang_resources l on l.schema_set_id = s.id join yang_resource y on y.id = l.yang_resource_id`))
	s := open(t, db.URL)
	require.False(t, s.TookOver())
	applied, err := s.Applied(t.Context())
	require.NoError(t, err)
	require.Len(t, applied, 6)
}

func TestFreshTablesAreCPSsButLeaner(t *testing.T) {
	t.Parallel()
	cps, fresh := storetest.OpenEmpty(t), storetest.Open(t)
	run(t, cps, "cps.sql")
	theirs, ours := column(t, cps, layout), column(t, fresh, layout)
	missing, extra := difference(theirs, ours), difference(ours, theirs)
	missing = without(missing, "relation", "schema_node ", "schema_node.", "schema_node_pkey", "perf_schema_node", "fki_relation", "databasechangelog")
	require.Equal(t, []string{
		"column fragment.xpath text true  default",
		"constraint fragment fragment_schema_node_id_fkey FOREIGN KEY (schema_node_id) REFERENCES schema_node(id)",
		"index fki_fragment_anchor_id_fk CREATE INDEX fki_fragment_anchor_id_fk ON public.fragment USING btree (anchor_id)",
		"index fki_schema_node_id_to_id CREATE INDEX fki_schema_node_id_to_id ON public.fragment USING btree (schema_node_id)",
	}, missing)
	require.Equal(t, []string{
		"column fragment.xpath text true  C",
		"index fragment_state_idx CREATE INDEX fragment_state_idx ON public.fragment USING btree (id) WHERE (xpath ~~ '%/state'::text)",
	}, extra)
}

func TestCPSsTablesAreFoundAndLeftAlone(t *testing.T) {
	t.Parallel()
	db := storetest.OpenEmpty(t)
	run(t, db, "cps.sql", "taken_over.sql")
	before, rows := column(t, db, layout), db.Rows(t)
	s := open(t, db.URL)
	require.True(t, s.TookOver())
	require.Equal(t, before, column(t, db, layout))
	require.Equal(t, rows, db.Rows(t))
	require.Equal(t, []string{
		"/left>left-over", "/twice>twin-early", "O'Brien>O'Brien", "a/b c>a/b c", "left-over>left-over", "long>long", "shadow>shadow",
		"shadowed>shadowed", "synced>synced", "twin-early>twin-early", "twin-late>twin-late",
	}, column(t, db, `select key || '>' || owner from ncmp_inventory.reference order by key collate "C"`))
}

func TestTakenOverHandlesAreReadAndWritten(t *testing.T) {
	t.Parallel()
	db := storetest.OpenEmpty(t)
	run(t, db, "cps.sql", "taken_over.sql")
	l := startLane(t, open(t, db.URL), topic)

	h := l.read(t, "O'Brien")
	require.Equal(t, []inventory.Property{{Name: "it's", Value: "odd"}}, h.Public)
	require.Equal(t, []inventory.Property{{Name: "key", Value: "odd secret"}}, h.Private, "of two rows of one name the older counts")
	require.Equal(t, &inventory.LockReason{Reason: inventory.SetText("MODULE_UPGRADE"), Details: inventory.SetText("d")}, h.State.Lock)
	l.change(t, "O'Brien", func(h *inventory.Handle) {
		h.Public = []inventory.Property{{Name: "it's", Value: "even"}, {Name: "new", Value: "row"}}
		h.Private = nil
		h.State.Lock = nil
	})
	h = l.read(t, "O'Brien")
	require.Equal(t, []inventory.Property{{Name: "it's", Value: "even"}, {Name: "new", Value: "row"}}, h.Public)
	require.Empty(t, h.Private, "the second row went too")
	require.Nil(t, h.State.Lock)

	require.Equal(t, inventory.Deleting, l.read(t, "left-over").State.State)
	require.Empty(t, l.read(t, "a/b c").AlternateID)

	remove := func(id string) {
		t.Helper()
		need := needOf([]string{id})
		need.Frees = []string{id}
		l.apply(t, need, func(s *inventory.Snapshot) *inventory.Plan {
			return &inventory.Plan{Changes: []inventory.Change{{Before: s.Handles[id], Removed: true}}, Releases: []string{id}}
		})
		require.Nil(t, l.read(t, id))
	}
	for _, id := range []string{"O'Brien", "a/b c", "left-over", "shadow", "synced"} {
		remove(id)
	}
	require.Equal(t, []string{"ncmp-dmi-registry", "other"}, column(t, db, `select name from anchor order by 1`))
	require.Equal(t, []string{"/netconf-state", "/netconf-state/schemas"}, column(t, db,
		`select f.xpath from fragment f join anchor a on a.id = f.anchor_id where a.name <> 'ncmp-dmi-registry' order by 1`))
	require.Equal(t, []string{"shadowed"}, column(t, db, `select owner from ncmp_inventory.reference where key = 'shadowed'`))
}

func TestHandleStoredSinceTheMigrationGetsItsReferences(t *testing.T) {
	t.Parallel()
	db := storetest.OpenEmpty(t)
	run(t, db, "cps.sql")
	l := startLane(t, open(t, db.URL), topic)
	run(t, db, "taken_over.sql")
	need := needOf([]string{"left-over"})
	need.Frees = []string{"left-over"}
	l.apply(t, need, func(s *inventory.Snapshot) *inventory.Plan {
		require.Equal(t, map[string]string{"left-over": "left-over", "/left": "left-over"}, s.Owners)
		return &inventory.Plan{}
	})
	require.Equal(t, []string{"/left", "left-over"}, column(t, db, `select key from ncmp_inventory.reference order by 1`))
}

func TestUnknownLayoutsAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ change, text string }{
		"optimised model": {`update yang_resource set revision = '2026-04-23'`, "optimised model 2026-04-23"},
		"unknown model":   {`update yang_resource set revision = '2031-01-01'`, "unknown revision"},
		"old columns":     {`alter table fragment add dataspace_id int`, "unknown release"},
		"some tables":     {`drop table schema_set_yang_resources`, "not all"},
		"no cascade": {`alter table fragment drop constraint fragment_parent_id_fkey,
			add constraint fragment_parent_id_fkey foreign key (parent_id) references fragment (id)`, "cascade"},
		"no unique key": {`alter table fragment drop constraint fragment_anchor_id_xpath_key`, "unique key"},
		"identity ids":  {`alter sequence fragment_id_seq increment by 1`, "fragment_id_seq"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storetest.OpenEmpty(t)
			run(t, db, "cps.sql")
			execute(t, db, c.change)
			_, err := store.Open(t.Context(), store.Config{URL: db.URL, Migrate: true, Model: testModel})
			var le *store.LayoutError
			require.ErrorAs(t, err, &le)
			require.ErrorContains(t, err, c.text)
			require.NotErrorIs(t, err, inventory.ErrTransient)
		})
	}
}

func TestModelThatBecameOptimisedLaterIsRefused(t *testing.T) {
	t.Parallel()
	db := storetest.OpenEmpty(t)
	run(t, db, "cps.sql")
	open(t, db.URL)
	execute(t, db, `update yang_resource set revision = '2026-04-23'`)
	_, err := store.Open(t.Context(), store.Config{URL: db.URL})
	require.ErrorContains(t, err, "optimised model")
}

func TestMigratedDatabaseNeedsNoDDLRights(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	role := "plain_" + column(t, db, `select current_database()`)[0]
	execute(t, db, `create role `+role+` login password 'secret'`)
	t.Cleanup(func() {
		pool := db.Pool(t)
		_, err := pool.Exec(context.Background(), `drop owned by `+role+`; drop role `+role)
		require.NoError(t, err)
	})
	execute(t, db, `revoke create on schema public from public;
		grant usage on schema public, ncmp_inventory to `+role+`;
		grant select, insert, update, delete on all tables in schema public, ncmp_inventory to `+role+`;
		grant usage, select on all sequences in schema public, ncmp_inventory to `+role)
	s := open(t, withUser(t, db.URL, role))
	l := startLane(t, s, topic)
	l.create(t, handle("a", "/alt"))
	l.change(t, "a", func(h *inventory.Handle) { h.DataProducerID = "p" })
	id, err := s.Identity(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, id.SystemID)
	require.EqualValues(t, 1, id.Timeline)
	require.NoError(t, s.CanaryWrite(t.Context()))
	require.NoError(t, s.Notify(t.Context()))
}

func TestUnmigratedDatabaseIsNotTouched(t *testing.T) {
	t.Parallel()
	db := storetest.OpenEmpty(t)
	_, err := store.Open(t.Context(), store.Config{URL: db.URL})
	require.ErrorIs(t, err, store.ErrNotMigrated)
	require.Empty(t, column(t, db, layout))
}

func withUser(t *testing.T, database, user string) string {
	t.Helper()
	u, err := url.Parse(database)
	require.NoError(t, err)
	u.User = url.UserPassword(user, "secret")
	return u.String()
}

// difference is what stands in a and not in b.
func difference(a, b []string) []string {
	in := map[string]bool{}
	for _, x := range b {
		in[x] = true
	}
	var d []string
	for _, x := range a {
		if !in[x] {
			d = append(d, x)
		}
	}
	return d
}

// without leaves out lines whose second word starts with one of the prefixes.
func without(lines []string, prefixes ...string) []string {
	var kept []string
next:
	for _, l := range lines {
		_, rest, _ := strings.Cut(l, " ")
		for _, p := range prefixes {
			if strings.HasPrefix(rest, p) {
				continue next
			}
		}
		kept = append(kept, l)
	}
	return kept
}
