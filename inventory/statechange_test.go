package inventory_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
)

func change(to inventory.State, f func(*inventory.StateChange)) inventory.Item {
	it := state("a", to)
	if f != nil {
		f(it.State)
	}
	return it
}

func reason(r, d string) *inventory.LockReason {
	return &inventory.LockReason{Reason: inventory.SetText(r), Details: inventory.SetText(d)}
}

func TestStateTable(t *testing.T) {
	stored := []inventory.State{inventory.Advised, inventory.Ready, inventory.Locked, inventory.Deleting}
	legal := map[inventory.Move]bool{
		{inventory.Advised, inventory.Ready}: true, {inventory.Advised, inventory.Locked}: true,
		{inventory.Locked, inventory.Advised}: true, {inventory.Ready, inventory.Locked}: true,
	}
	for _, from := range stored {
		for _, to := range append(stored, inventory.Deleted) {
			want := legal[inventory.Move{from, to}] || to == inventory.Deleted
			require.Equal(t, want, from.CanMoveTo(to), "%s to %s", from, to)
		}
	}
}

func TestStateChanges(t *testing.T) {
	advised := inventory.CompositeState{State: inventory.Advised}
	ready := inventory.CompositeState{State: inventory.Ready, DataSync: inventory.False, Datastores: true, Operational: &inventory.SyncState{State: inventory.SetText("NONE_REQUESTED")}}
	synced := inventory.CompositeState{State: inventory.Ready, DataSync: inventory.True, Datastores: true,
		Operational: &inventory.SyncState{State: inventory.SetText("SYNCHRONIZED"), LastSyncTime: inventory.SetText("t0")}}
	locked := inventory.CompositeState{State: inventory.Locked, Lock: reason("MODULE_SYNC_FAILED", " Attempt #1 failed: x")}
	lockedWithStores := locked
	lockedWithStores.Datastores = true

	for _, tc := range []struct {
		name   string
		before inventory.CompositeState
		change inventory.Item
		after  inventory.CompositeState
		told   []string
	}{
		{"module sync done", advised, change(inventory.Ready, nil), ready, []string{"a: update ADVISED,sync=0 -> READY,sync=1 [||]"}},
		{"READY with data sync on", advised, change(inventory.Ready, func(c *inventory.StateChange) { c.DataSync = inventory.True }),
			inventory.CompositeState{State: inventory.Ready, DataSync: inventory.True, Datastores: true, Operational: &inventory.SyncState{State: inventory.SetText("UNSYNCHRONIZED")}},
			[]string{"a: update ADVISED,sync=0 -> READY,sync=2 [||]"}},
		{"locked with a reason", advised, change(inventory.Locked, func(c *inventory.StateChange) { c.Lock = reason("MADE_UP", "as it came") }),
			inventory.CompositeState{State: inventory.Locked, Lock: reason("MADE_UP", "as it came")}, []string{"a: update ADVISED -> LOCKED [||]"}},
		{"locked without a reason", advised, change(inventory.Locked, nil), inventory.CompositeState{State: inventory.Locked}, []string{"a: update ADVISED -> LOCKED [||]"}},
		{"retry keeps the reason and the datastores", lockedWithStores, change(inventory.Advised, nil),
			inventory.CompositeState{State: inventory.Advised, Lock: locked.Lock, Datastores: true}, []string{"a: update LOCKED -> ADVISED [||]"}},
		{"READY clears a kept reason", inventory.CompositeState{State: inventory.Advised, Lock: locked.Lock}, change(inventory.Ready, nil), ready, []string{"a: update ADVISED,sync=0 -> READY,sync=1 [||]"}},
		{"an upgrade drops flag and datastores", synced, change(inventory.Locked, nil), inventory.CompositeState{State: inventory.Locked}, []string{"a: update READY -> LOCKED [||]"}},
		{"flag on", ready, change(inventory.Ready, func(c *inventory.StateChange) { c.DataSync = inventory.True }),
			inventory.CompositeState{State: inventory.Ready, DataSync: inventory.True, Datastores: true, Operational: &inventory.SyncState{State: inventory.SetText("UNSYNCHRONIZED")}},
			[]string{"a: update sync=1 -> sync=2 [||]"}},
		{"flag off", synced, change(inventory.Ready, func(c *inventory.StateChange) { c.DataSync = inventory.False }), ready, []string{"a: update sync=2 -> sync=1 [||]"}},
		{"flag as it is", synced, change(inventory.Ready, func(c *inventory.StateChange) { c.DataSync = inventory.True }), synced, nil},
		{"data sync done", synced, change(inventory.Ready, func(c *inventory.StateChange) { c.LastSyncTime = inventory.SetText("t1") }),
			inventory.CompositeState{State: inventory.Ready, DataSync: inventory.True, Datastores: true,
				Operational: &inventory.SyncState{State: inventory.SetText("SYNCHRONIZED"), LastSyncTime: inventory.SetText("t1")}}, nil},
		{"the same again", ready, change(inventory.Ready, nil), ready, nil},
		{"a new reason for a locked handle", locked, change(inventory.Locked, func(c *inventory.StateChange) { c.Lock = reason("B", "2") }),
			inventory.CompositeState{State: inventory.Locked, Lock: reason("B", "2")}, nil},
		{"illegal", ready, change(inventory.Advised, nil), ready, []string{": e succeeded 0; state a 108 illegal state transition READY -> ADVISED"}},
		{"DELETING is refused", ready, change(inventory.Deleting, nil), ready, []string{": e succeeded 0; state a 108 illegal state transition READY -> DELETING"}},
		{"data sync needs READY", locked, change(inventory.Locked, func(c *inventory.StateChange) { c.DataSync = inventory.True }), locked,
			[]string{": e succeeded 0; state a 108 Cm-Handle not in READY state. Cm handle state is: LOCKED"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld()
			tc.before.LastUpdate = "before"
			w.handles["a"] = &inventory.Stored{Handle: inventory.Handle{ID: "a", State: tc.before}, Full: true}
			w.owners["a"] = "a"
			w.apply(t, event(tc.change))
			got := w.handles["a"].State
			require.Equal(t, tc.told, w.take())
			tc.after.LastUpdate = inventory.FormatTime(now)
			if tc.after.State == tc.before.State && len(tc.told) > 0 && tc.told[0][0] == ':' || tc.name == "flag as it is" || tc.name == "the same again" {
				tc.after.LastUpdate = "before"
			}
			require.Equal(t, tc.after, got)
		})
	}
}

func TestEndOfAnUpgradeIsOneEvent(t *testing.T) {
	w := newWorld()
	w.apply(t, event(create("a", "")), event(state("a", inventory.Ready)), event(upgrade("a", "T2")), event(state("a", inventory.Advised)))
	w.take()
	w.apply(t, event(change(inventory.Ready, func(c *inventory.StateChange) { c.ModuleSetTag = inventory.SetText("T2") })))
	require.Equal(t, []string{"a: update ADVISED,sync=0,tag= -> READY,sync=1,tag=T2 [|T2|]"}, w.take())
}

func TestDeletedStateIsARemoval(t *testing.T) {
	w := newWorld()
	w.apply(t, event(create("a", "/a")))
	w.take()
	w.apply(t, event(state("a", inventory.Deleted), state("a", inventory.Deleted), create("b", "/a")))
	require.Equal(t, []string{
		"a: update ADVISED -> DELETING [/a||]", "a: delete [/a||]",
		"b: create ADVISED,sync=0,alt=/a,tag=,producer=,public=[] [/a||]",
		": e succeeded 2; state a 100 cm handle reference(s) not found",
	}, w.take())
}
