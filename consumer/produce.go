package consumer

import (
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"ncmp-inventory/inventory"
)

// Attributes are what a producer says about an event beside its data. ID and
// Source are required.
type Attributes struct {
	ID, Source    string
	Subject       string
	Time          time.Time // zero: no time
	CorrelationID string
	TraceParent   string
	TraceState    string
	Outcomes      inventory.OutcomeMode
}

// Outgoing is an input event ready to be sent: a CloudEvent in binary mode.
// Partition it by Key with murmur2, as Java's default does.
type Outgoing struct {
	Key     []byte // nil: no order is asked for
	Headers []inventory.Header
	Value   []byte
}

// NewRegistrationEvent makes an event of a DmiPluginRegistration body, which
// becomes the value as it is. A body that would be a dead letter is an error.
// The key is the handle's id if the body names one handle, else the first DMI
// name given, else the source: one producer's bulk events keep their order.
func (d *EventDecoder) NewRegistrationEvent(body []byte, a Attributes) (Outgoing, error) {
	items, dead := d.CheckRegistration(body)
	if dead != nil {
		return Outgoing{}, fmt.Errorf("registration: %s: %s (%s, byte %d)", dead.Reason, dead.Text, dead.Field, dead.Byte)
	}
	return EncodeEvent(TypeRegistration, registrationKey(items, body, a.Source), body, a)
}

// CheckRegistration decodes a DmiPluginRegistration body as the worker would.
// Items with Reject set would be refused; a dead letter costs the whole body.
func (d *EventDecoder) CheckRegistration(body []byte) ([]inventory.Item, *inventory.DeadLetter) {
	r := inventory.Record{Value: body, Headers: binaryHeaders(TypeRegistration, Attributes{ID: "-", Source: "-"})}
	d.Decode(&r, false)
	switch {
	case r.Dead != nil:
		return nil, r.Dead
	case len(r.Events) == 0: // an empty body
		return nil, &inventory.DeadLetter{Reason: ReasonNoData, Text: "no data", Byte: -1}
	}
	return r.Events[0].Items, nil
}

func registrationKey(items []inventory.Item, body []byte, source string) []byte {
	id := ""
	for i := range items {
		switch items[i].ID {
		case id, "":
		default:
			if id != "" {
				return bulkKey(body, source)
			}
			id = items[i].ID
		}
	}
	if id == "" {
		return bulkKey(body, source)
	}
	return []byte(id)
}

func bulkKey(body []byte, source string) []byte {
	var names [len(dmiMembers)]string
	var r reader
	r.reset(body, string(body), 0, "")
	for r.open(); r.more(); {
		name := r.name()
		i := 0
		for i < len(dmiMembers) && dmiMembers[i] != name {
			i++
		}
		if i == len(dmiMembers) {
			r.skip()
			continue
		}
		names[i], _ = r.scalar()
	}
	for _, n := range names {
		if trimBlank(n) != "" {
			return []byte(n)
		}
	}
	return []byte(source)
}

// StateOf is a state change of one handle.
type StateOf struct {
	ID     string
	Change inventory.StateChange
}

// NewStateChangeEvent makes a state-change event for one or many handles. The
// key is the id of the only handle named, else the source.
func NewStateChangeEvent(a Attributes, changes ...StateOf) (Outgoing, error) {
	if len(changes) == 0 {
		return Outgoing{}, fmt.Errorf("state change of no handle")
	}
	key := changes[0].ID
	for _, c := range changes {
		if c.ID != key {
			key = a.Source
			break
		}
	}
	var value []byte
	var err error
	if len(changes) == 1 {
		value, err = appendState(nil, &changes[0])
	} else {
		value = append(value, `{"cmHandles":[`...)
		for i := range changes {
			if i > 0 {
				value = append(value, ',')
			}
			if value, err = appendState(value, &changes[i]); err != nil {
				break
			}
		}
		value = append(value, "]}"...)
	}
	if err != nil {
		return Outgoing{}, fmt.Errorf("state change: %w", err)
	}
	return EncodeEvent(TypeStateChange, []byte(key), value, a)
}

// EncodeEvent makes a CloudEvent in binary mode of a value that is known to be
// good. It checks the attributes only.
func EncodeEvent(typ string, key, value []byte, a Attributes) (Outgoing, error) {
	if a.ID == "" || a.Source == "" {
		return Outgoing{}, fmt.Errorf("event without id or source")
	}
	for _, s := range [...]string{a.ID, a.Source, a.Subject, a.CorrelationID, a.TraceParent, a.TraceState} {
		if _, text := badText(s); text != "" {
			return Outgoing{}, fmt.Errorf("attribute of an event: %s", text)
		}
	}
	return Outgoing{Key: key, Headers: binaryHeaders(typ, a), Value: value}, nil
}

// headerNames are the attributes' headers. Lower case matters: Java's reader
// knows no other.
var headerNames = func() (names [attrCount]string) {
	for i, n := range attributeNames {
		names[i] = headerPrefix + n
	}
	names[attrContentType] = "content-type"
	return names
}()

func binaryHeaders(typ string, a Attributes) []inventory.Header {
	var text [attrCount]string
	text[attrSpecVersion], text[attrContentType] = "1.0", "application/json"
	text[attrID], text[attrSource], text[attrType], text[attrSubject] = a.ID, a.Source, typ, a.Subject
	text[attrCorrelationID], text[attrTraceParent], text[attrTraceState] = a.CorrelationID, a.TraceParent, a.TraceState
	if !a.Time.IsZero() {
		text[attrTime] = a.Time.UTC().Format(time.RFC3339Nano)
	}
	switch a.Outcomes {
	case inventory.OutcomesOff:
		text[attrOutcome] = "off"
	case inventory.OutcomesFailures:
		text[attrOutcome] = "failures"
	case inventory.OutcomesAll:
		text[attrOutcome] = "all"
	}
	bytes, n := 0, 0
	for _, s := range text {
		if s != "" {
			bytes += len(s)
			n++
		}
	}
	buf, hs := make([]byte, 0, bytes), make([]inventory.Header, 0, n)
	for i, s := range text {
		if s != "" {
			from := len(buf)
			buf = append(buf, s...)
			hs = append(hs, inventory.Header{Key: headerNames[i], Value: buf[from:len(buf):len(buf)]})
		}
	}
	return hs
}

// object writes a JSON object whose members are known to be distinct.
type object struct {
	b     []byte
	err   error
	comma bool
}

func (o *object) begin(name string) {
	o.key(name)
	o.b = append(o.b, '{')
	o.comma = false
}

func (o *object) end() {
	o.b = append(o.b, '}')
	o.comma = true
}

func (o *object) key(name string) {
	if o.comma {
		o.b = append(o.b, ',')
	}
	o.b = append(o.b, '"')
	o.b = append(o.b, name...)
	o.b = append(o.b, `":`...)
	o.comma = true
}

func (o *object) text(name string, t inventory.Text) {
	if !t.Set {
		return
	}
	o.key(name)
	if strings.IndexByte(t.Value, 0) >= 0 && o.err == nil {
		o.err = fmt.Errorf("%s holds U+0000", name)
	}
	var err error
	if o.b, err = jsontext.AppendQuote(o.b, t.Value); err != nil && o.err == nil {
		o.err = fmt.Errorf("%s: %w", name, err)
	}
}

func appendState(b []byte, s *StateOf) ([]byte, error) {
	c := &s.Change
	o := object{b: append(b, '{')}
	o.text("cmHandle", inventory.SetText(s.ID))
	o.begin("state")
	o.text("cmHandleState", inventory.Text{Value: string(c.To), Set: c.To != ""})
	if c.Lock != nil {
		o.begin("lockReason")
		o.text("reason", c.Lock.Reason)
		o.text("details", c.Lock.Details)
		o.end()
	}
	if c.DataSync != inventory.Unset {
		o.key("dataSyncEnabled")
		if c.DataSync == inventory.True {
			o.b = append(o.b, "true"...)
		} else {
			o.b = append(o.b, "false"...)
		}
	}
	if c.SyncState.Set || c.LastSyncTime.Set {
		o.begin("dataSyncState")
		o.begin("operational")
		o.text("syncState", c.SyncState)
		o.text("lastSyncTime", c.LastSyncTime)
		o.end()
		o.end()
	}
	o.text("moduleSetTag", c.ModuleSetTag)
	o.end()
	o.end()
	return o.b, o.err
}
