package consumer

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"
)

// The parts of the world that can be in trouble.
const (
	troubleKafka    = "kafka"
	troubleDatabase = "database"
)

// Status is what readiness and people want to know. It is a copy.
type Status struct {
	// Joined says that this worker is a member of the group; it may own no
	// partition.
	Joined     bool
	Generation int
	Partitions []PartitionStatus
	Halted     int
	// Gate is why no input is taken, "" if it is.
	Gate string
	// Kafka, Group, Database and Topics say what is wrong now, "" if nothing.
	Kafka, Group, Database, Topics string
}

// Ready reports whether input is being consumed, and if not, why. Halted
// partitions are told elsewhere: the others go on.
func (s *Status) Ready() (bool, string) {
	switch {
	case s.Database != "":
		return false, "database: " + s.Database
	case s.Kafka != "":
		return false, "kafka: " + s.Kafka
	case s.Topics != "":
		return false, "kafka: " + s.Topics
	case !s.Joined && s.Group != "":
		return false, "group: " + s.Group
	case !s.Joined:
		return false, "group: not joined yet"
	case s.Gate != "":
		return false, s.Gate
	}
	return true, ""
}

// PartitionStatus tells how far a partition is.
type PartitionStatus struct {
	Topic     string
	Partition int32
	Position  int64 // -1 while it is not known
	// Lag is how many offsets can be read and have not been applied; Open
	// is how many more wait behind an open transaction. -1 is unknown.
	Lag, Open int64
	// LagSeconds is the age of the oldest record that was not applied, 0
	// when there is none, also while the partition is halted. Until that
	// record was fetched, it is the time since the partition was last caught
	// up.
	LagSeconds float64
	// Held is the bytes in memory.
	Held int64
	// Halted is why the partition stands still, "" if it does not.
	Halted string
}

// Status looks at everything now.
func (c *Consumer) Status() Status {
	c.mu.Lock()
	s := Status{
		Joined: c.joined, Generation: c.generation,
		Kafka: text(c.troubles[troubleKafka]), Database: text(c.troubles[troubleDatabase]), Group: text(c.groupErr),
	}
	for _, name := range slices.Sorted(maps.Keys(c.missing)) {
		s.Topics = fmt.Sprintf("topic %s: %v", name, c.missing[name])
		break
	}
	lanes := c.lanes
	c.mu.Unlock()
	s.Gate = c.gate()
	now := time.Now()
	for _, l := range lanes {
		p := l.status(now)
		if p.Halted != "" {
			s.Halted++
		}
		s.Partitions = append(s.Partitions, p)
	}
	return s
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (l *lane) status(now time.Time) PartitionStatus {
	box := l.box.state()
	p := PartitionStatus{
		Topic: l.part.Topic, Partition: l.part.Index, Position: l.position.Load(),
		Lag: -1, Open: -1, Held: int64(box.held) + l.expanded.Load(),
	}
	from := p.Position
	if h := l.halted.Load(); h != nil {
		p.Halted = h.reason
		if from < 0 { // of a topic created anew all waits
			from = l.behind.Load()
		}
	}
	if from >= 0 && box.stable >= 0 {
		p.Lag, p.Open = max(0, box.stable-from), max(0, box.end-box.stable)
	}
	oldest := l.oldest.Load()
	if oldest < 0 {
		oldest = box.oldest
	}
	switch {
	case p.Lag == 0:
	case oldest >= 0:
		p.LagSeconds = max(0, now.Sub(time.UnixMilli(oldest)).Seconds())
	case p.Lag > 0:
		p.LagSeconds = max(0, now.Sub(time.Unix(0, l.calm.Load())).Seconds())
	}
	return p
}

// trouble notes what is wrong with a part, calm that it works again.
func (c *Consumer) trouble(part string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.troubles[part] == nil {
		c.log.Warn("waiting for "+part, zap.Error(err))
	}
	c.troubles[part] = err
}

func (c *Consumer) calm(part string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.troubles[part] != nil {
		delete(c.troubles, part)
		c.log.Info(part + " is back")
	}
}

// noteTopics remembers the topics that cannot be seen.
func (c *Consumer) noteTopics(md *Metadata) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, t := range md.Topics {
		if t.Err == nil {
			delete(c.missing, name)
			continue
		}
		if c.missing[name] == nil {
			c.log.Warn("input topic cannot be consumed yet", zap.Error(t.Err))
		}
		c.missing[name] = t.Err
	}
}
