package load_test

import (
	"encoding/json"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"ncmp-inventory/cmd/internal/kafkaembed"
	"ncmp-inventory/cmd/internal/load"
	"ncmp-inventory/inventory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newLoad(tb testing.TB, c load.Config) *load.Load {
	tb.Helper()
	l, err := load.New(c)
	require.NoError(tb, err)
	return l
}

// body is what an event says, read back by other means than it was written.
type body struct {
	DMI     string           `json:"dmiPlugin"`
	Created []map[string]any `json:"createdCmHandles"`
	Updated []map[string]any `json:"updatedCmHandles"`
	Removed []string         `json:"removedCmHandles"`
}

func parse(t *testing.T, e load.Event) body {
	t.Helper()
	var b body
	require.NoError(t, json.Unmarshal(e.Data, &b))
	return b
}

func TestARegistrationHasTheShapeOfK6(t *testing.T) {
	t.Parallel()
	l := newLoad(t, load.Config{Handles: 250, Seed: 1})
	events := slices.Collect(l.Registrations())
	require.Len(t, events, 3)
	require.Equal(t, []int{100, 100, 50}, []int{events[0].Handles, events[1].Handles, events[2].Handles})
	require.Equal(t, "http://dmi-2:8080", events[1].Key)

	b := parse(t, events[1])
	require.Equal(t, events[1].Key, b.DMI)
	require.Len(t, b.Created, 100)
	got := b.Created[6]
	segment := got["cmHandleProperties"].(map[string]any)["networkSegment"]
	require.Regexp(t, `^Region=NorthAmerica,Segment=([1-9]|10)$`, segment)
	require.Equal(t, map[string]any{
		"cmHandle": "ch-107",
		"alternateId": "/SubNetwork=Europe/SubNetwork=Ireland/MeContext=MyRadioNode107/" +
			"ManagedElement=MyManagedElement107",
		"moduleSetTag":           "tagB",
		"dataProducerIdentifier": "some-data-producer-id",
		"cmHandleProperties": map[string]any{
			"segmentId": "7", "networkSegment": segment,
			"deviceIdentifier": "Element=RadioBaseStation_5G_1006", "hardwareVersion": "HW-tagB",
			"softwareVersion": "Firmware_tagB", "syncStatus": "ACTIVE", "nodeCategory": "VirtualNode",
		},
		"publicCmHandleProperties": map[string]any{"systemId": "7", "systemName": "ncmp"},
	}, got)
}

func TestEveryHandleIsNamedOnceByEachPhase(t *testing.T) {
	t.Parallel()
	l := newLoad(t, load.Config{Handles: 1234, First: 500, PerEvent: 7, DMIs: 3, Seed: 9, Prefix: "lab-"})
	want := make([]string, l.Handles())
	for i := range want {
		want[i] = "lab-" + strconv.Itoa(501+i)
		require.Equal(t, want[i], l.ID(i))
	}
	ids := map[string]bool{}
	var created, updated, removed, moved []string
	for e := range l.Registrations() {
		require.False(t, ids[e.ID], "event ids are unique")
		ids[e.ID] = true
		for _, h := range parse(t, e).Created {
			require.Equal(t, e.Key, l.DMI(len(created)))
			created = append(created, h["cmHandle"].(string))
		}
	}
	for e := range l.Updates() {
		require.False(t, ids[e.ID])
		for _, h := range parse(t, e).Updated {
			require.Equal(t, e.Key, l.DMI(len(updated)), "one plugin speaks of a handle")
			require.Equal(t, load.UpdatedProducer, h["dataProducerIdentifier"])
			require.Equal(t, map[string]any{"systemName": load.UpdatedSystem}, h["publicCmHandleProperties"])
			updated = append(updated, h["cmHandle"].(string))
		}
	}
	for e := range l.Removals() {
		removed = append(removed, parse(t, e).Removed...)
	}
	for e := range l.StateChanges(inventory.Ready) {
		require.JSONEq(t, `{"cmHandle":"`+e.Key+`","state":{"cmHandleState":"READY"}}`, string(e.Data))
		moved = append(moved, e.Subject)
	}
	require.Equal(t, want, created)
	require.Equal(t, want, updated)
	require.Equal(t, want, removed)
	require.Equal(t, want, moved)
}

func TestTheSeedDecides(t *testing.T) {
	t.Parallel()
	one := newLoad(t, load.Config{Handles: 300, Seed: 1})
	first := slices.Collect(one.Registrations())
	require.Equal(t, first, slices.Collect(one.Registrations()), "a load can be drawn from again")
	require.Equal(t, first, slices.Collect(newLoad(t, load.Config{Handles: 300, Seed: 1}).Registrations()))
	require.NotEqual(t, first, slices.Collect(newLoad(t, load.Config{Handles: 300, Seed: 2}).Registrations()))
}

func TestNegativeNumbersAreRefused(t *testing.T) {
	t.Parallel()
	_, err := load.New(load.Config{Handles: -1})
	require.Error(t, err)
}

func TestSendKeepsTheOrderOfAKey(t *testing.T) {
	t.Parallel()
	b, err := kafkaembed.Start(t.Context(), kafkaembed.Config{DataDir: t.TempDir(), Topics: map[string]int{"in": 1}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	l := newLoad(t, load.Config{Handles: 12_000}) // more than one step of Send
	w := load.Writer(b.Addrs(), "in")
	t.Cleanup(func() { require.NoError(t, load.Close(w)) })
	sent, steps := 0, 0
	require.NoError(t, load.Send(t.Context(), w, l.Registrations(), func(n int) { sent += n; steps++ }))
	require.Equal(t, 12_000, sent)
	require.Equal(t, 2, steps)

	r := kafka.NewReader(kafka.ReaderConfig{Brokers: b.Addrs(), Topic: "in", MaxWait: 100 * time.Millisecond})
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	for e := range l.Registrations() {
		m, err := r.ReadMessage(t.Context())
		require.NoError(t, err)
		want := e.Message()
		require.Equal(t, want.Headers, m.Headers)
		require.Equal(t, want.Key, m.Key)
		require.Equal(t, string(want.Value), string(m.Value))
	}
}

func BenchmarkRegistrations(b *testing.B) {
	l := newLoad(b, load.Config{Handles: 10_000})
	b.ReportAllocs()
	for b.Loop() {
		for range l.Registrations() {
		}
	}
	b.ReportMetric(float64(b.N)*10_000/b.Elapsed().Seconds(), "handles/s")
}
