package consumer

import (
	"context"

	"ncmp-inventory/inventory"
)

// Applier makes a batch durable. It is called from one goroutine per lane.
// inventory.Registrar implements it.
type Applier interface {
	Apply(ctx context.Context, b *inventory.Batch) (inventory.Receipt, error)
}

// Claim is a partition's stored position, taken over under a new owner epoch.
type Claim struct {
	Found       bool // false: no position is stored; call Start
	Next        int64
	OwnerEpoch  int64
	LeaderEpoch int32 // of the last record applied, -1 if unknown
	DeadRun     int   // dead letters in a row up to Next
	// Moved says that an operator set the position since it was last
	// claimed: a lower one is then no sign of a database that went back.
	Moved bool
}

// Identity tells databases and their histories apart.
type Identity struct {
	SystemID string // pg_control_system's identifier
	Timeline int64
}

// Positions are the stored positions of the input partitions. They belong to
// the database, not to the consumer group. Package store implements it.
type Positions interface {
	// Claim takes a partition: it bumps the owner epoch, so that whoever
	// held it before can no longer write, and clears Moved.
	Claim(ctx context.Context, p inventory.Partition, clusterID, owner string) (Claim, error)
	// Start stores where a partition without a position begins, then
	// claims it. If another worker was faster, its position wins.
	Start(ctx context.Context, p inventory.Partition, clusterID, owner string, next int64) (Claim, error)
	// TopicKnown reports whether any partition of the topic id has a
	// position, and whether the topic's name is stored under another id
	// (the topic was deleted and created anew).
	TopicKnown(ctx context.Context, topicID [16]byte, topic string) (known, recreated bool, err error)
	// Identity reads who the database is now.
	Identity(ctx context.Context) (Identity, error)
}
