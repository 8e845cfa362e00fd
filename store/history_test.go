package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
	"ncmp-inventory/store"
	"ncmp-inventory/store/storetest"
)

// keyed is an encoder whose messages hold a key and nothing else.
type keyed struct{}

func (keyed) LCMEvent(t *inventory.Transition) inventory.Message {
	return inventory.Message{Kind: inventory.LCMEvent, Key: []byte(t.ID)}
}
func (keyed) InventoryEvent(c *inventory.TrustChange) inventory.Message {
	return inventory.Message{Kind: inventory.InventoryEvent, Key: []byte(c.ID)}
}
func (keyed) Outcome(*inventory.Outcome) inventory.Message {
	return inventory.Message{Kind: inventory.OutcomeEvent}
}
func (keyed) DeadLetter(*inventory.DeadLetterOf) inventory.Message {
	return inventory.Message{Kind: inventory.DeadLetterRecord}
}

var clock = time.Date(2026, 2, 3, 4, 5, 6, 7e6, time.UTC)

// items applies each item as a record of its own, a second apart, all as one batch.
func (l *lane) items(t testing.TB, items ...inventory.Item) {
	t.Helper()
	b := l.batch(len(items))
	for i := range items {
		b.Records[i] = inventory.Record{
			Offset: b.First + int64(i), LeaderEpoch: 7, Timestamp: clock.Add(time.Duration(b.First+int64(i)) * time.Second),
			Events: []inventory.Event{{ID: fmt.Sprintf("event-%d", b.First+int64(i)), Source: "/test", Items: items[i : i+1]}},
		}
	}
	r := inventory.NewRegistrar(l.s, keyed{}, inventory.RegistrarConfig{
		PlannerConfig: inventory.PlannerConfig{Facts: true}, Now: func() time.Time { return clock },
	})
	_, err := r.Apply(t.Context(), b)
	require.NoError(t, err)
	l.next = b.Next
}

func creation(id string) inventory.Item {
	return inventory.Item{Op: inventory.OpCreate, ID: id, Fields: &inventory.Fields{
		DMI: &inventory.DMINames{}, AlternateID: "/alt/" + id, ModuleSetTag: "t1",
		Public:  []inventory.Property{{Name: "it's", Value: `"quoted"`}},
		Private: []inventory.Property{{Name: "password", Value: "hush"}},
	}}
}

func move(id string, to inventory.State) inventory.Item {
	return inventory.Item{Op: inventory.OpState, ID: id, State: &inventory.StateChange{To: to}}
}

func TestHistoryTellsTheLifeOfAHandle(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	s := db.New(t, withCodec)
	l := startLane(t, s, topic)
	locked := move("a", inventory.Locked)
	locked.State.Lock = &inventory.LockReason{Reason: inventory.SetText("R"), Details: inventory.SetText("why")}
	private := inventory.Item{Op: inventory.OpUpdate, ID: "a", Fields: &inventory.Fields{Private: []inventory.Property{{Name: "password", Value: "hush-hush"}}}}
	public := inventory.Item{Op: inventory.OpUpdate, ID: "a", Fields: &inventory.Fields{Public: []inventory.Property{{Name: "p", Value: "1"}}, DataProducerID: "x"}}
	l.items(t, creation("a"), move("a", inventory.Ready), locked, private)
	l.items(t, public, inventory.Item{Op: inventory.OpHeartbeat, ID: "a", Trust: inventory.TrustNone},
		inventory.Item{Op: inventory.OpRemove, ID: "a"}, inventory.Item{Op: inventory.OpRemove, ID: "b"})

	events, err := s.History(t.Context(), "a", 100)
	require.NoError(t, err)
	type seen struct {
		step          inventory.Step
		offset        int64
		told          bool
		before, after string
	}
	var got []seen
	for i, e := range events {
		if i > 0 {
			require.Greater(t, e.ID, events[i-1].ID)
		}
		require.True(t, clock.Equal(e.At))
		require.True(t, clock.Add(time.Duration(e.Offset)*time.Second).Equal(e.Time), "%s", e.Time)
		require.Equal(t, topic, e.Source)
		require.Equal(t, []string{fmt.Sprintf("event-%d", e.Offset), "/test"}, []string{e.CauseID, e.CauseSource})
		got = append(got, seen{e.Step, e.Offset, e.EventID != uuid.Nil, e.Before, e.After})
	}
	require.Equal(t, []seen{
		{inventory.StepCreate, 0, true, "", `{"cmHandleState":"ADVISED","alternateId":"/alt/a","moduleSetTag":"t1","publicCmHandleProperties":{"it's":"\"quoted\""}}`},
		{inventory.StepState, 1, true, `{"cmHandleState":"ADVISED"}`, `{"cmHandleState":"READY","dataSyncEnabled":false,"syncState":"NONE_REQUESTED"}`},
		{inventory.StepState, 2, true, `{"cmHandleState":"READY","dataSyncEnabled":false,"syncState":"NONE_REQUESTED"}`, `{"cmHandleState":"LOCKED","lockReason":{"reason":"R","details":"why"}}`},
		{inventory.StepUpdate, 3, false, "", ""},
		{inventory.StepUpdate, 4, true, `{"dataProducerIdentifier":"","publicCmHandleProperties":{"it's":"\"quoted\""}}`, `{"dataProducerIdentifier":"x","publicCmHandleProperties":{"it's":"\"quoted\"","p":"1"}}`},
		{inventory.StepTrust, 5, true, `{"trustLevel":"COMPLETE"}`, `{"trustLevel":"NONE"}`},
		{inventory.StepDeleting, 6, true, `{"cmHandleState":"LOCKED"}`, `{"cmHandleState":"DELETING"}`},
		{inventory.StepDelete, 6, true, `{"cmHandleState":"DELETING","alternateId":"/alt/a","moduleSetTag":"t1","dataProducerIdentifier":"x"}`, ""},
	}, got)
	for _, e := range events {
		require.NotContains(t, e.Before+e.After, "hush")
	}

	last, err := s.History(t.Context(), "a", 2)
	require.NoError(t, err)
	require.Equal(t, events[len(events)-2:], last)
	_, err = s.History(t.Context(), "b", 2)
	require.ErrorIs(t, err, store.ErrNoHandle)
	l.items(t, creation("c"))
	byAlternate, err := s.History(t.Context(), "/alt/c", 2)
	require.NoError(t, err)
	require.Len(t, byAlternate, 1)
}

// What is rolled back leaves no history, and a record's impossible time does
// not stop its change.
func TestHistoryIsPartOfTheTransaction(t *testing.T) {
	t.Parallel()
	s := storetest.Open(t).New(t, withCodec)
	l := startLane(t, s, topic)
	plan := func(at time.Time) func(*inventory.Snapshot) (*inventory.Plan, error) {
		return func(*inventory.Snapshot) (*inventory.Plan, error) {
			return &inventory.Plan{Facts: []inventory.Fact{{
				Step: inventory.StepTrust, ID: "a", At: clock, Time: at, Cause: &inventory.Event{ID: "e", Source: "/s"},
			}}}, nil
		}
	}
	require.NoError(t, s.Trial(t.Context(), l.batch(1), needOf([]string{"a"}), plan(clock)))
	_, err := s.History(t.Context(), "a", 1)
	require.ErrorIs(t, err, store.ErrNoHandle)
	for _, at := range []time.Time{time.UnixMilli(-1), time.UnixMilli(1 << 62), {}} {
		b := l.batch(1)
		_, err := s.Transact(t.Context(), b, needOf([]string{"a"}), plan(at))
		require.NoError(t, err)
		l.next = b.Next
	}
	events, err := s.History(t.Context(), "a", 9)
	require.NoError(t, err)
	require.Len(t, events, 3)
	for _, e := range events {
		require.True(t, clock.Equal(e.Time))
	}
}

// A history of thousands goes in several statements, in order.
func TestManyFactsOfOneBatchStayInOrder(t *testing.T) {
	t.Parallel()
	s := storetest.Open(t).New(t, withCodec)
	l := startLane(t, s, topic)
	const n = 5000
	l.apply(t, inventory.Need{}, func(*inventory.Snapshot) *inventory.Plan {
		p := &inventory.Plan{}
		for i := range n {
			p.Facts = append(p.Facts, inventory.Fact{Step: inventory.StepTrust, ID: "a", At: clock, Time: clock, Offset: int64(i), Cause: &inventory.Event{}})
		}
		return p
	})
	events, err := s.History(t.Context(), "a", n)
	require.NoError(t, err)
	require.Len(t, events, n)
	for i, e := range events {
		require.EqualValues(t, i, e.Offset)
	}
}

func TestPruneHistoryKeepsWhatIsYoungAndFew(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	s := db.New(t)
	execute(t, db, `
		insert into ncmp_inventory.history (at, topic_id, partition, handle, step, source_offset, source_time, cause_id, cause_source)
		select now() - (10 - n) * interval '1 day', gen_random_uuid(), 0, 'h' || h, 1, n, now(), '', ''
		from generate_series(1, 7) h, generate_series(1, 10) n where h <> 7 or n = 1 order by n`)
	left := func() []string {
		return column(t, db, `select handle || ' ' || string_agg(source_offset::text, ',' order by id) from ncmp_inventory.history group by handle order by 1`)
	}
	// Two handles a step; 4 days and 4 entries: the age decides for none but h7.
	before := time.Now().Add(-4*24*time.Hour - time.Hour)
	var removed int64
	steps := 0
	for last := ""; steps == 0 || last != ""; steps++ {
		var n int64
		var err error
		last, n, err = s.PruneHistory(t.Context(), last, 2, before, 4)
		require.NoError(t, err)
		removed += n
	}
	require.Equal(t, 4, steps)
	require.EqualValues(t, 6*6+1, removed)
	require.Equal(t, []string{"h1 7,8,9,10", "h2 7,8,9,10", "h3 7,8,9,10", "h4 7,8,9,10", "h5 7,8,9,10", "h6 7,8,9,10"}, left())
	last, n, err := s.PruneHistory(t.Context(), "", 100, time.Now().Add(-25*time.Hour), 4)
	require.NoError(t, err)
	require.Empty(t, last)
	require.EqualValues(t, 2*6, n)
	require.Equal(t, []string{"h1 9,10", "h2 9,10", "h3 9,10", "h4 9,10", "h5 9,10", "h6 9,10"}, left())
}
