package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ncmp-inventory/inventory"
)

// The right to publish is a row with an expiry on the database's clock, not an
// advisory lock: that belongs to a server session, which a pooler shares.

// takeLease changes the generation when the holder changes, never on renewal.
const takeLease = `
insert into ncmp_inventory.relay as r (holder, generation, until)
values ($1, 1, clock_timestamp() + $2::interval)
on conflict (singleton) do update
set holder = excluded.holder, until = excluded.until,
    generation = r.generation + case when r.holder is distinct from excluded.holder then 1 else 0 end
where r.holder is null or r.holder = excluded.holder or r.until < clock_timestamp()
returning generation`

// Lead takes the lease, or renews it, for ttl. ok is false while another holder
// has it. The holder's name must be unique to the process that calls: a second
// one of the same name would renew the first one's lease.
func (o *Outbox) Lead(ctx context.Context, holder string, ttl time.Duration) (l inventory.Lease, ok bool, err error) {
	ctx, cancel := o.s.deadline(ctx)
	defer cancel()
	l.Holder = holder
	err = o.pool.QueryRow(ctx, takeLease, holder, ttl).Scan(&l.Generation)
	if errors.Is(err, pgx.ErrNoRows) {
		return inventory.Lease{}, false, nil
	}
	if err != nil {
		return inventory.Lease{}, false, o.s.classify("taking the publisher's lease", err)
	}
	return l, true, nil
}

const resignLease = `
update ncmp_inventory.relay set holder = null, until = null where holder = $1 and generation = $2`

// Resign gives the lease back at once. A lease that was lost is left alone.
func (o *Outbox) Resign(ctx context.Context, l inventory.Lease) error {
	ctx, cancel := o.s.deadline(ctx)
	defer cancel()
	_, err := o.pool.Exec(ctx, resignLease, l.Holder, l.Generation)
	return o.s.classify("giving the publisher's lease back", err)
}

const holdsLease = `
select exists (select from ncmp_inventory.relay where holder = $1 and generation = $2)`

// queueLeaseCheck makes a batch fail with ErrNotLeader when the lease has gone
// to another holder. The statements behind it must check by themselves
// (leaseCondition): the batch is sent as a whole.
func queueLeaseCheck(b *pgx.Batch, l inventory.Lease) {
	b.Queue(holdsLease, l.Holder, l.Generation).QueryRow(func(row pgx.Row) error {
		var holds bool
		if err := row.Scan(&holds); err != nil {
			return err
		}
		if !holds {
			return inventory.ErrNotLeader
		}
		return nil
	})
}

// leaseCondition guards a write by holder $1 and generation $2.
const leaseCondition = `exists (select from ncmp_inventory.relay where holder = $1 and generation = $2)`

const keepRelayID = `
insert into ncmp_inventory.relay as r (relay_id) values ($1)
on conflict (singleton) do update set relay_id = coalesce(r.relay_id, excluded.relay_id)
returning relay_id`

// RelayID is the transactional id that fences the publisher on Kafka: the
// configured one, or one generated once and stored. It belongs to the database:
// two databases with one id would fence each other for ever.
func (o *Outbox) RelayID(ctx context.Context) (string, error) {
	if id := o.s.cfg.RelayID; id != "" {
		return id, nil
	}
	ctx, cancel := o.s.deadline(ctx)
	defer cancel()
	fresh, err := uuid.NewRandom()
	if err != nil {
		return "", fmt.Errorf("generating the publisher's id: %w", err)
	}
	var id string
	err = o.pool.QueryRow(ctx, keepRelayID, "ncmp-inventory-relay-"+fresh.String()).Scan(&id)
	return id, o.s.classify("reading the publisher's id", err)
}
