package consumer

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
)

// seedHeaders writes headers as text for the fuzzer: name, NUL, value, NUL, …
func seedHeaders(hs []inventory.Header) []byte {
	var b []byte
	for _, h := range hs {
		b = append(append(append(append(b, h.Key...), 0), h.Value...), 0)
	}
	return b
}

func fuzzHeaders(text []byte) []inventory.Header {
	parts := strings.Split(string(text), "\x00")
	var hs []inventory.Header
	for i := 0; i+1 < len(parts) && len(hs) < 64; i += 2 {
		hs = append(hs, inventory.Header{Key: parts[i], Value: []byte(parts[i+1])})
	}
	return hs
}

// requireSound holds of every decoded record, whatever its bytes.
func requireSound(t *testing.T, r *inventory.Record) {
	if r.Empty {
		require.Empty(t, r.Value)
		require.Nil(t, r.Events)
		return
	}
	requireText := func(texts ...string) {
		for _, s := range texts {
			require.True(t, utf8.ValidString(s) && strings.IndexByte(s, 0) < 0, "%q", s)
		}
	}
	if r.Dead != nil {
		require.Contains(t, DecodeReasons, r.Dead.Reason)
		requireText(r.Dead.Text, r.Dead.Field)
		require.LessOrEqual(t, r.Dead.Byte, int64(len(r.Value)))
		require.GreaterOrEqual(t, r.Dead.Byte, int64(-1))
		require.LessOrEqual(t, len(r.Events), 1)
	} else {
		require.NotEmpty(t, r.Events)
	}
	for i, e := range r.Events {
		requireText(e.ID, e.Source, e.Type, e.Subject, e.CorrelationID, e.TraceParent, e.TraceState)
		require.NotEmpty(t, e.ID)
		if r.Dead != nil {
			require.Empty(t, e.Items)
			continue
		}
		require.Equal(t, int32(i), e.Element)
		require.NotEmpty(t, e.Source)
		require.NotEmpty(t, e.Type)
		requireSoundItems(t, e.Items, requireText)
	}
}

func requireSoundItems(t *testing.T, items []inventory.Item, requireText func(...string)) {
	next := map[inventory.Op]int32{}
	last := inventory.Op(0)
	for _, it := range items {
		require.GreaterOrEqual(t, it.Op, last, "operations apply in order")
		last = it.Op
		require.Equal(t, next[it.Op], it.Index)
		next[it.Op]++
		requireText(it.ID, it.Tag, it.Fallback)
		if it.Reject != nil {
			requireText(it.Reject.Text, it.Reject.Details)
			require.NotEmpty(t, it.Reject.Code)
			require.LessOrEqual(t, len(it.Reject.Text)+len(it.Reject.Details), 2048)
			continue
		}
		require.NotEmpty(t, it.ID)
		require.LessOrEqual(t, handleXPathLen(it.ID), maxXPath)
		require.Equal(t, it.Op == inventory.OpState, it.State != nil)
		require.Equal(t, it.Op == inventory.OpCreate || it.Op == inventory.OpUpdate, it.Fields != nil)
		if f := it.Fields; f != nil {
			require.Equal(t, it.Op == inventory.OpCreate, f.DMI != nil)
			requireText(f.AlternateID, f.ModuleSetTag, f.DataProducerID)
			require.Equal(t, trimBlank(f.AlternateID), f.AlternateID)
			for _, props := range [][]inventory.Property{f.Public, f.Private} {
				for i, p := range props {
					requireText(p.Name, p.Value)
					require.True(t, i == 0 || props[i-1].Name < p.Name, "sorted, no duplicates")
					require.False(t, p.Null && it.Op == inventory.OpCreate)
				}
			}
		}
		if c := it.State; c != nil {
			require.True(t, c.To.Known())
		}
	}
}

// decodeTwice decodes a record, checks it, and checks that a second decoding,
// in used scratch space, gives the same.
func decodeTwice(t *testing.T, d *EventDecoder, r *inventory.Record, heartbeats bool) {
	value := slices.Clone(r.Value)
	d.Decode(r, heartbeats)
	require.Equal(t, value, r.Value)
	requireSound(t, r)
	again := inventory.Record{Key: r.Key, Value: r.Value, Headers: r.Headers}
	d.Decode(&again, heartbeats)
	require.Equal(t, see(r), see(&again))
}

func FuzzDecodeRecord(f *testing.F) {
	for _, file := range caseFiles(f) {
		c := readCase(f, file)
		r := c.record(f)
		if len(r.Value) < 4096 {
			f.Add(seedHeaders(r.Headers), r.Key, r.Value, c.Heartbeats)
		}
	}
	d := NewEventDecoder(DecoderConfig{HandlesPerEvent: 50})
	f.Fuzz(func(t *testing.T, headers, key, value []byte, heartbeats bool) {
		r := inventory.Record{Key: key, Value: value, Headers: fuzzHeaders(headers)}
		decodeTwice(t, d, &r, heartbeats)
		requireAgreement(t, d, &r, heartbeats)
	})
}

// fuzzData fuzzes the data of one type, seeded with the cases of that type.
func fuzzData(f *testing.F, typ string, accept func(t *testing.T, value []byte, items []inventory.Item)) {
	for _, file := range caseFiles(f) {
		c := readCase(f, file)
		r := c.record(f)
		isType := c.Type == typ || slices.ContainsFunc(c.Headers, func(h [2]string) bool { return h[1] == typ })
		if isType && len(r.Value) < 4096 {
			f.Add(r.Value)
		}
	}
	d := NewEventDecoder(DecoderConfig{})
	f.Fuzz(func(t *testing.T, value []byte) {
		r := inventory.Record{Value: value, Headers: binaryHeaders(typ, Attributes{ID: "e-1", Source: "s"})}
		decodeTwice(t, d, &r, false)
		if r.Dead == nil {
			// encoding/json is laxer: what is decoded here it accepts, too.
			var object map[string]any
			require.NoError(t, json.Unmarshal(value, &object))
			accept(t, value, r.Events[0].Items)
		}
	})
}

func FuzzRegistration(f *testing.F) {
	fuzzData(f, TypeRegistration, func(t *testing.T, value []byte, items []inventory.Item) {
		// Entry by entry the lists have the lengths that encoding/json sees.
		var lists map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(value, &lists))
		n := 0
		for _, name := range []string{"removedCmHandles", "createdCmHandles", "updatedCmHandles"} {
			var list []json.RawMessage
			if raw, ok := lists[name]; ok {
				require.NoError(t, json.Unmarshal(raw, &list))
			}
			n += len(list)
		}
		if raw, ok := lists["upgradedCmHandles"]; ok {
			var upgrade map[string]json.RawMessage
			require.NoError(t, json.Unmarshal(raw, &upgrade))
			var list []json.RawMessage
			if raw, ok := upgrade["cmHandles"]; ok {
				require.NoError(t, json.Unmarshal(raw, &list))
			}
			n += len(list)
		}
		require.Len(t, items, n)
	})
}

func FuzzStateChange(f *testing.F) {
	d := NewEventDecoder(DecoderConfig{})
	fuzzData(f, TypeStateChange, func(t *testing.T, _ []byte, items []inventory.Item) {
		for _, it := range items {
			if it.Reject != nil {
				continue
			}
			// The encoder is the decoder's inverse.
			out, err := NewStateChangeEvent(Attributes{ID: "e-1", Source: "s"}, StateOf{ID: it.ID, Change: *it.State})
			require.NoError(t, err)
			r := inventory.Record{Value: out.Value, Headers: out.Headers}
			d.Decode(&r, false)
			require.Nil(t, r.Dead)
			require.Equal(t, it.ID, r.Events[0].Items[0].ID)
			require.Equal(t, it.State, r.Events[0].Items[0].State)
		}
	})
}

func FuzzHeartbeat(f *testing.F) {
	fuzzData(f, TypeHeartbeat, func(t *testing.T, _ []byte, items []inventory.Item) {
		require.Len(t, items, 1)
		require.Equal(t, items[0].Reject == nil, items[0].Trust != inventory.TrustUnset)
	})
}
