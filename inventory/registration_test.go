package inventory_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
)

func TestLifeOfAHandle(t *testing.T) {
	w := newWorld()
	w.apply(t, event(create("a", "/a", "site", "n")), event(state("a", inventory.Ready)), event(upgrade("a", "T2")), event(remove("a")))
	require.Equal(t, []string{
		"a: create ADVISED,sync=0,alt=/a,tag=,producer=,public=[{site n false}] [/a||]",
		"a: update ADVISED,sync=0 -> READY,sync=1 [/a||]",
		"a: update READY -> LOCKED [/a||]",
		"a: update LOCKED -> DELETING [/a||]",
		"a: delete [/a||]",
	}, w.take())
	require.Empty(t, w.handles)
	require.Empty(t, w.owners)
}

func TestRegistrationRules(t *testing.T) {
	for _, tc := range []struct {
		name          string
		before, event inventory.Event
		want          []string
	}{
		{"twice in one list", event(), event(create("a", ""), create("a", "/x")),
			[]string{"a: create ADVISED,sync=0,alt=,tag=,producer=,public=[] [||]", ": e succeeded 1; create a 109 cm-handle already exists"}},
		{"a refused entry claims nothing", event(create("o", "/o")), event(create("a", "/o"), create("b", "a"), create("c", "/c")),
			[]string{"b: create ADVISED,sync=0,alt=a,tag=,producer=,public=[] [a||]", "c: create ADVISED,sync=0,alt=/c,tag=,producer=,public=[] [/c||]",
				": e succeeded 2; create a 109 cm-handle already exists"}},
		{"identical again", event(create("a", "/a", "p", "1")), event(create("a", "/a", "p", "1")), nil},
		{"stored otherwise", event(create("a", "/a", "p", "1")), event(create("a", "/a", "p", "2")),
			[]string{": e succeeded 0; create a 109 cm-handle already exists"}},
		{"an id that is an alternate id", event(create("a", "b")), event(create("b", "")),
			[]string{": e succeeded 0; create b 109 cm-handle already exists"}},
		{"its own id as alternate id", event(), event(create("a", "a")),
			[]string{"a: create ADVISED,sync=0,alt=a,tag=,producer=,public=[] [a||]"}},
		{"removal frees id and alternate id for the same event", event(create("a", "/a")), event(remove("a"), create("b", "/a"), create("a", "")),
			[]string{"a: update ADVISED -> DELETING [/a||]", "a: delete [/a||]",
				"b: create ADVISED,sync=0,alt=/a,tag=,producer=,public=[] [/a||]", "a: create ADVISED,sync=0,alt=,tag=,producer=,public=[] [||]"}},
		{"update of unknown, alternate id taken", event(create("o", "/o")), event(update("a", "/o", "")),
			[]string{": e succeeded 0; update a 100 cm handle reference(s) not found"}},
		{"update to another alternate id applies nothing", event(create("a", "/a")), event(update("a", "/b", "p")),
			[]string{": e succeeded 0; update a 109 cm-handle already exists"}},
		{"update of what this event creates", event(), event(create("a", "", "p", "1"), update("a", "/a", "prod", "p", "-", "q", "2")),
			[]string{"a: create ADVISED,sync=0,alt=,tag=,producer=,public=[{p 1 false}] [||]",
				"a: update alt=,producer=,public=[{p 1 false}] -> alt=/a,producer=prod,public=[{q 2 false}] [/a||prod]"}},
		{"update that changes nothing", event(create("a", "/a", "p", "1")), event(update("a", "/a", "", "p", "1", "x", "-")), nil},
		{"removed twice in one list", event(create("a", "")), event(remove("a"), remove("a")),
			[]string{"a: update ADVISED -> DELETING [||]", "a: delete [||]"}},
		{"removal of unknown", event(), event(remove("ghost")), []string{": e succeeded 0; remove ghost 100 cm handle reference(s) not found"}},
		{"upgrades", event(create("a", ""), create("b", ""), state("a", inventory.Ready)), event(upgrade("a", ""), upgrade("b", ""), upgrade("ghost", ""), upgrade("a", "")),
			[]string{"a: update READY -> LOCKED [||]", ": e succeeded 1; upgrade b 101 cm handle(s) not ready; upgrade ghost 100 cm handle reference(s) not found; upgrade a 101 cm handle(s) not ready"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, oneBatch := range []bool{false, true} {
				w := newWorld()
				if oneBatch {
					seen := len(first(t, tc.before))
					w.apply(t, tc.before, tc.event)
					require.Equal(t, tc.want, tail(w.take(), seen))
					continue
				}
				w.apply(t, tc.before)
				w.take()
				w.apply(t, tc.event)
				require.Equal(t, tc.want, w.take())
			}
		})
	}
}

func first(t *testing.T, e inventory.Event) []string {
	w := newWorld()
	w.apply(t, e)
	return w.take()
}

func tail(s []string, n int) []string {
	if len(s) == n {
		return nil
	}
	return s[n:]
}

func TestOwnersOfAnOlderSystem(t *testing.T) {
	w := newWorld()
	// Two handles with one alternate id: the lower row id owns the key.
	w.handles["a"] = &inventory.Stored{Handle: inventory.Handle{ID: "a", AlternateID: "/x", State: inventory.CompositeState{State: inventory.Ready}}, Full: true}
	w.handles["b"] = &inventory.Stored{Handle: inventory.Handle{ID: "b", AlternateID: "/x", State: inventory.CompositeState{State: inventory.Deleting}}, Full: true}
	w.owners = map[string]string{"a": "a", "b": "b", "/x": "a"}
	w.apply(t, event(remove("b")))
	require.Equal(t, []string{"b: delete [/x||]"}, w.take(), "a leftover was announced already")
	require.Equal(t, map[string]string{"a": "a", "/x": "a"}, w.owners)
}

func TestTooLargeForTheTopicIsRefusedWhole(t *testing.T) {
	w := newWorld()
	w.cfg.MaxLCMBytes = 120
	long := "x"
	for len(long) < 200 {
		long += long
	}
	p := w.apply(t, event(create("a", "/a", "p", long), create("b", "/a")))
	require.Equal(t, []string{"b: create ADVISED,sync=0,alt=/a,tag=,producer=,public=[] [/a||]", ": e succeeded 1; create a 112 message too large"}, w.take())
	require.Equal(t, []inventory.Claim{{Key: "/a", Owner: "b"}, {Key: "b", Owner: "b"}}, p.Claims)
}

func TestNCMPModeTellsWhatNCMPTells(t *testing.T) {
	w := newWorld()
	w.cfg.Events = inventory.EventsNCMP
	w.apply(t, event(create("a", "")))
	w.take()
	w.apply(t, event(update("a", "/a", "")), event(update("a", "", "", "p", "1")))
	require.Empty(t, w.take())
	w.apply(t, event(update("a", "", "x", "p", "2")))
	require.Equal(t, []string{"a: update producer= -> producer=x [/a||x]"}, w.take())
}

func TestTrustLevels(t *testing.T) {
	w := newWorld()
	none := create("a", "")
	none.Fields.Trust = inventory.TrustNone
	w.apply(t, event(none))
	require.Equal(t, `a: trust "" -> "NONE"`, w.take()[1])
	w.apply(t, event(beat("a", inventory.TrustNone)), event(beat("a", inventory.TrustComplete)), event(beat("ghost", inventory.TrustNone)))
	require.Equal(t, []string{`a: trust "NONE" -> "COMPLETE"`, ": e succeeded 0; heartbeat ghost 100 cm handle reference(s) not found"}, w.take())
	// A handle created anew starts from its own registration.
	w.apply(t, event(beat("a", inventory.TrustNone)))
	w.apply(t, event(remove("a"), create("a", "")), event(beat("a", inventory.TrustComplete)))
	require.Empty(t, w.trust)
	// The key is tried when the event's id names no handle.
	byKey := beat("some-uuid", inventory.TrustNone)
	byKey.Fallback = "a"
	w.apply(t, event(byKey))
	require.Equal(t, map[string]inventory.TrustLevel{"a": inventory.TrustNone}, w.trust)
}
