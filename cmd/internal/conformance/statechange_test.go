package conformance_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
)

// state is a state change of handle a with the given members of its state.
func state(members string) inventory.Record {
	return change(`{"cmHandle":"a","state":{` + members + `}}`)
}

func illegal(from, to string) string {
	return fmt.Sprintf("e: 0 ok; state a 108 illegal state transition %s -> %s", from, to)
}

// seedState stores handle a in a state with everything that can hang below it.
func (w *worker) seedState(t *testing.T, state string) {
	t.Helper()
	w.wipe(t)
	w.send(t, created(`"cmHandle":"a","alternateId":"/a","moduleSetTag":"T1","dataProducerIdentifier":"p","publicCmHandleProperties":{"n":"v"}`))
	sync := ""
	if state == "READY" {
		sync = ` || '{"data-sync-enabled": true}'`
	}
	w.exec(t, `
		update fragment set attributes = jsonb_set(attributes, '{cm-handle-state}', '"`+state+`"')`+sync+` where xpath like '%/state';
		insert into fragment (id, xpath, attributes, anchor_id, parent_id)
		select nextval('fragment_id_seq'), xpath || '/datastores', '{}', anchor_id, id from fragment where xpath like '%/state';
		insert into fragment (id, xpath, attributes, anchor_id, parent_id)
		select nextval('fragment_id_seq'), xpath || '/operational', '{"sync-state": "SYNCHRONIZED", "last-sync-time": "t0"}', anchor_id, id from fragment where xpath like '%/datastores'`)
	if state != "READY" {
		w.exec(t, `
			insert into fragment (id, xpath, attributes, anchor_id, parent_id)
			select nextval('fragment_id_seq'), xpath || '/lock-reason', '{"reason": "MODULE_SYNC_FAILED", "details": " Attempt #3 failed: x"}', anchor_id, id from fragment where xpath like '%/state'`)
	}
}

// below are the state's data nodes.
func (w *worker) below(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for xpath, attributes := range w.stored(t, "a") {
		if rest, ok := strings.CutPrefix(xpath, "/state"); ok {
			out[rest] = attributes
		}
	}
	return out
}

func TestStateChangeRules(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	const (
		lock    = `{"reason": "MODULE_SYNC_FAILED", "details": " Attempt #3 failed: x"}`
		synced  = `{"sync-state": "SYNCHRONIZED", "last-sync-time": "t0"}`
		fresh   = `{"sync-state": "NONE_REQUESTED"}`
		ready   = `{"cm-handle-state": "READY", "data-sync-enabled": false}`
		syncing = `{"cm-handle-state": "READY", "data-sync-enabled": true}`
	)
	stays := func(state string) map[string]string {
		m := map[string]string{"": `{"cm-handle-state": "` + state + `"}`, "/datastores": "{}", "/datastores/operational": synced}
		if state == "READY" {
			m[""] = syncing
		} else {
			m["/lock-reason"] = lock
		}
		return m
	}
	gone := map[string]string{}
	for name, c := range map[string]struct {
		from   string
		change inventory.Record
		told   []string
		below  map[string]string
	}{
		"ADVISED to READY clears the reason, switches data sync off and starts its state": {
			"ADVISED", state(`"cmHandleState":"READY"`),
			[]string{`a update {"dataSyncEnabled":null,"cmHandleState":"ADVISED"} {"dataSyncEnabled":false,"cmHandleState":"READY"}`, "e: 1 ok"},
			map[string]string{"": ready, "/datastores": "{}", "/datastores/operational": fresh},
		},
		"explicit values win over what a transition resets": {
			"ADVISED", state(`"cmHandleState":"READY","dataSyncEnabled":true,"dataSyncState":{"operational":{"syncState":"SYNCHRONIZED","lastSyncTime":"t1"}},"lockReason":{"reason":"R","details":"D"}`),
			[]string{`a update {"dataSyncEnabled":null,"cmHandleState":"ADVISED"} {"dataSyncEnabled":true,"cmHandleState":"READY"}`, "e: 1 ok"},
			map[string]string{
				"": syncing, "/datastores": "{}", "/datastores/operational": `{"sync-state": "SYNCHRONIZED", "last-sync-time": "t1"}`,
				"/lock-reason": `{"reason": "R", "details": "D"}`,
			},
		},
		"ADVISED to READY with data sync on": {
			"ADVISED", state(`"cmHandleState":"READY","dataSyncEnabled":true`),
			[]string{`a update {"dataSyncEnabled":null,"cmHandleState":"ADVISED"} {"dataSyncEnabled":true,"cmHandleState":"READY"}`, "e: 1 ok"},
			map[string]string{"": syncing, "/datastores": "{}", "/datastores/operational": `{"sync-state": "UNSYNCHRONIZED"}`},
		},
		"ADVISED to LOCKED sets the reason as it came and keeps the datastores": {
			"ADVISED", state(`"cmHandleState":"LOCKED","lockReason":{"reason":"MADE_UP","details":"  as it came "}`),
			[]string{`a update {"cmHandleState":"ADVISED"} {"cmHandleState":"LOCKED"}`, "e: 1 ok"},
			map[string]string{"": `{"cm-handle-state": "LOCKED"}`, "/lock-reason": `{"reason": "MADE_UP", "details": "  as it came "}`, "/datastores": "{}", "/datastores/operational": synced},
		},
		"LOCKED without a reason": {
			"ADVISED", state(`"cmHandleState":"LOCKED"`),
			[]string{`a update {"cmHandleState":"ADVISED"} {"cmHandleState":"LOCKED"}`, "e: 1 ok"},
			map[string]string{"": `{"cm-handle-state": "LOCKED"}`, "/datastores": "{}", "/datastores/operational": synced},
		},
		"LOCKED with an empty reason": {
			"ADVISED", state(`"cmHandleState":"LOCKED","lockReason":{}`),
			[]string{`a update {"cmHandleState":"ADVISED"} {"cmHandleState":"LOCKED"}`, "e: 1 ok"},
			map[string]string{"": `{"cm-handle-state": "LOCKED"}`, "/lock-reason": "{}", "/datastores": "{}", "/datastores/operational": synced},
		},
		"LOCKED to ADVISED keeps reason and datastores": {
			"LOCKED", state(`"cmHandleState":"ADVISED"`),
			[]string{`a update {"cmHandleState":"LOCKED"} {"cmHandleState":"ADVISED"}`, "e: 1 ok"}, stays("ADVISED"),
		},
		"READY to LOCKED drops flag and datastores, and the event does not show the flag": {
			"READY", state(`"cmHandleState":"LOCKED","lockReason":{"reason":"R"}`),
			[]string{`a update {"cmHandleState":"READY"} {"cmHandleState":"LOCKED"}`, "e: 1 ok"},
			map[string]string{"": `{"cm-handle-state": "LOCKED"}`, "/lock-reason": `{"reason": "R"}`},
		},
		"READY to ADVISED":    {"READY", state(`"cmHandleState":"ADVISED"`), []string{illegal("READY", "ADVISED")}, stays("READY")},
		"LOCKED to READY":     {"LOCKED", state(`"cmHandleState":"READY"`), []string{illegal("LOCKED", "READY")}, stays("LOCKED")},
		"DELETING to READY":   {"DELETING", state(`"cmHandleState":"READY"`), []string{illegal("DELETING", "READY")}, stays("DELETING")},
		"READY to DELETING":   {"READY", state(`"cmHandleState":"DELETING"`), []string{illegal("READY", "DELETING")}, stays("READY")},
		"LOCKED to DELETING":  {"LOCKED", state(`"cmHandleState":"DELETING"`), []string{illegal("LOCKED", "DELETING")}, stays("LOCKED")},
		"ADVISED to DELETING": {"ADVISED", state(`"cmHandleState":"DELETING"`), []string{illegal("ADVISED", "DELETING")}, stays("ADVISED")},
		"a leftover to DELETING": {
			"DELETING", state(`"cmHandleState":"DELETING"`), []string{illegal("DELETING", "DELETING")}, stays("DELETING"),
		},
		"DELETED is a removal from ADVISED": {
			"ADVISED", state(`"cmHandleState":"DELETED"`),
			[]string{`a update {"cmHandleState":"ADVISED"} {"cmHandleState":"DELETING"}`, "a delete", "e: 1 ok"}, gone,
		},
		"DELETED is a removal from READY": {
			"READY", state(`"cmHandleState":"DELETED"`),
			[]string{`a update {"cmHandleState":"READY"} {"cmHandleState":"DELETING"}`, "a delete", "e: 1 ok"}, gone,
		},
		"DELETED is a removal from LOCKED": {
			"LOCKED", state(`"cmHandleState":"DELETED"`),
			[]string{`a update {"cmHandleState":"LOCKED"} {"cmHandleState":"DELETING"}`, "a delete", "e: 1 ok"}, gone,
		},
		"DELETED ends a leftover, which was announced": {
			"DELETING", state(`"cmHandleState":"DELETED"`), []string{"a delete", "e: 1 ok"}, gone,
		},
		"missing state":  {"READY", state(`"lockReason":{}`), []string{"e: 0 ok; state a 108 state.cmHandleState: missing"}, stays("READY")},
		"unknown state":  {"READY", state(`"cmHandleState":"Ready"`), []string{`e: 0 ok; state a 108 state.cmHandleState: unknown state "Ready"`}, stays("READY")},
		"no state":       {"READY", change(`{"cmHandle":"a"}`), []string{"e: 0 ok; state a 108 state: missing"}, stays("READY")},
		"unknown handle": {"READY", change(`{"cmHandle":"ghost","state":{"cmHandleState":"READY"}}`), []string{"e: 0 ok; state ghost " + notFound}, stays("READY")},
		"data sync needs READY": {
			"LOCKED", state(`"cmHandleState":"ADVISED","dataSyncEnabled":false`),
			[]string{"e: 0 ok; state a 108 Cm-Handle not in READY state. Cm handle state is: ADVISED"}, stays("LOCKED"),
		},
		"data sync needs READY, also in the same state": {
			"LOCKED", state(`"cmHandleState":"LOCKED","dataSyncEnabled":true`),
			[]string{"e: 0 ok; state a 108 Cm-Handle not in READY state. Cm handle state is: LOCKED"}, stays("LOCKED"),
		},
		"the sync state needs READY": {
			"READY", state(`"cmHandleState":"LOCKED","dataSyncState":{"operational":{"syncState":"SYNCHRONIZED"}}`),
			[]string{"e: 0 ok; state a 108 Cm-Handle not in READY state. Cm handle state is: LOCKED"}, stays("READY"),
		},
		"data sync of what is to go": {
			"READY", state(`"cmHandleState":"DELETED","dataSyncEnabled":true`),
			[]string{"e: 0 ok; state a 108 Cm-Handle not in READY state. Cm handle state is: DELETED"}, stays("READY"),
		},
		"flag off resets the sync state": {
			"READY", state(`"cmHandleState":"READY","dataSyncEnabled":false`),
			[]string{`a update {"dataSyncEnabled":true} {"dataSyncEnabled":false}`, "e: 1 ok"},
			map[string]string{"": ready, "/datastores": "{}", "/datastores/operational": fresh},
		},
		"flag off with a sync state": {
			"READY", state(`"cmHandleState":"READY","dataSyncEnabled":false,"dataSyncState":{"operational":{"syncState":"SYNCHRONIZED"}}`),
			[]string{`a update {"dataSyncEnabled":true} {"dataSyncEnabled":false}`, "e: 1 ok"},
			map[string]string{"": ready, "/datastores": "{}", "/datastores/operational": `{"sync-state": "SYNCHRONIZED"}`},
		},
		"an equal flag writes nothing": {"READY", state(`"cmHandleState":"READY","dataSyncEnabled":true`), []string{"e: 1 ok"}, stays("READY")},
		"data sync done is told to nobody": {
			"READY", state(`"cmHandleState":"READY","dataSyncState":{"operational":{"lastSyncTime":"t1"}}`), []string{"e: 1 ok"},
			map[string]string{"": syncing, "/datastores": "{}", "/datastores/operational": `{"sync-state": "SYNCHRONIZED", "last-sync-time": "t1"}`},
		},
		"a reason renewed in the same state is told to nobody": {
			"LOCKED", state(`"cmHandleState":"LOCKED","lockReason":{"reason":"MODULE_SYNC_FAILED","details":" Attempt #4 failed: x"}`), []string{"e: 1 ok"},
			map[string]string{"": `{"cm-handle-state": "LOCKED"}`, "/lock-reason": `{"reason": "MODULE_SYNC_FAILED", "details": " Attempt #4 failed: x"}`, "/datastores": "{}", "/datastores/operational": synced},
		},
		"the tag at the end of an upgrade, in the same event": {
			"ADVISED", change(`{"cmHandle":"a","state":{"cmHandleState":"READY"},"moduleSetTag":"T2"}`),
			[]string{`a update {"dataSyncEnabled":null,"cmHandleState":"ADVISED","moduleSetTag":"T1"} {"dataSyncEnabled":false,"cmHandleState":"READY","moduleSetTag":"T2"}`, "e: 1 ok"},
			map[string]string{"": ready, "/datastores": "{}", "/datastores/operational": fresh},
		},
		"an empty tag clears it": {
			"READY", state(`"cmHandleState":"READY","moduleSetTag":""`),
			[]string{`a update {"moduleSetTag":"T1"} {"moduleSetTag":""}`, "e: 1 ok"}, stays("READY"),
		},
		"tag and flag are one event": {
			"READY", state(`"cmHandleState":"READY","moduleSetTag":"T2","dataSyncEnabled":false`),
			[]string{`a update {"dataSyncEnabled":true,"moduleSetTag":"T1"} {"dataSyncEnabled":false,"moduleSetTag":"T2"}`, "e: 1 ok"},
			map[string]string{"": ready, "/datastores": "{}", "/datastores/operational": fresh},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w.seedState(t, c.from)
			require.Equal(t, c.told, w.send(t, c.change))
			require.Equal(t, c.below, w.below(t))
		})
	}
}

// The time of the last update moves only if something changed, and no row is
// written again if nothing did.
func TestSameStateAgainWritesNothing(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	for _, from := range []string{"ADVISED", "READY", "LOCKED"} {
		w.seedState(t, from)
		before := w.versions(t)
		for _, members := range []string{"", `,"lockReason":null,"dataSyncEnabled":null,"dataSyncState":null`} {
			require.Equal(t, []string{"e: 1 ok"}, w.send(t, state(`"cmHandleState":"`+from+`"`+members)))
		}
		require.Equal(t, before, w.versions(t))
	}
	w.seedState(t, "READY")
	before := w.column(t, `select attributes ->> 'last-update-time' from fragment where xpath like '%/state'`)
	w.send(t, state(`"cmHandleState":"READY","dataSyncState":{"operational":{"syncState":"UNSYNCHRONIZED"}}`))
	require.NotEqual(t, before, w.column(t, `select attributes ->> 'last-update-time' from fragment where xpath like '%/state'`))
}

// Each handle of a list stands alone, one named twice is changed in order, and
// each that is not found has a failure of its own.
func TestManyStateChangesInOneEvent(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	w.send(t, created(`"cmHandle":"a"`, `"cmHandle":"b"`))
	require.Equal(t, []string{
		`b update {"dataSyncEnabled":null,"cmHandleState":"ADVISED"} {"dataSyncEnabled":false,"cmHandleState":"READY"}`,
		`a update {"cmHandleState":"ADVISED"} {"cmHandleState":"LOCKED"}`,
		`a update {"cmHandleState":"LOCKED"} {"cmHandleState":"ADVISED"}`,
		"e: 3 ok; state x " + notFound + "; state  " + badID + "; state y " + notFound + "; state b 108 illegal state transition READY -> ADVISED",
	}, w.send(t, change(`{"cmHandles":[
		{"cmHandle":"x","state":{"cmHandleState":"READY"}},{"cmHandle":"b","state":{"cmHandleState":"READY"}},
		{"cmHandle":"a","state":{"cmHandleState":"LOCKED"}},{"cmHandle":"","state":{"cmHandleState":"READY"}},
		{"cmHandle":"y","state":{"cmHandleState":"READY"}},{"cmHandle":"b","state":{"cmHandleState":"ADVISED"}},
		{"cmHandle":"a","state":{"cmHandleState":"ADVISED"}}]}`)))
	w.requireSound(t)
}

// A late state change finds no handle, and makes none.
func TestLateStateChangeOfARemovedHandle(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	w.send(t, created(`"cmHandle":"a"`), register(`{"removedCmHandles":["a"]}`))
	require.Equal(t, []string{"e: 0 ok; state a " + notFound}, w.send(t, to("READY", "a")))
	require.Equal(t, []string{"a update {\"cmHandleState\":\"ADVISED\"} {\"cmHandleState\":\"DELETING\"}", "a delete", "e: 1 ok", "e: 0 ok; state a " + notFound},
		w.send(t, created(`"cmHandle":"a"`), register(`{"removedCmHandles":["a"]}`), to("READY", "a"))[2:])
	require.Equal(t, []string{"/dmi-registry"}, w.column(t, `select xpath from fragment`))
	w.requireSound(t)
}

func TestHeartbeats(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	require.Equal(t, []string{"a create " + advised, "a trust  -> NONE", "b create " + advised, "e: 2 ok"},
		w.send(t, created(`"cmHandle":"a","trustLevel":"NONE"`, `"cmHandle":"b","trustLevel":"COMPLETE"`)))
	// A device's heartbeats all have its id: none is taken for a repeat.
	require.Equal(t, []string{"a trust NONE -> COMPLETE", "a: 1 ok", "a trust COMPLETE -> NONE", "a: 1 ok", "a: 1 ok"},
		w.send(t, heartbeat("a", "COMPLETE"), heartbeat("a", "NONE"), heartbeat("a", "NONE")))
	require.Equal(t, []string{"a: 0 ok; heartbeat a 108 data.trustLevel: unknown trust level \"PARTIAL\", want NONE or COMPLETE",
		"a: 0 ok; heartbeat a 108 data.trustLevel: unknown trust level \"complete\", want NONE or COMPLETE", "key: 0 ok; heartbeat key " + notFound},
		w.send(t, heartbeat("a", "PARTIAL"), heartbeat("a", "complete"), heartbeat("key", "NONE")))
	byKey := heartbeat("0b4f", "NONE")
	byKey.Key = []byte("b")
	require.Equal(t, []string{"b trust COMPLETE -> NONE", "0b4f: 1 ok"}, w.send(t, byKey))

	// Levels survive the worker, and go with the handle.
	again := newWorkerOn(t, w.db)
	require.Equal(t, []string{"a: 1 ok"}, again.send(t, heartbeat("a", "NONE")))
	require.Equal(t, []string{"a: 1 ok"}, again.send(t, register(`{"removedCmHandles":["a"],"createdCmHandles":[{"cmHandle":"a"}]}`), heartbeat("a", "COMPLETE"))[4:])
	require.Equal(t, []string{"b"}, again.column(t, `select handle from ncmp_inventory.trust`))
	again.requireSound(t)
}
