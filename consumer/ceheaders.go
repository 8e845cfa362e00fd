package consumer

import (
	"strings"

	"ncmp-inventory/inventory"
)

// headerPrefix marks the CloudEvents attributes among Kafka headers.
const headerPrefix = "ce_"

// ceHeaders is what a record's headers say. Names are matched in any letter
// case, since producers differ; of plain headers that stand twice the last
// one counts, as in Java.
type ceHeaders struct {
	value [attrCount][]byte
	// contentType is the content-type header, else ce_datacontenttype.
	contentType             []byte
	traceParent, traceState []byte // plain, without prefix
	cloudEvent              bool   // there is a ce_ header
	replay                  bool   // the record was sent again
	dead                    *inventory.DeadLetter
	extensions              map[string]struct{} // names of foreign extensions seen
}

// maxExtensions bounds what a pooled set of names keeps.
const maxExtensions = 64

func (h *ceHeaders) release() {
	ext := h.extensions
	if len(ext) > maxExtensions {
		ext = nil
	}
	clear(ext)
	*h = ceHeaders{extensions: ext}
}

func (h *ceHeaders) scan(hs []inventory.Header) {
	var seen, ambiguous [attrCount]bool
	for i := range hs {
		name, value := strings.ToLower(hs[i].Key), hs[i].Value
		short, ok := strings.CutPrefix(name, headerPrefix)
		if !ok {
			switch name {
			case "content-type":
				h.contentType = value
			case "traceparent":
				h.traceParent = value
			case "tracestate":
				h.traceState = value
			case HeaderReplayOf:
				h.replay = true
			}
			continue
		}
		h.cloudEvent = true
		a, ok := attributeNamed(short)
		twice := false
		if ok {
			twice, seen[a], h.value[a] = seen[a], true, value
			ambiguous[a] = ambiguous[a] || twice
		} else {
			if h.extensions == nil {
				h.extensions = make(map[string]struct{})
			}
			_, twice = h.extensions[short]
			h.extensions[short] = struct{}{}
		}
		if twice && h.dead == nil {
			h.dead = &inventory.DeadLetter{Reason: ReasonDuplicateAttribute, Field: clip(visible(name)), Byte: -1,
				Text: "the header stands twice"}
		}
	}
	for a := range ambiguous {
		if ambiguous[a] {
			h.value[a] = nil // either could be meant
		}
	}
	if len(h.contentType) == 0 {
		h.contentType = h.value[attrContentType]
	}
	h.value[attrContentType] = h.contentType
	if len(h.value[attrTraceParent]) == 0 {
		h.value[attrTraceParent], h.value[attrTraceState] = h.traceParent, h.traceState
	}
}

// fill copies the value and the attributes into one string, of which the
// attributes become parts, and returns it; the value is its beginning.
func (h *ceHeaders) fill(env *envelope, value []byte) string {
	n := len(value)
	for _, v := range h.value {
		n += len(v)
	}
	var b strings.Builder
	b.Grow(n)
	b.Write(value)
	for _, v := range h.value {
		b.Write(v)
	}
	text, at := b.String(), len(value)
	for a, v := range h.value {
		env.text[a] = text[at : at+len(v)]
		at += len(v)
	}
	return text
}

// checkText judges the attributes' bytes. A broken trace is dropped: it is no
// reason to lose the event.
func (h *ceHeaders) checkText(env *envelope) *inventory.DeadLetter {
	for a, s := range env.text {
		reason, text := badText(s)
		switch {
		case reason == "":
		case attribute(a) == attrTraceParent, attribute(a) == attrTraceState:
			env.text[a] = ""
		default:
			return env.dead(reason, attribute(a), text)
		}
	}
	return nil
}

// plainTrace is the trace context of the headers, for an event in JSON form.
func (h *ceHeaders) plainTrace() (parent, state string) {
	parent, state = string(h.value[attrTraceParent]), string(h.value[attrTraceState])
	if reason, _ := badText(parent + state); reason != "" {
		return "", ""
	}
	return parent, state
}

// media is the content type without parameters, in lower case.
func (h *ceHeaders) media() string {
	switch string(h.contentType) { // the usual ones, without an allocation
	case "":
		return ""
	case "application/json":
		return "application/json"
	case mediaStructured:
		return mediaStructured
	}
	return mediaType(string(h.contentType))
}
