package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"

	"ncmp-inventory/inventory"
)

const (
	// mostReplans bounds how often a lost race for a row is planned again
	// before the data is taken to be at fault.
	mostReplans = 5
	// mostLookUps bounds how often the fate of one COMMIT is asked for before
	// the caller is told to wait; its next try asks again.
	mostLookUps = 3
	// mostNeeds bounds how often alternate ids may turn up that were not
	// locked: each is a change by another writer between two of our looks.
	mostNeeds = 20
	// singleFactor lengthens the time-outs for a record that cannot be split.
	singleFactor = 5
)

var errNoCodec = errors.New("the store was opened without the inventory's model")

// Transact applies a batch as inventory.Ledger says: position, locks, reads,
// plan and writes in one transaction of three round trips. Deadlocks are tried
// again without end, lost races for a key up to five times. A COMMIT whose
// answer was lost is settled by the position: the next try finds it moved.
func (s *Store) Transact(ctx context.Context, b *inventory.Batch, need inventory.Need, decide func(*inventory.Snapshot) (*inventory.Plan, error)) (inventory.Receipt, error) {
	return s.transact(ctx, b, need, decide, forGood)
}

// Trial does the same and rolls back.
func (s *Store) Trial(ctx context.Context, b *inventory.Batch, need inventory.Need, decide func(*inventory.Snapshot) (*inventory.Plan, error)) error {
	_, err := s.transact(ctx, b, need, decide, forTrial)
	return err
}

// Rehearse is Trial for a batch that stands in no partition: it shows what the
// batch would do to what is stored now. Handles are locked for that moment.
func (s *Store) Rehearse(ctx context.Context, b *inventory.Batch, need inventory.Need, decide func(*inventory.Snapshot) (*inventory.Plan, error)) error {
	_, err := s.transact(ctx, b, need, decide, forRehearsal)
	return err
}

// purpose says what becomes of a transaction.
type purpose uint8

const (
	forGood      purpose = iota
	forTrial             // rolled back
	forRehearsal         // rolled back, and without a position
)

func (s *Store) transact(ctx context.Context, b *inventory.Batch, need inventory.Need, decide func(*inventory.Snapshot) (*inventory.Plan, error), why purpose) (inventory.Receipt, error) {
	if s.leaves == nil {
		return inventory.Receipt{}, errNoCodec
	}
	op := fmt.Sprintf("apply %s/%d [%d,%d)", b.Topic, b.Index, b.First, b.Next)
	keys := keySet{keys: need.Keys, owners: need.Owners}
	unknown := 0  // attempts whose COMMIT got no answer
	messages := 0 // of the plan that such an attempt wrote
	var replans, needs int
	for {
		t := newTransaction(s, b, &need, decide, why)
		rc, err := t.run(ctx, keys)
		var extra *needError
		switch {
		case err == nil && why != forGood:
			return rc, nil
		case err == nil:
			return s.committed(ctx, op, rc, max(messages, t.messages))
		case t.unknown:
			s.metrics.retries.WithLabelValues(retryUnknown).Inc()
			s.log.Warn("the answer to a COMMIT was lost; the position will tell", zap.String("batch", op), zap.Error(err))
			messages = max(messages, t.messages)
			if unknown++; unknown > mostLookUps {
				return rc, s.classify(op, fmt.Errorf("%w: the answer to COMMIT was lost: %w", inventory.ErrTransient, err))
			}
			if err := pause(ctx, 100*time.Millisecond); err != nil {
				return rc, s.classify(op, err)
			}
			continue
		case errors.As(err, &extra):
			s.metrics.retries.WithLabelValues(retryNeed).Inc()
			if needs++; needs > mostNeeds {
				return rc, fmt.Errorf("%s: %w: alternate ids keep changing under the batch", op, inventory.ErrTransient)
			}
			keys.add(extra.claims)
			continue
		case errors.Is(err, inventory.ErrFenced), errors.Is(err, inventory.ErrRewound):
			return rc, fmt.Errorf("%s: %w", op, err)
		case t.decideFailed:
			return rc, fmt.Errorf("%s: %w", op, err)
		}
		class := s.classOf(err)
		switch class {
		case classRetry:
			s.metrics.retries.WithLabelValues(class.String()).Inc()
			if err := pause(ctx, 10*time.Millisecond); err != nil {
				return rc, s.classify(op, err)
			}
			continue
		case classReplan:
			s.metrics.retries.WithLabelValues(class.String()).Inc()
			// A database that went back hands out fragment ids again.
			s.ids.drop()
			if replans++; replans <= mostReplans {
				continue
			}
		case classSwitch:
			s.ids.drop()
			s.pool.Reset()
		case classWait, classContext:
			s.metrics.retries.WithLabelValues(classWait.String()).Inc()
			s.ids.drop()
		}
		return rc, s.classify(op, err)
	}
}

// committed finishes what follows a COMMIT.
func (s *Store) committed(ctx context.Context, op string, rc inventory.Receipt, messages int) (inventory.Receipt, error) {
	if rc.AlreadyApplied {
		// What is visible need not be durable yet: the earlier COMMIT may
		// still wait for a standby. A later commit that is confirmed
		// confirms it.
		if err := s.CanaryWrite(ctx); err != nil {
			return rc, fmt.Errorf("%s: confirm an earlier commit: %w", op, err)
		}
		messages = max(messages, 1)
	}
	if messages > 0 && s.cfg.OnCommit != nil {
		s.cfg.OnCommit(messages)
	}
	s.analyzeOnce(ctx, rc.Fragments)
	return rc, nil
}

// pause waits for up to d, at random.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(rand.N(d))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

const sqlAnalyze = `analyze fragment, ncmp_inventory.reference`

// analyzeOnce takes statistics as soon as a fresh table holds a few hundred
// handles. Plans that the server made for an empty table read all of it, and
// stay until statistics come; left alone that can be a minute of full speed
// lost. A role that does not own the table is passed over with a warning.
func (s *Store) analyzeOnce(ctx context.Context, rows int) {
	if s.unplanned.Load() <= 0 || rows == 0 || s.unplanned.Add(-int64(rows)) > 0 {
		return
	}
	s.unplanned.Store(0)
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	if _, err := s.pool.Exec(ctx, sqlAnalyze); err != nil {
		s.log.Warn("cannot take statistics of the data-node table", zap.Error(s.classify("analyze", err)))
	}
}

const sqlCanary = `
insert into ncmp_inventory.canary (written) values (clock_timestamp())
on conflict (singleton) do update set written = excluded.written`

// CanaryWrite makes a small harmless write durable.
func (s *Store) CanaryWrite(ctx context.Context) error {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return s.classify("canary write", err)
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, sqlCanary); err != nil {
		return s.classify("canary write", err)
	}
	return s.classify("canary write", confirmSync(conn.Conn()))
}
