package store

import (
	"context"
	"sync/atomic"
)

// notifyChannel wakes the publisher of whichever worker holds the lease.
const notifyChannel = "ncmp_inventory_outbox"

const sqlNotify = `select pg_notify('` + notifyChannel + `', '')`

// notifier folds calls that come while one is under way into one more.
type notifier struct {
	busy, again atomic.Bool
}

// Notify tells the publishers of all workers that messages were committed. It
// stands outside the writing transactions because a NOTIFY inside one takes a
// lock at COMMIT that all lanes would queue for. Calls that come while one is
// under way are folded into one.
func (s *Store) Notify(ctx context.Context) error {
	s.notify.again.Store(true)
	for s.notify.again.Load() && s.notify.busy.CompareAndSwap(false, true) {
		s.notify.again.Store(false)
		err := s.sendNotify(ctx)
		s.notify.busy.Store(false)
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) sendNotify(ctx context.Context) error {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	_, err := s.pool.Exec(ctx, sqlNotify)
	return s.classify("wake the publisher", err)
}
