package chaos

import "fmt"

// A cluster is a few handles, and alternate ids that they compete for, named by
// the events of several partitions. It is used for a while and then left alone:
// the search for an order that explains it stays small.
const (
	eventsOfCluster  = 10 // of each partition that shares
	handlesOfCluster = 3
)

// sharedInput draws an event about a cluster. What became of the events of other
// partitions is not known here, so anything goes.
func (h *home) sharedInput() Input {
	r := h.r
	cluster := 2*(h.shared/(2*eventsOfCluster)) + h.shared%2
	h.shared++
	id := func() string { return sharedID(cluster, r.IntN(handlesOfCluster)) }
	alt := func() *string {
		if r.IntN(2) == 0 {
			return nil
		}
		return ptr(pick(r, fmt.Sprintf("/shared/%d/0", cluster), fmt.Sprintf("/shared/%d/1", cluster), id()))
	}
	entry := func() Entry {
		return Entry{
			ID: id(), Alt: alt(), Producer: ptr(fmt.Sprintf("prod-%d", r.IntN(5))),
			Public: map[string]*string{"rack": ptr(fmt.Sprintf("%d-%d", h.index, h.shared))}, Private: h.properties(true),
		}
	}
	in := Input{Topic: h.Topic, Partition: h.Partition, Cluster: cluster}
	e := Event{ID: h.eventID(), Source: "/chaos"}
	switch n := r.IntN(20); {
	case n < 6:
		e.Registration = &Registration{Created: []Entry{entry()}}
		if r.IntN(3) == 0 {
			e.Registration.Created = append(e.Registration.Created, entry())
		}
	case n < 9:
		e.Registration = &Registration{Updated: []Entry{entry()}}
	case n < 11:
		e.Registration = &Registration{Removed: []string{id()}}
	case n < 12:
		replaced := entry()
		e.Registration = &Registration{Removed: []string{replaced.ID}, Created: []Entry{replaced}}
	case n < 13:
		e.Registration = &Registration{Upgraded: &Upgrade{IDs: []string{id()}, Tag: "set-x"}}
	case n < 18:
		e.States = []StateEntry{{ID: id(), To: pick(r, ready, ready, ready, locked, advised, deleted)}}
	default:
		e.ID, e.Beat = id(), &Beat{Level: pick(r, trustNone, trustComplete)}
	}
	in.Events = []Event{e}
	in.Key = []byte(e.ID)
	return in
}

func sharedID(cluster, n int) string { return fmt.Sprintf("shared-%d-%d", cluster, n) }
