package consumer

import (
	"encoding/base64"
	"fmt"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"ncmp-inventory/inventory"
)

// The input types.
const (
	TypeRegistration = "org.onap.ncmp.inventory.registration.v1"
	TypeStateChange  = "org.onap.ncmp.inventory.state-change.v1"
	// TypeHeartbeat is what NCMP's own tests send. DMI plugins vary, so on the
	// heartbeats topic any foreign type is taken for it.
	TypeHeartbeat = "org.onap.cps.ncmp.events.trustlevel.DeviceTrustLevel"
)

// DecoderConfig bounds what one record may hold. Zero values stand for the defaults.
type DecoderConfig struct {
	// RecordBytes is limits.record-bytes: key, value and headers of a record.
	// Default 16 MiB.
	RecordBytes int
	// HandlesPerEvent is limits.handles-per-event: the entries of one event,
	// and of all events of a batched record together. Default 100,000.
	HandlesPerEvent int
}

// EventDecoder turns records into events: CloudEvents 1.0 in binary, structured
// and batched JSON form. It is safe for concurrent use, and it keeps nothing of
// a record: what it returns are strings of its own, copied once per record.
type EventDecoder struct {
	cfg  DecoderConfig
	pool sync.Pool // of *work
}

var _ Decoder = (*EventDecoder)(nil)

// NewEventDecoder makes a decoder.
func NewEventDecoder(cfg DecoderConfig) *EventDecoder {
	if cfg.RecordBytes <= 0 {
		cfg.RecordBytes = 16 << 20
	}
	if cfg.HandlesPerEvent <= 0 {
		cfg.HandlesPerEvent = 100_000
	}
	d := &EventDecoder{cfg: cfg}
	d.pool.New = func() any { return new(work) }
	return d
}

// Decode reads r's Key, Value and Headers, leaves them as they are, and sets
// Events, Dead or Empty, and Replay. heartbeats says that the record came from the
// heartbeats topic. It is total: every record gets one of the three.
func (d *EventDecoder) Decode(r *inventory.Record, heartbeats bool) {
	w := d.pool.Get().(*work)
	w.run(&d.cfg, r, heartbeats)
	d.pool.Put(w)
}

// work is the scratch space of one Decode.
type work struct {
	cfg        *DecoderConfig
	r          *inventory.Record
	heartbeats bool

	head  ceHeaders
	env   envelope // of the event in hand
	outer reader   // reads envelopes
	in    reader   // reads data

	entries
	handlesLeft int
}

func (w *work) run(cfg *DecoderConfig, r *inventory.Record, heartbeats bool) {
	r.Events, r.Dead, r.Empty, r.Replay = nil, nil, false, nil
	w.cfg, w.r, w.heartbeats, w.handlesLeft = cfg, r, heartbeats, cfg.HandlesPerEvent
	w.decode()
	w.release()
}

// release drops all references to the record, so that a pooled work pins none,
// and scratch space that one huge record left behind.
func (w *work) release() {
	w.r, w.env = nil, envelope{}
	w.head.release()
	if w.outer.dec != nil {
		w.outer.release()
	}
	if w.in.dec != nil {
		w.in.release()
	}
	w.entries.release()
}

func (w *work) decode() {
	r := w.r
	w.head.scan(r.Headers)
	if w.head.replay {
		r.Replay, _ = ReplayOf(r.Headers)
	}
	if len(r.Value) == 0 && !w.head.cloudEvent {
		r.Empty = true
		return
	}
	size := len(r.Key) + len(r.Value)
	for i := range r.Headers {
		size += len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	media := w.head.media()
	switch {
	case size > w.cfg.RecordBytes:
		w.head.fill(&w.env, nil)
		w.fail(&inventory.DeadLetter{Reason: ReasonTooLarge, Byte: -1,
			Text: fmt.Sprintf("record of %d bytes, at most %d are allowed", size, w.cfg.RecordBytes)})
	case w.head.dead != nil:
		w.head.fill(&w.env, nil)
		w.fail(w.head.dead)
	case media == mediaBatch:
		w.batch()
	case media == mediaStructured:
		w.structured(true)
	case strings.HasPrefix(media, mediaPrefix):
		w.head.fill(&w.env, nil)
		w.fail(&inventory.DeadLetter{Reason: ReasonBadContentType, Field: "content-type", Byte: -1,
			Text: fmt.Sprintf("format %q, want %s or %s", clip(visible(media)), mediaStructured, mediaBatch)})
	case w.head.cloudEvent:
		w.binary()
	default:
		w.structured(false)
	}
}

// binary decodes attributes from headers and data from the value.
func (w *work) binary() {
	value := w.r.Value
	text := w.head.fill(&w.env, value)
	dead := w.head.checkText(&w.env)
	if dead == nil {
		dead = w.env.check()
	}
	if dead != nil {
		if dead.Field == attributeNames[attrContentType] {
			dead.Field = "content-type"
		} else {
			dead.Field = headerPrefix + dead.Field
		}
		w.fail(dead)
		return
	}
	if len(value) == 0 {
		w.fail(&inventory.DeadLetter{Reason: ReasonNoData, Text: "an event without data", Byte: -1})
		return
	}
	w.in.reset(value, text[:len(value)], 0, "")
	w.data()
	w.finish(headerPrefix)
}

// structured decodes one event in JSON form. If it is not marked by a content
// type it must be an object with a specversion.
func (w *work) structured(marked bool) {
	text := string(w.r.Value)
	if !marked && !strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "{") {
		w.fail(&inventory.DeadLetter{Reason: ReasonNotCloudEvent, Byte: -1,
			Text: "neither CloudEvents headers nor a CloudEvent in JSON form"})
		return
	}
	r := &w.outer
	r.reset(w.r.Value, text, 0, "")
	var s structured
	if r.dead == nil {
		if k := r.kind(); k != 0 && k != jsontext.KindBeginObject {
			r.skip()
			r.shape("an object", k)
		} else {
			s = readStructured(r, &w.env)
			r.finish()
		}
	}
	if r.dead != nil {
		dead := r.dead
		if w.env.text[attrID] == "" || dead.Reason == ReasonDuplicateMember {
			w.env = envelope{}
			readLenient(r, w.r.Value, text, &w.env)
		}
		w.traceHeaders()
		w.fail(dead)
		return
	}
	w.traceHeaders()
	if !marked && w.env.text[attrSpecVersion] == "" {
		w.env = envelope{} // its id is no CloudEvent's
		w.fail(&inventory.DeadLetter{Reason: ReasonNotCloudEvent, Byte: -1,
			Text: "no CloudEvents headers, and the JSON object has no specversion"})
		return
	}
	if w.element(s, w.r.Value, text, "") {
		w.finish("")
	}
}

// batch decodes a JSON array of events. One that fails takes the record with
// it: a later replay must not apply its neighbours twice.
func (w *work) batch() {
	text := string(w.r.Value)
	r := &w.outer
	r.reset(w.r.Value, text, 0, "")
	if k := r.kind(); r.dead == nil && k != 0 && k != jsontext.KindBeginArray {
		r.skip()
		r.shape("an array of events", k)
	}
	n := int32(0)
	for r.open(); r.more(); n++ {
		w.env = envelope{element: n}
		if k := r.kind(); k != 0 && k != jsontext.KindBeginObject {
			r.skip()
			r.shape("an object", k)
			break
		}
		s := readStructured(r, &w.env)
		w.traceHeaders()
		if r.dead != nil || !w.element(s, w.r.Value, text, fmt.Sprintf("[%d].", n)) || !w.finish(fmt.Sprintf("[%d].", n)) {
			break
		}
	}
	r.finish()
	switch {
	case w.r.Dead != nil:
	case r.dead != nil:
		if r.dead.Field == fmt.Sprintf("[%d].id", n) {
			w.env.text[attrID] = "" // it stands twice: either could be meant
		}
		w.fail(r.dead)
	case n == 0:
		w.fail(&inventory.DeadLetter{Reason: ReasonNoData, Text: "a batch without events", Byte: -1})
	}
}

// element decodes the data of one event in JSON form.
func (w *work) element(s structured, value []byte, text, at string) bool {
	dead := w.checkStructured(s)
	if dead == nil && s.base64 {
		data, err := base64.StdEncoding.DecodeString(s.encoded)
		if err != nil {
			dead = &inventory.DeadLetter{Reason: ReasonBadBase64, Text: "data_base64 is not base64", Field: "data_base64", Byte: -1}
		} else {
			w.in.reset(data, string(data), -1, at+"data_base64")
		}
	} else if dead == nil {
		w.in.reset(value[s.start:s.end], text[s.start:s.end], int64(s.start), at+"data")
	}
	if dead != nil {
		dead.Field = at + dead.Field
		w.fail(dead)
		return false
	}
	w.data()
	return true
}

func (w *work) checkStructured(s structured) *inventory.DeadLetter {
	if dead := w.env.check(); dead != nil {
		return dead
	}
	if !s.data && !s.base64 {
		return &inventory.DeadLetter{Reason: ReasonNoData, Text: "an event without data", Field: "data", Byte: -1}
	}
	return nil
}

// traceHeaders fills in the trace of an event in JSON form that has none of its own.
func (w *work) traceHeaders() {
	if w.env.text[attrTraceParent] == "" {
		w.env.text[attrTraceParent], w.env.text[attrTraceState] = w.head.plainTrace()
	}
}

// data decodes the data of the event in hand into entries, by its type.
func (w *work) data() {
	switch w.env.text[attrType] {
	case TypeRegistration:
		w.registration()
	case TypeStateChange:
		w.stateChange()
	default:
		if w.heartbeats || w.env.text[attrType] == TypeHeartbeat {
			w.heartbeat()
		} else {
			w.in.dead = w.env.dead(ReasonUnknownType, attrType, unknownType(w.env.text[attrType]))
		}
	}
	w.in.finish()
}

// finish adds the event in hand to the record.
func (w *work) finish(prefix string) bool {
	if dead := w.in.dead; dead != nil {
		if dead.Reason == ReasonUnknownType {
			dead.Field = prefix + dead.Field
		}
		w.fail(dead)
		return false
	}
	w.emit()
	return true
}

// fail sets the record aside. What is known of the event goes along for its outcome.
func (w *work) fail(dead *inventory.DeadLetter) {
	dead.Attempts = 1
	w.r.Dead, w.r.Events = dead, nil
	if reason, _ := badText(w.env.text[attrID]); w.env.text[attrID] == "" || reason != "" {
		return
	}
	for a, s := range w.env.text {
		if reason, _ := badText(s); reason != "" {
			w.env.text[a] = ""
		}
	}
	w.r.Events = []inventory.Event{w.env.event()}
}

// unknownType is the text for a type that is none of ours.
func unknownType(typ string) string {
	best, distance := "", 1<<30
	for _, known := range [...]string{TypeRegistration, TypeStateChange, TypeHeartbeat} {
		if d := editDistance(clip(typ), known); d < distance {
			best, distance = known, d
		}
	}
	text := fmt.Sprintf("unknown type %q", clip(visible(typ)))
	if distance <= len(best)/2 {
		text += fmt.Sprintf("; did you mean %q?", best)
	}
	return text
}

// editDistance is Levenshtein's, in bytes.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
