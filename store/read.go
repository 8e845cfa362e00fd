package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"ncmp-inventory/inventory"
)

// HandleView is a stored CM handle as people look at it.
type HandleView struct {
	inventory.Handle
	Trust inventory.TrustLevel
}

// ErrNoHandle means that no handle has this id or alternate id.
var ErrNoHandle = errors.New("no such CM handle")

const sqlOwner = `select owner from ncmp_inventory.reference where key = $1`

// GetHandle reads one handle by its id or alternate id, with its private
// properties, which are not for everyone to see. It fails with ErrNoHandle if
// there is none.
func (s *Store) GetHandle(ctx context.Context, ref string) (HandleView, error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	var id string
	err := s.pool.QueryRow(ctx, sqlOwner, ref).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return HandleView{}, fmt.Errorf("%w: %q", ErrNoHandle, ref)
	}
	if err != nil {
		return HandleView{}, s.classify("finding a CM handle", err)
	}
	views, err := s.viewHandles(ctx, []string{id}, Filter{})
	if err != nil {
		return HandleView{}, err
	}
	if len(views) == 0 {
		return HandleView{}, fmt.Errorf("%w: %q", ErrNoHandle, ref)
	}
	return views[0], nil
}

// Filter chooses handles. A zero member chooses all.
type Filter struct {
	DMI   string // any of a handle's five DMI names
	State inventory.State
	Tag   inventory.Text // set and "" chooses handles without a tag
	Trust inventory.TrustLevel
	// Public are properties that a handle must have.
	Public []inventory.Property
	// StuckSince chooses handles that are not READY and have not changed
	// since that time.
	StuckSince time.Time
	// After is an id: the list goes on behind it.
	After string
}

// wants judges by what is known before the properties are read.
func (f *Filter) wants(h *inventory.Handle) bool {
	switch {
	case f.State != "" && h.State.State != f.State,
		f.Tag.Set && h.ModuleSetTag != f.Tag.Value,
		f.DMI != "" && !f.namesDMI(h),
		!f.StuckSince.IsZero() && !stuck(h, f.StuckSince):
		return false
	}
	return true
}

func (f *Filter) namesDMI(h *inventory.Handle) bool {
	for _, d := range h.DMI {
		if d.Set && d.Value == f.DMI {
			return true
		}
	}
	return false
}

// stuck takes a handle whose time cannot be read as stuck: it needs a look.
func stuck(h *inventory.Handle, since time.Time) bool {
	if h.State.State == inventory.Ready {
		return false
	}
	at, ok := inventory.ParseTime(h.State.LastUpdate)
	return !ok || at.Before(since)
}

func (f *Filter) hasPublic(h *inventory.Handle) bool {
	for _, want := range f.Public {
		has := false
		for _, p := range h.Public {
			has = has || (p.Name == want.Name && p.Value == want.Value)
		}
		if !has {
			return false
		}
	}
	return true
}

// listPage is how many handles are read at once.
const listPage = 1000

// A handle's id is a key that it owns itself.
const sqlPage = `
select key from ncmp_inventory.reference
where key > $1 and key = owner
order by key limit $2`

// ListHandles yields the handles that the filter chooses, sorted by id
// bytewise, with their private properties. It holds a page of handles in memory
// and keeps no transaction open between pages: a handle that changes meanwhile
// is seen once, before or after. After an error the sequence ends; it can be
// taken up again behind the last id.
func (s *Store) ListHandles(ctx context.Context, f Filter) iter.Seq2[HandleView, error] {
	return func(yield func(HandleView, error) bool) {
		for {
			ids, err := s.page(ctx, f.After)
			if err != nil {
				yield(HandleView{}, err)
				return
			}
			if len(ids) == 0 {
				return
			}
			views, err := s.viewHandles(ctx, ids, f)
			if err != nil {
				yield(HandleView{}, err)
				return
			}
			for _, v := range views {
				if !yield(v, nil) {
					return
				}
			}
			f.After = ids[len(ids)-1]
		}
	}
}

func (s *Store) page(ctx context.Context, after string) ([]string, error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	rows, err := s.pool.Query(ctx, sqlPage, after, listPage)
	if err != nil {
		return nil, s.classify("listing CM handles", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return ids, s.classify("listing CM handles", err)
}

// viewHandles reads the handles among ids that the filter chooses, in the order
// of ids, all as of one moment. Properties are read only of those that are
// still in question.
func (s *Store) viewHandles(ctx context.Context, ids []string, f Filter) ([]HandleView, error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	var views []HandleView
	opts := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, s.pool, opts, func(tx pgx.Tx) error {
		t := s.reader()
		b := &pgx.Batch{}
		t.queueReadHandles(b, ids, slices.Repeat([]bool{true}, len(ids)))
		t.queueReadTrust(b, ids)
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		var chosen []string
		for _, id := range ids {
			h := t.snap.Handles[id]
			if h != nil && f.wants(&h.Handle) && (f.Trust == inventory.TrustUnset || f.Trust == t.trustOf(id)) {
				chosen = append(chosen, id)
			}
		}
		b = &pgx.Batch{}
		t.queueReadProperties(b, chosen)
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		views = views[:0]
		for _, id := range chosen {
			if h := t.snap.Handles[id]; f.hasPublic(&h.Handle) {
				views = append(views, HandleView{Handle: h.Handle, Trust: t.trustOf(id)})
			}
		}
		return nil
	})
	return views, s.classify("reading CM handles", err)
}

// reader is a transaction as the reading statements see it.
func (s *Store) reader() *transaction {
	return newTransaction(s, nil, &inventory.Need{}, nil, forTrial)
}

func (t *transaction) trustOf(id string) inventory.TrustLevel {
	if level, ok := t.snap.Trust[id]; ok {
		return level
	}
	return inventory.TrustComplete
}

// sqlCountByState needs no look at the handles themselves: a state row is the
// only one of its tree whose xpath ends so, since that of a list element ends
// in a bracket. Times of one form sort as text.
const sqlCountByState = `
select coalesce(attributes ->> 'cm-handle-state', ''), count(*), coalesce(min((attributes ->> 'last-update-time') collate "C"), '')
from fragment where anchor_id = $1 and xpath like '%/state' group by 1`

// StateCount tells of the stored CM handles in one state.
type StateCount struct {
	Handles int64
	// Oldest is when the state was written that stands the longest; zero if
	// that time cannot be read.
	Oldest time.Time
}

// CountByState counts the stored handles by state. It reads one row a handle.
func (s *Store) CountByState(ctx context.Context) (map[inventory.State]StateCount, error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	counts := make(map[inventory.State]StateCount)
	rows, err := s.pool.Query(ctx, sqlCountByState, s.anchor)
	if err != nil {
		return nil, s.classify("counting CM handles", err)
	}
	var state, oldest string
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&state, &n, &oldest}, func() error {
		at, _ := inventory.ParseTime(oldest)
		counts[inventory.State(state)] = StateCount{n, at}
		return nil
	})
	return counts, s.classify("counting CM handles", err)
}
