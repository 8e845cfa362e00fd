package lcm

import (
	"fmt"
	"sync"
	"time"

	"ncmp-inventory/inventory"
)

// Version is the version of the LCM event's body.
type Version string

// NCMP's two versions.
const (
	V1 Version = "v1"
	V2 Version = "v2"
)

// LegacyHeaders says in which form NCMP's own record headers go along with the
// CloudEvents headers of an LCM event.
type LegacyHeaders string

// The forms.
const (
	LegacyUTF8 LegacyHeaders = "utf8" // seven headers, plain text
	LegacyJava LegacyHeaders = "java" // eight, Java-serialized strings, as NCMP sends them
	LegacyNone LegacyHeaders = "none"
)

// Config says how LCM events are written. The zero value is NCMP's body v1
// with headers in plain text.
type Config struct {
	Version       Version       // default v1
	LegacyHeaders LegacyHeaders // default utf8
	// MaxOutcomeBytes bounds an outcome event: key, headers and value.
	// Default: what Kafka's own max.message.bytes leaves, see PayloadLimit.
	MaxOutcomeBytes int
}

func (c *Config) validate() error {
	if c.Version == "" {
		c.Version = V1
	}
	if c.LegacyHeaders == "" {
		c.LegacyHeaders = LegacyUTF8
	}
	if c.MaxOutcomeBytes <= 0 {
		c.MaxOutcomeBytes = PayloadLimit(DefaultMaxMessageBytes)
	}
	switch c.Version {
	case V1, V2:
	default:
		return fmt.Errorf("LCM event version %q is none of v1, v2", string(c.Version))
	}
	switch c.LegacyHeaders {
	case LegacyUTF8, LegacyJava, LegacyNone:
	default:
		return fmt.Errorf("legacy headers %q are none of utf8, java, none", string(c.LegacyHeaders))
	}
	return nil
}

// Encoder turns facts into messages; it implements inventory.Encoder. It is
// pure and may be used from many goroutines.
type Encoder struct {
	cfg    Config
	schema schema
}

var _ inventory.Encoder = (*Encoder)(nil)

// NewEncoder makes an encoder, or says what is wrong with cfg.
func NewEncoder(cfg Config) (*Encoder, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("encoder: %w", err)
	}
	s := schemaV1
	if cfg.Version == V2 {
		s = schemaV2
	}
	return &Encoder{cfg: cfg, schema: s}, nil
}

// LCMEvent encodes one transition as an LCM event: NCMP's body, and CloudEvents
// 1.0 in Kafka's binary mode around it.
func (e *Encoder) LCMEvent(t *inventory.Transition) inventory.Message {
	s := newScratch()
	defer s.free()
	m := meta{
		id: s.uuid(t.EventID), at: t.At.UTC(), source: eventSource, kind: eventTypes[t.Kind],
		schema: e.schema.dataSchema, subject: t.ID, correlation: t.ID,
	}
	if t.Cause != nil && t.Cause.CorrelationID != "" {
		m.correlation = t.Cause.CorrelationID
	}
	s.key(t.ID)
	h := s.openHeaders()
	h.cloudEvent(&m)
	h.cause(t.Cause, t.EventID)
	e.legacyHeaders(h, t, &m)
	s.closeHeaders(h)
	s.b = e.appendBody(s.b, t, &m)
	return s.message(inventory.LCMEvent)
}

// scratch is where a message is put together before it is copied, once and in
// its exact size, to the bytes that the plan keeps.
type scratch struct {
	b            []byte
	keyEnd       int
	headersEnd   int
	headers      headerBlock
	uuidText     [36]byte
	hasKey, null bool
}

var scratches = sync.Pool{New: func() any { return &scratch{b: make([]byte, 0, 4096)} }}

// maxPooled keeps one huge message from pinning its buffer for good.
const maxPooled = 256 << 10

func newScratch() *scratch {
	s := scratches.Get().(*scratch)
	b := s.b[:0]
	*s = scratch{b: b}
	return s
}

func (s *scratch) free() {
	if cap(s.b) <= maxPooled {
		scratches.Put(s)
	}
}

func (s *scratch) key(k string) {
	s.b = append(s.b, k...)
	s.keyEnd, s.hasKey = len(s.b), true
}

func (s *scratch) rawKey(k []byte) {
	if k != nil {
		s.b = append(s.b, k...)
		s.hasKey = true
	}
	s.keyEnd = len(s.b)
}

func (s *scratch) openHeaders() *headerBlock {
	s.headers = headerBlock{b: s.b}
	s.headers.open()
	return &s.headers
}

func (s *scratch) closeHeaders(h *headerBlock) {
	h.close()
	s.b = h.b
	s.headersEnd = len(s.b)
}

func (s *scratch) message(kind inventory.MessageKind) inventory.Message {
	out := make([]byte, len(s.b))
	copy(out, s.b)
	m := inventory.Message{Kind: kind, Headers: out[s.keyEnd:s.headersEnd:s.headersEnd]}
	if s.hasKey {
		m.Key = out[:s.keyEnd:s.keyEnd]
	}
	if !s.null {
		m.Value = out[s.headersEnd:]
	}
	return m
}

const hexDigits = "0123456789abcdef"

// uuid writes id in its canonical form to the scratch; the text is good until
// the scratch is freed.
func (s *scratch) uuid(id [16]byte) []byte {
	t := s.uuidText[:0]
	for i, b := range id {
		switch i {
		case 4, 6, 8, 10:
			t = append(t, '-')
		}
		t = append(t, hexDigits[b>>4], hexDigits[b&15])
	}
	return t
}

// appendTime appends t, which is in UTC, as RFC 3339 with milliseconds.
func appendTime(dst []byte, t time.Time) []byte {
	return t.AppendFormat(dst, "2006-01-02T15:04:05.000Z")
}
