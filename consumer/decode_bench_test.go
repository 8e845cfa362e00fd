package consumer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
)

// stateRecord is the most frequent record: one state change in binary mode.
func stateRecord(t testing.TB) inventory.Record {
	out, err := NewStateChangeEvent(Attributes{ID: "0d3a7b9e-6f52-4c1e-9b0a-2f1f5a8f6c11", Source: "/dmi/lab-1", Subject: "lab-17",
		Time: time.Date(2026, 2, 3, 4, 5, 6, 7e6, time.UTC), TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
		StateOf{ID: "lab-17", Change: inventory.StateChange{To: inventory.Ready, ModuleSetTag: inventory.SetText("tagA")}})
	require.NoError(t, err)
	return inventory.Record{Key: out.Key, Headers: out.Headers, Value: out.Value}
}

// registrationBody creates n handles with 7 private and 2 public properties each.
func registrationBody(n int) []byte {
	var b strings.Builder
	b.WriteString(`{"dmiPlugin":"http://dmi.example:8080","createdCmHandles":[`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"cmHandle":"lab-%06d","alternateId":"/SubNetwork=1/ManagedElement=%d","moduleSetTag":"tagA","cmHandleProperties":{`, i, i)
		for j := range 7 {
			if j > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `"private-%d":"value-%d-%d"`, j, i, j)
		}
		b.WriteString(`},"publicCmHandleProperties":{"vendor":"acme","site":"north"}}`)
	}
	b.WriteString("]}")
	return []byte(b.String())
}

func registrationRecord(n int) inventory.Record {
	return inventory.Record{Value: registrationBody(n), Headers: binaryHeaders(TypeRegistration, Attributes{ID: "e-1", Source: "/dmi/lab"})}
}

func TestDecodeAllocations(t *testing.T) {
	// Not parallel: AllocsPerRun forbids it.
	d := NewEventDecoder(DecoderConfig{})
	state, registration := stateRecord(t), registrationRecord(100)
	heartbeat := inventory.Record{Value: []byte(`{"data":{"trustLevel":"NONE"}}`),
		Headers: binaryHeaders(TypeHeartbeat, Attributes{ID: "lab-1", Source: "DMI"})}
	for _, c := range []struct {
		name   string
		record *inventory.Record
		most   float64
	}{
		{"state change: one string, one result", &state, 2},
		{"heartbeat: one string, event, item", &heartbeat, 3},
		{"registration of 100: one string, event, items, fields, properties, DMI names", &registration, 6},
	} {
		// Without the pool, which the race detector empties at random.
		w := new(work)
		w.run(&d.cfg, c.record, false)
		require.Nil(t, c.record.Dead)
		require.LessOrEqual(t, testing.AllocsPerRun(200, func() { w.run(&d.cfg, c.record, false) }), c.most, c.name)
	}
}

func benchmarkDecode(b *testing.B, r inventory.Record, handles int) {
	d := NewEventDecoder(DecoderConfig{})
	b.ReportAllocs()
	b.SetBytes(int64(len(r.Value)))
	for b.Loop() {
		d.Decode(&r, false)
	}
	require.Nil(b, r.Dead)
	b.ReportMetric(float64(b.N*handles)/b.Elapsed().Seconds(), "handles/s")
}

func BenchmarkDecodeState(b *testing.B) { benchmarkDecode(b, stateRecord(b), 1) }

func BenchmarkDecodeStructuredState(b *testing.B) {
	r := stateRecord(b)
	r.Headers = nil
	r.Value = []byte(`{"specversion":"1.0","id":"e-1","source":"/dmi/lab","type":"` + TypeStateChange + `","data":` + string(r.Value) + `}`)
	benchmarkDecode(b, r, 1)
}

func BenchmarkDecodeRegistration(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { benchmarkDecode(b, registrationRecord(n), n) })
	}
}

func BenchmarkEncodeState(b *testing.B) {
	a := Attributes{ID: "0d3a7b9e-6f52-4c1e-9b0a-2f1f5a8f6c11", Source: "/dmi/lab-1"}
	c := StateOf{ID: "lab-17", Change: inventory.StateChange{To: inventory.Ready}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := NewStateChangeEvent(a, c); err != nil {
			b.Fatal(err)
		}
	}
}
