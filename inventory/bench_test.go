package inventory_test

import (
	"fmt"
	"testing"

	"ncmp-inventory/inventory"
)

// mute is an encoder that costs nothing, so that planning alone is measured.
type mute struct{}

func (mute) LCMEvent(*inventory.Transition) inventory.Message {
	return inventory.Message{Kind: inventory.LCMEvent}
}

func (mute) InventoryEvent(*inventory.TrustChange) inventory.Message {
	return inventory.Message{Kind: inventory.InventoryEvent}
}

func (mute) Outcome(*inventory.Outcome) inventory.Message {
	return inventory.Message{Kind: inventory.OutcomeEvent}
}

func (mute) DeadLetter(*inventory.DeadLetterOf) inventory.Message {
	return inventory.Message{Kind: inventory.DeadLetterRecord}
}

func BenchmarkPlanBatch(b *testing.B) {
	const handles = 1000
	var creates, states, removes []inventory.Event
	for i := range handles {
		id := fmt.Sprintf("ch-%d", i)
		creates = append(creates, event(create(id, "/alternate/"+id, "systemId", id, "systemName", "ncmp")))
		states = append(states, event(state(id, inventory.Ready)))
		removes = append(removes, event(remove(id)))
	}
	for _, bc := range []struct {
		name   string
		before []inventory.Event
		events []inventory.Event
	}{{"create", nil, creates}, {"state", creates, states}, {"remove", creates, removes}} {
		b.Run(bc.name, func(b *testing.B) {
			w := newWorld()
			if bc.before != nil {
				w.apply(b, bc.before...)
			}
			batch := &inventory.Batch{}
			for i, e := range bc.events {
				batch.Records = append(batch.Records, inventory.Record{Offset: int64(i), Events: []inventory.Event{e}})
			}
			snap := w.snapshot(inventory.NeedOf(batch))
			b.ReportAllocs()
			for b.Loop() {
				_ = inventory.NeedOf(batch)
				_ = inventory.PlanBatch(batch, snap, now, inventory.PlannerConfig{}, mute{}, nil)
			}
			b.ReportMetric(float64(handles)*float64(b.N)/b.Elapsed().Seconds(), "handles/s")
		})
	}
}
