package consumer

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
)

var update = flag.Bool("update-decode", false, "rewrite the expectations in testdata/good and testdata/bad")

// recordCase is one file of testdata/good or testdata/bad: a record, and what
// becomes of it.
type recordCase struct {
	About string `json:"about"`
	// Type is short for the headers of a plain event of that type.
	Type       string          `json:"type,omitempty"`
	Heartbeats bool            `json:"heartbeats,omitempty"`
	Key        string          `json:"key,omitempty"`
	Headers    [][2]string     `json:"headers,omitempty"`
	Value      string          `json:"value,omitempty"`  // the value's text, or
	Body       json.RawMessage `json:"body,omitempty"`   // the value as JSON, or
	Base64     string          `json:"base64,omitempty"` // the value's bytes
	Want       json.RawMessage `json:"want"`
}

func (c *recordCase) record(t testing.TB) inventory.Record {
	r := inventory.Record{Key: []byte(c.Key), Value: []byte(c.Value)}
	if c.Body != nil {
		var b bytes.Buffer
		require.NoError(t, json.Compact(&b, c.Body))
		r.Value = b.Bytes()
	}
	if c.Base64 != "" {
		b, err := base64.StdEncoding.DecodeString(c.Base64)
		require.NoError(t, err)
		r.Value = b
	}
	if c.Type != "" {
		r.Headers = binaryHeaders(c.Type, Attributes{ID: "e-1", Source: "/dmi/lab"})
	}
	for _, h := range c.Headers {
		value := []byte(h[1])
		if raw, ok := strings.CutPrefix(h[1], "base64:"); ok {
			var err error
			value, err = base64.StdEncoding.DecodeString(raw)
			require.NoError(t, err)
		}
		r.Headers = append(r.Headers, inventory.Header{Key: h[0], Value: value})
	}
	return r
}

// seen is a record after decoding, in a form that reads well in a file.
type seen struct {
	Empty  bool        `json:"empty,omitempty"`
	Dead   *seenDead   `json:"dead,omitempty"`
	Events []seenEvent `json:"events,omitempty"`
}

type seenDead struct {
	Reason string `json:"reason"`
	Field  string `json:"field,omitempty"`
	Byte   int64  `json:"byte"`
	Text   string `json:"text"`
}

type seenEvent struct {
	Element       int32                 `json:"element,omitempty"`
	ID            string                `json:"id"`
	Source        string                `json:"source,omitempty"`
	Type          string                `json:"type,omitempty"`
	Subject       string                `json:"subject,omitempty"`
	CorrelationID string                `json:"correlationid,omitempty"`
	TraceParent   string                `json:"traceparent,omitempty"`
	TraceState    string                `json:"tracestate,omitempty"`
	Outcomes      inventory.OutcomeMode `json:"outcomes,omitempty"`
	Items         []seenItem            `json:"items,omitempty"`
}

type seenItem struct {
	Op       string               `json:"op"`
	Index    int32                `json:"index"`
	ID       string               `json:"id"`
	Tag      string               `json:"tag,omitempty"`
	Trust    inventory.TrustLevel `json:"trust,omitempty"`
	Fallback string               `json:"fallback,omitempty"`
	Fields   *seenFields          `json:"fields,omitempty"`
	State    *seenState           `json:"state,omitempty"`
	Reject   *inventory.Rejection `json:"reject,omitempty"`
}

type seenFields struct {
	AlternateID    string               `json:"alternateId,omitempty"`
	ModuleSetTag   string               `json:"moduleSetTag,omitempty"`
	DataProducerID string               `json:"dataProducerId,omitempty"`
	DMI            []*string            `json:"dmi,omitempty"` // null: not set
	Public         []inventory.Property `json:"public,omitempty"`
	Private        []inventory.Property `json:"private,omitempty"`
	Trust          inventory.TrustLevel `json:"trust,omitempty"`
}

type seenState struct {
	To           inventory.State `json:"to"`
	Lock         []*string       `json:"lock,omitempty"` // reason, details
	DataSync     inventory.Tri   `json:"dataSync,omitempty"`
	SyncState    *string         `json:"syncState,omitempty"`
	LastSyncTime *string         `json:"lastSyncTime,omitempty"`
	ModuleSetTag *string         `json:"moduleSetTag,omitempty"`
}

func optional(t inventory.Text) *string {
	if !t.Set {
		return nil
	}
	return &t.Value
}

func see(r *inventory.Record) seen {
	s := seen{Empty: r.Empty}
	if d := r.Dead; d != nil {
		s.Dead = &seenDead{d.Reason, d.Field, d.Byte, d.Text}
	}
	for _, e := range r.Events {
		se := seenEvent{e.Element, e.ID, e.Source, e.Type, e.Subject, e.CorrelationID, e.TraceParent, e.TraceState, e.Outcomes, nil}
		for _, it := range e.Items {
			se.Items = append(se.Items, seeItem(it))
		}
		s.Events = append(s.Events, se)
	}
	return s
}

func seeItem(it inventory.Item) seenItem {
	s := seenItem{Op: it.Op.String(), Index: it.Index, ID: it.ID, Tag: it.Tag, Trust: it.Trust, Fallback: it.Fallback, Reject: it.Reject}
	if f := it.Fields; f != nil {
		s.Fields = &seenFields{f.AlternateID, f.ModuleSetTag, f.DataProducerID, nil, f.Public, f.Private, f.Trust}
		if f.DMI != nil {
			for _, n := range f.DMI {
				s.Fields.DMI = append(s.Fields.DMI, optional(n))
			}
		}
	}
	if c := it.State; c != nil {
		s.State = &seenState{To: c.To, DataSync: c.DataSync, SyncState: optional(c.SyncState),
			LastSyncTime: optional(c.LastSyncTime), ModuleSetTag: optional(c.ModuleSetTag)}
		if c.Lock != nil {
			s.State.Lock = []*string{optional(c.Lock.Reason), optional(c.Lock.Details)}
		}
	}
	return s
}

func caseFiles(t testing.TB) []string {
	files, err := filepath.Glob("testdata/*/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return files
}

func readCase(t testing.TB, file string) recordCase {
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	var c recordCase
	require.NoError(t, json.Unmarshal(b, &c), file)
	return c
}

func TestDecodeCases(t *testing.T) {
	t.Parallel()
	d := NewEventDecoder(DecoderConfig{RecordBytes: 1 << 16, HandlesPerEvent: 12})
	for _, file := range caseFiles(t) {
		t.Run(strings.TrimSuffix(strings.TrimPrefix(file, "testdata/"), ".json"), func(t *testing.T) {
			t.Parallel()
			c := readCase(t, file)
			r := c.record(t)
			value := slices.Clone(r.Value)
			d.Decode(&r, c.Heartbeats)
			require.Equal(t, value, r.Value, "the record must stay as it came")
			got, err := json.Marshal(see(&r))
			require.NoError(t, err)
			require.Equal(t, strings.HasPrefix(file, "testdata/bad/"), r.Dead != nil, "%s", got)
			if *update {
				c.Want = got
				var b strings.Builder
				e := json.NewEncoder(&b)
				e.SetEscapeHTML(false)
				e.SetIndent("", "  ")
				require.NoError(t, e.Encode(&c))
				require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644))
			}
			require.JSONEq(t, string(c.Want), string(got))
		})
	}
}

// Every reason has a case, and no case has a reason that is not in the table.
func TestDecodeReasonsAreCovered(t *testing.T) {
	t.Parallel()
	reasons := map[string]bool{}
	for _, file := range caseFiles(t) {
		var want seen
		require.NoError(t, json.Unmarshal(readCase(t, file).Want, &want))
		if want.Dead != nil {
			reasons[want.Dead.Reason] = true
			require.Contains(t, DecodeReasons, want.Dead.Reason)
		}
	}
	for _, r := range DecodeReasons {
		require.True(t, reasons[r], "no case in testdata/bad for %s", r)
	}
}

// Nothing decoded may change when the record's buffer is used again.
func TestDecodeAliasesNothing(t *testing.T) {
	t.Parallel()
	d := NewEventDecoder(DecoderConfig{})
	for _, file := range caseFiles(t) {
		c := readCase(t, file)
		r := c.record(t)
		d.Decode(&r, c.Heartbeats)
		before, err := json.Marshal(see(&r))
		require.NoError(t, err)
		for _, b := range [][]byte{r.Key, r.Value} {
			for i := range b {
				b[i] = '#'
			}
		}
		for _, h := range r.Headers {
			for i := range h.Value {
				h.Value[i] = '#'
			}
		}
		var other inventory.Record
		other.Value = []byte(`{"specversion":"1.0"}`)
		d.Decode(&other, false) // reuses the scratch space
		after, err := json.Marshal(see(&r))
		require.NoError(t, err)
		require.Equal(t, string(before), string(after), file)
	}
}
