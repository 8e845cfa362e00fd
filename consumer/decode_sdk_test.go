package consumer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/binding/format"
	"github.com/cloudevents/sdk-go/v2/binding/spec"
	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"
	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
)

// The CloudEvents SDK is the reference: what both accept must mean the same.
//
// Where the decoder differs on purpose:
//
//	input                                        SDK            here
//	a ce_ header, or a JSON member, twice        last wins      dead letter
//	specversion 0.3                              accepted       dead letter
//	data that is no JSON, content type JSON      accepted       dead letter
//	a content type other than JSON               accepted       dead letter
//	an event without data                        accepted       dead letter
//	data and data_base64 in one event            base64 wins    dead letter
//	a type of nobody's, a source that is no URI  accepted /     dead letter /
//	                                             refused        accepted
//	time with an offset +0000                    refused        accepted
//	an extension named with _ or -, or an object refused        ignored
//	an attribute that is null                    varies         absent
//	an empty array of events                     no events      dead letter

// sdkMessage shows a record to the SDK as a Kafka binding would.
type sdkMessage struct {
	r       *inventory.Record
	version spec.Version
	format  format.Format
}

var _ binding.Message = (*sdkMessage)(nil)

var sdkSpecs = spec.WithPrefix(headerPrefix)

func newSDKMessage(r *inventory.Record) *sdkMessage {
	m := &sdkMessage{r: r}
	version, ce := "", false
	for _, h := range r.Headers {
		name := strings.ToLower(h.Key)
		ce = ce || strings.HasPrefix(name, headerPrefix)
		switch name {
		case "content-type":
			m.format = nil
			if format.IsFormat(mediaType(string(h.Value))) {
				m.format = format.Lookup(mediaType(string(h.Value)))
			}
		case headerPrefix + "specversion":
			version = string(h.Value)
		}
	}
	if m.format == nil && version != "" {
		m.version = sdkSpecs.Version(version)
	}
	if m.format == nil && !ce && strings.HasPrefix(strings.TrimLeft(string(r.Value), " \t\r\n"), "{") {
		m.format = format.JSON
	}
	return m
}

func (m *sdkMessage) ReadEncoding() binding.Encoding {
	switch {
	case m.format == format.JSONBatch:
		return binding.EncodingBatch
	case m.format != nil:
		return binding.EncodingStructured
	case m.version != nil:
		return binding.EncodingBinary
	}
	return binding.EncodingUnknown
}

func (m *sdkMessage) ReadStructured(ctx context.Context, w binding.StructuredWriter) error {
	if m.format == nil {
		return binding.ErrNotStructured
	}
	return w.SetStructuredEvent(ctx, m.format, bytes.NewReader(m.r.Value))
}

func (m *sdkMessage) ReadBinary(_ context.Context, w binding.BinaryWriter) error {
	if m.version == nil {
		return binding.ErrNotBinary
	}
	for _, h := range m.r.Headers {
		name := strings.ToLower(h.Key)
		var err error
		if name == "content-type" {
			err = w.SetAttribute(m.version.AttributeFromKind(spec.DataContentType), string(h.Value))
		} else if short, ok := strings.CutPrefix(name, headerPrefix); ok {
			if a := m.version.Attribute(name); a != nil {
				err = w.SetAttribute(a, string(h.Value))
			} else {
				err = w.SetExtension(short, string(h.Value))
			}
		}
		if err != nil {
			return err
		}
	}
	return w.SetData(bytes.NewReader(m.r.Value))
}

func (m *sdkMessage) Finish(error) error { return nil }

// GetAttribute and GetExtension complete what the SDK asks of a message.
func (m *sdkMessage) GetAttribute(k spec.Kind) (spec.Attribute, any) {
	a := m.version.AttributeFromKind(k)
	if a == nil {
		return nil, nil
	}
	return a, m.GetExtension(a.Name())
}

func (m *sdkMessage) GetExtension(name string) any {
	for _, h := range m.r.Headers {
		if strings.EqualFold(h.Key, headerPrefix+name) {
			return string(h.Value)
		}
	}
	return nil
}

func decodeSDK(r *inventory.Record) ([]event.Event, error) {
	m := newSDKMessage(r)
	ctx := context.Background()
	var events []event.Event
	switch m.ReadEncoding() {
	case binding.EncodingUnknown:
		return nil, errors.New("no CloudEvent")
	case binding.EncodingBatch:
		var err error
		if events, err = binding.ToEvents(ctx, m, bytes.NewReader(r.Value)); err != nil {
			return nil, err
		}
	default:
		e, err := binding.ToEvent(ctx, m)
		if err != nil {
			return nil, err
		}
		events = []event.Event{*e}
	}
	for _, e := range events {
		if err := e.Validate(); err != nil {
			return nil, err
		}
	}
	return events, nil
}

// requireAgreement compares a decoded record with what the SDK makes of it, if
// both accept it, and says whether they did.
func requireAgreement(t *testing.T, d *EventDecoder, r *inventory.Record, heartbeats bool) bool {
	events, err := decodeSDK(r)
	if err != nil || r.Dead != nil || r.Empty {
		return false
	}
	require.Len(t, r.Events, len(events))
	for i, e := range events {
		ev := r.Events[i]
		require.Equal(t, e.ID(), ev.ID)
		require.Equal(t, e.Source(), ev.Source)
		require.Equal(t, e.Type(), ev.Type)
		require.Equal(t, e.Subject(), ev.Subject)
		for name, got := range map[string]string{"correlationid": ev.CorrelationID, "tracestate": ev.TraceState, "traceparent": ev.TraceParent} {
			if v, ok := e.Extensions()[name]; ok {
				text, err := types.Format(v)
				require.NoError(t, err)
				require.Equal(t, text, got, name)
			}
		}
		// The data mean the same: sent anew in binary mode they give the same items.
		again := inventory.Record{Key: r.Key, Value: e.Data(), Headers: binaryHeaders(ev.Type, Attributes{ID: ev.ID, Source: ev.Source})}
		d.Decode(&again, heartbeats)
		require.Nil(t, again.Dead, "%+v", again.Dead)
		require.Equal(t, ev.Items, again.Events[0].Items)
	}
	return true
}

func TestDecodeAgreesWithSDK(t *testing.T) {
	t.Parallel()
	d := NewEventDecoder(DecoderConfig{})
	both := map[string]bool{}
	for _, file := range caseFiles(t) {
		c := readCase(t, file)
		r := c.record(t)
		d.Decode(&r, c.Heartbeats)
		if requireAgreement(t, d, &r, c.Heartbeats) {
			both[strings.TrimSuffix(file[strings.LastIndexByte(file, '/')+1:], ".json")] = true
		}
	}
	// So that the comparison cannot silently become empty.
	for _, name := range []string{"binary-minimal", "binary-all-attributes", "binary-header-case", "binary-no-content-type",
		"structured-trace-header", "structured-parameters", "structured-sniffed", "structured-data-first", "structured-base64",
		"batch", "heartbeat", "heartbeat-foreign", "registration-full", "state-full"} {
		require.True(t, both[name], "%s is not accepted by both", name)
	}
}

// Each row of the table of differences above that can be shown with one record.
func TestDecodeDiffersFromSDKOnPurpose(t *testing.T) {
	t.Parallel()
	d := NewEventDecoder(DecoderConfig{})
	for file, sdkAccepts := range map[string]bool{
		"bad/duplicate-header":     true,
		"bad/specversion-0.3":      true,
		"bad/json-syntax":          true,
		"bad/content-type-text":    true,
		"bad/no-data":              true,
		"bad/structured-two-data":  true,
		"bad/unknown-type-foreign": true,
		"bad/batch-empty":          true,
		"good/binary-onap-time":    false,
	} {
		c := readCase(t, "testdata/"+file+".json")
		r := c.record(t)
		d.Decode(&r, c.Heartbeats)
		_, err := decodeSDK(&r)
		require.Equal(t, sdkAccepts, err == nil, "%s: %v", file, err)
		require.NotEqual(t, sdkAccepts, r.Dead == nil, file)
	}
}

// Both sides of the lean encoder against the SDK.
func TestEncodeAgreesWithSDK(t *testing.T) {
	t.Parallel()
	r := stateRecord(t)
	events, err := decodeSDK(&r)
	require.NoError(t, err)
	e := events[0]
	require.Equal(t, "1.0", e.SpecVersion())
	require.Equal(t, TypeStateChange, e.Type())
	require.Equal(t, "/dmi/lab-1", e.Source())
	require.Equal(t, "lab-17", e.Subject())
	require.Equal(t, "application/json", e.DataContentType())
	require.Equal(t, int64(1770091506007), e.Time().UnixMilli())
	require.JSONEq(t, `{"cmHandle":"lab-17","state":{"cmHandleState":"READY","moduleSetTag":"tagA"}}`, string(e.Data()))

	// What the SDK writes in binary mode has the same headers.
	want := map[string]string{}
	for _, h := range r.Headers {
		want[h.Key] = string(h.Value)
	}
	w := &sdkWriter{headers: map[string]string{}}
	_, err = binding.Write(binding.WithForceBinary(context.Background()), binding.ToMessage(&e), nil, w)
	require.NoError(t, err)
	require.Equal(t, want, w.headers)
	require.Equal(t, r.Value, w.value)
}

type sdkWriter struct {
	headers map[string]string
	value   []byte
}

func (w *sdkWriter) Start(context.Context) error { return nil }
func (w *sdkWriter) End(context.Context) error   { return nil }

func (w *sdkWriter) SetAttribute(a spec.Attribute, v any) error {
	if a.Kind() == spec.DataContentType {
		return w.set("content-type", v)
	}
	return w.set(headerPrefix+a.Name(), v)
}

func (w *sdkWriter) SetExtension(name string, v any) error { return w.set(headerPrefix+name, v) }

func (w *sdkWriter) set(name string, v any) error {
	s, err := types.Format(v)
	w.headers[name] = s
	return err
}

func (w *sdkWriter) SetData(r io.Reader) error {
	var b bytes.Buffer
	_, err := b.ReadFrom(r)
	w.value = b.Bytes()
	return err
}
