package chaos

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// Sent is an input record as it stands in its topic.
type Sent struct {
	Input
	TopicID [16]byte
	Offset  int64
	Epoch   int32 // the leader epoch of its batch
}

// Record is a record of an output topic. A nil Key or Value is null.
type Record struct {
	Partition  int32
	Offset     int64
	Key, Value []byte
	Headers    []Header
}

func (r *Record) header(name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// History is all that a run left behind. Records are in the order of their
// partitions; how partitions mix does not matter.
type History struct {
	Inputs                                []Sent
	LCM, Inventory, Outcomes, DeadLetters []Record
	// Rows are the data nodes below the registry: attributes by xpath.
	Rows map[string]map[string]any
	// Trust are the stored trust levels by handle.
	Trust map[string]string
}

// namespace is that of the event ids.
var namespace = uuid.NewSHA1(uuid.NameSpaceURL, []byte("urn:onap:ncmp:inventory:event-id"))

// eventID is the id that an event has to have: it is published how it is made.
func (s *Sent) eventID(element int, at place) string {
	b := append([]byte(nil), s.TopicID[:]...)
	be := binary.BigEndian
	b = be.AppendUint32(b, uint32(s.Partition))
	b = be.AppendUint32(b, uint32(s.Epoch))
	b = be.AppendUint64(b, uint64(s.Offset))
	b = be.AppendUint32(b, uint32(element))
	b = append(b, opNumbers[at.op])
	b = be.AppendUint32(b, uint32(at.index))
	b = append(b, at.step)
	return uuid.NewSHA1(namespace, b).String()
}

func (s *Sent) String() string { return fmt.Sprintf("%s/%d@%d", s.Topic, s.Partition, s.Offset) }

// told is an LCM event or a change of the trust level as it was published.
type told struct {
	id, handle, kind, alt    string
	old, new                 map[string]any
	cause, causeSource, corr string
	sequence                 int64
	record                   *Record
}

const lcmPrefix = "org.onap.ncmp.cmhandle-lcm-event."

func decodeLCM(r *Record) (told, error) {
	var b struct {
		ID     string `json:"eventId"`
		Handle string `json:"eventCorrelationId"`
		Type   string `json:"eventType"`
		Event  struct {
			Handle string          `json:"cmHandleId"`
			Alt    string          `json:"alternateId"`
			Old    json.RawMessage `json:"oldValues"`
			New    json.RawMessage `json:"newValues"`
		} `json:"event"`
	}
	if err := json.Unmarshal(r.Value, &b); err != nil {
		return told{}, err
	}
	t := told{
		id: b.ID, handle: b.Handle, alt: b.Event.Alt, kind: strings.TrimPrefix(b.Type, lcmPrefix), record: r,
		cause: r.header("ce_causationid"), causeSource: r.header("ce_causationsource"), corr: r.header("ce_correlationid"),
	}
	if string(r.Key) != b.Handle || b.Event.Handle != b.Handle || r.header("ce_subject") != b.Handle ||
		r.header("ce_id") != b.ID || r.header("ce_type") != b.Type {
		return t, errors.New("key, headers and body do not agree")
	}
	var err error
	if t.sequence, err = strconv.ParseInt(r.header("ce_sequence"), 10, 64); err != nil || len(r.header("ce_sequence")) != 19 {
		return t, fmt.Errorf("sequence %q", r.header("ce_sequence"))
	}
	for raw, values := range map[*json.RawMessage]*map[string]any{&b.Event.Old: &t.old, &b.Event.New: &t.new} {
		if *raw != nil {
			if err := json.Unmarshal(*raw, values); err != nil {
				return t, err
			}
		}
	}
	return t, nil
}

func decodeTrust(r *Record) (told, error) {
	var b struct {
		Data struct {
			Changes []struct {
				Name string  `json:"attributeName"`
				Old  *string `json:"oldAttributeValue"`
				New  string  `json:"newAttributeValue"`
			} `json:"attributeValueChange"`
		} `json:"data"`
	}
	if err := json.Unmarshal(r.Value, &b); err != nil {
		return told{}, err
	}
	t := told{id: r.header("ce_id"), handle: string(r.Key), record: r, corr: r.header("ce_correlationid")}
	if len(b.Data.Changes) != 1 || b.Data.Changes[0].Name != "trustLevel" || t.corr != t.handle {
		return t, errors.New("no change of one trust level")
	}
	c := b.Data.Changes[0]
	t.new = map[string]any{"trustLevel": c.New}
	if c.Old != nil {
		t.old = map[string]any{"trustLevel": *c.Old}
	}
	return t, nil
}

// answer is an outcome as it was published.
type answer struct {
	id        string
	topic     string
	partition int32
	offset    int64
	cause     string
	failures  []failure
	reason    string // details of a dead letter's failure
	succeeded int
	record    *Record
}

func decodeOutcome(r *Record) (answer, error) {
	var b struct {
		Source struct {
			Topic     string
			Partition int32
			Offset    int64
			ID        string
		}
		Failures []struct {
			CmHandle, Operation, ErrorCode, ErrorText, Details string
		}
		Succeeded int
	}
	if err := json.Unmarshal(r.Value, &b); err != nil {
		return answer{}, err
	}
	a := answer{
		id: r.header("ce_id"), topic: b.Source.Topic, partition: b.Source.Partition, offset: b.Source.Offset,
		cause: b.Source.ID, succeeded: b.Succeeded, record: r,
	}
	if r.header("ce_causationid") != b.Source.ID || r.header("ce_type") != "org.onap.ncmp.inventory.outcome.v1" {
		return a, errors.New("headers and body do not agree")
	}
	for _, f := range b.Failures {
		a.failures = append(a.failures, failure{f.CmHandle, f.Operation, f.ErrorCode})
		if f.Operation == "" {
			a.reason = f.Details
		}
	}
	return a, nil
}
