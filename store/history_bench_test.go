package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
	"ncmp-inventory/store/storetest"
)

// padded is an encoder whose messages have the size of real ones.
type padded struct{ keyed }

func (padded) LCMEvent(t *inventory.Transition) inventory.Message {
	return inventory.Message{Kind: inventory.LCMEvent, Key: []byte(t.ID), Headers: make([]byte, 300), Value: make([]byte, 400)}
}

// BenchmarkHistory takes handles through their lives, by turns with and without
// a history, in one database, and reports what the history costs of each step's
// time. The server of the tests runs without fsync, which leaves nothing to hide
// the cost behind.
func BenchmarkHistory(b *testing.B) {
	const size, stored = 1000, 20000
	db := storetest.Open(b)
	s := db.New(b, withCodec)
	lanes := [2]*lane{}
	for on := range lanes {
		p := topic
		p.Index = int32(on)
		lanes[on] = startLane(b, s, p)
	}
	// Ids are scattered, as the keys of an index are in the end.
	id := func(on, i int) string { return fmt.Sprintf("ch-%08x-%d", uint32(i)*2654435761, on) }
	apply := func(on int, records []inventory.Record) time.Duration {
		l := lanes[on]
		batch := l.batch(len(records))
		for i := range records {
			records[i].Offset, records[i].Timestamp = batch.First+int64(i), clock
			records[i].Events[0].ID, records[i].Events[0].Source = "7a3e5bc4-9f0d-4c52-8a57-0c6f1d2b3a49", "/dmi/lab"
		}
		batch.Records = records
		r := inventory.NewRegistrar(s, padded{}, inventory.RegistrarConfig{PlannerConfig: inventory.PlannerConfig{Facts: on == 1}})
		start := time.Now()
		_, err := r.Apply(b.Context(), batch)
		took := time.Since(start)
		require.NoError(b, err)
		l.next = batch.Next
		return took
	}
	steps := []struct {
		name string
		item func(id string) inventory.Item
	}{
		{"create", func(id string) inventory.Item {
			it := creation(id)
			it.Fields.Public = []inventory.Property{{Name: "systemId", Value: id}, {Name: "systemName", Value: "ncmp"}}
			it.Fields.Private = nil
			for i := range 7 {
				it.Fields.Private = append(it.Fields.Private, inventory.Property{Name: fmt.Sprint("private-", i), Value: fmt.Sprint("value of ", i)})
			}
			return it
		}},
		{"ready", func(id string) inventory.Item { return move(id, inventory.Ready) }},
		{"remove", func(id string) inventory.Item { return inventory.Item{Op: inventory.OpRemove, ID: id} }},
	}
	run := func(on, step, from int) time.Duration {
		records := make([]inventory.Record, size)
		for i := range records {
			records[i].Events = []inventory.Event{{Items: []inventory.Item{steps[step].item(id(on, from+i))}}}
		}
		return apply(on, records)
	}
	next := 0
	for ; next < stored; next += size { // what stays
		run(0, 0, next)
		run(1, 0, next)
	}
	var took [2][3]time.Duration
	b.ResetTimer()
	for n := 0; b.Loop(); n++ {
		for step := range steps {
			for turn := range 2 {
				on := (turn + n) % 2
				took[on][step] += run(on, step, next)
			}
		}
		next += size
	}
	var without, with time.Duration
	for step := range steps {
		without, with = without+took[0][step], with+took[1][step]
		b.ReportMetric(100*(took[1][step].Seconds()/took[0][step].Seconds()-1), steps[step].name+"-cost-%")
	}
	b.ReportMetric(100*(with.Seconds()/without.Seconds()-1), "cost-%")
	b.ReportMetric(float64(3*size*b.N)/with.Seconds(), "changes/s")
}
