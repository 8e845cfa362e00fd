package inventory_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
)

// grumpy is a ledger that refuses plans about some handles, as PostgreSQL does
// for values the edge cannot foresee. The real store is tested in its package;
// a refusal of chosen handles is what it cannot show.
type grumpy struct {
	*world
	t         *testing.T
	hates     map[string]bool
	transient int // transactions that fail before one succeeds
	position  int64
	canaries  int
}

func (g *grumpy) decide(need inventory.Need, decide func(*inventory.Snapshot) (*inventory.Plan, error)) (*inventory.Plan, error) {
	p, err := decide(g.snapshot(need))
	if err != nil {
		return nil, err
	}
	for _, c := range p.Changes {
		if c.After != nil && g.hates[c.After.ID] {
			return nil, &inventory.DataError{SQLState: "54000", Op: "insert data nodes"}
		}
	}
	return p, nil
}

func (g *grumpy) Transact(_ context.Context, b *inventory.Batch, need inventory.Need, decide func(*inventory.Snapshot) (*inventory.Plan, error)) (inventory.Receipt, error) {
	require.Equal(g.t, g.position, b.First, "each transaction starts at the stored position")
	p, err := g.decide(need, decide)
	if err != nil {
		return inventory.Receipt{}, err
	}
	if g.transient > 0 {
		g.transient--
		return inventory.Receipt{}, inventory.ErrTransient
	}
	g.keep(g.t, p)
	g.position = b.Next
	return inventory.Receipt{Next: b.Next, Fragments: 1}, nil
}

func (g *grumpy) Trial(_ context.Context, _ *inventory.Batch, need inventory.Need, decide func(*inventory.Snapshot) (*inventory.Plan, error)) error {
	_, err := g.decide(need, decide)
	return err
}

func (g *grumpy) CanaryWrite(context.Context) error { g.canaries++; return nil }

func batchOf(events ...inventory.Event) *inventory.Batch {
	b := &inventory.Batch{Partition: inventory.Partition{TopicID: [16]byte{1}}}
	for i, e := range events {
		b.Records = append(b.Records, inventory.Record{Offset: int64(i), Events: []inventory.Event{e}})
	}
	b.Next = int64(len(events))
	return b
}

func TestRefusedHandlesCostTheirNeighboursNothing(t *testing.T) {
	g := &grumpy{world: newWorld(), t: t, hates: map[string]bool{"bad": true, "worse": true}}
	r := inventory.NewRegistrar(g, plain{}, inventory.RegistrarConfig{})
	rc, err := r.Apply(t.Context(), batchOf(
		event(create("a", "")),
		event(create("b", ""), create("bad", "/x"), create("c", "/x"), create("worse", "")),
		event(create("d", ""))))
	require.NoError(t, err)
	require.EqualValues(t, 3, rc.Next)
	require.Equal(t, 4, rc.Tally.Succeeded[inventory.OpCreate])
	require.Equal(t, 2, rc.Tally.Rejected[inventory.OpCode{Op: inventory.OpCreate, Code: inventory.CodeUnknownError}])
	require.Len(t, g.handles, 4)
	require.Contains(t, g.take(), ": e succeeded 2; create bad 108 refused by PostgreSQL (SQLSTATE 54000); create worse 108 refused by PostgreSQL (SQLSTATE 54000)")
	require.Positive(t, g.canaries)
}

func TestOutageWhileSplittingGoesOnWhereItStopped(t *testing.T) {
	g := &grumpy{world: newWorld(), t: t, hates: map[string]bool{"bad": true}}
	r := inventory.NewRegistrar(g, plain{}, inventory.RegistrarConfig{})
	b := batchOf(event(create("a", "")), event(create("b", "")), event(create("c", "")), event(create("bad", "")), event(create("d", "")))
	for tries := 0; ; tries++ {
		require.Less(t, tries, 50)
		g.transient = 1 // every second transaction fails
		_, err := r.Apply(t.Context(), b)
		if err == nil {
			break
		}
		require.ErrorIs(t, err, inventory.ErrTransient)
		require.NotErrorIs(t, err, inventory.ErrData)
		g.transient = 0
		if _, err := r.Apply(t.Context(), b); err == nil {
			break
		}
	}
	require.Len(t, g.handles, 4)
	require.EqualValues(t, 5, g.position)
}

func TestDeadRunOfTheFirstHalf(t *testing.T) {
	dead := &inventory.DeadLetter{Reason: "bad-json"}
	var seen []int
	g := &grumpy{world: newWorld(), t: t, hates: map[string]bool{"bad": true}}
	l := &watch{grumpy: g, seen: &seen}
	b := batchOf(event(), event(), event(), event(create("bad", "")))
	for i := range 3 {
		b.Records[i].Dead = dead
	}
	b.DeadRunBefore = 5
	_, err := inventory.NewRegistrar(l, plain{}, inventory.RegistrarConfig{}).Apply(t.Context(), b)
	require.NoError(t, err)
	require.Equal(t, []int{7, 8, 0}, seen)
}

type watch struct {
	*grumpy
	seen *[]int
}

func (w *watch) Transact(ctx context.Context, b *inventory.Batch, need inventory.Need, decide func(*inventory.Snapshot) (*inventory.Plan, error)) (inventory.Receipt, error) {
	rc, err := w.grumpy.Transact(ctx, b, need, decide)
	if err == nil {
		*w.seen = append(*w.seen, b.DeadRun)
	}
	return rc, err
}

// stubborn is a ledger that takes a record only as a dead letter.
type stubborn struct {
	*grumpy
	canary error
}

func (s *stubborn) refuses(b *inventory.Batch) bool {
	for i := range b.Records {
		if r := &b.Records[i]; r.Dead == nil && r.Events[0].Source == "/refused" {
			return true
		}
	}
	return false
}

func (s *stubborn) Transact(ctx context.Context, b *inventory.Batch, need inventory.Need, decide func(*inventory.Snapshot) (*inventory.Plan, error)) (inventory.Receipt, error) {
	if s.refuses(b) {
		return inventory.Receipt{}, &inventory.DataError{SQLState: "XX000", Op: "write"}
	}
	return s.grumpy.Transact(ctx, b, need, decide)
}

func (s *stubborn) CanaryWrite(ctx context.Context) error {
	_ = s.grumpy.CanaryWrite(ctx)
	return s.canary
}

// A record that is refused whatever is left out of it is set aside, and each
// of its events is told; but not before a harmless write has shown that the
// database takes anything at all.
func TestRecordThatIsRefusedWhole(t *testing.T) {
	refused := event(create("x", ""))
	refused.Source = "/refused"
	batch := func() *inventory.Batch {
		b := batchOf(event(create("a", "")), refused, event(create("b", "")))
		second := refused
		second.ID, second.Element = "second", 1
		b.Records[1].Events = append(b.Records[1].Events, second)
		return b
	}
	s := &stubborn{grumpy: &grumpy{world: newWorld(), t: t}, canary: inventory.ErrTransient}
	r := inventory.NewRegistrar(s, plain{}, inventory.RegistrarConfig{})
	b := batch()
	for range 3 {
		_, err := r.Apply(t.Context(), b)
		require.ErrorIs(t, err, inventory.ErrTransient)
	}
	require.Len(t, s.handles, 1, "what stands before it is stored")
	s.canary = nil
	_, err := r.Apply(t.Context(), b)
	require.NoError(t, err)
	require.Len(t, s.handles, 2)
	require.Equal(t, []string{
		"a: create ADVISED,sync=0,alt=,tag=,producer=,public=[] [||]", ": refused-by-database",
		": e succeeded 0; dead refused-by-database", ": second succeeded 0; dead refused-by-database",
		"b: create ADVISED,sync=0,alt=,tag=,producer=,public=[] [||]",
	}, s.take())
	require.EqualValues(t, 3, s.position)
}
