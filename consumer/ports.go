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

// Positions are the stored positions of the input partitions. They belong to
// the database, not to the consumer group. Package store implements it.
type Positions interface {
	// Claim takes a partition: it bumps the owner epoch, so that whoever
	// held it before can no longer write. Moved stays until a batch is applied.
	Claim(ctx context.Context, p inventory.Partition, clusterID, owner string) (inventory.Claimed, error)
	// Start stores where a partition without a position begins, then
	// claims it. If another worker was faster, its position wins.
	Start(ctx context.Context, p inventory.Partition, clusterID, owner string, next int64) (inventory.Claimed, error)
	// Halted stores that a partition is halted and why, for those who look
	// and for those who want to move its position. An empty kind says that
	// it goes on.
	Halted(ctx context.Context, p inventory.Partition, owner, kind, reason string) error
	// TopicKnown reports whether any partition of the topic id has a
	// position, and whether the topic was deleted and created anew: its name
	// is stored under another id. Once it is known, that is asked of the one
	// partition: a decision about one is none about its neighbours.
	TopicKnown(ctx context.Context, p inventory.Partition) (known, recreated bool, err error)
	// Identity reads who the database is now.
	Identity(ctx context.Context) (inventory.Identity, error)
}
