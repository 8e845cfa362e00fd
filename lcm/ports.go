package lcm

import (
	"context"
	"time"

	"ncmp-inventory/inventory"
)

// Outbox is the store as the relay sees it. Package store implements it.
type Outbox interface {
	// Lead takes or renews the lease for ttl. ok is false while another
	// holder has it.
	Lead(ctx context.Context, holder string, ttl time.Duration) (l inventory.Lease, ok bool, err error)
	// Resign gives the lease back at once.
	Resign(ctx context.Context, l inventory.Lease) error
	// Exchange deletes exactly the acknowledged rows and returns the oldest
	// rows of the kind that remain, by id, without parked rows and without
	// rows behind a parked row of the same key. It fails with inventory.ErrNotLeader
	// when the lease's generation is no longer current.
	Exchange(ctx context.Context, l inventory.Lease, kind inventory.MessageKind, acked []int64, w inventory.Window) ([]inventory.OutboxRow, error)
	// Park sets a row aside that the broker will not take; later rows of
	// its key wait behind it.
	Park(ctx context.Context, l inventory.Lease, kind inventory.MessageKind, id int64, reason string) error
	// RetryParked lets all parked rows be sent once more and returns their
	// number.
	RetryParked(ctx context.Context, l inventory.Lease) (int, error)
	// RelayID is the transactional id that fences the publisher: configured,
	// or generated once and stored. It belongs to the database.
	RelayID(ctx context.Context) (string, error)
	// RaiseSequence makes every later sequence greater than above.
	RaiseSequence(ctx context.Context, above int64) error
	// Listen calls wake whenever some worker says that it committed
	// messages, until ctx ends or the connection fails.
	Listen(ctx context.Context, wake func()) error
}
