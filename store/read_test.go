package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
	"ncmp-inventory/store"
	"ncmp-inventory/store/storetest"
)

func list(t testing.TB, s *store.Store, f store.Filter) (ids []string) {
	t.Helper()
	for v, err := range s.ListHandles(t.Context(), f) {
		require.NoError(t, err)
		ids = append(ids, v.ID)
	}
	return ids
}

func TestHandlesAreFoundByIDAlternateIDAndFilter(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	s := db.New(t, withCodec)
	l := startLane(t, s, topic)
	a, b, c := handle("a", "/net/a"), handle("b's", ""), handle("c", "")
	b.ModuleSetTag = ""
	b.DMI = inventory.DMINames{inventory.SetText(""), inventory.SetText("http://data"), inventory.SetText("http://model")}
	b.State = inventory.CompositeState{State: inventory.Ready, LastUpdate: "2020-01-01T00:00:00.000+0000", DataSync: inventory.True,
		Datastores: true, Operational: &inventory.SyncState{State: inventory.SetText(inventory.Unsynchronized)}}
	c.State = inventory.CompositeState{State: inventory.Locked, LastUpdate: "2026-05-01T00:00:00.000+0000",
		Lock: &inventory.LockReason{Reason: inventory.SetText("MODULE_SYNC_FAILED")}}
	c.Public = []inventory.Property{{Name: "region", Value: "south"}}
	l.create(t, a, b, c)
	_, err := db.Pool(t).Exec(t.Context(), `insert into ncmp_inventory.trust values ('c', 'NONE')`)
	require.NoError(t, err)

	for ref, want := range map[string]*inventory.Handle{"a": a, "/net/a": a, "b's": b, "c": c} {
		got, err := s.GetHandle(t.Context(), ref)
		require.NoError(t, err)
		require.Equal(t, *want, got.Handle)
	}
	got, err := s.GetHandle(t.Context(), "c")
	require.NoError(t, err)
	require.Equal(t, inventory.TrustNone, got.Trust)
	_, err = s.GetHandle(t.Context(), "/net")
	require.ErrorIs(t, err, store.ErrNoHandle)

	require.Equal(t, []string{"a", "b's", "c"}, list(t, s, store.Filter{}))
	require.Equal(t, []string{"b's", "c"}, list(t, s, store.Filter{After: "a"}))
	require.Equal(t, []string{"c"}, list(t, s, store.Filter{State: inventory.Locked}))
	require.Equal(t, []string{"b's"}, list(t, s, store.Filter{Tag: inventory.SetText("")}))
	require.Equal(t, []string{"a", "c"}, list(t, s, store.Filter{Tag: inventory.SetText("tag-1"), DMI: "http://dmi:8080"}))
	require.Equal(t, []string{"b's"}, list(t, s, store.Filter{DMI: "http://model"}))
	require.Equal(t, []string{"c"}, list(t, s, store.Filter{Trust: inventory.TrustNone}))
	require.Equal(t, []string{"a", "b's"}, list(t, s, store.Filter{Trust: inventory.TrustComplete}))
	require.Equal(t, []string{"a", "b's"}, list(t, s, store.Filter{Public: []inventory.Property{{Name: "region", Value: "north"}}}))
	require.Empty(t, list(t, s, store.Filter{Public: []inventory.Property{{Name: "password", Value: "hush"}}}), "private properties are no way to find a handle")
	require.Equal(t, []string{"a"}, list(t, s, store.Filter{StuckSince: time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)}))

	counts, err := s.CountByState(t.Context())
	require.NoError(t, err)
	require.Len(t, counts, 3)
	for _, h := range []*inventory.Handle{a, b, c} {
		got := counts[h.State.State]
		require.Equal(t, int64(1), got.Handles)
		require.Equal(t, h.State.LastUpdate, got.Oldest.Format("2006-01-02T15:04:05.000-0700"))
	}
}

func TestListGoesThroughAllPages(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	s := db.New(t)
	fillHandles(t, db, 2500)
	require.Len(t, list(t, s, store.Filter{}), 2500)
	require.Len(t, list(t, s, store.Filter{State: inventory.Ready}), 2500)
	for _, err := range s.ListHandles(t.Context(), store.Filter{}) {
		require.NoError(t, err)
		break
	}
}

// fillHandles stores n handles that are READY, by SQL.
func fillHandles(t testing.TB, db *storetest.DB, n int) {
	t.Helper()
	_, err := db.Pool(t).Exec(t.Context(), `
with r as (select f.id, f.anchor_id from fragment f where f.xpath = '/dmi-registry'),
v as (select g, nextval('fragment_id_seq') - 99 as id from generate_series(1, $1::int) g),
h as (
  insert into fragment (id, xpath, attributes, anchor_id, parent_id)
  select v.id, '/dmi-registry/cm-handles[@id=''ch-' || g || ''']',
         jsonb_build_object('id', 'ch-' || g, 'alternate-id', '/alt/' || g), r.anchor_id, r.id from v, r),
s as (
  insert into fragment (id, xpath, attributes, anchor_id, parent_id)
  select v.id + 1, '/dmi-registry/cm-handles[@id=''ch-' || g || ''']/state',
         '{"cm-handle-state": "READY", "last-update-time": "2026-02-03T04:05:06.007+0000"}', r.anchor_id, v.id from v, r),
p as (
  insert into fragment (id, xpath, attributes, anchor_id, parent_id)
  select v.id + 2, '/dmi-registry/cm-handles[@id=''ch-' || g || ''']/public-properties[@name=''n'']',
         '{"name": "n", "value": "v"}', r.anchor_id, v.id from v, r)
insert into ncmp_inventory.reference (key, owner)
select k, 'ch-' || g from v, unnest(array['ch-' || g, '/alt/' || g]) k`, n)
	require.NoError(t, err)
}
