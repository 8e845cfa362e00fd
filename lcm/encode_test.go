package lcm_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
	"ncmp-inventory/lcm"
	"ncmp-inventory/schemas"
)

func encoder(t testing.TB, cfg lcm.Config) *lcm.Encoder {
	t.Helper()
	e, err := lcm.NewEncoder(cfg)
	require.NoError(t, err)
	return e
}

func properties(m map[string]string) (out []inventory.Property) {
	for _, n := range slices.Sorted(maps.Keys(m)) {
		out = append(out, inventory.Property{Name: n, Value: m[n]})
	}
	return out
}

// parseHeaders reads a header block as a broker or a consumer would.
func parseHeaders(t testing.TB, b []byte) []inventory.Header {
	t.Helper()
	next := func() int {
		v, n := binary.Varint(b)
		require.Positive(t, n)
		b = b[n:]
		return int(v)
	}
	out := make([]inventory.Header, next())
	for i := range out {
		n := next()
		out[i].Key, b = string(b[:n]), b[n:]
		if n = next(); n >= 0 {
			out[i].Value, b = append([]byte{}, b[:n]...), b[n:]
		}
	}
	require.Empty(t, b)
	return out
}

func headerMap(t testing.TB, b []byte) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, h := range parseHeaders(t, b) {
		require.NotContains(t, out, h.Key)
		out[h.Key] = string(h.Value)
	}
	return out
}

func sample() *inventory.Transition {
	return &inventory.Transition{
		EventID: goldenID, Kind: inventory.Updated, ID: "lab-17", Changed: inventory.AttrState | inventory.AttrDataSync,
		Old: inventory.Values{State: inventory.Advised},
		New: inventory.Values{
			State: inventory.Ready, DataSync: inventory.False, AlternateID: "/SubNetwork=Lab/ManagedElement=17",
			ModuleSetTag: "set-a", DataProducerID: "prod-9", Public: properties(map[string]string{"rack": "R4", "site": "west"}),
		},
		At: goldenTime,
		Cause: &inventory.Event{
			ID: "evt-1", Source: "/dmi/lab", CorrelationID: "order-5",
			TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", TraceState: "vendor=1",
		},
	}
}

func TestLCMEventIsACloudEvent(t *testing.T) {
	t.Parallel()
	m := encoder(t, lcm.Config{}).LCMEvent(sample())
	require.Equal(t, inventory.LCMEvent, m.Kind)
	require.Equal(t, map[string]string{
		"ce_specversion":     "1.0",
		"ce_id":              goldenID.String(),
		"ce_source":          "org.onap.ncmp",
		"ce_type":            "org.onap.ncmp.cmhandle-lcm-event.update",
		"ce_time":            "2026-02-03T04:05:06.007Z",
		"ce_subject":         "lab-17",
		"ce_dataschema":      "urn:onap:ncmp:cmhandle-lcm-event:v1",
		"content-type":       "application/json",
		"ce_correlationid":   "order-5",
		"ce_causationid":     "evt-1",
		"ce_causationsource": "/dmi/lab",
		"ce_traceparent":     "00-4bf92f3577b34da6a3ce929d0e0e4736-e0c2df8b5e8b20df-01",
		"ce_tracestate":      "vendor=1",
		"eventId":            goldenID.String(),
		"eventSchema":        "org.onap.ncmp:cmhandle-lcm-event",
		"eventCorrelationId": "lab-17",
		"eventTime":          "2026-02-03T04:05:06.007+0000",
		"eventSource":        "org.onap.ncmp",
		"eventType":          "org.onap.ncmp.cmhandle-lcm-event.update",
		"eventSchemaVersion": "1.0",
	}, headerMap(t, m.Headers))

	bare := sample()
	bare.Cause = &inventory.Event{TraceParent: "garbage", TraceState: "vendor=1"}
	hs := headerMap(t, encoder(t, lcm.Config{Version: lcm.V2}).LCMEvent(bare).Headers)
	require.Equal(t, "lab-17", hs["ce_correlationid"])
	require.Equal(t, "urn:onap:ncmp:cmhandle-lcm-event:v2", hs["ce_dataschema"])
	for _, absent := range []string{"ce_causationid", "ce_causationsource", "ce_traceparent", "ce_tracestate"} {
		require.NotContains(t, hs, absent)
	}
}

func TestTraceParentOfAnotherVersion(t *testing.T) {
	t.Parallel()
	e := encoder(t, lcm.Config{})
	const trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	for in, ok := range map[string]bool{
		"00-" + trace + "-" + parent + "-00":                   true,
		"01-" + trace + "-" + parent + "-01":                   true,
		"01-" + trace + "-" + parent + "-01-more":              true,
		"01-" + trace + "-" + parent + "-01more":               false,
		"00-" + trace + "-" + parent + "-01-more":              false,
		"ff-" + trace + "-" + parent + "-01":                   false,
		"00-" + strings.Repeat("0", 32) + "-" + parent + "-01": false,
		"00-" + trace + "-" + strings.Repeat("0", 16) + "-01":  false,
		"00-" + strings.ToUpper(trace) + "-" + parent + "-01":  false,
		"": false,
	} {
		tr := sample()
		tr.Cause = &inventory.Event{TraceParent: in}
		out, found := headerMap(t, e.LCMEvent(tr).Headers)["ce_traceparent"]
		require.Equal(t, ok, found, in)
		if found {
			require.Equal(t, "00-"+trace+"-", out[:36])
			require.NotContains(t, out, parent)
			require.Equal(t, in[52:55], out[52:])
		}
	}
}

func TestJavaStrings(t *testing.T) {
	t.Parallel()
	e := encoder(t, lcm.Config{LegacyHeaders: lcm.LegacyJava})
	of := func(id string) string {
		tr := sample()
		tr.ID = id
		return headerMap(t, e.LCMEvent(tr).Headers)["eventCorrelationId"]
	}
	require.Equal(t, "\xac\xed\x00\x05\x74\x00\x02\xc0\x80", of("\x00"))
	require.Equal(t, "\xac\xed\x00\x05\x74\x00\x03\xe2\x82\xac", of("€"))
	require.Equal(t, "\xac\xed\x00\x05\x74\x00\x06\xed\xa0\xbd\xed\xb8\x80", of("😀"))
	require.Equal(t, "\xac\xed\x00\x05\x74\xff\xff"+strings.Repeat("x", 65535), of(strings.Repeat("x", 65535)))
	require.Equal(t, "\xac\xed\x00\x05\x7c\x00\x00\x00\x00\x00\x01\x00\x00"+strings.Repeat("x", 65536), of(strings.Repeat("x", 65536)))
}

func TestUpdateShowsWhatChanged(t *testing.T) {
	t.Parallel()
	tr := sample()
	tr.Changed = inventory.AttrPublic | inventory.AttrModuleSetTag
	tr.Old.Public = properties(map[string]string{"a": "tab\there", "b": "bell\x07 \"quoted\" \\ größe 😀"})
	event := func(cfg lcm.Config) string {
		m := encoder(t, cfg).LCMEvent(tr)
		body, _, ok := strings.Cut(string(m.Value), `,"eventCorrelationId"`)
		require.True(t, ok)
		return body
	}
	require.Equal(t, `{"event":{"cmHandleId":"lab-17","alternateId":"/SubNetwork=Lab/ManagedElement=17",`+
		`"moduleSetTag":"set-a","dataProducerIdentifier":"prod-9",`+
		`"oldValues":{"cmHandleProperties":[{"a":"tab\there","b":"bell\u0007 \"quoted\" \\ größe 😀"}]},`+
		`"newValues":{"cmHandleProperties":[{"rack":"R4","site":"west"}]}}`, event(lcm.Config{}))
	require.Equal(t, `{"event":{"cmHandleId":"lab-17","alternateId":"/SubNetwork=Lab/ManagedElement=17",`+
		`"oldValues":{"moduleSetTag":"","cmHandleProperties":{"a":"tab\there","b":"bell\u0007 \"quoted\" \\ größe 😀"}},`+
		`"newValues":{"moduleSetTag":"set-a","cmHandleProperties":{"rack":"R4","site":"west"}}}`, event(lcm.Config{Version: lcm.V2}))

	tr.Changed = 0
	require.NotContains(t, event(lcm.Config{}), "Values")
}

func requireValid(t testing.TB, schema string, m inventory.Message) {
	t.Helper()
	require.NoError(t, schemas.Validate(schema, m.Value))
}

func TestInventoryEvent(t *testing.T) {
	t.Parallel()
	e := encoder(t, lcm.Config{})
	m := e.InventoryEvent(&inventory.TrustChange{
		EventID: goldenID, ID: "lab-17", Old: inventory.TrustComplete, New: inventory.TrustNone, At: goldenTime,
		Cause: &inventory.Event{ID: "lab-17", Source: "DMI"},
	})
	require.Equal(t, inventory.InventoryEvent, m.Kind)
	requireValid(t, schemas.InventoryEvent, m)
	require.Equal(t, "lab-17", string(m.Key))
	require.Equal(t, `{"data":{"attributeValueChange":[{"attributeName":"trustLevel","oldAttributeValue":"COMPLETE","newAttributeValue":"NONE"}]}}`, string(m.Value))
	require.Equal(t, map[string]string{
		"ce_specversion": "1.0", "ce_id": goldenID.String(), "ce_source": "NCMP",
		"ce_type": "org.onap.cps.ncmp.events.avc.ncmp_to_client.AvcEvent", "ce_time": "2026-02-03T04:05:06.007Z",
		"ce_dataschema":    "urn:cps:org.onap.cps.ncmp.events:inventory-event:1.0.0",
		"ce_correlationid": "lab-17", "ce_causationid": "lab-17", "ce_causationsource": "DMI",
		"content-type": "application/json",
	}, headerMap(t, m.Headers))

	m = e.InventoryEvent(&inventory.TrustChange{EventID: goldenID, ID: "lab-17", New: inventory.TrustNone, At: goldenTime})
	require.Equal(t, `{"data":{"attributeValueChange":[{"attributeName":"trustLevel","newAttributeValue":"NONE"}]}}`, string(m.Value))
}

func TestOutcomeFitsItsTopic(t *testing.T) {
	t.Parallel()
	const limit = 5000
	e := encoder(t, lcm.Config{MaxOutcomeBytes: limit})
	o := &inventory.Outcome{
		EventID: goldenID, Source: &inventory.Batch{Partition: inventory.Partition{Topic: "in"}},
		Record: &inventory.Record{Key: []byte("dmi-1")}, Cause: &inventory.Event{ID: "evt-1", Source: "/dmi"}, At: goldenTime, Succeeded: 7,
	}
	for i := range 12_000 {
		o.Failures = append(o.Failures, inventory.Failure{ID: fmt.Sprint("ghost-", i), Op: inventory.OpRemove, Rejection: *inventory.Reject(inventory.CodeNotFound, "")})
	}
	m := e.Outcome(o)
	size := len(m.Key) + len(m.Headers) + len(m.Value)
	require.LessOrEqual(t, size, limit)
	require.Greater(t, size, limit-300)
	requireValid(t, schemas.Outcome, m)
	var body struct {
		Failures        []struct{ CmHandle string }
		More, Succeeded int
	}
	require.NoError(t, json.Unmarshal(m.Value, &body))
	require.Equal(t, len(o.Failures), len(body.Failures)+body.More)
	require.Equal(t, "ghost-0", body.Failures[0].CmHandle)
	require.Equal(t, 7, body.Succeeded)

	// By default it fits a topic with Kafka's own limit.
	m = encoder(t, lcm.Config{}).Outcome(o)
	require.LessOrEqual(t, lcm.SizeOf(&m), lcm.DefaultMaxMessageBytes)
}

func TestOutcome(t *testing.T) {
	t.Parallel()
	e := encoder(t, lcm.Config{})
	source := &inventory.Batch{Partition: inventory.Partition{Topic: "in", Index: 3}}
	rec := &inventory.Record{Offset: 99, Key: []byte("dmi-1")}
	cause := &inventory.Event{ID: "evt-1", Source: "/dmi", Subject: "sub", CorrelationID: "order-5"}
	m := e.Outcome(&inventory.Outcome{
		EventID: goldenID, Source: source, Record: rec, Cause: cause, At: goldenTime, Succeeded: 2,
		Failures: []inventory.Failure{{ID: "a\"b", Op: inventory.OpCreate, Rejection: *inventory.Reject(inventory.CodeExists, "owner c")}},
	})
	require.Equal(t, inventory.OutcomeEvent, m.Kind)
	requireValid(t, schemas.Outcome, m)
	require.Equal(t, "dmi-1", string(m.Key))
	require.Equal(t, `{"source":{"topic":"in","partition":3,"offset":99,"id":"evt-1"},"failures":[{"cmHandle":"a\"b","operation":"create",`+
		`"errorCode":"109","errorText":"cm-handle already exists","details":"owner c"}],"succeeded":2}`, string(m.Value))
	require.Equal(t, map[string]string{
		"ce_specversion": "1.0", "ce_id": goldenID.String(), "ce_source": "org.onap.ncmp",
		"ce_type": "org.onap.ncmp.inventory.outcome.v1", "ce_time": "2026-02-03T04:05:06.007Z", "ce_subject": "sub",
		"ce_correlationid": "order-5", "ce_causationid": "evt-1", "ce_causationsource": "/dmi", "content-type": "application/json",
	}, headerMap(t, m.Headers))

	m = e.Outcome(&inventory.Outcome{
		EventID: goldenID, Source: source, Record: &inventory.Record{Offset: 1}, Cause: cause, At: goldenTime,
		Dead: &inventory.DeadLetter{Reason: "bad-json", Text: "unexpected end", Byte: 4},
	})
	require.Nil(t, m.Key)
	requireValid(t, schemas.Outcome, m)
	require.JSONEq(t, `{"source":{"topic":"in","partition":3,"offset":1,"id":"evt-1"},"failures":[{"cmHandle":"","operation":"",
		"errorCode":"108","errorText":"unexpected end","details":"bad-json"}],"succeeded":0}`, string(m.Value))
}

func TestDeadLetterKeepsTheRecord(t *testing.T) {
	t.Parallel()
	e := encoder(t, lcm.Config{})
	headers := []inventory.Header{
		{Key: "ce_id", Value: []byte("1")}, {Key: "ce_id", Value: []byte("2")},
		{Key: "null"}, {Key: "", Value: []byte{}}, {Key: "raw", Value: []byte{0, 0xff}},
	}
	for len(headers) < 70 { // more than one byte counts
		headers = append(headers, inventory.Header{Key: "many", Value: []byte("x")})
	}
	rec := &inventory.Record{
		Offset: 7, Timestamp: goldenTime, Key: []byte{0xff, 0}, Value: []byte("{\xff"), Headers: headers,
		Dead: &inventory.DeadLetter{Reason: "bad-utf8", Text: "invalid UTF-8", Field: "cmHandle", Byte: 1, Attempts: 1},
	}
	source := &inventory.Batch{Partition: inventory.Partition{Topic: "in", Index: 3, TopicID: goldenID}}
	m := e.DeadLetter(&inventory.DeadLetterOf{Source: source, Record: rec, At: goldenTime})
	require.Equal(t, inventory.DeadLetterRecord, m.Kind)
	require.Equal(t, rec.Key, m.Key)
	require.Equal(t, rec.Value, m.Value)
	added := []inventory.Header{
		{Key: "ncmp_reason", Value: []byte("bad-utf8")}, {Key: "ncmp_text", Value: []byte("invalid UTF-8")},
		{Key: "ncmp_field", Value: []byte("cmHandle")}, {Key: "ncmp_byte", Value: []byte("1")},
		{Key: "ncmp_topic", Value: []byte("in")}, {Key: "ncmp_topic_id", Value: []byte(goldenID.String())},
		{Key: "ncmp_partition", Value: []byte("3")}, {Key: "ncmp_offset", Value: []byte("7")},
		{Key: "ncmp_timestamp", Value: []byte("2026-02-03T04:05:06.007Z")}, {Key: "ncmp_attempts", Value: []byte("1")},
	}
	require.Equal(t, append(headers, added...), parseHeaders(t, m.Headers))

	rec.Key, rec.Value, rec.Headers, rec.Timestamp = nil, nil, nil, time.UnixMilli(1<<52)
	m = e.DeadLetter(&inventory.DeadLetterOf{Source: source, Record: rec, At: goldenTime})
	require.Nil(t, m.Key)
	require.Nil(t, m.Value)
	require.Len(t, parseHeaders(t, m.Headers), len(added))
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	_, err := lcm.NewEncoder(lcm.Config{Version: "v3"})
	require.ErrorContains(t, err, "v3")
	_, err = lcm.NewEncoder(lcm.Config{LegacyHeaders: "xml"})
	require.ErrorContains(t, err, "xml")
}

// FuzzLCMEvent: whatever a handle holds, its event is valid JSON, and says
// what it held where that was text at all.
func FuzzLCMEvent(f *testing.F) {
	f.Add("lab-17", "alt", "tag", "producer", "name", "value", uint8(1), uint8(0xff), true)
	f.Add("\x00\u2028", "\xff", "\"\\/", "\u007f", "", "\t\n\b\f", uint8(0), uint8(0), false)
	f.Fuzz(func(t *testing.T, id, alt, tag, producer, name, value string, kind, changed uint8, v2 bool) {
		cfg := lcm.Config{LegacyHeaders: lcm.LegacyJava}
		if v2 {
			cfg.Version = lcm.V2
		}
		v := inventory.Values{
			State: inventory.Ready, AlternateID: alt, ModuleSetTag: tag, DataProducerID: producer,
			Public: []inventory.Property{{Name: name, Value: value}},
		}
		e := encoder(t, cfg)
		tr := &inventory.Transition{
			EventID: uuid.New(), Kind: inventory.TransitionKind(kind % 3), ID: id, Changed: inventory.Attr(changed) & inventory.AllAttrs,
			Old: v, New: v, At: time.Now(), Cause: &inventory.Event{ID: name, Source: value, TraceParent: alt},
		}
		m := e.LCMEvent(tr)
		require.True(t, utf8.Valid(m.Value))
		var body struct {
			Event struct {
				CmHandleID, AlternateID string
				OldValues, NewValues    any
			}
		}
		require.NoError(t, json.Unmarshal(m.Value, &body))
		if utf8.ValidString(id) && utf8.ValidString(alt) {
			require.Equal(t, id, body.Event.CmHandleID)
			require.Equal(t, alt, body.Event.AlternateID)
		}
		require.Equal(t, id, string(m.Key))
		parseHeaders(t, m.Headers)
		require.Equal(t, m, e.LCMEvent(tr), "a repeat has equal bytes")
	})
}

func BenchmarkEncodeLCM(b *testing.B) {
	for name, cfg := range map[string]lcm.Config{"v1-utf8": {}, "v2-java": {Version: lcm.V2, LegacyHeaders: lcm.LegacyJava}} {
		b.Run(name, func(b *testing.B) {
			e, tr := encoder(b, cfg), sample()
			tr.Kind = inventory.Created
			b.ReportAllocs()
			for b.Loop() {
				e.LCMEvent(tr)
			}
		})
	}
}
