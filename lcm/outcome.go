package lcm

import (
	"strconv"

	"ncmp-inventory/inventory"
)

const outcomeType = "org.onap.ncmp.inventory.outcome.v1"

// outcomeTail is room for what follows the failures.
const outcomeTail = 64

// Outcome encodes what became of one source event. Its key is the source
// record's. An outcome that its topic would not take names as many failures as
// fit, and in "more" how many it leaves out.
func (e *Encoder) Outcome(o *inventory.Outcome) inventory.Message {
	s := newScratch()
	defer s.free()
	m := meta{id: s.uuid(o.EventID), at: o.At.UTC(), source: eventSource, kind: outcomeType}
	var causeID string
	if o.Cause != nil {
		m.subject, m.correlation, causeID = o.Cause.Subject, o.Cause.CorrelationID, o.Cause.ID
	}
	s.rawKey(o.Record.Key)
	h := s.openHeaders()
	h.cloudEvent(&m)
	h.cause(o.Cause, o.EventID)
	s.closeHeaders(h)

	b := append(s.b, `{"source":{"topic":`...)
	b = appendString(b, o.Source.Topic)
	b = append(b, `,"partition":`...)
	b = strconv.AppendInt(b, int64(o.Source.Index), 10)
	b = append(b, `,"offset":`...)
	b = strconv.AppendInt(b, o.Record.Offset, 10)
	b = append(b, `,"id":`...)
	b = appendString(b, causeID)
	b = append(b, `},"failures":[`...)
	if o.Dead != nil {
		b = appendDead(b, o.Dead)
	}
	more := 0
	for i := range o.Failures {
		whole := len(b)
		if i > 0 {
			b = append(b, ',')
		}
		b = appendFailure(b, &o.Failures[i])
		// The scratch holds key, headers and value one after the other.
		if len(b) > e.cfg.MaxOutcomeBytes-outcomeTail {
			b, more = b[:whole], len(o.Failures)-i
			break
		}
	}
	b = append(b, ']')
	if more > 0 {
		b = append(b, `,"more":`...)
		b = strconv.AppendInt(b, int64(more), 10)
	}
	b = append(b, `,"succeeded":`...)
	b = strconv.AppendInt(b, int64(o.Succeeded), 10)
	s.b = append(b, '}')
	return s.message(inventory.OutcomeEvent)
}

func appendFailure(b []byte, f *inventory.Failure) []byte {
	b = append(b, `{"cmHandle":`...)
	b = appendString(b, f.ID)
	b = append(b, `,"operation":"`...)
	b = append(b, f.Op.String()...)
	b = append(b, `","errorCode":`...)
	b = appendString(b, string(f.Code))
	b = append(b, `,"errorText":`...)
	b = appendString(b, f.Text)
	b = append(b, `,"details":`...)
	b = appendString(b, f.Details)
	return append(b, '}')
}

// appendDead writes the one failure of a dead letter. It concerns the event as
// a whole: there is no handle and no operation. NCMP has one code for what it
// does not know: 108, with the cause as its text.
func appendDead(b []byte, d *inventory.DeadLetter) []byte {
	b = append(b, `{"cmHandle":"","operation":"","errorCode":"`...)
	b = append(b, inventory.CodeUnknownError...)
	b = append(b, `","errorText":`...)
	b = appendString(b, d.Text)
	b = append(b, `,"details":`...)
	b = appendString(b, d.Reason)
	return append(b, '}')
}
