package inventory_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
)

// Every change is a fact, told by an event or not; what changes nothing, and
// what is refused, is none.
func TestFactsAreWhatHappened(t *testing.T) {
	w := newWorld()
	w.cfg.Facts, w.cfg.MaxLCMBytes = true, 200
	private := update("a", "", "")
	private.Fields.Private = []inventory.Property{{Name: "secret", Value: "2"}}
	p := w.apply(t,
		event(create("a", "", "p", "1"), create("b", "", "p", string(make([]byte, 300)))), // b is too large
		event(create("a", "", "p", "1")), // a safe repeat
		event(update("a", "", "", "p", "2")), event(private),
		event(change(inventory.Locked, nil)), event(change(inventory.Ready, nil)), // illegal
		event(change(inventory.Locked, func(c *inventory.StateChange) { c.Lock = reason("R", "d") })),
		event(beat("a", inventory.TrustNone)), event(beat("a", inventory.TrustNone)),
		event(remove("a")), event(remove("a")),
	)
	type seen struct {
		step inventory.Step
		at   int64
		told bool
	}
	var got []seen
	for _, f := range p.Facts {
		require.Equal(t, "a", f.ID)
		require.Equal(t, now, f.At)
		require.NotNil(t, f.Cause)
		got = append(got, seen{f.Step, f.Offset, f.EventID != uuid.Nil})
	}
	require.Equal(t, []seen{
		{inventory.StepCreate, 0, true}, {inventory.StepUpdate, 2, true}, {inventory.StepUpdate, 3, false},
		{inventory.StepState, 4, true}, {inventory.StepState, 6, false}, {inventory.StepTrust, 7, true},
		{inventory.StepDeleting, 9, true}, {inventory.StepDelete, 9, true},
	}, got)
	require.Equal(t, []inventory.Property{{Name: "p", Value: "1"}}, p.Facts[1].Old.Public)
	require.Equal(t, []inventory.Property{{Name: "p", Value: "2"}}, p.Facts[1].New.Public)

	w.cfg.Facts = false
	require.Empty(t, w.apply(t, event(create("a", ""))).Facts)
}
