package store_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"ncmp-inventory/inventory"
	"ncmp-inventory/store"
	"ncmp-inventory/store/storetest"
)

// plain encodes facts as words: enough to see order and values.
type plain struct{}

func (plain) LCMEvent(t *inventory.Transition) inventory.Message {
	word := func(v inventory.Values, there bool) string {
		if !there {
			return "-"
		}
		return string(v.State) + "," + v.AlternateID + "," + v.DataProducerID
	}
	return inventory.Message{Kind: inventory.LCMEvent, Key: []byte(t.ID), Value: fmt.Appendf(nil, "%s|%s|%s",
		[]string{"create", "update", "delete"}[t.Kind], word(t.Old, t.Kind == inventory.Updated), word(t.New, t.Kind != inventory.Removed))}
}

func (plain) InventoryEvent(*inventory.TrustChange) inventory.Message {
	return inventory.Message{Kind: inventory.InventoryEvent}
}

func (plain) Outcome(o *inventory.Outcome) inventory.Message {
	var text []string
	for _, f := range o.Failures {
		text = append(text, f.ID+" "+string(f.Code))
	}
	return inventory.Message{Kind: inventory.OutcomeEvent, Value: []byte(strings.Join(text, ";"))}
}

func (plain) DeadLetter(*inventory.DeadLetterOf) inventory.Message {
	return inventory.Message{Kind: inventory.DeadLetterRecord}
}

// randomItem does something to one of ten handles; the alternate ids collide
// with each other and with ids. Handles "stay-…" are never removed.
func randomItem(r *rand.Rand) inventory.Item {
	id := fmt.Sprintf("h%d", r.IntN(8))
	if r.IntN(4) == 0 {
		id = fmt.Sprintf("stay-%d", r.IntN(2))
	}
	alternate := ""
	if r.IntN(2) == 0 {
		alternate = []string{"x", "y", "z", "h1", "h2"}[r.IntN(5)]
	}
	fields := &inventory.Fields{AlternateID: alternate, DataProducerID: fmt.Sprint(r.IntN(3)), DMI: &inventory.DMINames{}}
	stays := strings.HasPrefix(id, "stay-")
	switch n := r.IntN(10); {
	case n < 3 && !stays:
		return inventory.Item{Op: inventory.OpCreate, ID: id, Fields: fields}
	case n < 5 && !stays:
		return inventory.Item{Op: inventory.OpRemove, ID: id}
	case n < 7:
		return inventory.Item{Op: inventory.OpUpdate, ID: id, Fields: fields}
	}
	to := []inventory.State{inventory.Ready, inventory.Locked, inventory.Advised}[r.IntN(3)]
	return inventory.Item{Op: inventory.OpState, ID: id, State: &inventory.StateChange{To: to}}
}

// TestLanesOnTheSameHandlesNeverDeadlockOrReorder has lanes of several workers
// fight over a few handles. Each event's old values must be the new values of
// the event before it, in the order of the sequence.
func TestLanesOnTheSameHandlesNeverDeadlockOrReorder(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	reg := prometheus.NewRegistry()
	s := db.New(t, withCodec, func(c *store.Config) { c.Registerer = reg })
	registrar := inventory.NewRegistrar(s, plain{}, inventory.RegistrarConfig{
		PlannerConfig: inventory.PlannerConfig{Outcomes: inventory.OutcomesFailures},
	})
	apply := func(l *lane, items ...inventory.Item) error {
		b := l.batch(1)
		b.Records[0] = inventory.Record{Offset: b.First, Events: []inventory.Event{{ID: "e", Items: items}}}
		_, err := registrar.Apply(t.Context(), b)
		l.next = b.Next
		return err
	}
	const lanes, batches = 6, 120
	all := make([]*lane, lanes)
	for i := range all {
		p := topic
		p.Index = int32(i)
		all[i] = startLane(t, s, p)
	}
	for i := range 2 {
		require.NoError(t, apply(all[0], inventory.Item{
			Op: inventory.OpCreate, ID: fmt.Sprintf("stay-%d", i), Fields: &inventory.Fields{DMI: &inventory.DMINames{}},
		}))
	}
	seed := rand.Uint64()
	t.Log("seed", seed)
	var g errgroup.Group
	for i, l := range all {
		g.Go(func() error {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			for range batches {
				items := make([]inventory.Item, 1+r.IntN(5))
				for j := range items {
					items[j] = randomItem(r)
					items[j].Index = int32(j)
				}
				if err := apply(l, items...); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())

	require.Zero(t, counter(t, reg, "ncmp_inventory_store_retries_total", "retry"), "deadlocks")
	require.Zero(t, counter(t, reg, "ncmp_inventory_store_retries_total", "replan"), "lost races")
	last := map[string]string{}
	for _, e := range column(t, db, `select convert_from(key, 'utf8') || '|' || convert_from(value, 'utf8') from ncmp_inventory.outbox where kind = 0 order by id`) {
		f := strings.Split(e, "|")
		id, kind, before, after := f[0], f[1], f[2], f[3]
		switch was, known := last[id]; kind {
		case "create":
			require.False(t, known, e)
		case "update":
			require.Equal(t, was, before, e)
		case "delete":
			require.True(t, known, e)
		}
		last[id] = after
		if kind == "delete" {
			delete(last, id)
		}
	}
	require.Empty(t, column(t, db, `select convert_from(value, 'utf8') from ncmp_inventory.outbox
		where kind = 2 and convert_from(value, 'utf8') ~ 'stay-\d 100'`), "a handle that was never removed was not found")
	stored := column(t, db, `select attributes ->> 'id' from fragment where xpath ~ '\]$' order by 1`)
	require.ElementsMatch(t, stored, keysOf(last))
	require.Equal(t, column(t, db, `
		select k from (select attributes ->> 'id' || '>' || (attributes ->> 'id') k from fragment where xpath ~ '\]$'
		union select attributes ->> 'alternate-id' || '>' || (attributes ->> 'id') from fragment where xpath ~ '\]$' and attributes ->> 'alternate-id' <> '') u
		order by k collate "C"`),
		column(t, db, `select key || '>' || owner from ncmp_inventory.reference order by (key || '>' || owner) collate "C"`))
}

func keysOf(m map[string]string) []string {
	keys := []string{}
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}

// counter reads a counter with one label.
func counter(t *testing.T, reg *prometheus.Registry, name, label string) float64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == label {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("no counter %s of %s", name, label)
	return 0
}
