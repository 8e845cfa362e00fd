package store

import (
	"context"

	"github.com/jackc/pgx/v5"
)

const (
	// A sequence that was never asked has yet to hand out its last value.
	sequenceStands = `select last_value - (not is_called)::int from ncmp_inventory.outbox_sequence`
	// No row may take a number between the look at the sequence and its raise,
	// else a number could be handed out twice.
	holdOutbox    = `lock table ncmp_inventory.outbox in share mode`
	raiseSequence = `
select setval('ncmp_inventory.outbox_sequence', $1)
where $1 > (` + sequenceStands + `)`
)

// RaiseSequence makes every later sequence greater than above. It never lowers
// one. Only when there is something to raise, after the database was restored
// from a backup, do writers wait for it.
func (o *Outbox) RaiseSequence(ctx context.Context, above int64) error {
	const op = "raising the sequence"
	var stands int64
	if err := o.query(ctx, func(ctx context.Context) error {
		return o.pool.QueryRow(ctx, sequenceStands).Scan(&stands)
	}); err != nil {
		return o.s.classify(op, err)
	}
	// Sequences only grow: what is high enough now stays so.
	if stands >= above {
		return nil
	}
	raise := func(ctx context.Context) error {
		b := &pgx.Batch{}
		b.Queue(holdOutbox)
		b.Queue(raiseSequence, above)
		return pgx.BeginFunc(ctx, o.pool, func(tx pgx.Tx) error { return tx.SendBatch(ctx, b).Close() })
	}
	return o.s.repeated(ctx, op, func() error {
		err := o.query(ctx, raise)
		if !lockTimedOut(err) {
			return err
		}
		if err := o.evict(ctx, evictWriters); err != nil {
			return err
		}
		return o.query(ctx, raise)
	})
}
