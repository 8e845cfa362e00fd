package inventory

import (
	"errors"
	"time"
)

// Claimed is a partition's stored position, taken over under a new owner epoch.
type Claimed struct {
	Found       bool // false: no position is stored yet
	Next        int64
	OwnerEpoch  int64
	LeaderEpoch int32 // of the last record applied, -1 if unknown
	DeadRun     int   // dead letters in a row up to Next
	// Moved says that an operator set the position and nothing was applied
	// since: a lower one is then no sign of a database that went back.
	Moved bool
	// Halted says that a halt of the partition is stored.
	Halted bool
}

// Identity tells databases and their histories apart.
type Identity struct {
	SystemID string // pg_control_system's identifier
	Timeline int64
}

// Lease is the right to publish, for a while, on the database's clock. Its
// generation goes with every write, so that a holder that lost it cannot
// delete rows.
type Lease struct {
	Holder     string
	Generation int64
}

// ErrNotLeader means that another worker publishes now.
var ErrNotLeader = errors.New("another worker holds the publisher's lease")

// OutboxRow is one message waiting to be published.
type OutboxRow struct {
	ID      int64 // the sequence; grows per key in commit order
	Key     []byte
	Headers []byte // see Message
	Value   []byte
	Created time.Time
}

// Window bounds what one read of the outbox returns.
type Window struct {
	Rows, Bytes int
	// Partitions is the output topic's partition count; rows whose key
	// hashes (murmur2, as Java's default partitioner) into Blocked are left
	// out. Rows without a key have hash 0.
	Partitions int
	Blocked    []int
}

// OutboxLoad is how much waits to be published.
type OutboxLoad struct {
	Rows, Bytes int64
	// Oldest is when the oldest row was written that can be published: neither
	// parked nor behind a parked one. It is zero when there is none.
	Oldest time.Time
	Age    time.Duration // of Oldest, by the database's clock
	Parked int64
}
