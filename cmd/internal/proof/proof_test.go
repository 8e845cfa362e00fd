package proof_test

import (
	"fmt"
	"iter"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"ncmp-inventory/cmd/internal/proof"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// record is an LCM event of handle lab-17 in version 1, written by hand.
func record(id string, sequence int, kind, values string) *proof.Record {
	if values != "" {
		values = "," + values
	}
	return &proof.Record{
		Key: []byte("lab-17"),
		Value: fmt.Appendf(nil, `{"event":{"cmHandleId":"lab-17","alternateId":""%s},"eventCorrelationId":"lab-17",`+
			`"eventId":"%s","eventType":"org.onap.ncmp.cmhandle-lcm-event.%s"}`, values, id, kind),
		Headers: maps.All(map[string][]byte{
			"ce_id":       []byte(id),
			"ce_type":     []byte("org.onap.ncmp.cmhandle-lcm-event." + kind),
			"ce_subject":  []byte("lab-17"),
			"ce_sequence": fmt.Appendf(nil, "%019d", sequence),
		}),
	}
}

var (
	created = record("a", 1, "create", `"newValues":{"cmHandleState":"ADVISED"}`)
	ready   = record("b", 2, "update", `"oldValues":{"cmHandleState":"ADVISED"},"newValues":{"cmHandleState":"READY"}`)
	changed = record("c", 3, "update", `"oldValues":{},"newValues":{}`)
	leaving = record("d", 7, "update", `"oldValues":{"cmHandleState":"READY"},"newValues":{"cmHandleState":"DELETING"}`)
	deleted = record("e", 8, "delete", "")

	life = []proof.Fact{
		proof.Created, proof.Transition("ADVISED", "READY"), proof.Changed,
		proof.Transition("READY", "DELETING"), proof.Deleted,
	}
)

func expect(facts ...proof.Fact) iter.Seq2[string, []proof.Fact] {
	return maps.All(map[string][]proof.Fact{"lab-17": facts})
}

func TestWhatIsWrongIsCounted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                                string
		records                             []*proof.Record
		expected                            []proof.Fact
		repeated, lost, doubled, outOfOrder int
	}{
		{name: "a whole life", records: []*proof.Record{created, ready, changed, leaving, deleted}, expected: life},
		{name: "the tail sent again", records: []*proof.Record{created, ready, changed, ready, changed, leaving, deleted}, expected: life, repeated: 2},
		{name: "nothing came", expected: life, lost: 5},
		{name: "one lost in the middle", records: []*proof.Record{created, ready, leaving, deleted}, expected: life, lost: 1},
		{name: "a lost transition breaks the chain too", records: []*proof.Record{created, changed, leaving, deleted}, expected: life, lost: 1, outOfOrder: 1},
		{name: "two swapped", records: []*proof.Record{created, changed, ready}, expected: life[:3], outOfOrder: 3},
		{name: "a fact under two ids", records: []*proof.Record{created, ready, changed, record("x", 4, "update", `"oldValues":{},"newValues":{}`)}, expected: life[:3], doubled: 1},
		{name: "one id with two sequences", records: []*proof.Record{created, record("a", 2, "create", `"newValues":{"cmHandleState":"ADVISED"}`)}, expected: life[:1], doubled: 1},
		{name: "one id with two bodies", records: []*proof.Record{created, record("a", 1, "create", `"newValues":{"cmHandleState":"ADVISED","x":1}`)}, expected: life[:1], doubled: 1},
		{name: "created twice", records: []*proof.Record{created, record("x", 2, "create", `"newValues":{"cmHandleState":"ADVISED"}`)}, expected: life[:1], doubled: 1, outOfOrder: 1},
		{name: "created again after its end", records: []*proof.Record{created, record("d", 2, "delete", ""), record("x", 3, "create", `"newValues":{"cmHandleState":"ADVISED"}`)}, expected: []proof.Fact{proof.Created, proof.Deleted, proof.Created}},
		{name: "the sequence started anew", records: []*proof.Record{created, record("d", 2, "delete", ""), record("x", 1, "create", `"newValues":{"cmHandleState":"ADVISED"}`)}, expected: []proof.Fact{proof.Created, proof.Deleted, proof.Created}, outOfOrder: 1},
		{name: "a handle nobody asked for", records: []*proof.Record{created}, doubled: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := proof.New()
			for _, r := range c.records {
				_, err := p.Observe(r)
				require.NoError(t, err)
			}
			expected := expect(c.expected...)
			if c.expected == nil {
				expected = func(func(string, []proof.Fact) bool) {}
			}
			r := p.Compare(expected)
			require.Equal(t,
				[]int{len(c.records), c.repeated, c.lost, c.doubled, c.outOfOrder},
				[]int{r.Events, r.Repeated, r.Lost, r.Doubled, r.OutOfOrder}, "%q", r.Faults)
			require.Equal(t, r.OK(), len(r.Faults) == 0, "every fault is told: %q", r.Faults)
		})
	}
}

func TestStatesFollowTheEvents(t *testing.T) {
	t.Parallel()
	p := proof.New()
	for i, want := range []map[string]string{
		{"lab-17": "ADVISED"}, {"lab-17": "READY"}, {"lab-17": "READY"}, {"lab-17": "DELETING"}, {},
	} {
		_, err := p.Observe([]*proof.Record{created, ready, changed, leaving, deleted}[i])
		require.NoError(t, err)
		require.Equal(t, want, maps.Collect(p.States()))
	}
}

func TestAForeignRecordIsRefused(t *testing.T) {
	t.Parallel()
	otherKey := *created
	otherKey.Key = []byte("lab-18")
	for name, r := range map[string]*proof.Record{
		"no JSON":        {Key: []byte("x"), Value: []byte("{")},
		"no headers":     {Key: []byte("lab-17"), Value: created.Value, Headers: maps.All(map[string][]byte{})},
		"another key":    &otherKey,
		"no sequence":    record("a", 0, "create", `"newValues":{"cmHandleState":"ADVISED"}`),
		"another type":   record("a", 1, "patch", ""),
		"create unknown": record("a", 1, "create", `"newValues":{"cmHandleState":"READY"}`),
		"odd old values": record("a", 1, "update", `"oldValues":[1]`),
		"odd new values": record("a", 1, "update", `"newValues":7`),
	} {
		_, err := proof.New().Observe(r)
		require.Error(t, err, name)
	}
}
