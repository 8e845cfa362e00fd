package inventory_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"ncmp-inventory/inventory"
)

// The law of coalescing: events applied as batches, wherever the boundaries
// fall, leave the same handles, references, trust levels and messages (their
// ids and order included) as events applied one by one.
func TestLawOfCoalescing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := rapid.SliceOfN(rapid.Custom(drawEvent), 1, 30).Draw(t, "events")
		cuts := rapid.SliceOfN(rapid.IntRange(1, 8), len(events), len(events)).Draw(t, "cuts")
		replays := drawReplays(t, events)
		mode := inventory.EventMode(rapid.IntRange(0, 1).Draw(t, "mode"))

		single, batched := newWorld(), newWorld()
		single.cfg.Events, batched.cfg.Events = mode, mode
		single.cfg.Outcomes, batched.cfg.Outcomes = inventory.OutcomesAll, inventory.OutcomesAll
		single.cfg.Facts = rapid.Bool().Draw(t, "history")
		batched.cfg.Facts = single.cfg.Facts
		single.replays, batched.replays = replays, replays
		var a, b []inventory.Message
		var factsA, factsB []string
		for _, e := range events {
			p := single.apply(t, e)
			a, factsA = append(a, p.Messages...), append(factsA, facts(p)...)
		}
		for i := 0; len(events) > 0; i++ {
			n := min(cuts[i], len(events))
			p := batched.apply(t, events[:n]...)
			b, factsB = append(b, p.Messages...), append(factsB, facts(p)...)
			events = events[n:]
		}
		require.Equal(t, texts(a), texts(b))
		require.Equal(t, factsA, factsB)
		require.Equal(t, single.handles, batched.handles)
		require.Equal(t, single.owners, batched.owners)
		require.Equal(t, single.trust, batched.trust)
	})
}

// drawReplays makes replayed dead letters of some of the events, which stood
// anywhere before: in this partition or elsewhere, long ago or just now.
func drawReplays(t *rapid.T, events []inventory.Event) map[string]*inventory.Replay {
	replays := map[string]*inventory.Replay{}
	for i := range events {
		if rapid.IntRange(0, 2).Draw(t, "replayed") != 0 {
			continue
		}
		offset := rapid.Int64Range(-5, int64(i)).Draw(t, "origin")
		r := &inventory.Replay{Forced: rapid.IntRange(0, 4).Draw(t, "forced") == 0}
		r.Origin = inventory.Place{Partition: source, Offset: offset, Time: now.Add(time.Duration(offset) * time.Second)}
		if rapid.Bool().Draw(t, "elsewhere") {
			r.Origin.Index++
		}
		events[i].ID = fmt.Sprint("r", i)
		replays[events[i].ID] = r
	}
	return replays
}

func texts(ms []inventory.Message) []string {
	var out []string
	for _, m := range ms {
		out = append(out, fmt.Sprintf("%x %s %s", m.Headers, m.Key, m.Value))
	}
	return out
}

// facts are a plan's facts, without the properties that a step does not need:
// a neighbour in the batch may have had them read.
func facts(p *inventory.Plan) []string {
	var out []string
	for _, f := range p.Facts {
		line := fmt.Appendf(nil, "%d %d %s %s %s>%s", f.Step, f.Offset, f.EventID, f.ID, f.OldTrust, f.NewTrust)
		for _, h := range []*inventory.Handle{f.Old, f.New} {
			if h == nil {
				line = append(line, " -"...)
				continue
			}
			line = fmt.Appendf(line, " %s,%d,%s,%s,%s", h.State.State, h.State.DataSync, h.AlternateID, h.ModuleSetTag, h.DataProducerID)
			if f.Step == inventory.StepCreate || f.Step == inventory.StepUpdate {
				line = fmt.Append(line, h.Public, h.Private)
			}
		}
		out = append(out, string(line))
	}
	return out
}

func drawEvent(t *rapid.T) inventory.Event {
	id := rapid.SampledFrom([]string{"a", "b", "c"})
	alt := rapid.SampledFrom([]string{"", "a", "b", "/x", "/y"})
	items := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) inventory.Item {
		h := id.Draw(t, "id")
		switch rapid.IntRange(0, 9).Draw(t, "op") {
		case 0, 1, 2:
			it := create(h, alt.Draw(t, "alt"), "p", rapid.SampledFrom([]string{"1", "2"}).Draw(t, "v"))
			it.Fields.Trust = rapid.SampledFrom([]inventory.TrustLevel{"", "NONE", "COMPLETE"}).Draw(t, "trust")
			return it
		case 3:
			return update(h, alt.Draw(t, "alt"), rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "producer"), "p", rapid.SampledFrom([]string{"1", "2", "-"}).Draw(t, "v"))
		case 4:
			return remove(h)
		case 5:
			return upgrade(h, rapid.SampledFrom([]string{"", "T1", "T2"}).Draw(t, "tag"))
		case 6:
			return beat(h, rapid.SampledFrom([]inventory.TrustLevel{"NONE", "COMPLETE"}).Draw(t, "level"))
		}
		it := state(h, rapid.SampledFrom([]inventory.State{inventory.Ready, inventory.Ready, inventory.Locked, inventory.Advised, inventory.Deleted, inventory.Deleting}).Draw(t, "to"))
		it.State.DataSync = inventory.Tri(rapid.IntRange(0, 2).Draw(t, "sync"))
		if rapid.Bool().Draw(t, "tagged") {
			it.State.ModuleSetTag = inventory.SetText(rapid.SampledFrom([]string{"", "T1"}).Draw(t, "tag"))
		}
		if rapid.Bool().Draw(t, "locked") {
			it.State.Lock = reason("R", "d")
		}
		return it
	}), 0, 4).Draw(t, "items")
	slices.SortStableFunc(items, func(a, b inventory.Item) int { return int(a.Op) - int(b.Op) })
	return event(items...)
}
