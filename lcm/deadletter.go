package lcm

import (
	"encoding/binary"
	"strconv"

	"ncmp-inventory/inventory"
)

// deadHeaders is how many headers DeadLetter adds.
const deadHeaders = 10

// DeadLetter sets a record aside: key, value and headers as they came (also
// headers that stand twice or have a null value), and behind them why and from
// where. Reason, text and position are for people and for a replay.
func (e *Encoder) DeadLetter(d *inventory.DeadLetterOf) inventory.Message {
	s := newScratch()
	defer s.free()
	r, why := d.Record, d.Record.Dead
	s.rawKey(r.Key)
	h := &s.headers
	h.b = binary.AppendVarint(s.b, int64(len(r.Headers)+deadHeaders))
	for i := range r.Headers {
		h.bytes(r.Headers[i].Key, r.Headers[i].Value)
	}
	h.text("ncmp_reason", why.Reason)
	h.text("ncmp_text", why.Text)
	h.text("ncmp_field", why.Field)
	h.number("ncmp_byte", why.Byte)
	h.text("ncmp_topic", d.Source.Topic)
	h.bytes("ncmp_topic_id", s.uuid(d.Source.TopicID))
	h.number("ncmp_partition", int64(d.Source.Index))
	h.number("ncmp_offset", r.Offset)
	var at [40]byte // the timestamp is foreign: its year can have more than four digits
	h.bytes("ncmp_timestamp", appendTime(at[:0], r.Timestamp.UTC()))
	h.number("ncmp_attempts", int64(why.Attempts))
	s.b = h.b
	s.headersEnd = len(s.b)
	s.b = append(s.b, r.Value...)
	s.null = r.Value == nil
	return s.message(inventory.DeadLetterRecord)
}

func (h *headerBlock) number(k string, v int64) {
	var text [20]byte
	h.bytes(k, strconv.AppendInt(text[:0], v, 10))
}
