package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"
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
	// evictFrozen ends sessions of workers that hold the outbox and whose client
	// has neither sent nor taken anything for as long as a frozen one is borne.
	// The server's own time-outs do not see all of them: it waits without end
	// for the rest of a pipeline and, on a Unix socket, to be rid of a result.
	evictFrozen = `
select a.pid, pg_terminate_backend(a.pid)
from pg_locks l join pg_stat_activity a using (pid)
where l.locktype = 'relation' and l.relation = 'ncmp_inventory.outbox'::regclass and l.granted
  and l.database = (select oid from pg_database where datname = current_database())
  and l.mode in ('RowExclusiveLock', 'RowShareLock')
  and a.pid <> pg_backend_pid() and a.usename = current_user and a.application_name like 'ncmp-inventory %'
  and a.wait_event_type = 'Client' and a.state_change < clock_timestamp() - $1::interval`
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
		var pe *pgconn.PgError
		if !errors.As(err, &pe) || pe.Code != "55P03" {
			return err
		}
		if err := o.query(ctx, o.evictFrozen); err != nil {
			return err
		}
		return o.query(ctx, raise)
	})
}

// evictFrozen frees the outbox of frozen workers.
func (o *Outbox) evictFrozen(ctx context.Context) error {
	rows, err := o.pool.Query(ctx, evictFrozen, o.s.cfg.FrozenTimeout)
	if err != nil {
		return err
	}
	var pid int
	var ended bool
	_, err = pgx.ForEachRow(rows, []any{&pid, &ended}, func() error {
		o.s.log.Warn("ended the session of a frozen worker, which held the outbox", zap.Int("pid", pid), zap.Bool("ended", ended))
		return nil
	})
	return err
}

// query calls fn with the time that one statement may take.
func (o *Outbox) query(ctx context.Context, fn func(context.Context) error) error {
	ctx, cancel := o.s.deadline(ctx)
	defer cancel()
	return fn(ctx)
}
