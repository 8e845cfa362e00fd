package consumer

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Choices of Config.Start, Config.OnGap and Config.OnRewind.
const (
	Earliest = "earliest"
	Latest   = "latest"
	Halt     = "halt"
	Replay   = "replay"
)

// Config says what to consume and within which bounds. DefaultConfig holds the
// defaults; zero values other than Linger, InstanceID and DeadLettersHaltAfter
// are refused.
type Config struct {
	// Topics are consumed in one group; those of them in HeartbeatTopics
	// take every foreign event type as a heartbeat.
	Topics, HeartbeatTopics []string

	Group string
	// InstanceID makes the member static: it keeps its partitions over a
	// restart that is shorter than the session timeout.
	InstanceID string
	// Owner names this worker in the stored positions, for people.
	Owner string

	SessionTimeout    time.Duration // 10s
	HeartbeatInterval time.Duration // 500ms
	// RebalanceTimeout is how long the group waits for a member that still
	// finishes its batches: 60s.
	RebalanceTimeout time.Duration
	// MetadataInterval is how often new topics, partitions and leaders are
	// looked for: 5s.
	MetadataInterval time.Duration

	// Start is where a partition of a topic never seen before begins:
	// Earliest (default) or Latest.
	Start string
	// OnGap is what to do when records are missing or the topic is another
	// one: Halt (default) or Earliest.
	OnGap string
	// OnRewind is what to do when the database went back: Halt (default) or
	// Replay.
	OnRewind string

	MaxRecords int           // records in a batch: 2000
	MaxBytes   int           // bytes in a batch, before the last record: 256 KiB
	Linger     time.Duration // how long a batch waits to grow: 0
	// Memory bounds the bytes in flight, over all partitions: 64 MiB. One
	// record batch of the broker can be beyond it.
	Memory int
	// MaxExpanded bounds one record batch after decompression: 64 MiB. A
	// larger one becomes a dead letter.
	MaxExpanded int

	// DeadLettersHaltAfter halts a partition after so many dead letters in a
	// row: 1000; 0 is never.
	DeadLettersHaltAfter int
	// DrainTimeout bounds how long a batch in hand may take after a stop or
	// a revocation: 25s.
	DrainTimeout time.Duration
	// StallTimeout is how long a batch may take before the worker stops its
	// heartbeats, so that the group moves its partitions: 5m.
	StallTimeout time.Duration
	// RecheckInterval is how often a halted partition looks whether an
	// operator moved its position: 5s.
	RecheckInterval time.Duration
}

// DefaultConfig holds every default; topics, group and owner are left empty.
func DefaultConfig() Config {
	return Config{
		SessionTimeout: 10 * time.Second, HeartbeatInterval: 500 * time.Millisecond,
		RebalanceTimeout: time.Minute, MetadataInterval: 5 * time.Second,
		Start: Earliest, OnGap: Halt, OnRewind: Halt,
		MaxRecords: 2000, MaxBytes: 256 << 10, Memory: 64 << 20, MaxExpanded: 64 << 20,
		DeadLettersHaltAfter: 1000,
		DrainTimeout:         25 * time.Second, StallTimeout: 5 * time.Minute, RecheckInterval: 5 * time.Second,
	}
}

func (c *Config) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(len(c.Topics) > 0, "no input topic")
	for _, t := range c.HeartbeatTopics {
		check(slices.Contains(c.Topics, t), "heartbeats topic %q is not among the input topics", t)
	}
	check(c.Group != "", "no consumer group")
	check(c.HeartbeatInterval > 0 && 3*c.HeartbeatInterval <= c.SessionTimeout,
		"heartbeat interval %v: at most a third of the session timeout %v is needed", c.HeartbeatInterval, c.SessionTimeout)
	check(c.RebalanceTimeout >= c.SessionTimeout, "rebalance timeout %v is below the session timeout %v", c.RebalanceTimeout, c.SessionTimeout)
	check(c.MetadataInterval > 0, "metadata interval %v", c.MetadataInterval)
	check(c.Start == Earliest || c.Start == Latest, "start %q: earliest or latest", c.Start)
	check(c.OnGap == Halt || c.OnGap == Earliest, "policy on a gap %q: halt or earliest", c.OnGap)
	check(c.OnRewind == Halt || c.OnRewind == Replay, "policy on a rewound database %q: halt or replay", c.OnRewind)
	check(c.MaxRecords > 0, "batch of at most %d records", c.MaxRecords)
	check(c.MaxBytes > 0, "batch of at most %d bytes", c.MaxBytes)
	check(c.Linger >= 0, "linger %v", c.Linger)
	check(c.Memory >= 1<<20, "memory of %d bytes: at least 1 MiB is needed", c.Memory)
	check(c.MaxExpanded >= 1<<20, "record batches of at most %d bytes: at least 1 MiB is needed", c.MaxExpanded)
	check(c.DeadLettersHaltAfter >= 0, "halt after %d dead letters", c.DeadLettersHaltAfter)
	check(c.DrainTimeout > 0, "drain timeout %v", c.DrainTimeout)
	check(c.StallTimeout > 0, "stall timeout %v", c.StallTimeout)
	check(c.RecheckInterval > 0, "recheck interval %v", c.RecheckInterval)
	return errors.Join(errs...)
}

// share is how one of n partitions may use the memory: a third for one fetch,
// a third for what waits or is in hand before another fetch begins, a third
// for decompressed records.
func (c *Config) share(n int) (fetch, held, batch int) {
	third := max(c.Memory/max(n, 1)/3, 4<<10)
	return min(third, 8<<20), third, min(third, c.MaxBytes)
}
