package lcm

import (
	"context"
	"errors"
	"time"

	"ncmp-inventory/inventory"
)

// Lease is the right to publish, for a while, on the database's clock. Its
// generation goes with every write, so that a holder that lost it cannot
// delete rows.
type Lease struct {
	Holder     string
	Generation int64
}

// OutboxRow is one message waiting to be published.
type OutboxRow struct {
	ID      int64 // the sequence; grows per key in commit order
	Key     []byte
	Headers []byte // see inventory.Message
	Value   []byte
	Created time.Time
}

// Window bounds what Exchange returns.
type Window struct {
	Rows, Bytes int
	// Partitions is the output topic's partition count; rows whose key
	// hashes (murmur2, as Java's default partitioner) into Blocked are left
	// out. Rows without a key have hash 0.
	Partitions int
	Blocked    []int
}

// Outbox is the store as the relay sees it. Package store implements it.
type Outbox interface {
	// Lead takes or renews the lease for ttl. ok is false while another
	// holder has it.
	Lead(ctx context.Context, holder string, ttl time.Duration) (l Lease, ok bool, err error)
	// Resign gives the lease back at once.
	Resign(ctx context.Context, l Lease) error
	// Exchange deletes exactly the acknowledged rows and returns the oldest
	// rows of the kind that remain, by id, without parked rows and without
	// rows behind a parked row of the same key. It fails with ErrNotLeader
	// when the lease's generation is no longer current.
	Exchange(ctx context.Context, l Lease, kind inventory.MessageKind, acked []int64, w Window) ([]OutboxRow, error)
	// Park sets a row aside that the broker will not take; later rows of
	// its key wait behind it.
	Park(ctx context.Context, l Lease, kind inventory.MessageKind, id int64, reason string) error
	// RelayID is the transactional id that fences the publisher: configured,
	// or generated once and stored. It belongs to the database.
	RelayID(ctx context.Context) (string, error)
	// RaiseSequence makes every later sequence greater than above.
	RaiseSequence(ctx context.Context, above int64) error
	// Listen calls wake whenever some worker says that it committed
	// messages, until ctx ends or the connection fails.
	Listen(ctx context.Context, wake func()) error
}

// ErrNotLeader means that another worker publishes now.
var ErrNotLeader = errors.New("another worker holds the publisher's lease")
