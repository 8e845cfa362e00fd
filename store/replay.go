package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"ncmp-inventory/inventory"
)

// Place is where and when a record stood.
type Place = inventory.Place

// Replay is one dead letter that is sent again.
type Replay struct {
	Source Place // of the dead letter's record
	// Origin is the source of the first of a chain: a replayed record that
	// failed again is a dead letter of its own.
	Origin  Place
	Attempt int
	Target  inventory.Partition
	// From is the end of the target partition before the record was sent;
	// TargetOffset is where it stands, -1 while that is not known.
	From, TargetOffset int64
	At                 time.Time
}

// ErrReplaying means that somebody else is at it.
var ErrReplaying = errors.New("dead letters are being replayed by another command")

const (
	// replayLock lets one command replay at a time: what it finds half done
	// is nobody else's work in progress.
	replayLock = 0x6e636d70_72706c79

	sqlReplayLock   = `select pg_try_advisory_lock($1)`
	sqlReplayUnlock = `select pg_advisory_unlock($1)`
	sqlBeginReplay  = `
insert into ncmp_inventory.replay (topic_id, partition, source_offset, origin_topic_id, origin_partition, origin_offset, origin_time,
    attempt, target_topic, target_topic_id, target_partition, target_from)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`
	sqlFinishReplay = `
update ncmp_inventory.replay set target_offset = $4, at = clock_timestamp()
where topic_id = $1 and partition = $2 and source_offset = $3`
	sqlDropReplay = `
delete from ncmp_inventory.replay where topic_id = $1 and partition = $2 and source_offset = $3 and target_offset is null`
	sqlReplays = `
select r.topic_id, r.partition, r.source_offset, r.origin_topic_id, r.origin_partition, r.origin_offset, r.origin_time, r.attempt,
       r.target_topic, r.target_topic_id, r.target_partition, r.target_from, coalesce(r.target_offset, -1), r.at
from ncmp_inventory.replay r order by r.at`
)

// LockReplay makes sure that no other command replays until unlock is called
// or the connection is lost. It fails with ErrReplaying if one does.
func (s *Store) LockReplay(ctx context.Context) (unlock func(), err error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, s.classify("lock the replay of dead letters", err)
	}
	var ours bool
	if err := conn.QueryRow(ctx, sqlReplayLock, int64(replayLock)).Scan(&ours); err != nil || !ours {
		conn.Release()
		if err == nil {
			return nil, ErrReplaying
		}
		return nil, s.classify("lock the replay of dead letters", err)
	}
	return func() {
		ctx, cancel := s.deadline(context.WithoutCancel(ctx))
		defer cancel()
		if _, err := conn.Exec(ctx, sqlReplayUnlock, int64(replayLock)); err != nil {
			_ = conn.Conn().Close(ctx) // that unlocks as well
		}
		conn.Release()
	}, nil
}

// Replays lists what was ever replayed, the oldest first.
func (s *Store) Replays(ctx context.Context) ([]Replay, error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	rows, err := s.pool.Query(ctx, sqlReplays)
	if err != nil {
		return nil, s.classify("list replays", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r Replay, err error) {
		err = row.Scan(&r.Source.TopicID, &r.Source.Index, &r.Source.Offset, &r.Origin.TopicID, &r.Origin.Index, &r.Origin.Offset, &r.Origin.Time,
			&r.Attempt, &r.Target.Topic, &r.Target.TopicID, &r.Target.Index, &r.From, &r.TargetOffset, &r.At)
		return r, err
	})
	return list, s.classify("list replays", err)
}

// BeginReplays notes that records are about to be sent. They are all noted or
// none: one that was noted before is an error.
func (s *Store) BeginReplays(ctx context.Context, rs []Replay) error {
	b := &pgx.Batch{}
	for i := range rs {
		r := &rs[i]
		b.Queue(sqlBeginReplay, r.Source.TopicID, r.Source.Index, r.Source.Offset,
			r.Origin.TopicID, r.Origin.Index, r.Origin.Offset, r.Origin.Time, r.Attempt,
			r.Target.Topic, r.Target.TopicID, r.Target.Index, r.From)
	}
	return s.replayBatch(ctx, "begin a replay", b)
}

// FinishReplays notes where records that were sent stand.
func (s *Store) FinishReplays(ctx context.Context, rs []Replay) error {
	b := &pgx.Batch{}
	for i := range rs {
		r := &rs[i]
		b.Queue(sqlFinishReplay, r.Source.TopicID, r.Source.Index, r.Source.Offset, r.TargetOffset)
	}
	return s.replayBatch(ctx, "finish a replay", b)
}

// DropReplays forgets records that were noted and surely not sent.
func (s *Store) DropReplays(ctx context.Context, rs []Replay) error {
	b := &pgx.Batch{}
	for i := range rs {
		r := &rs[i]
		b.Queue(sqlDropReplay, r.Source.TopicID, r.Source.Index, r.Source.Offset)
	}
	return s.replayBatch(ctx, "drop a replay", b)
}

func (s *Store) replayBatch(ctx context.Context, op string, b *pgx.Batch) error {
	if b.Len() == 0 {
		return nil
	}
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	return s.repeated(ctx, op, func() error {
		return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error { return tx.SendBatch(ctx, b).Close() })
	})
}

// Later is a change of a handle that came after a record.
type Later = inventory.Later

// sqlLater finds, for each handle and the place beside it, the last change that
// a later record caused: later by offset in the same partition, by the records'
// own times elsewhere. What a replayed record did counts by where that record
// first stood. Without one it tells, with step 0, when the history last saw the
// handle. The table of replays speaks for what a worker of a release before
// applied, which noted no origin.
const sqlLater = `
select u.n, coalesce(l.step, 0::smallint), coalesce(l.at, n.at, 'epoch'),
       coalesce(l.topic_id, u.topic_id), coalesce(l.partition, 0), coalesce(l.source_offset, 0), coalesce(l.source_time, 'epoch'), coalesce(p.topic, '')
from unnest($1::text[], $2::uuid[], $3::int[], $4::bigint[], $5::timestamptz[]) with ordinality as u (handle, topic_id, partition, source_offset, source_time, n)
left join lateral (
    select h.at from ncmp_inventory.history h where h.handle = u.handle order by h.id desc limit 1) n on true
left join lateral (
    select h.id, h.at, h.step, s.*
    from ncmp_inventory.history h
    left join ncmp_inventory.replay r
        on r.target_topic_id = h.topic_id and r.target_partition = h.partition and r.target_offset = h.source_offset
    cross join lateral (
        select coalesce(h.origin_topic_id, r.origin_topic_id, h.topic_id) as topic_id,
               coalesce(h.origin_partition, r.origin_partition, h.partition) as partition,
               coalesce(h.origin_offset, r.origin_offset, h.source_offset) as source_offset,
               coalesce(h.origin_time, r.origin_time, h.source_time) as source_time) s
    where h.handle = u.handle
      and case when s.topic_id = u.topic_id and s.partition = u.partition then s.source_offset > u.source_offset else s.source_time > u.source_time end
    order by h.id desc limit 1) l on true
left join lateral (
    select topic from ncmp_inventory.position p where p.topic_id = l.topic_id limit 1) p on true
order by u.n`

// laterQuery is handles and places as the columns of sqlLater.
type laterQuery struct {
	handles    []string
	topics     []pgtype.UUID
	partitions []int32
	offsets    []int64
	times      []time.Time
}

func (q *laterQuery) add(place *Place, handles []string) {
	for _, id := range handles {
		q.handles = append(q.handles, id)
		q.topics = append(q.topics, pgtype.UUID{Bytes: place.TopicID, Valid: true})
		q.partitions = append(q.partitions, place.Index)
		q.offsets = append(q.offsets, place.Offset)
		q.times = append(q.times, place.Time)
	}
}

func (q *laterQuery) args() []any {
	return []any{q.handles, q.topics, q.partitions, q.offsets, q.times}
}

// each calls fn for each row, with its place in the columns.
func (q *laterQuery) each(rows pgx.Rows, fn func(i int, l Later)) error {
	var n int64
	var l Later
	_, err := pgx.ForEachRow(rows, []any{
		&n, &l.Step, &l.At, &l.Source.TopicID, &l.Source.Index, &l.Source.Offset, &l.Source.Time, &l.Source.Topic,
	}, func() error {
		l.Handle = q.handles[n-1]
		fn(int(n-1), l)
		return nil
	})
	return err
}

// queueLater reads what the history knows of the handles that replayed records
// of the batch name. It is nothing for a batch without any.
func (t *transaction) queueLater(b *pgx.Batch, replayed []inventory.Replayed) {
	if len(replayed) == 0 {
		return
	}
	var q laterQuery
	var of []int64 // by handle: the record's offset
	for i := range replayed {
		r := &replayed[i]
		q.add(&r.Origin, r.Handles)
		for range r.Handles {
			of = append(of, r.Offset)
		}
	}
	t.snap.Later, t.snap.Seen = map[int64][]Later{}, map[string]time.Time{}
	b.Queue(sqlLater, q.args()...).Query(func(rows pgx.Rows) error {
		return q.each(rows, func(i int, l Later) {
			if l.Step != 0 {
				t.snap.Later[of[i]] = append(t.snap.Later[of[i]], l)
			} else {
				t.snap.Seen[l.Handle] = l.At
			}
		})
	})
}

// LaterChanges finds those of the handles that changed after the record that
// stood at place, one change each. Where the history does not reach the state
// that is stored, its time of last update decides.
func (s *Store) LaterChanges(ctx context.Context, place Place, handles []string) (found []Later, err error) {
	for page := range slices.Chunk(handles, listPage) {
		some, err := s.laterChanges(ctx, place, page)
		if err != nil {
			return nil, err
		}
		found = append(found, some...)
	}
	return found, nil
}

func (s *Store) laterChanges(ctx context.Context, place Place, handles []string) (found []Later, err error) {
	views, err := s.viewHandles(ctx, handles, Filter{})
	if err != nil {
		return nil, err
	}
	states := make(map[string]string, len(views))
	for i := range views {
		states[views[i].ID] = views[i].State.LastUpdate
	}
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	var q laterQuery
	q.add(&place, handles)
	rows, err := s.pool.Query(ctx, sqlLater, q.args()...)
	if err != nil {
		return nil, s.classify("look for later changes", err)
	}
	err = q.each(rows, func(_ int, l Later) {
		if l.Step != 0 {
			found = append(found, l)
			return
		}
		if text, stored := states[l.Handle]; stored {
			at, ok := inventory.ParseTime(text)
			if !ok || at.After(l.At) && at.After(place.Time) {
				found = append(found, Later{Handle: l.Handle, At: at})
			}
		}
	})
	return found, s.classify("look for later changes", err)
}
