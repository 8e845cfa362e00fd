package inventory

import (
	"crypto/sha1"
	"encoding/binary"

	"github.com/google/uuid"
)

// Step says which of the events that one item can cause an id belongs to. It
// is a constant per kind of step, not a count, so that an event keeps its id
// when the handle's stored state makes the steps before it fall away. The
// numbers are part of the ids: they never change.
type Step uint8

// The steps.
const (
	StepCreate   Step = iota + 1 // the handle came to be
	StepUpdate                   // an attribute other than the state changed
	StepState                    // a state change moved the handle
	StepDeleting                 // a removal began: any state to DELETING
	StepDelete                   // a removal ended: the delete event
	StepUpgrade                  // an accepted upgrade locked the handle
	StepTrust                    // the trust level changed
	StepOutcome                  // the outcome of the source event as a whole
)

// eventNamespace is the version 5 UUID of "urn:onap:ncmp:inventory:event-id"
// in RFC 9562's URL namespace. It is part of every id: it never changes.
var eventNamespace = uuid.UUID{
	0xd0, 0x65, 0x16, 0xe6, 0x36, 0x76, 0x53, 0xa6,
	0x8d, 0xea, 0xf8, 0xca, 0xb1, 0xdc, 0xb2, 0x79,
}

// EventID derives the id of an event from the input item that causes it: a
// UUID of version 5 (RFC 9562) over 42 bytes in network byte order,
//
//	topic id        16 bytes
//	partition       int32
//	leader epoch    int32   of the record's batch, -1 if unknown
//	offset          int64
//	element         int32   the event's place in a batched record
//	op              1 byte  the item's operation, as numbered in Op
//	index           int32   the item's place in its list
//	step            1 byte
//
// A record that is read again gives the ids it gave before, and a topic that
// was deleted and created anew never repeats one. The event as a whole (its
// outcome) has op 0 and index 0.
func EventID(p Partition, leaderEpoch int32, offset int64, element int32, op Op, index int32, step Step) uuid.UUID {
	var b [16 + 42]byte
	copy(b[0:], eventNamespace[:])
	copy(b[16:], p.TopicID[:])
	be := binary.BigEndian
	be.PutUint32(b[32:], uint32(p.Index))
	be.PutUint32(b[36:], uint32(leaderEpoch))
	be.PutUint64(b[40:], uint64(offset))
	be.PutUint32(b[48:], uint32(element))
	b[52] = byte(op)
	be.PutUint32(b[53:], uint32(index))
	b[57] = byte(step)

	sum := sha1.Sum(b[:])
	var id uuid.UUID
	copy(id[:], sum[:])
	id[6] = id[6]&0x0f | 0x50 // version 5
	id[8] = id[8]&0x3f | 0x80 // RFC 9562's variant
	return id
}
