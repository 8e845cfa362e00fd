package store_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
	"ncmp-inventory/store/storetest"
)

// BenchmarkTransact writes batches of new handles as CPS's k6 tests shape them
// (seven private and two public properties), then takes them to READY. The
// server of the tests runs without fsync.
func BenchmarkTransact(b *testing.B) {
	for _, size := range []int{100, 1000, 5000} {
		b.Run(fmt.Sprintf("create/%d", size), func(b *testing.B) { benchmarkCreate(b, size) })
		b.Run(fmt.Sprintf("state/%d", size), func(b *testing.B) { benchmarkState(b, size) })
		b.Run(fmt.Sprintf("remove/%d", size), func(b *testing.B) { benchmarkRemove(b, size) })
	}
}

func benchmarkCreate(b *testing.B, size int) {
	l, phases := startLane(b, storetest.Open(b).New(b, withCodec), topic), phases{}
	l.createMany(b, 0, 1000) // past the first statistics
	b.ResetTimer()
	n := 1000
	for b.Loop() {
		phases.add(l.createMany(b, n, size))
		n += size
	}
	phases.report(b, size)
}

func benchmarkState(b *testing.B, size int) {
	l, phases := startLane(b, storetest.Open(b).New(b, withCodec), topic), phases{}
	const stored = 20000
	for n := 0; n < stored; n += 1000 {
		l.createMany(b, n, 1000)
	}
	b.ResetTimer()
	n, round := 0, 0
	for b.Loop() {
		if n+size > stored {
			n = 0
			round++
		}
		need, ids := manyNeed(n, size)
		at := fmt.Sprintf("2026-02-03T04:05:06.%03d+0000", round)
		phases.add(l.apply(b, need, func(s *inventory.Snapshot) *inventory.Plan {
			p := &inventory.Plan{}
			for _, id := range ids {
				h := s.Handles[id].Handle
				h.State = inventory.CompositeState{
					State: inventory.Ready, LastUpdate: at, DataSync: inventory.False, Datastores: true,
					Operational: &inventory.SyncState{State: inventory.SetText(inventory.NoneRequested)},
				}
				p.Changes = append(p.Changes, inventory.Change{Before: s.Handles[id], After: &h})
				p.Messages = append(p.Messages, inventory.Message{Key: []byte(id), Headers: make([]byte, 300), Value: make([]byte, 400)})
			}
			return p
		}))
		n += size
	}
	phases.report(b, size)
}

func benchmarkRemove(b *testing.B, size int) {
	l, phases := startLane(b, storetest.Open(b).New(b, withCodec), topic), phases{}
	l.createMany(b, 0, 1000)
	n := 1000
	for b.Loop() {
		b.StopTimer()
		l.createMany(b, n, size)
		need, ids := manyNeed(n, size)
		need.Frees, need.Deep = ids, make([]bool, len(ids))
		b.StartTimer()
		phases.add(l.apply(b, need, func(s *inventory.Snapshot) *inventory.Plan {
			p := &inventory.Plan{}
			for _, id := range ids {
				p.Changes = append(p.Changes, inventory.Change{Before: s.Handles[id], Removed: true})
				p.Releases = append(p.Releases, id, s.Handles[id].AlternateID)
			}
			return p
		}))
		n += size
	}
	phases.report(b, size)
}

func manyNeed(from, n int) (inventory.Need, []string) {
	var need inventory.Need
	for i := from; i < from+n; i++ {
		need.Handles, need.Deep = append(need.Handles, fmt.Sprintf("ch-%08d", i)), append(need.Deep, true)
	}
	need.Keys, need.Owners = need.Handles, need.Handles
	return need, need.Handles
}

// createMany registers n handles with one message each.
func (l *lane) createMany(b *testing.B, from, n int) inventory.Receipt {
	b.Helper()
	var need inventory.Need
	p := &inventory.Plan{}
	alternates, owners := []string{}, []string{}
	for i := from; i < from+n; i++ {
		id, alternate := fmt.Sprintf("ch-%08d", i), fmt.Sprintf("/SubNetwork=Europe/ManagedElement=%08d", i)
		h := handle(id, alternate)
		h.Private = nil
		for j := range 7 {
			h.Private = append(h.Private, inventory.Property{Name: fmt.Sprint("private-", j), Value: fmt.Sprint("value of ", j)})
		}
		need.Handles, need.Deep = append(need.Handles, id), append(need.Deep, false)
		alternates, owners = append(alternates, alternate), append(owners, id)
		p.Changes = append(p.Changes, inventory.Change{After: h})
		p.Messages = append(p.Messages, inventory.Message{Key: []byte(id), Headers: make([]byte, 300), Value: make([]byte, 400)})
	}
	need.Keys = append(alternates, need.Handles...)
	need.Owners = append(owners, need.Handles...)
	for i, k := range need.Keys {
		p.Claims = append(p.Claims, inventory.Claim{Key: k, Owner: need.Owners[i]})
	}
	rc := l.apply(b, need, func(s *inventory.Snapshot) *inventory.Plan {
		require.Empty(b, s.Handles)
		return p
	})
	return rc
}

// phases sums what receipts tell.
type phases struct {
	inventory.Receipt
	n int
}

func (p *phases) add(rc inventory.Receipt) {
	p.Read += rc.Read
	p.Write += rc.Write
	p.Commit += rc.Commit
	p.Fragments += rc.Fragments
	p.n++
}

func (p *phases) report(b *testing.B, size int) {
	total := b.Elapsed().Seconds()
	b.ReportMetric(float64(size*p.n)/total, "handles/s")
	b.ReportMetric(float64(p.Fragments)/total, "fragments/s")
	b.ReportMetric(float64(p.Read.Microseconds())/float64(p.n)/1000, "read-ms/op")
	b.ReportMetric(float64(p.Write.Microseconds())/float64(p.n)/1000, "write-ms/op")
	b.ReportMetric(float64(p.Commit.Microseconds())/float64(p.n)/1000, "commit-ms/op")
}
