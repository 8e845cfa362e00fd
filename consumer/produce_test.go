package consumer

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
)

func TestRegistrationEventKey(t *testing.T) {
	t.Parallel()
	d := NewEventDecoder(DecoderConfig{})
	for _, c := range []struct{ body, key string }{
		{`{"createdCmHandles":[{"cmHandle":"a"}],"dmiPlugin":"http://dmi"}`, "a"},
		{`{"removedCmHandles":["a"],"createdCmHandles":[{"cmHandle":"a"}]}`, "a"},
		{`{"removedCmHandles":["a","b"],"dmiPlugin":"http://dmi"}`, "http://dmi"},
		{`{"dmiModelPlugin":"http://model","dmiPlugin":" ","removedCmHandles":["a","b"]}`, "http://model"},
		{`{"removedCmHandles":["a","b"]}`, "/dmi/lab"},
		{`{}`, "/dmi/lab"},
	} {
		out, err := d.NewRegistrationEvent([]byte(c.body), Attributes{ID: "e-1", Source: "/dmi/lab"})
		require.NoError(t, err)
		require.Equal(t, c.key, string(out.Key), c.body)
		require.Equal(t, c.body, string(out.Value))
	}
}

func TestEventsThatCannotBeMade(t *testing.T) {
	t.Parallel()
	d := NewEventDecoder(DecoderConfig{})
	good := Attributes{ID: "e-1", Source: "s"}
	for _, body := range []string{"", "[]", `{"a":1,"a":2}`} {
		_, err := d.NewRegistrationEvent([]byte(body), good)
		require.Error(t, err, body)
	}
	for _, a := range []Attributes{{ID: "e-1"}, {Source: "s"}, {ID: "a\x00", Source: "s"}, {ID: "\xff", Source: "s"}} {
		_, err := d.NewRegistrationEvent([]byte(`{}`), a)
		require.Error(t, err)
	}
	_, err := NewStateChangeEvent(good)
	require.Error(t, err)
	for _, id := range []string{"\xff", "a\x00"} {
		_, err = NewStateChangeEvent(good, StateOf{ID: id}, StateOf{ID: "b"})
		require.Error(t, err)
	}
}

func TestCheckRegistrationNamesRefusedEntries(t *testing.T) {
	t.Parallel()
	items, dead := NewEventDecoder(DecoderConfig{}).CheckRegistration([]byte(`{"createdCmHandles":[{"cmHandle":"a/b"},{"cmHandle":"c"}]}`))
	require.Nil(t, dead)
	require.Len(t, items, 2)
	require.Equal(t, inventory.CodeInvalidID, items[0].Reject.Code)
	require.Nil(t, items[1].Reject)
}

// What a producer encodes is what the worker decodes.
func TestStateChangeRoundTrip(t *testing.T) {
	t.Parallel()
	d := NewEventDecoder(DecoderConfig{})
	changes := []StateOf{
		{ID: "lab-1", Change: inventory.StateChange{To: inventory.Ready}},
		{ID: "lab-\"2\"\n", Change: inventory.StateChange{To: inventory.Locked,
			Lock: &inventory.LockReason{Reason: inventory.SetText("MODULE_SYNC_FAILED"), Details: inventory.SetText(" Attempt #1 failed: \\u0000")}}},
		{ID: "Köln", Change: inventory.StateChange{To: inventory.Ready, DataSync: inventory.True, SyncState: inventory.SetText("SYNCHRONIZED"),
			LastSyncTime: inventory.SetText("2026-02-03T04:05:06.007+0000"), ModuleSetTag: inventory.SetText("")}},
		{ID: "lab-4", Change: inventory.StateChange{To: inventory.Locked, Lock: &inventory.LockReason{}, DataSync: inventory.False}},
	}
	a := Attributes{ID: "e-1", Source: "/dmi/lab", Subject: "s", Time: time.Unix(1, 5), CorrelationID: "c",
		TraceParent: "t", TraceState: "u", Outcomes: inventory.OutcomesAll}
	for n := 1; n <= len(changes); n++ {
		for _, some := range [][]StateOf{changes[:n], changes[n-1 : n]} {
			out, err := NewStateChangeEvent(a, some...)
			require.NoError(t, err)
			r := inventory.Record{Key: out.Key, Headers: out.Headers, Value: out.Value}
			d.Decode(&r, false)
			require.Nil(t, r.Dead)
			ev := r.Events[0]
			got := a
			got.ID, got.Source, got.Subject, got.CorrelationID = ev.ID, ev.Source, ev.Subject, ev.CorrelationID
			got.TraceParent, got.TraceState, got.Outcomes = ev.TraceParent, ev.TraceState, ev.Outcomes
			require.Equal(t, a, got)
			require.Len(t, ev.Items, len(some))
			for i, it := range ev.Items {
				require.Nil(t, it.Reject)
				require.Equal(t, StateOf{ID: it.ID, Change: *it.State}, some[i])
			}
			if len(some) == 1 {
				require.Equal(t, some[0].ID, string(out.Key))
			} else {
				require.Equal(t, a.Source, string(out.Key))
			}
		}
	}
}

func TestStateChangesOfOneHandleShareItsKey(t *testing.T) {
	t.Parallel()
	ready, locked := inventory.StateChange{To: inventory.Ready}, inventory.StateChange{To: inventory.Locked}
	out, err := NewStateChangeEvent(Attributes{ID: "e-1", Source: "s"}, StateOf{"a", ready}, StateOf{"a", locked})
	require.NoError(t, err)
	require.Equal(t, "a", string(out.Key))
}

func TestHeadersAreLowerCase(t *testing.T) {
	t.Parallel()
	for _, h := range stateRecord(t).Headers {
		require.Equal(t, strings.ToLower(h.Key), h.Key)
	}
	require.False(t, slices.Contains(headerNames[:], headerPrefix+"datacontenttype"))
}
