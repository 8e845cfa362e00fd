package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// maxTrials bounds the transactions spent on finding which handles of one
// record PostgreSQL refuses. With a record of 100,000 handles one culprit
// takes about 20; beyond the bound the whole record is set aside.
const maxTrials = 256

// RegistrarConfig is what a Registrar needs besides its ports.
type RegistrarConfig struct {
	PlannerConfig
	// Now is the clock of events and last-update times; nil is time.Now.
	Now func() time.Time
}

// Registrar applies batches: it plans them on what the ledger shows and makes
// the plan durable. When PostgreSQL refuses the data itself it finds the record,
// and within it the handles, to blame, so that their neighbours are stored. It
// is safe for concurrent use.
type Registrar struct {
	ledger Ledger
	enc    Encoder
	cfg    RegistrarConfig
}

// NewRegistrar starts nothing.
func NewRegistrar(l Ledger, enc Encoder, cfg RegistrarConfig) *Registrar {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Registrar{ledger: l, enc: enc, cfg: cfg}
}

// Apply makes b durable as one transaction, or as several when PostgreSQL
// refuses it whole. On an error b holds what is left to apply: calling Apply
// again with the same batch goes on from there. Errors are of the ledger's
// classes, never ErrData.
func (r *Registrar) Apply(ctx context.Context, b *Batch) (Receipt, error) {
	rc, err := r.transact(ctx, b, nil)
	if err == nil || !errors.Is(err, ErrData) {
		return rc, err
	}
	if len(b.Records) > 1 {
		return r.halve(ctx, b)
	}
	return r.isolate(ctx, b, err)
}

func (r *Registrar) transact(ctx context.Context, b *Batch, refused map[string]*Rejection) (Receipt, error) {
	var (
		tally   Tally
		planned time.Duration
	)
	rc, err := r.ledger.Transact(ctx, b, NeedOf(b), func(s *Snapshot) (*Plan, error) {
		start := time.Now()
		p := PlanBatch(b, s, r.cfg.Now(), r.cfg.PlannerConfig, r.enc, refused)
		tally, planned = p.Tally, time.Since(start)
		return p, nil
	})
	if err == nil && !rc.AlreadyApplied {
		rc.Tally, rc.Plan = tally, planned
	}
	return rc, err
}

// halve applies the two halves of a batch one after the other. The first
// half's success is kept in b, so that a retry after an outage in the second
// half does not start before the stored position.
func (r *Registrar) halve(ctx context.Context, b *Batch) (Receipt, error) {
	mid := len(b.Records) / 2
	first := *b
	first.Records, first.Next = b.Records[:mid], b.Records[mid].Offset
	first.LeaderEpoch = first.Records[mid-1].LeaderEpoch
	first.DeadRun = b.deadRunAt(mid)
	a, err := r.Apply(ctx, &first)
	if err != nil {
		b.Records = slices.Concat(first.Records, b.Records[mid:])
		b.First, b.DeadRunBefore = first.First, first.DeadRunBefore
		return a, err
	}
	b.Records, b.First, b.DeadRunBefore = b.Records[mid:], first.Next, first.DeadRun
	c, err := r.Apply(ctx, b)
	a.add(c)
	return a, err
}

// deadRunAt is the number of dead letters in a row that end before record n.
func (b *Batch) deadRunAt(n int) int {
	for i := n - 1; i >= 0; i-- {
		if b.Records[i].Dead == nil {
			return n - 1 - i
		}
	}
	return b.DeadRunBefore + n
}

// ReasonRefused is why a record that PostgreSQL refuses, even without any handle
// in it, becomes a dead letter.
const ReasonRefused = "refused-by-database"

// isolate finds the handles of a single record that PostgreSQL refuses, by
// trial transactions, and stores the rest. A record that is refused even
// without any handle is a dead letter; but only after it failed twice and a
// harmless write went through in between, for a database in trouble can answer
// with a data error as well.
func (r *Registrar) isolate(ctx context.Context, b *Batch, cause error) (Receipt, error) {
	if err := r.ledger.CanaryWrite(ctx); err != nil {
		return Receipt{}, fmt.Errorf("canary write: %w", err)
	}
	if len(b.Records) == 0 {
		return Receipt{}, fmt.Errorf("%w: an empty batch was refused: %w", ErrTransient, cause)
	}
	rejection := refusal(cause)
	ids := handlesOf(&b.Records[0])
	s := search{r: r, b: b, rejection: rejection, trials: maxTrials}
	bad, err := s.find(ctx, ids)
	if err != nil {
		return Receipt{}, err
	}
	rc, err := r.transact(ctx, b, bad)
	if err == nil || !errors.Is(err, ErrData) {
		return rc, err
	}
	b.Records[0].setAside(ReasonRefused, rejection.Text)
	rc, err = r.transact(ctx, b, nil)
	if errors.Is(err, ErrData) {
		err = fmt.Errorf("%w: a dead letter was refused: %w", ErrTransient, err)
	}
	return rc, err
}

// setAside turns a decoded record into a dead letter.
func (r *Record) setAside(reason, text string) {
	r.Dead = &DeadLetter{Reason: reason, Text: text, Byte: -1, Attempts: 2}
	for i := range r.Events {
		r.Events[i].Items = nil
	}
}

// search bisects the handles of a record.
type search struct {
	r         *Registrar
	b         *Batch
	rejection *Rejection
	all       []string
	trials    int
}

func (s *search) find(ctx context.Context, ids []string) (map[string]*Rejection, error) {
	s.all = ids
	bad := map[string]*Rejection{}
	return bad, s.among(ctx, ids, bad)
}

func (s *search) among(ctx context.Context, ids []string, bad map[string]*Rejection) error {
	if len(ids) == 0 || s.trials == 0 {
		return nil
	}
	s.trials--
	refused := make(map[string]*Rejection, len(s.all))
	for _, id := range s.all {
		refused[id] = s.rejection
	}
	for _, id := range ids {
		delete(refused, id)
	}
	err := s.r.ledger.Trial(ctx, s.b, NeedOf(s.b), func(snap *Snapshot) (*Plan, error) {
		return PlanBatch(s.b, snap, s.r.cfg.Now(), s.r.cfg.PlannerConfig, s.r.enc, refused), nil
	})
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, ErrData):
		return err
	case len(ids) == 1:
		bad[ids[0]] = refusal(err)
		return nil
	}
	mid := len(ids) / 2
	if err := s.among(ctx, ids[:mid], bad); err != nil {
		return err
	}
	return s.among(ctx, ids[mid:], bad)
}

func refusal(cause error) *Rejection {
	rej := &Rejection{Code: CodeUnknownError, Text: "refused by PostgreSQL"}
	var de *DataError
	if errors.As(cause, &de) {
		rej.Text = fmt.Sprintf("refused by PostgreSQL (SQLSTATE %s)", de.SQLState)
	}
	return rej
}

func handlesOf(r *Record) []string {
	var ids []string
	for i := range r.Events {
		for j := range r.Events[i].Items {
			if it := &r.Events[i].Items[j]; it.Reject == nil {
				ids = append(ids, it.ID)
			}
		}
	}
	return sorted(ids)
}

// add joins the receipt of a later part of the same batch.
func (rc *Receipt) add(o Receipt) {
	rc.Next = o.Next
	rc.Fragments += o.Fragments
	rc.Read += o.Read
	rc.Plan += o.Plan
	rc.Write += o.Write
	rc.Commit += o.Commit
	rc.Tally.add(o.Tally)
}

func (t *Tally) add(o Tally) {
	t.Succeeded = sum(t.Succeeded, o.Succeeded)
	t.Rejected = sum(t.Rejected, o.Rejected)
	t.Transitions = sum(t.Transitions, o.Transitions)
	t.DeadLetters = sum(t.DeadLetters, o.DeadLetters)
	t.Empty += o.Empty
	t.Unchanged += o.Unchanged
}

func sum[K comparable](a, b map[K]int) map[K]int {
	if a == nil {
		return b
	}
	for k, n := range b {
		a[k] += n
	}
	return a
}
