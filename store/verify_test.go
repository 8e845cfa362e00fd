package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
	"ncmp-inventory/store"
	"ncmp-inventory/store/storetest"
)

func TestVerifyFindsNothingInASoundInventory(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	s := db.New(t, withCodec)
	l := startLane(t, s, topic)
	odd := handle("it's", "alt'1")
	odd.Public = []inventory.Property{{Name: "it's a [name]", Value: "x"}}
	odd.State = inventory.CompositeState{State: inventory.Ready, LastUpdate: "2026-02-03T04:05:06.007+0000", DataSync: inventory.True,
		Datastores: true, Operational: &inventory.SyncState{State: inventory.SetText(inventory.Unsynchronized)}}
	locked := handle("c", "c")
	locked.State.State, locked.State.Lock = inventory.Locked, &inventory.LockReason{}
	l.create(t, handle("a", ""), odd, locked)
	fillHandles(t, db, 1000)
	r, err := s.Verify(t.Context())
	require.NoError(t, err)
	require.Empty(t, r.Findings)
	require.False(t, r.Wrong())
	require.EqualValues(t, 1003, r.Handles)
	require.EqualValues(t, len(db.Rows(t)), r.DataNodes)
}

// Each case breaks one thing in an inventory of three handles.
func TestVerifyFindsWhatIsBroken(t *testing.T) {
	t.Parallel()
	const first = `'/dmi-registry/cm-handles[@id=''ch-1'']`
	row := func(xpath, parent, attributes string) string {
		return `insert into fragment (id, xpath, attributes, anchor_id, parent_id)
select nextval('fragment_id_seq'), ` + xpath + `', '` + attributes + `', p.anchor_id, p.id from fragment p where p.xpath = ` + parent + `'`
	}
	for name, broken := range map[string]struct {
		check, sql, example string
		notice              bool
	}{
		"second root":           {"root", row(`'/other`, `'/dmi-registry`, `{}`) + `; update fragment set parent_id = null where xpath = '/other'`, "/other", false},
		"unknown child":         {"unknown-child", row(first+`/stateful`, first, `{}`), "/dmi-registry/cm-handles[@id='ch-1']/stateful", false},
		"child of a property":   {"unknown-child", row(first+`/public-properties[@name=''n'']/x`, first+`/public-properties[@name=''n'']`, `{}`), "", false},
		"stranger at the top":   {"unknown-child", row(`'/dmi-registry/x`, `'/dmi-registry`, `{}`), "/dmi-registry/x", false},
		"no object":             {"attributes", `update fragment set attributes = '[]' where xpath = ` + first + `/public-properties[@name=''n'']'`, "", false},
		"id differs":            {"handle-id", `update fragment set attributes = attributes || '{"id": "ch-3"}' where xpath = ` + first + `'`, "", false},
		"name differs":          {"property-name", `update fragment set attributes = '{"name": "m"}' where xpath = ` + first + `/public-properties[@name=''n'']'`, "", false},
		"private name":          {"property-name", row(first+`/additional-properties[@name=''secret'']`, first, `{"name": "hidden"}`), "/dmi-registry/cm-handles[@id='ch-1']/cmHandleProperties[…]", false},
		"undoubled apostrophe":  {"property-twice", row(first+`/public-properties[@name=''n''''s'']`, first, `{"name": "n''s"}`) + `;` + row(first+`/public-properties[@name=''n''s'']`, first, `{"name": "n''s"}`), "", true},
		"no state":              {"state-missing", `delete from fragment where xpath = ` + first + `/state'`, "/dmi-registry/cm-handles[@id='ch-1']", false},
		"unknown state":         {"state-unknown", `update fragment set attributes = '{"cm-handle-state": "DELETED"}' where xpath = ` + first + `/state'`, "/dmi-registry/cm-handles[@id='ch-1']/state is DELETED", false},
		"no state leaf":         {"state-unknown", `update fragment set attributes = '{}' where xpath = ` + first + `/state'`, "/dmi-registry/cm-handles[@id='ch-1']/state is not set", false},
		"deleting":              {"deleting", `update fragment set attributes = '{"cm-handle-state": "DELETING"}' where xpath = ` + first + `/state'`, "", true},
		"ready and locked":      {"ready-locked", row(first+`/state/lock-reason`, first+`/state`, `{}`), "", false},
		"key without reference": {"reference-missing", `delete from ncmp_inventory.reference where key = '/alt/2'`, "/alt/2 of ch-2", false},
		"wrong owner":           {"reference-owner", `update ncmp_inventory.reference set owner = 'ch-1' where key = '/alt/2'`, "/alt/2 belongs to ch-2, not to ch-1", false},
		"orphan reference":      {"reference-orphan", `insert into ncmp_inventory.reference values ('gone', 'gone')`, "gone", false},
		"shared key":            {"key-shared", `update fragment set attributes = attributes || '{"alternate-id": " /alt/1 "}' where xpath = '/dmi-registry/cm-handles[@id=''ch-2'']'; delete from ncmp_inventory.reference where key = '/alt/2'`, "/alt/1 is borne by ch-1, ch-2", true},
		"orphan trust":          {"trust-orphan", `insert into ncmp_inventory.trust values ('gone', 'NONE')`, "gone", false},
		"unknown trust":         {"trust-unknown", `insert into ncmp_inventory.trust values ('ch-1', 'COMPLETE')`, "ch-1 is COMPLETE", false},
		"parked message":        {"outbox-parked", `insert into ncmp_inventory.outbox (kind, hash, headers, parked) values (0, 0, '', 'too large')`, "lcm/1: too large", false},
		"old message":           {"outbox-old", `insert into ncmp_inventory.outbox (kind, hash, headers, created) values (0, 0, '', now() - interval '2 hours')`, "lcm/1", false},
		"low outbox sequence":   {"outbox-sequence", `insert into ncmp_inventory.outbox (id, kind, hash, headers) values (77, 0, 0, '')`, "highest 77, sequence 1", false},
		"low fragment sequence": {"fragment-sequence", `select setval('fragment_id_seq', 100)`, "", false},
		"bad position":          {"position", `insert into ncmp_inventory.position (topic_id, partition, topic, cluster_id, next_offset) values (gen_random_uuid(), 0, 'in', 'c', -5)`, "in/0 at -5", false},
		"topic created anew": {"position-twice", `insert into ncmp_inventory.position (topic_id, partition, topic, cluster_id, next_offset)
values (gen_random_uuid(), 0, 'in', 'c', 5), (gen_random_uuid(), 0, 'in', 'c', 5)`, "in in cluster c", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storetest.Open(t)
			fillHandles(t, db, 3)
			_, err := db.Pool(t).Exec(t.Context(), broken.sql)
			require.NoError(t, err)
			r, err := db.New(t).Verify(t.Context())
			require.NoError(t, err)
			found := false
			for _, f := range r.Findings {
				if f.Check != broken.check {
					continue
				}
				found = true
				require.Equal(t, broken.notice, f.Notice)
				require.EqualValues(t, 1, f.Count)
				require.NotEmpty(t, f.Text)
				if broken.example != "" {
					require.Equal(t, []string{broken.example}, f.Examples)
				}
			}
			require.True(t, found, "%+v", r.Findings)
		})
	}
}

// Of two handles with one alternate id, which an older system let in, the older
// has the reference. When it goes, verify names the other, and an update that
// names the alternate id gives it to that one.
func TestASharedAlternateIDIsGivenToWhoIsLeft(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	s := db.New(t, withCodec)
	l := startLane(t, s, topic)
	l.items(t, creation("a"), creation("b"))
	execute(t, db, `update fragment set attributes = attributes || '{"alternate-id": "/alt/a"}' where xpath = '/dmi-registry/cm-handles[@id=''b'']'`)
	execute(t, db, `delete from ncmp_inventory.reference where key = '/alt/b'`)
	l.items(t, inventory.Item{Op: inventory.OpRemove, ID: "a"})
	findings := func() (found []store.Finding) {
		r, err := s.Verify(t.Context())
		require.NoError(t, err)
		return r.Findings
	}
	missing := findings()
	require.Len(t, missing, 1)
	require.Equal(t, "reference-missing", missing[0].Check)
	require.Equal(t, []string{"/alt/a of b"}, missing[0].Examples)
	l.items(t, inventory.Item{Op: inventory.OpUpdate, ID: "b", Fields: &inventory.Fields{AlternateID: "/alt/a"}})
	require.Empty(t, findings())
	h, err := s.GetHandle(t.Context(), "/alt/a")
	require.NoError(t, err)
	require.Equal(t, "b", h.ID)
}
