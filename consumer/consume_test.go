package consumer

import (
	"fmt"
	"testing"
)

func TestAppliesEveryRecordOnceAndInOrder(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]int32{"in": 3, "beats": 2})
	want := map[string][]string{}
	for p := range int32(3) {
		want[fmt.Sprintf("in/%d", p)] = l.send("in", p, 0, 1000)
	}
	want["beats/1"] = l.send("beats", 1, 0, 10)
	w := l.start("a", func(c *Config, _ *Deps) {
		c.Topics, c.HeartbeatTopics = []string{"in", "beats"}, []string{"beats"}
	})
	l.requireExact(want)
	w.until("caught up", func(s Status) bool {
		for _, p := range s.Partitions {
			if p.Lag != 0 || p.LagSeconds != 0 {
				return false
			}
		}
		ok, _ := s.Ready()
		return ok && len(s.Partitions) == 5
	})
}
