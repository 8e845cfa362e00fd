package store_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
	"ncmp-inventory/store"
	"ncmp-inventory/store/storetest"
)

// codec writes every leaf as a string, but the one boolean of the model. A
// value of "refused" stands for one that the model does not take.
type codec struct{ boolean bool }

func (codec) Leaf(path string) (inventory.Leaf, error) {
	return codec{boolean: path == "/dmi-registry/cm-handles/state/data-sync-enabled"}, nil
}

func (c codec) Append(dst []byte, value string) ([]byte, error) {
	if value == "refused" {
		return dst, fmt.Errorf("no")
	}
	if c.boolean {
		return append(dst, value...), nil
	}
	return jsontext.AppendQuote(dst, value)
}

func withCodec(c *store.Config) { c.Codec = codec{} }

// topic is the input partition that tests apply batches of.
var topic = inventory.Partition{TopicID: [16]byte{1, 2, 3}, Topic: "registrations", Index: 4}

// lane applies batches to one partition, as a consumer's lane does.
type lane struct {
	s     *store.Store
	p     inventory.Partition
	epoch int64
	next  int64
}

func startLane(t testing.TB, s *store.Store, p inventory.Partition) *lane {
	t.Helper()
	c, err := s.Start(t.Context(), p, "cluster", t.Name(), 0)
	require.NoError(t, err)
	return &lane{s: s, p: p, epoch: c.OwnerEpoch, next: c.Next}
}

// batch is the next batch of n records. Their content does not matter to the
// store.
func (l *lane) batch(n int) *inventory.Batch {
	return &inventory.Batch{
		Partition: l.p, First: l.next, Next: l.next + int64(n), OwnerEpoch: l.epoch, LeaderEpoch: 7,
		Records: make([]inventory.Record, n),
	}
}

// apply writes what decide plans.
func (l *lane) apply(t testing.TB, need inventory.Need, decide func(*inventory.Snapshot) *inventory.Plan) inventory.Receipt {
	t.Helper()
	b := l.batch(2)
	rc, err := l.s.Transact(t.Context(), b, need, func(s *inventory.Snapshot) (*inventory.Plan, error) { return decide(s), nil })
	require.NoError(t, err)
	require.Equal(t, b.Next, rc.Next)
	l.next = b.Next
	return rc
}

// begin is apply in the background; the function that it returns waits.
func (l *lane) begin(t testing.TB, need inventory.Need, decide func(*inventory.Snapshot) *inventory.Plan) (wait func() inventory.Receipt) {
	t.Helper()
	b := l.batch(2)
	var rc inventory.Receipt
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		rc, err = l.s.Transact(t.Context(), b, need, func(s *inventory.Snapshot) (*inventory.Plan, error) { return decide(s), nil })
	}()
	return func() inventory.Receipt {
		t.Helper()
		<-done
		require.NoError(t, err)
		require.Equal(t, b.Next, rc.Next)
		l.next = b.Next
		return rc
	}
}

// needOf names handles, and alternate ids as "key=owner". Properties are read.
func needOf(ids []string, alternates ...inventory.Claim) inventory.Need {
	need := inventory.Need{Full: map[string]bool{}}
	owner := map[string]string{}
	for _, id := range ids {
		owner[id] = id
		need.Handles, need.Deep = append(need.Handles, id), append(need.Deep, true)
		need.Full[id] = true
	}
	for _, c := range alternates {
		owner[c.Key] = c.Owner
	}
	for k := range owner {
		need.Keys = append(need.Keys, k)
	}
	slices.Sort(need.Keys)
	for _, k := range need.Keys {
		need.Owners = append(need.Owners, owner[k])
	}
	return need
}

// create stores new handles with the keys they bear.
func (l *lane) create(t testing.TB, hs ...*inventory.Handle) inventory.Receipt {
	t.Helper()
	var ids []string
	var alternates, claims []inventory.Claim
	var changes []inventory.Change
	for _, h := range hs {
		ids = append(ids, h.ID)
		claims = append(claims, inventory.Claim{Key: h.ID, Owner: h.ID})
		if h.AlternateID != "" {
			c := inventory.Claim{Key: h.AlternateID, Owner: h.ID}
			alternates, claims = append(alternates, c), append(claims, c)
		}
		changes = append(changes, inventory.Change{After: h})
	}
	return l.apply(t, needOf(ids, alternates...), func(s *inventory.Snapshot) *inventory.Plan {
		for _, id := range ids {
			require.NotContains(t, s.Handles, id)
		}
		return &inventory.Plan{Changes: changes, Claims: claims}
	})
}

// read is a handle as the next transaction sees it, nil if there is none.
func (l *lane) read(t testing.TB, id string) (stored *inventory.Stored) {
	t.Helper()
	l.apply(t, needOf([]string{id}), func(s *inventory.Snapshot) *inventory.Plan {
		stored = s.Handles[id]
		return &inventory.Plan{}
	})
	return stored
}

// change replaces a handle by what edit makes of a copy.
func (l *lane) change(t testing.TB, id string, edit func(h *inventory.Handle)) inventory.Receipt {
	t.Helper()
	return l.apply(t, needOf([]string{id}), func(s *inventory.Snapshot) *inventory.Plan {
		h := s.Handles[id].Handle
		edit(&h)
		return &inventory.Plan{Changes: []inventory.Change{{Before: s.Handles[id], After: &h}}}
	})
}

// handle is a handle in ADVISED with properties.
func handle(id, alternate string) *inventory.Handle {
	return &inventory.Handle{
		ID: id, AlternateID: alternate, ModuleSetTag: "tag-1",
		DMI:     inventory.DMINames{inventory.SetText("http://dmi:8080"), inventory.SetText("")},
		Public:  []inventory.Property{{Name: "region", Value: "north"}, {Name: "vendor", Value: "acme"}},
		Private: []inventory.Property{{Name: "password", Value: "hush"}},
		State:   inventory.CompositeState{State: inventory.Advised, LastUpdate: "2026-02-03T04:05:06.007+0000"},
	}
}

// under are the rows of one handle, by the rest of their xpath.
func under(t testing.TB, db *storetest.DB, id string) map[string]string {
	t.Helper()
	rows := map[string]string{}
	prefix := "/dmi-registry/cm-handles[@id='" + id + "']"
	for _, r := range db.Rows(t) {
		if len(r.XPath) >= len(prefix) && r.XPath[:len(prefix)] == prefix {
			rows[r.XPath[len(prefix):]] = r.Attributes
			require.Equal(t, "ncmp-dmi-registry", r.Anchor)
		}
	}
	return rows
}

// strings of a column, for looking at the worker's own tables.
func column(t testing.TB, db *storetest.DB, sql string, args ...any) []string {
	t.Helper()
	rows, err := db.Pool(t).Query(t.Context(), sql, args...)
	require.NoError(t, err)
	defer rows.Close()
	list := []string{}
	for rows.Next() {
		var v string
		require.NoError(t, rows.Scan(&v))
		list = append(list, v)
	}
	require.NoError(t, rows.Err())
	return list
}
