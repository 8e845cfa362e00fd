package store_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
	"ncmp-inventory/store"
	"ncmp-inventory/store/storetest"
)

func TestNewHandleBecomesTheRowsThatNCMPWrites(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	l := startLane(t, db.New(t, withCodec), topic)
	rc := l.create(t, handle("lab-17", "/SubNetwork=A"), handle("lab-18", ""))
	require.Equal(t, 10, rc.Fragments)
	require.Positive(t, rc.Commit)
	require.Positive(t, rc.Write)
	require.Equal(t, map[string]string{
		"":                                   `{"id": "lab-17", "alternate-id": "/SubNetwork=A", "module-set-tag": "tag-1", "dmi-service-name": "http://dmi:8080", "dmi-data-service-name": "", "data-producer-identifier": ""}`,
		"/public-properties[@name='region']": `{"name": "region", "value": "north"}`,
		"/public-properties[@name='vendor']": `{"name": "vendor", "value": "acme"}`,
		"/additional-properties[@name='password']": `{"name": "password", "value": "hush"}`,
		"/state": `{"cm-handle-state": "ADVISED", "last-update-time": "2026-02-03T04:05:06.007+0000"}`,
	}, under(t, db, "lab-17"))
	for _, r := range db.Rows(t) {
		if r.XPath == "/dmi-registry/cm-handles[@id='lab-17']" {
			require.Equal(t, "/dmi-registry", r.Parent)
		}
	}
	require.Equal(t, []string{"/SubNetwork=A>lab-17", "lab-17>lab-17", "lab-18>lab-18"},
		column(t, db, `select key || '>' || owner from ncmp_inventory.reference order by key`))

	got := l.read(t, "lab-17")
	require.NotNil(t, got)
	require.Equal(t, *handle("lab-17", "/SubNetwork=A"), got.Handle)
	require.True(t, got.Full)
	require.Nil(t, l.read(t, "lab-19"))
	require.Len(t, column(t, db, `select key from ncmp_inventory.reference`), 3, "a reservation that came to nothing is gone")
}

func TestUpdateWritesOnlyWhatChanged(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	l := startLane(t, db.New(t, withCodec), topic)
	l.create(t, handle("h", ""))
	before := db.Rows(t)
	rc := l.change(t, "h", func(*inventory.Handle) {})
	require.Zero(t, rc.Fragments)
	require.Equal(t, before, db.Rows(t))

	rc = l.change(t, "h", func(h *inventory.Handle) {
		h.DataProducerID = "producer"
		h.Public = []inventory.Property{{Name: "a'b", Value: "quoted"}, {Name: "vendor", Value: "other"}}
	})
	require.Equal(t, 4, rc.Fragments, "one merge, one insert, one change, one removal")
	rows := under(t, db, "h")
	require.JSONEq(t, `{"id":"h","alternate-id":"","module-set-tag":"tag-1","dmi-service-name":"http://dmi:8080","dmi-data-service-name":"","data-producer-identifier":"producer"}`, rows[""])
	require.Equal(t, `{"name": "a'b", "value": "quoted"}`, rows["/public-properties[@name='a''b']"])
	require.Equal(t, `{"name": "vendor", "value": "other"}`, rows["/public-properties[@name='vendor']"])
	require.NotContains(t, rows, "/public-properties[@name='region']")
	require.Contains(t, rows, "/additional-properties[@name='password']")
}

func TestStateReplacesTheWholeStateNode(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	l := startLane(t, db.New(t, withCodec), topic)
	l.create(t, handle("h", ""))
	step := func(now inventory.CompositeState, rows map[string]string) {
		t.Helper()
		l.change(t, "h", func(h *inventory.Handle) { h.State = now })
		got := under(t, db, "h")
		for x := range got {
			if len(x) < 6 || x[:6] != "/state" {
				delete(got, x)
			}
		}
		require.Equal(t, rows, got)
		require.Equal(t, now, l.read(t, "h").State)
	}
	const at = "2026-02-03T04:05:07.000+0000"
	step(inventory.CompositeState{
		State: inventory.Locked, LastUpdate: at,
		Lock: &inventory.LockReason{Reason: inventory.SetText("MODULE_SYNC_FAILED"), Details: inventory.SetText(" Attempt #1 failed: x")},
	}, map[string]string{
		"/state":             `{"cm-handle-state": "LOCKED", "last-update-time": "` + at + `"}`,
		"/state/lock-reason": `{"reason": "MODULE_SYNC_FAILED", "details": " Attempt #1 failed: x"}`,
	})
	step(inventory.CompositeState{
		State: inventory.Ready, LastUpdate: at, DataSync: inventory.False, Datastores: true,
		Operational: &inventory.SyncState{State: inventory.SetText(inventory.NoneRequested)},
	}, map[string]string{
		"/state":                        `{"cm-handle-state": "READY", "last-update-time": "` + at + `", "data-sync-enabled": false}`,
		"/state/datastores":             `{}`,
		"/state/datastores/operational": `{"sync-state": "NONE_REQUESTED"}`,
	})
	step(inventory.CompositeState{
		State: inventory.Ready, LastUpdate: at, DataSync: inventory.True, Datastores: true,
		Operational: &inventory.SyncState{State: inventory.SetText(inventory.Unsynchronized), LastSyncTime: inventory.SetText("now")},
	}, map[string]string{
		"/state":                        `{"cm-handle-state": "READY", "last-update-time": "` + at + `", "data-sync-enabled": true}`,
		"/state/datastores":             `{}`,
		"/state/datastores/operational": `{"sync-state": "UNSYNCHRONIZED", "last-sync-time": "now"}`,
	})
	step(inventory.CompositeState{
		State: inventory.Locked, LastUpdate: at, DataSync: inventory.True, Datastores: true,
		Lock:        &inventory.LockReason{Details: inventory.SetText("both")},
		Operational: &inventory.SyncState{State: inventory.SetText(inventory.Unsynchronized)},
	}, map[string]string{
		"/state":                        `{"cm-handle-state": "LOCKED", "last-update-time": "` + at + `", "data-sync-enabled": true}`,
		"/state/lock-reason":            `{"details": "both"}`,
		"/state/datastores":             `{}`,
		"/state/datastores/operational": `{"sync-state": "UNSYNCHRONIZED"}`,
	})
	step(inventory.CompositeState{
		State: inventory.Locked, LastUpdate: at,
		Lock: &inventory.LockReason{Reason: inventory.SetText("MODULE_UPGRADE")},
	}, map[string]string{
		"/state":             `{"cm-handle-state": "LOCKED", "last-update-time": "` + at + `"}`,
		"/state/lock-reason": `{"reason": "MODULE_UPGRADE"}`,
	})
}

func TestRemovalTakesRowsReferencesAndTrust(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	l := startLane(t, db.New(t, withCodec), topic)
	l.create(t, handle("a", "/alt"), handle("b", ""))
	l.apply(t, needOf([]string{"a", "b"}), func(s *inventory.Snapshot) *inventory.Plan {
		return &inventory.Plan{Changes: []inventory.Change{
			{Before: s.Handles["a"], After: &s.Handles["a"].Handle, Trust: inventory.TrustNone},
			{Before: s.Handles["b"], After: &s.Handles["b"].Handle, Trust: inventory.TrustComplete},
		}}
	})
	require.Equal(t, []string{"a NONE"}, column(t, db, `select handle || ' ' || level from ncmp_inventory.trust`))

	need := needOf([]string{"a"})
	need.Frees, need.Trust = []string{"a"}, []string{"a"}
	l.apply(t, need, func(s *inventory.Snapshot) *inventory.Plan {
		require.Equal(t, "a", s.Owners["/alt"], "the alternate id is locked although only the id was named")
		require.Equal(t, inventory.TrustNone, s.Trust["a"])
		return &inventory.Plan{
			Changes:  []inventory.Change{{Before: s.Handles["a"], Removed: true}},
			Releases: []string{"/alt", "a"},
		}
	})
	require.Empty(t, under(t, db, "a"))
	require.Len(t, under(t, db, "b"), 5)
	require.Equal(t, []string{"b"}, column(t, db, `select key from ncmp_inventory.reference`))
	require.Empty(t, column(t, db, `select handle from ncmp_inventory.trust`))
}

func TestRemovedAndCreatedAgainInOneBatchStartsFresh(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	l := startLane(t, db.New(t, withCodec), topic)
	l.create(t, handle("a", "/alt"))
	need := needOf([]string{"a"}, inventory.Claim{Key: "/new", Owner: "a"})
	need.Frees = []string{"a"}
	l.apply(t, need, func(s *inventory.Snapshot) *inventory.Plan {
		h := handle("a", "/new")
		h.Private = nil
		return &inventory.Plan{
			Changes:  []inventory.Change{{Before: s.Handles["a"], After: h, Removed: true, Trust: inventory.TrustNone}},
			Claims:   []inventory.Claim{{Key: "/new", Owner: "a"}},
			Releases: []string{"/alt"},
		}
	})
	rows := under(t, db, "a")
	require.Len(t, rows, 4)
	require.NotContains(t, rows, "/additional-properties[@name='password']")
	require.Equal(t, []string{"/new", "a"}, column(t, db, `select key from ncmp_inventory.reference order by key`))
	require.Equal(t, []string{"a"}, column(t, db, `select handle from ncmp_inventory.trust`))
}

func TestMessagesKeepThePlansOrderAndBytes(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	told := 0
	l := startLane(t, db.New(t, withCodec, func(c *store.Config) { c.OnCommit = func(n int) { told += n } }), topic)
	const n = 5000 // more than one statement
	l.apply(t, inventory.Need{}, func(*inventory.Snapshot) *inventory.Plan {
		p := &inventory.Plan{}
		for i := range n {
			p.Messages = append(p.Messages, inventory.Message{
				Kind: inventory.MessageKind(i % 2), Key: []byte{byte(i >> 8), byte(i)}, Headers: []byte{2, 0, 0xff}, Value: []byte{0, 0xff, byte(i)},
			})
		}
		p.Messages[7].Key, p.Messages[7].Value, p.Messages[7].Headers = nil, nil, nil
		return p
	})
	require.Equal(t, n, told)
	keys := column(t, db, `select coalesce(encode(key, 'hex'), 'null') from ncmp_inventory.outbox order by id`)
	require.Len(t, keys, n)
	require.Equal(t, []string{"0006", "null", "0008"}, keys[6:9])
	require.Equal(t, []string{"1387"}, keys[n-1:])
	require.Equal(t, []string{"0 00 null"}, column(t, db,
		`select hash || ' ' || encode(headers, 'hex') || ' ' || coalesce(encode(value, 'hex'), 'null') from ncmp_inventory.outbox where key is null`))
	require.Equal(t, []string{"1"}, column(t, db, `select seqcache::text from pg_sequence where seqrelid = 'ncmp_inventory.outbox_sequence'::regclass`))
}

func TestPositionDecides(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	s := db.New(t, withCodec)
	l := startLane(t, s, topic)
	l.create(t, handle("a", ""))
	nothing := func(*inventory.Snapshot) (*inventory.Plan, error) {
		t.Error("planned although the position had moved on")
		return &inventory.Plan{}, nil
	}
	again := l.batch(2)
	again.First, again.Next = 0, 2
	rc, err := s.Transact(t.Context(), again, needOf([]string{"a"}), nothing)
	require.NoError(t, err)
	require.True(t, rc.AlreadyApplied)
	require.EqualValues(t, 2, rc.Next)

	ahead := l.batch(2)
	ahead.First, ahead.Next = 10, 12
	_, err = s.Transact(t.Context(), ahead, needOf([]string{"b"}), nothing)
	require.ErrorIs(t, err, inventory.ErrRewound)

	across := l.batch(2)
	across.First, across.Next = 1, 3
	_, err = s.Transact(t.Context(), across, needOf([]string{"b"}), nothing)
	require.ErrorIs(t, err, inventory.ErrFenced)

	c, err := s.Claim(t.Context(), topic, "cluster", "another")
	require.NoError(t, err)
	require.Equal(t, inventory.Claimed{Found: true, Next: 2, OwnerEpoch: l.epoch + 1, LeaderEpoch: 7}, c)
	_, err = s.Transact(t.Context(), l.batch(2), needOf([]string{"b"}), nothing)
	require.ErrorIs(t, err, inventory.ErrFenced)

	gone := l.batch(2)
	gone.Index = 99
	_, err = s.Transact(t.Context(), gone, needOf([]string{"b"}), nothing)
	require.ErrorIs(t, err, inventory.ErrRewound)
	require.Equal(t, []string{"a"}, column(t, db, `select key from ncmp_inventory.reference`))
}

func TestTrialChangesNothing(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	s := db.New(t, withCodec)
	l := startLane(t, s, topic)
	rows := db.Rows(t)
	plan := func(h *inventory.Handle) func(*inventory.Snapshot) (*inventory.Plan, error) {
		return func(*inventory.Snapshot) (*inventory.Plan, error) {
			return &inventory.Plan{
				Changes:  []inventory.Change{{After: h}},
				Claims:   []inventory.Claim{{Key: h.ID, Owner: h.ID}},
				Messages: []inventory.Message{{Key: []byte("k")}},
			}, nil
		}
	}
	require.NoError(t, s.Trial(t.Context(), l.batch(1), needOf([]string{"a"}), plan(handle("a", ""))))
	bad := handle("a", "")
	bad.ModuleSetTag = "\x00" // jsonb takes no NUL
	err := s.Trial(t.Context(), l.batch(1), needOf([]string{"a"}), plan(bad))
	require.ErrorIs(t, err, inventory.ErrData)
	var de *inventory.DataError
	require.ErrorAs(t, err, &de)
	require.Equal(t, "22P05", de.SQLState)
	require.Equal(t, rows, db.Rows(t))
	require.Empty(t, column(t, db, `select id::text from ncmp_inventory.outbox`))
	require.Empty(t, column(t, db, `select key from ncmp_inventory.reference`))
}

func TestRefusedDataIsToldApart(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	s := db.New(t, withCodec)
	l := startLane(t, s, topic)
	try := func(need inventory.Need, p *inventory.Plan, err error) error {
		_, got := s.Transact(t.Context(), l.batch(2), need, func(*inventory.Snapshot) (*inventory.Plan, error) { return p, err })
		return got
	}
	secret := handle("a", "")
	secret.Private[0].Value = "refused"
	err := try(needOf([]string{"a"}), &inventory.Plan{Changes: []inventory.Change{{After: secret}}}, nil)
	require.ErrorIs(t, err, inventory.ErrData)
	require.NotContains(t, err.Error(), "refused\"")

	// A row that is there already although its key was free: planned again,
	// then given up as a fault of the data.
	_, err = db.Pool(t).Exec(t.Context(), `insert into fragment (id, xpath, attributes, anchor_id, parent_id)
		select 77, '/dmi-registry/cm-handles[@id=''b'']/state', '{}', anchor_id, id from fragment where xpath = '/dmi-registry'`)
	require.NoError(t, err)
	planned := 0
	_, err = s.Transact(t.Context(), l.batch(2), needOf([]string{"b"}), func(*inventory.Snapshot) (*inventory.Plan, error) {
		planned++
		return &inventory.Plan{Changes: []inventory.Change{{After: handle("b", "")}}}, nil
	})
	require.ErrorIs(t, err, inventory.ErrData)
	require.Equal(t, 6, planned)

	mine := errors.New("mine")
	err = try(needOf([]string{"a"}), nil, mine)
	require.ErrorIs(t, err, mine)
	err = try(needOf([]string{"a"}), &inventory.Plan{Claims: []inventory.Claim{{Key: "unnamed", Owner: "a"}}}, nil)
	require.ErrorContains(t, err, "not locked")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Transact(ctx, l.batch(2), needOf([]string{"a"}), nil)
	require.ErrorIs(t, err, context.Canceled)
}

func TestPropertiesThatWereNotReadAreNotDeleted(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	s := db.New(t, withCodec)
	l := startLane(t, s, topic)
	l.create(t, handle("a", ""))
	need := needOf([]string{"a"})
	need.Full = nil
	_, err := s.Transact(t.Context(), l.batch(2), need, func(s *inventory.Snapshot) (*inventory.Plan, error) {
		require.False(t, s.Handles["a"].Full)
		h := s.Handles["a"].Handle
		h.Public = []inventory.Property{{Name: "x", Value: "y"}}
		return &inventory.Plan{Changes: []inventory.Change{{Before: s.Handles["a"], After: &h}}}, nil
	})
	require.ErrorContains(t, err, "not read")

	need.Full = map[string]bool{"a": false}
	l.apply(t, need, func(s *inventory.Snapshot) *inventory.Plan {
		require.True(t, s.Handles["a"].Full, "a creation of a handle that exists compares properties")
		require.Len(t, s.Handles["a"].Private, 1)
		return &inventory.Plan{}
	})
}
