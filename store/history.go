package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"ncmp-inventory/inventory"
)

// sqlInsertFacts numbers the rows in the order of the plan; the handles' locks
// make that the order per handle.
const sqlInsertFacts = `
insert into ncmp_inventory.history
    (at, topic_id, partition, handle, step, event_id, source_offset, source_time, cause_id, cause_source, before, after)
select $1, $2, $3, u.handle, u.step, u.event_id, u.source_offset, u.source_time, u.cause_id, u.cause_source, u.before, u.after
from unnest($4::text[], $5::smallint[], $6::uuid[], $7::bigint[], $8::timestamptz[], $9::text[], $10::text[], $11::text[], $12::text[])
    with ordinality as u (handle, step, event_id, source_offset, source_time, cause_id, cause_source, before, after, n)
order by u.n`

// sqlInsertReplayed does the same, and notes where records that were sent again
// first stood: what they did counts by that.
const sqlInsertReplayed = `
insert into ncmp_inventory.history
    (at, topic_id, partition, handle, step, event_id, source_offset, source_time, cause_id, cause_source, before, after,
     origin_topic_id, origin_partition, origin_offset, origin_time)
select $1, $2, $3, u.handle, u.step, u.event_id, u.source_offset, u.source_time, u.cause_id, u.cause_source, u.before, u.after,
       u.origin_topic_id, u.origin_partition, u.origin_offset, u.origin_time
from unnest($4::text[], $5::smallint[], $6::uuid[], $7::bigint[], $8::timestamptz[], $9::text[], $10::text[], $11::text[], $12::text[],
            $13::uuid[], $14::int[], $15::bigint[], $16::timestamptz[])
    with ordinality as u (handle, step, event_id, source_offset, source_time, cause_id, cause_source, before, after,
                          origin_topic_id, origin_partition, origin_offset, origin_time, n)
order by u.n`

// queueFacts adds what happened to the batch. Like queueMessages it sends what
// was gathered when there is too much, and returns the batch to go on with.
func (t *transaction) queueFacts(ctx context.Context, b *pgx.Batch, facts []inventory.Fact) (*pgx.Batch, error) {
	for len(facts) > 0 {
		n := 0
		f := newFactSet(min(len(facts), chunkRows))
		for n < len(facts) && n < chunkRows && f.size() < chunkMessageBytes {
			f.add(&facts[n])
			n++
		}
		args := []any{
			facts[0].At, t.b.TopicID, t.b.Index,
			f.handles, f.steps, f.events, f.offsets, f.times, f.causes, f.sources, arrayOf(f.before), arrayOf(f.after),
		}
		if origins := originsOf(facts[:n]); origins == nil {
			b.Queue(sqlInsertFacts, args...)
		} else {
			b.Queue(sqlInsertReplayed, append(args, origins...)...)
		}
		if facts = facts[n:]; len(facts) > 0 {
			if err := t.conn.SendBatch(ctx, b).Close(); err != nil {
				return nil, err
			}
			b = &pgx.Batch{}
		}
	}
	return b, nil
}

// factSet is facts as columns, the form in which they travel.
type factSet struct {
	handles, causes, sources pgtype.FlatArray[string]
	steps                    []int16
	events                   pgtype.FlatArray[pgtype.UUID]
	offsets                  []int64
	times                    pgtype.FlatArray[time.Time]
	before, after            [][]byte

	beforeText, afterText members
}

func newFactSet(n int) *factSet {
	const typical = 80 // bytes of a text
	texts, strings := make([][]byte, 2*n), make([]string, 3*n)
	return &factSet{
		handles: strings[:0:n], causes: strings[n : n : 2*n], sources: strings[2*n : 2*n],
		steps: make([]int16, 0, n), events: make([]pgtype.UUID, 0, n), offsets: make([]int64, 0, n), times: make([]time.Time, 0, n),
		before: texts[:0:n], after: texts[n:n],
		beforeText: members{b: make([]byte, 0, typical*n)}, afterText: members{b: make([]byte, 0, typical*n)},
	}
}

func (s *factSet) size() int { return len(s.beforeText.b) + len(s.afterText.b) }

func (s *factSet) add(f *inventory.Fact) {
	factTexts(&s.beforeText, &s.afterText, f)
	s.handles = append(s.handles, f.ID)
	s.causes = append(s.causes, f.Cause.ID)
	s.sources = append(s.sources, f.Cause.Source)
	s.steps = append(s.steps, int16(f.Step))
	s.events = append(s.events, pgtype.UUID{Bytes: f.EventID, Valid: f.EventID != uuid.Nil})
	s.offsets = append(s.offsets, f.Offset)
	s.times = append(s.times, f.SourceTime())
	s.before = append(s.before, s.beforeText.take())
	s.after = append(s.after, s.afterText.take())
}

// originsOf is the origins of facts as columns, nil if none has one.
func originsOf(facts []inventory.Fact) []any {
	replayed := false
	for i := range facts {
		replayed = replayed || facts[i].Origin != nil
	}
	if !replayed {
		return nil
	}
	topics, partitions := make([]pgtype.UUID, len(facts)), make([]*int32, len(facts))
	offsets, times := make([]*int64, len(facts)), make([]*time.Time, len(facts))
	for i := range facts {
		if o := facts[i].Origin; o != nil {
			topics[i] = pgtype.UUID{Bytes: o.TopicID, Valid: true}
			partitions[i], offsets[i], times[i] = &o.Index, &o.Offset, &o.Time
		}
	}
	return []any{topics, partitions, offsets, times}
}

// Event is one entry of a handle's history.
type Event struct {
	ID   int64 // grows with each entry of a handle
	At   time.Time
	Step inventory.Step
	// EventID is that of the LCM or inventory event, the zero UUID if none
	// tells of it.
	EventID uuid.UUID
	// Source is the partition of the source record, without the topic's name
	// if that is not known any more; Offset and Time are the record's own.
	Source               inventory.Partition
	Offset               int64
	Time                 time.Time
	CauseID, CauseSource string
	Before, After        string // JSON objects of what changed, "" if nothing visible did
}

const sqlHistory = `
select h.id, h.at, h.step, h.event_id, h.topic_id, coalesce(p.topic, ''), h.partition, h.source_offset, h.source_time,
       h.cause_id, h.cause_source, coalesce(h.before, ''), coalesce(h.after, '')
from ncmp_inventory.history h
left join lateral (select topic from ncmp_inventory.position p where p.topic_id = h.topic_id limit 1) p on true
where h.handle = $1
order by h.id desc limit $2`

// History returns up to limit of the last entries of a handle's history, the
// oldest first. ref is the id of a handle, also of one that is gone, or the
// alternate id of one that is stored.
func (s *Store) History(ctx context.Context, ref string, limit int) ([]Event, error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	list, err := s.history(ctx, ref, limit)
	if err != nil || len(list) > 0 {
		return list, s.classify("reading a history", err)
	}
	var id string
	switch err := s.pool.QueryRow(ctx, sqlOwner, ref).Scan(&id); {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, fmt.Errorf("%w: %q", ErrNoHandle, ref)
	case err != nil:
		return nil, s.classify("finding a CM handle", err)
	}
	list, err = s.history(ctx, id, limit)
	return list, s.classify("reading a history", err)
}

func (s *Store) history(ctx context.Context, id string, limit int) ([]Event, error) {
	rows, err := s.pool.Query(ctx, sqlHistory, id, limit)
	if err != nil {
		return nil, err
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e Event, err error) {
		var event pgtype.UUID
		err = row.Scan(&e.ID, &e.At, &e.Step, &event, &e.Source.TopicID, &e.Source.Topic, &e.Source.Index, &e.Offset, &e.Time,
			&e.CauseID, &e.CauseSource, &e.Before, &e.After)
		e.EventID = event.Bytes
		return e, err
	})
	for i, j := 0, len(list)-1; i < j; i, j = i+1, j-1 {
		list[i], list[j] = list[j], list[i]
	}
	return list, err
}

// sqlPruneHistory looks at the next $2 handles behind $1, one index look-up
// for each, and deletes what is older than $3 or beyond the newest $4 of a
// handle. What there is of a handle is only read if its oldest entry is too
// old.
const sqlPruneHistory = `
with recursive page (handle) as (
    (select handle from ncmp_inventory.history where handle > $1 order by handle limit 1)
    union all
    select (select h.handle from ncmp_inventory.history h where h.handle > p.handle order by h.handle limit 1)
    from page p where p.handle is not null
), handles as materialized (
    select handle from page where handle is not null limit $2
), bounds as materialized (
    select p.handle, greatest(
        (select h.id from ncmp_inventory.history h where h.handle = p.handle order by h.id desc offset $4 limit 1),
        case when (select h.at from ncmp_inventory.history h where h.handle = p.handle order by h.id limit 1) < $3 then
            (select h.id from ncmp_inventory.history h where h.handle = p.handle and h.at < $3 order by h.id desc limit 1)
        end) as id
    from handles p
), gone as (
    delete from ncmp_inventory.history h using bounds b where h.handle = b.handle and h.id <= b.id
    returning 1
)
select coalesce((select max(handle) from handles), ''), (select count(*) from handles), (select count(*) from gone)`

// PruneHistory deletes, of the next handles behind after (at most so many),
// entries older than before and all but the newest keep. last is where the
// next call goes on, "" when there are no more handles. Any number of workers
// may do it at once.
func (s *Store) PruneHistory(ctx context.Context, after string, handles int, before time.Time, keep int) (last string, removed int64, err error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	err = s.repeated(ctx, "pruning the history", func() error {
		var seen int
		err := s.pool.QueryRow(ctx, sqlPruneHistory, after, handles, before, keep).Scan(&last, &seen, &removed)
		if seen < handles {
			last = ""
		}
		return err
	})
	return last, removed, err
}
