package lcm

import (
	"slices"
	"sync"

	"go.uber.org/zap"
)

// Status is how publishing goes, for readiness.
type Status struct {
	// Leading says that this worker is the publisher now.
	Leading bool
	// Problems says what is not being published and why, sorted; empty when
	// all is well or another worker publishes.
	Problems []string
}

// Status may be called at any time.
func (r *Relay) Status() Status { return r.board.status() }

// board collects the troubles of a term. Each is logged once when it comes,
// when it turns into another one, and when it is over.
type board struct {
	mu       sync.Mutex
	leading  bool
	troubles map[string]*trouble // by topic, or by what else is missing
}

type trouble struct {
	text  string
	parts map[int]struct{} // partitions in trouble; -1 is the whole
}

func (b *board) lead(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leading, b.troubles = on, nil
}

func (b *board) status() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := Status{Leading: b.leading}
	for what, t := range b.troubles {
		s.Problems = append(s.Problems, what+": "+t.text)
	}
	slices.Sort(s.Problems)
	return s
}

func (b *board) bad(log *zap.Logger, what string, part int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.troubles == nil {
		b.troubles = make(map[string]*trouble)
	}
	t := b.troubles[what]
	if t == nil {
		t = &trouble{parts: make(map[int]struct{})}
		b.troubles[what] = t
	}
	t.parts[part] = struct{}{}
	if text := err.Error(); text != t.text {
		t.text = text
		log.Warn("not published for now; it is tried again until it succeeds",
			zap.String("what", what), zap.Int("partition", part), zap.Error(err))
	}
}

func (b *board) good(log *zap.Logger, what string, part int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.troubles[what]
	if t == nil {
		return
	}
	delete(t.parts, part)
	if len(t.parts) == 0 {
		delete(b.troubles, what)
		log.Info("published again", zap.String("what", what))
	}
}
