package consumer

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"ncmp-inventory/inventory"
)

// attribute is one of the CloudEvents attributes that matter here. Others are
// ignored.
type attribute uint8

const (
	attrSpecVersion attribute = iota
	attrID
	attrSource
	attrType
	attrSubject
	attrTime
	attrContentType
	attrCorrelationID
	attrTraceParent
	attrTraceState
	attrOutcome
	attrCount
)

var attributeNames = [attrCount]string{
	"specversion", "id", "source", "type", "subject", "time", "datacontenttype",
	"correlationid", "traceparent", "tracestate", "outcome",
}

// attributeNamed finds an attribute by its lower-case name.
func attributeNamed(name string) (attribute, bool) {
	for i, n := range attributeNames {
		if n == name {
			return attribute(i), true
		}
	}
	return 0, false
}

// envelope holds the attributes of one event; absent and empty are the same.
type envelope struct {
	text    [attrCount]string
	element int32
}

// check judges the attributes that every event must have.
func (e *envelope) check() *inventory.DeadLetter {
	for _, a := range [...]attribute{attrSpecVersion, attrID, attrSource, attrType} {
		if e.text[a] == "" {
			return e.dead(ReasonMissingAttribute, a, "the attribute is missing or empty")
		}
	}
	if v := e.text[attrSpecVersion]; v != "1.0" {
		return e.dead(ReasonUnsupportedSpecVersion, attrSpecVersion, fmt.Sprintf("specversion %q, want 1.0", clip(v)))
	}
	if t := e.text[attrTime]; t != "" && !validTime(t) {
		return e.dead(ReasonBadTime, attrTime, fmt.Sprintf("%q is no RFC 3339 time", clip(t)))
	}
	if ct := e.text[attrContentType]; ct != "" && !isJSON(mediaType(ct)) {
		return e.dead(ReasonBadContentType, attrContentType, fmt.Sprintf("data of content type %q, want JSON", clip(ct)))
	}
	return nil
}

func (e *envelope) dead(reason string, a attribute, text string) *inventory.DeadLetter {
	return &inventory.DeadLetter{Reason: reason, Text: text, Field: attributeNames[a], Byte: -1}
}

// badText says why an attribute's value cannot be carried on.
func badText(s string) (reason, text string) {
	switch {
	case !utf8.ValidString(s):
		return ReasonInvalidUTF8, "invalid UTF-8"
	case strings.IndexByte(s, 0) >= 0:
		return ReasonNUL, "U+0000 in an attribute"
	}
	return "", ""
}

// event is the envelope as the domain sees it, without items.
func (e *envelope) event() inventory.Event {
	ev := inventory.Event{
		Element:       e.element,
		ID:            e.text[attrID],
		Source:        e.text[attrSource],
		Type:          e.text[attrType],
		Subject:       e.text[attrSubject],
		CorrelationID: e.text[attrCorrelationID],
		TraceParent:   e.text[attrTraceParent],
		TraceState:    e.text[attrTraceState],
	}
	// An unknown mode is no reason to lose the event: the configuration decides.
	switch e.text[attrOutcome] {
	case "off":
		ev.Outcomes = inventory.OutcomesOff
	case "failures":
		ev.Outcomes = inventory.OutcomesFailures
	case "all":
		ev.Outcomes = inventory.OutcomesAll
	}
	return ev
}

// validTime accepts RFC 3339 and ONAP's form of it, whose offset has no colon.
// The length of the clock part is checked because time.Parse takes 9:00 for
// 09:00 and a comma for a point.
func validTime(s string) bool {
	if len(s) < len("2006-01-02T15:04:05Z") || s[13] != ':' || strings.IndexByte(s, ',') >= 0 {
		return false
	}
	if _, err := time.Parse(time.RFC3339, s); err == nil {
		return true
	}
	_, err := time.Parse("2006-01-02T15:04:05-0700", s)
	return err == nil
}

// The CloudEvents formats.
const (
	mediaPrefix     = "application/cloudevents"
	mediaStructured = "application/cloudevents+json"
	mediaBatch      = "application/cloudevents-batch+json"
)

// mediaType is a content type without parameters, in lower case.
func mediaType(contentType string) string {
	if i := strings.IndexByte(contentType, ';'); i >= 0 {
		contentType = contentType[:i]
	}
	return strings.ToLower(strings.TrimSpace(contentType))
}

func isJSON(media string) bool {
	return media == "application/json" || media == "text/json" || strings.HasSuffix(media, "+json")
}

// structured is one event in JSON form: its attributes, and where its data stand.
type structured struct {
	data, base64 bool
	start, end   int
	encoded      string // data_base64
}

// readStructured reads one event of the JSON format from r, which stands
// before it. Members that are no attributes of ours are ignored.
func readStructured(r *reader, env *envelope) (s structured) {
	for r.open(); r.more(); {
		name := r.name()
		switch name {
		case "data":
			if s.start, s.end = r.raw(); r.dead == nil && r.text[s.start] != 'n' {
				s.data = true
			}
		case "data_base64":
			v, kind := r.scalar()
			switch kind {
			case jsontext.KindString:
				s.base64, s.encoded = true, v
			case jsontext.KindNull:
			default:
				r.attribute(name, "want a string, got "+kindName(kind))
			}
		default:
			a, ok := attributeNamed(name)
			if !ok {
				r.skip()
				continue
			}
			v, kind := r.scalar()
			switch {
			case kind == jsontext.KindString, kind == jsontext.KindNull:
				env.text[a] = v
			case a == attrSpecVersion:
				r.attributeReason(ReasonUnsupportedSpecVersion, name, "want the string 1.0, got "+kindName(kind))
			case a == attrCorrelationID && v != "":
				env.text[a] = v // a number or boolean, as text
			default:
				r.attribute(name, "want a string, got "+kindName(kind))
			}
		}
	}
	if r.dead == nil && s.data && s.base64 {
		r.attribute("data_base64", "data and data_base64 in one event")
	}
	return s
}

func (r *reader) attribute(name, text string) { r.attributeReason(ReasonBadAttribute, name, text) }

func (r *reader) attributeReason(reason, name, text string) {
	field := name
	if i := r.dec.StackDepth(); i > 1 { // an element of a batch
		field = fieldPath(r.path, r.dec.StackPointer())
	}
	r.die(reason, text, field, int64(r.at))
}

// readLenient reads what attributes it can find in a value that failed. One
// that stands twice counts as absent: either could be meant.
func readLenient(r *reader, value []byte, text string, env *envelope) {
	r.resetLenient(value, text)
	var seen [attrCount]bool
	if r.kind() != jsontext.KindBeginObject {
		return
	}
	for r.open(); r.more(); {
		a, ok := attributeNamed(r.name())
		if !ok {
			r.skip()
			continue
		}
		v, kind := r.scalar()
		if reason, _ := badText(v); kind != jsontext.KindString || reason != "" || seen[a] {
			v = ""
		}
		seen[a], env.text[a] = true, v
	}
}
