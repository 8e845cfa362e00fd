package lcm_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
	"ncmp-inventory/lcm"
	"ncmp-inventory/schemas"
)

// goldenRecord is one record that ONAP NCMP published; ids and times are masked.
type goldenRecord struct {
	Case    string
	Step    int
	Key     string
	Headers [][3]string
	Value   json.RawMessage
}

// goldenEvent is the part of its value from which the transition is rebuilt.
type goldenEvent struct {
	Event struct {
		CmHandleID, AlternateID, ModuleSetTag, DataProducerIdentifier string
		OldValues, NewValues                                          map[string]json.RawMessage
	}
	EventType string
}

var (
	goldenID   = uuid.MustParse("5bc49a2d-2c50-53f4-bb06-45a672db732b")
	goldenTime = time.Date(2026, 2, 3, 4, 5, 6, 7e6, time.UTC)
)

func readGolden(t *testing.T, file string) []goldenRecord {
	t.Helper()
	f, err := os.Open("testdata/golden/" + file)
	require.NoError(t, err)
	defer f.Close()
	var out []goldenRecord
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := bytes.ReplaceAll(lines.Bytes(), []byte("<uuid>"), []byte(goldenID.String()))
		line = bytes.ReplaceAll(line, []byte("<time>"), []byte("2026-02-03T04:05:06.007+0000"))
		var r goldenRecord
		require.NoError(t, json.Unmarshal(line, &r))
		out = append(out, r)
	}
	require.NoError(t, lines.Err())
	require.NotEmpty(t, out)
	return out
}

var attrNames = map[string]inventory.Attr{
	"cmHandleState": inventory.AttrState, "dataSyncEnabled": inventory.AttrDataSync,
	"alternateId": inventory.AttrAlternateID, "moduleSetTag": inventory.AttrModuleSetTag,
	"dataProducerIdentifier": inventory.AttrDataProducerID, "cmHandleProperties": inventory.AttrPublic,
}

// transitionOf rebuilds the fact from the record that tells it.
func transitionOf(t *testing.T, r *goldenRecord) *inventory.Transition {
	t.Helper()
	var g goldenEvent
	require.NoError(t, json.Unmarshal(r.Value, &g))
	tr := &inventory.Transition{EventID: goldenID, ID: g.Event.CmHandleID, At: goldenTime}
	top := inventory.Values{
		AlternateID: g.Event.AlternateID, ModuleSetTag: g.Event.ModuleSetTag,
		DataProducerID: g.Event.DataProducerIdentifier,
	}
	tr.Old, tr.New = top, top
	switch g.EventType {
	case "org.onap.ncmp.cmhandle-lcm-event.create":
		tr.Kind = inventory.Created
	case "org.onap.ncmp.cmhandle-lcm-event.update":
		tr.Kind = inventory.Updated
	case "org.onap.ncmp.cmhandle-lcm-event.delete":
		tr.Kind = inventory.Removed
	default:
		t.Fatalf("unknown type %q", g.EventType)
	}
	for side, from := range map[*inventory.Values]map[string]json.RawMessage{&tr.Old: g.Event.OldValues, &tr.New: g.Event.NewValues} {
		for name, raw := range from {
			require.Contains(t, attrNames, name)
			tr.Changed |= attrNames[name]
			set(t, side, name, raw)
		}
	}
	if tr.Kind == inventory.Updated && tr.Changed == 0 && g.Event.NewValues != nil {
		tr.Changed = inventory.AttrDataProducerID // v1 has no place for it
	}
	return tr
}

func set(t *testing.T, v *inventory.Values, name string, raw json.RawMessage) {
	t.Helper()
	switch name {
	case "dataSyncEnabled":
		var b *bool
		require.NoError(t, json.Unmarshal(raw, &b))
		if b != nil {
			v.DataSync = inventory.TriOf(*b)
		}
	case "cmHandleProperties":
		var m map[string]string
		if raw[0] == '[' {
			var list []map[string]string
			require.NoError(t, json.Unmarshal(raw, &list))
			require.Len(t, list, 1)
			m = list[0]
		} else {
			require.NoError(t, json.Unmarshal(raw, &m))
		}
		v.Public = properties(m)
	default:
		var s string
		require.NoError(t, json.Unmarshal(raw, &s))
		switch name {
		case "cmHandleState":
			v.State = inventory.State(s)
		case "alternateId":
			v.AlternateID = s
		case "moduleSetTag":
			v.ModuleSetTag = s
		case "dataProducerIdentifier":
			v.DataProducerID = s
		}
	}
}

// sortedProperties puts the members of property maps in order: NCMP's is that
// of a hash table, ours is by name. The order of all others is compared.
func sortedProperties(t *testing.T, value json.RawMessage) []byte {
	t.Helper()
	var g goldenEvent
	require.NoError(t, json.Unmarshal(value, &g))
	out := bytes.Clone(value)
	for _, values := range []map[string]json.RawMessage{g.Event.OldValues, g.Event.NewValues} {
		if raw, ok := values["cmHandleProperties"]; ok {
			sorted := jsontext.Value(bytes.Clone(raw))
			require.NoError(t, sorted.Canonicalize())
			out = bytes.Replace(out, raw, sorted, 1)
		}
	}
	return out
}

// Every LCM event that NCMP published comes out of our encoder byte for byte,
// and its headers in NCMP's order and form.
func TestGoldenEventsAreReproduced(t *testing.T) {
	t.Parallel()
	for file, version := range map[string]lcm.Version{
		"quiet-v1.jsonl": lcm.V1, "sync-v1.jsonl": lcm.V1, "sync-v2.jsonl": lcm.V2,
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			java := encoder(t, lcm.Config{Version: version, LegacyHeaders: lcm.LegacyJava})
			plain := encoder(t, lcm.Config{Version: version})
			none := encoder(t, lcm.Config{Version: version, LegacyHeaders: lcm.LegacyNone})
			for _, r := range readGolden(t, file) {
				tr := transitionOf(t, &r)
				m := java.LCMEvent(tr)
				require.Equal(t, r.Key, string(m.Key), r.Case)
				require.Equal(t, string(sortedProperties(t, r.Value)), string(m.Value), "%s step %d", r.Case, r.Step)

				require.NoError(t, schemas.Validate("lcm-event."+string(version), m.Value))
				var asJava, asText []inventory.Header
				for _, h := range r.Headers {
					if h[1] == "java-string" {
						asJava = append(asJava, inventory.Header{Key: h[0], Value: javaString(h[2])})
						asText = append(asText, inventory.Header{Key: h[0], Value: []byte(h[2])})
					} else {
						asJava = append(asJava, inventory.Header{Key: h[0], Value: []byte(h[2])})
					}
				}
				require.Equal(t, asJava, legacy(parseHeaders(t, m.Headers)), r.Case)

				p := plain.LCMEvent(tr)
				require.Equal(t, asText, legacy(parseHeaders(t, p.Headers)), r.Case)
				require.Equal(t, m.Value, p.Value)
				require.Empty(t, legacy(parseHeaders(t, none.LCMEvent(tr).Headers)))
			}
		})
	}
}

// javaString is what ObjectOutputStream writes for short ASCII strings.
func javaString(s string) []byte {
	b := append([]byte("\xac\xed\x00\x05\x74"), byte(len(s)>>8), byte(len(s)))
	return append(b, s...)
}

// legacy leaves out the CloudEvents headers.
func legacy(hs []inventory.Header) (out []inventory.Header) {
	for _, h := range hs {
		if h.Key != "content-type" && !bytes.HasPrefix([]byte(h.Key), []byte("ce_")) {
			out = append(out, h)
		}
	}
	return out
}
