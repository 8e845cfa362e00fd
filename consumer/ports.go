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
	// held it before can no longer write, and clears Moved.
	Claim(ctx context.Context, p inventory.Partition, clusterID, owner string) (inventory.Claimed, error)
	// Start stores where a partition without a position begins, then
	// claims it. If another worker was faster, its position wins.
	Start(ctx context.Context, p inventory.Partition, clusterID, owner string, next int64) (inventory.Claimed, error)
	// TopicKnown reports whether any partition of the topic id has a
	// position, and whether the topic's name is stored under another id
	// (the topic was deleted and created anew).
	TopicKnown(ctx context.Context, topicID [16]byte, topic string) (known, recreated bool, err error)
	// Identity reads who the database is now.
	Identity(ctx context.Context) (inventory.Identity, error)
}
