package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"
)

// A worker that is frozen in the middle of a statement holds its locks for ever:
// the server waits without end for the rest of a pipeline and, on a Unix socket,
// to be rid of a result. None of its time-outs covers that. So whoever waited for
// such a lock in vain ends the session. Claim does it for positions by itself.

// ofFrozen are sessions of workers whose client has neither sent nor taken anything
// for $1.
const ofFrozen = `
a.pid <> pg_backend_pid() and a.usename = current_user and a.datname = current_database()
and a.application_name like 'ncmp-inventory %'
and a.wait_event_type = 'Client' and a.state_change < clock_timestamp() - $1::interval`

const (
	// evictWriters ends frozen sessions that have written to the outbox.
	evictWriters = `
select a.pid, pg_terminate_backend(a.pid)
from pg_locks l join pg_stat_activity a using (pid)
where l.locktype = 'relation' and l.relation = 'ncmp_inventory.outbox'::regclass and l.granted
  and l.database = (select oid from pg_database where datname = current_database())
  and l.mode in ('RowExclusiveLock', 'RowShareLock') and ` + ofFrozen
	// evictDeleters ends frozen sessions that have deleted rows of kind $2 with
	// ids $3. A row's xmax is the transaction that holds it.
	evictDeleters = `
select a.pid, pg_terminate_backend(a.pid)
from (select distinct xmax from ncmp_inventory.outbox where kind = $2 and id = any($3::bigint[])) o
join pg_stat_activity a on a.backend_xid = o.xmax
where ` + ofFrozen
)

// evict runs one of the above; args follow $1.
func (o *Outbox) evict(ctx context.Context, sql string, args ...any) error {
	return o.query(ctx, func(ctx context.Context) error {
		rows, err := o.pool.Query(ctx, sql, append([]any{o.s.cfg.FrozenTimeout}, args...)...)
		if err != nil {
			return err
		}
		var pid int
		var ended bool
		_, err = pgx.ForEachRow(rows, []any{&pid, &ended}, func() error {
			o.s.log.Warn("ended the session of a frozen worker, which held rows of the outbox", zap.Int("pid", pid), zap.Bool("ended", ended))
			return nil
		})
		return err
	})
}

// query calls fn with the time that one statement may take.
func (o *Outbox) query(ctx context.Context, fn func(context.Context) error) error {
	ctx, cancel := o.s.deadline(ctx)
	defer cancel()
	return fn(ctx)
}

func lockTimedOut(err error) bool {
	var pe *pgconn.PgError
	return errors.As(err, &pe) && pe.Code == "55P03"
}
