package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"

	"ncmp-inventory/inventory"
)

const (
	sqlBegin = `begin isolation level read committed`
	// More time, for a transaction that cannot be split: for a statement, and
	// for the plan between two statements.
	sqlLongStatements = `select set_config('statement_timeout', $1, true)`
	sqlLongPauses     = `select set_config('idle_in_transaction_session_timeout', $1, true)`
	// sqlMove compares and moves in one step: a worker that lost the
	// partition, or tries a batch again that was applied, changes nothing.
	sqlMove = `
update ncmp_inventory.position
set next_offset = $5, leader_epoch = $6, dead_run = $7, topic = $8, moved = false, updated = clock_timestamp()
where topic_id = $1 and partition = $2 and owner_epoch = $3 and next_offset = $4`
	sqlStands = `
select owner_epoch, next_offset from ncmp_inventory.position where topic_id = $1 and partition = $2`
	sqlClaim = `
update ncmp_inventory.position p
set owner_epoch = p.owner_epoch + 1, owner = $3, cluster_id = $4, topic = $5, updated = clock_timestamp()
where p.topic_id = $1 and p.partition = $2
returning p.next_offset, p.owner_epoch, p.leader_epoch, p.dead_run, p.moved,
    exists (select from ncmp_inventory.halt h where h.topic = $5 and h.partition = $2)`
	sqlStart = `
insert into ncmp_inventory.position (topic_id, partition, topic, cluster_id, next_offset)
values ($1, $2, $3, $4, $5) on conflict (topic_id, partition) do nothing`
	// sqlEvict ends the session that holds a position's row, if it is the
	// one of the owner on record. A row's xmax is the transaction that holds it.
	sqlEvict = `
select a.pid, pg_terminate_backend(a.pid)
from ncmp_inventory.position p
join pg_stat_activity a on a.backend_xid = p.xmax
where p.topic_id = $1 and p.partition = $2
  and a.usename = current_user and a.datname = current_database()
  and a.application_name = left('ncmp-inventory ' || p.owner, 63)`
	sqlTopicKnown = `
select coalesce(bool_or(topic_id = $1), false), coalesce(bool_or(topic_id <> $1 and topic = $2), false),
       coalesce(bool_or(topic_id <> $1 and topic = $2 and partition = $3), false)
from ncmp_inventory.position where topic_id = $1 or topic = $2`
	// The time line is read from the log's own file name: the control file
	// shows a promotion only after the next checkpoint.
	sqlIdentity = `
select (select system_identifier from pg_control_system())::text,
       ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint`
	sqlPositions = `
select topic_id, partition, topic, cluster_id, next_offset, leader_epoch, owner_epoch, owner, dead_run, moved, updated
from ncmp_inventory.position order by topic, topic_id, partition`
	sqlSetPosition = `
insert into ncmp_inventory.position as p (topic_id, partition, topic, cluster_id, next_offset, moved)
values ($1, $2, $3, $4, $5, true)
on conflict (topic_id, partition) do update
set next_offset = $5, leader_epoch = -1, dead_run = 0, moved = true, owner_epoch = p.owner_epoch + 1, updated = clock_timestamp()`
	sqlHalt = `
insert into ncmp_inventory.halt (topic_id, partition, topic, owner, kind, reason) values ($1, $2, $3, $4, $5, $6)
on conflict (topic_id, partition) do update
set topic = excluded.topic, owner = excluded.owner, kind = excluded.kind, reason = excluded.reason, since = clock_timestamp()`
	// A topic created anew takes the halts of its predecessor along.
	sqlGoesOn = `delete from ncmp_inventory.halt where topic = $1 and partition = $2`
	sqlHalts  = `select topic_id, partition, topic, kind, reason, owner, since from ncmp_inventory.halt order by topic, partition`
)

// queueMove compares and moves the position.
func (t *transaction) queueMove(b *pgx.Batch) {
	p := t.b
	b.Queue(sqlMove, p.TopicID, p.Index, p.OwnerEpoch, p.First, p.Next, p.LeaderEpoch, p.DeadRun, p.Topic).
		Exec(func(ct pgconn.CommandTag) error {
			t.moved = ct.RowsAffected() == 1
			return nil
		})
}

// displaced finds out why the position was not where the batch begins.
func (t *transaction) displaced(ctx context.Context) (rc inventory.Receipt, err error) {
	var epoch, next int64
	err = t.conn.QueryRow(ctx, sqlStands, t.b.TopicID, t.b.Index).Scan(&epoch, &next)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return rc, fmt.Errorf("%w: it is gone from the database", inventory.ErrRewound)
	case err != nil:
		return rc, err
	case epoch != t.b.OwnerEpoch:
		return rc, fmt.Errorf("%w: owner epoch %d, ours is %d", inventory.ErrFenced, epoch, t.b.OwnerEpoch)
	case next == t.b.Next:
		return inventory.Receipt{Next: next, AlreadyApplied: true}, nil
	case next < t.b.First:
		return rc, fmt.Errorf("%w: to %d", inventory.ErrRewound, next)
	case next == t.b.First:
		return rc, fmt.Errorf("%w: the position moved while it was read", inventory.ErrTransient)
	}
	// Whoever moved it there did not raise the epoch. Claiming again tells.
	return rc, fmt.Errorf("%w: the position stands at %d", inventory.ErrFenced, next)
}

// Claim implements consumer.Positions. A claim that waits for the row of an
// owner that is frozen in a transaction ends that owner's session.
func (s *Store) Claim(ctx context.Context, p inventory.Partition, clusterID, owner string) (inventory.Claimed, error) {
	op := fmt.Sprintf("claim %s/%d", p.Topic, p.Index)
	c, err := s.claim(ctx, p, clusterID, owner)
	if lockTimedOut(err) {
		if err := s.evict(ctx, p); err != nil {
			return c, s.classify(op, err)
		}
		c, err = s.claim(ctx, p, clusterID, owner)
	}
	return c, s.classify(op, err)
}

func (s *Store) claim(ctx context.Context, p inventory.Partition, clusterID, owner string) (c inventory.Claimed, err error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	err = s.pool.QueryRow(ctx, sqlClaim, p.TopicID, p.Index, owner, clusterID, p.Topic).
		Scan(&c.Next, &c.OwnerEpoch, &c.LeaderEpoch, &c.DeadRun, &c.Moved, &c.Halted)
	if errors.Is(err, pgx.ErrNoRows) {
		return inventory.Claimed{}, nil
	}
	c.Found = err == nil
	return c, err
}

func (s *Store) evict(ctx context.Context, p inventory.Partition) error {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	var pid int
	var ended bool
	err := s.pool.QueryRow(ctx, sqlEvict, p.TopicID, p.Index).Scan(&pid, &ended)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err == nil {
		s.log.Warn("ended the session of a partition's previous owner, which held its position",
			zap.String("topic", p.Topic), zap.Int32("partition", p.Index), zap.Int("pid", pid), zap.Bool("ended", ended))
	}
	return err
}

// Start implements consumer.Positions.
func (s *Store) Start(ctx context.Context, p inventory.Partition, clusterID, owner string, next int64) (inventory.Claimed, error) {
	if err := s.store(ctx, p, clusterID, next); err != nil {
		return inventory.Claimed{}, s.classify(fmt.Sprintf("start %s/%d", p.Topic, p.Index), err)
	}
	return s.Claim(ctx, p, clusterID, owner)
}

func (s *Store) store(ctx context.Context, p inventory.Partition, clusterID string, next int64) error {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	_, err := s.pool.Exec(ctx, sqlStart, p.TopicID, p.Index, p.Topic, clusterID, next)
	return err
}

// TopicKnown implements consumer.Positions.
func (s *Store) TopicKnown(ctx context.Context, p inventory.Partition) (known, recreated bool, err error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	var here bool
	err = s.pool.QueryRow(ctx, sqlTopicKnown, p.TopicID, p.Topic, p.Index).Scan(&known, &recreated, &here)
	return known, recreated && (here || !known), s.classify("look up topic "+p.Topic, err)
}

// Halted implements consumer.Positions.
func (s *Store) Halted(ctx context.Context, p inventory.Partition, owner, kind, reason string) (err error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	if kind == "" {
		_, err = s.pool.Exec(ctx, sqlGoesOn, p.Topic, p.Index)
	} else {
		_, err = s.pool.Exec(ctx, sqlHalt, p.TopicID, p.Index, p.Topic, owner, kind, cleanText(reason))
	}
	return s.classify(fmt.Sprintf("note the halt of %s/%d", p.Topic, p.Index), err)
}

// Halt is a partition that stands still until somebody decides.
type Halt struct {
	inventory.Partition
	Kind, Reason, Owner string
	Since               time.Time
}

// Halts lists the halts that workers have stored. One whose worker died is
// there until another one has looked at the partition.
func (s *Store) Halts(ctx context.Context) ([]Halt, error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	rows, err := s.pool.Query(ctx, sqlHalts)
	if err != nil {
		return nil, s.classify("list halts", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (h Halt, err error) {
		err = row.Scan(&h.TopicID, &h.Index, &h.Topic, &h.Kind, &h.Reason, &h.Owner, &h.Since)
		return h, err
	})
	return list, s.classify("list halts", err)
}

// Identity implements consumer.Positions.
func (s *Store) Identity(ctx context.Context) (id inventory.Identity, err error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	err = s.pool.QueryRow(ctx, sqlIdentity).Scan(&id.SystemID, &id.Timeline)
	return id, s.classify("identify the database", err)
}

// Position is one stored position, for people.
type Position struct {
	inventory.Partition
	ClusterID   string
	Next        int64
	LeaderEpoch int32
	OwnerEpoch  int64
	Owner       string
	DeadRun     int
	Moved       bool
	Updated     time.Time
}

// Positions lists all stored positions by topic and partition.
func (s *Store) Positions(ctx context.Context) ([]Position, error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	rows, err := s.pool.Query(ctx, sqlPositions)
	if err != nil {
		return nil, s.classify("list positions", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p Position, err error) {
		err = row.Scan(&p.TopicID, &p.Index, &p.Topic, &p.ClusterID, &p.Next, &p.LeaderEpoch, &p.OwnerEpoch, &p.Owner, &p.DeadRun, &p.Moved, &p.Updated)
		return p, err
	})
	return list, s.classify("list positions", err)
}

// SetPosition moves a stored position by an operator's decision, or stores the
// first one of a partition. Whoever holds the partition is fenced, and its next
// claim says that the move was meant.
func (s *Store) SetPosition(ctx context.Context, p inventory.Partition, clusterID string, next int64) error {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	_, err := s.pool.Exec(ctx, sqlSetPosition, p.TopicID, p.Index, p.Topic, clusterID, next)
	return s.classify("set a position", err)
}
