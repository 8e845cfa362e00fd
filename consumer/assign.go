package consumer

import (
	"sort"

	kafka "github.com/segmentio/kafka-go"
)

// assign divides all partitions of all topics evenly among the members, and each
// topic as well: topics differ in load. What a member had it keeps as far as its
// shares go; the rest goes, topic by topic, to whoever has fewest of that topic.
// It is deterministic.
func assign(members []kafka.JoinGroupResponseMember, counts map[string]int) map[string]map[string][]int {
	members = append([]kafka.JoinGroupResponseMember(nil), members...)
	sort.Slice(members, func(i, j int) bool {
		a, b := &members[i], &members[j]
		if a.GroupInstanceID != b.GroupInstanceID {
			return a.GroupInstanceID < b.GroupInstanceID
		}
		return a.ID < b.ID
	})
	topics := make([]string, 0, len(counts))
	total := 0
	for t, n := range counts {
		topics = append(topics, t)
		total += n
	}
	sort.Strings(topics)

	type part struct {
		topic string
		index int
	}
	share, extra := total/len(members), total%len(members)
	taken := make(map[part]bool, total)
	load := make([]int, len(members))
	out := make(map[string]map[string][]int, len(members))
	give := func(m int, p part) {
		taken[p] = true
		if load[m]++; load[m] == share+1 {
			extra--
		}
		mine := out[members[m].ID]
		mine[p.topic] = append(mine[p.topic], p.index)
	}
	room := func(m int) bool { return load[m] < share || load[m] == share && extra > 0 }

	for m := range members {
		out[members[m].ID] = map[string][]int{}
		for _, t := range topics {
			owned := append([]int(nil), members[m].Metadata.OwnedPartitions[t]...)
			sort.Ints(owned)
			most := (counts[t] + len(members) - 1) / len(members)
			for _, i := range owned {
				if p := (part{t, i}); i >= 0 && i < counts[t] && !taken[p] && room(m) && len(out[members[m].ID][t]) < most {
					give(m, p)
				}
			}
		}
	}
	for _, t := range topics {
		for i := range counts[t] {
			p := part{t, i}
			if taken[p] {
				continue
			}
			best := -1
			for m := range members {
				if !room(m) {
					continue
				}
				if best < 0 {
					best = m
					continue
				}
				a, b := len(out[members[m].ID][t]), len(out[members[best].ID][t])
				if a < b || a == b && load[m] < load[best] {
					best = m
				}
			}
			give(best, p)
		}
	}
	return out
}
