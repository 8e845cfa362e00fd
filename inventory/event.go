package inventory

import "time"

// Op is what an item asks for. Its text is the operation of an outcome.
type Op uint8

// The operations, numbered in the order in which a registration applies them.
const (
	OpRemove Op = iota + 1
	OpCreate
	OpUpdate
	OpUpgrade
	OpState
	OpHeartbeat
)

func (o Op) String() string {
	switch o {
	case OpRemove:
		return "remove"
	case OpCreate:
		return "create"
	case OpUpdate:
		return "update"
	case OpUpgrade:
		return "upgrade"
	case OpState:
		return "state"
	case OpHeartbeat:
		return "heartbeat"
	}
	return "unknown"
}

// Item is one entry of an event: one thing asked of one handle. Op and Index
// are its place in the input and part of the ids of the events it causes.
type Item struct {
	Op    Op
	Index int32  // place within its list, from 0
	ID    string // CM-handle id; for a heartbeat the event's id

	Fields   *Fields      // create and update
	Tag      string       // upgrade: the target module set tag, trimmed
	State    *StateChange // state
	Trust    TrustLevel   // heartbeat
	Fallback string       // heartbeat: the record's key, tried when ID names no handle

	// Reject is set when the entry's shape was refused at the edge; then
	// nothing but Op, Index and (if known) ID is meaningful.
	Reject *Rejection
}

// Fields are the attributes of a create or update entry, normalized.
type Fields struct {
	AlternateID    string     // trimmed, "" is none
	ModuleSetTag   string     // trimmed; create only
	DataProducerID string     // trimmed, "" is none
	DMI            *DMINames  // shared by the entries of one event; create only
	Public         []Property // sorted by name; Null only on update
	Private        []Property
	Trust          TrustLevel // create only
}

// StateChange is the state member of a state-change entry.
type StateChange struct {
	To           State
	Lock         *LockReason // nil: not given
	DataSync     Tri
	SyncState    Text // dataSyncState.operational
	LastSyncTime Text
	ModuleSetTag Text // trimmed
}

// OutcomeMode says which source events get an outcome event.
type OutcomeMode uint8

// The outcome modes; OutcomesDefault leaves the choice to the configuration.
const (
	OutcomesDefault OutcomeMode = iota
	OutcomesOff
	OutcomesFailures
	OutcomesAll
)

// Event is one decoded CloudEvent.
type Event struct {
	// Element is the event's place in a batched record, from 0.
	Element                   int32
	ID, Source, Type, Subject string
	CorrelationID             string // the input's own, "" if it had none
	TraceParent, TraceState   string
	Outcomes                  OutcomeMode
	Items                     []Item // in the order in which they apply
}

// Header is one Kafka record header. A nil Value is a null value.
type Header struct {
	Key   string
	Value []byte
}

// Record is one input record: decoded to Events, or Dead, or Empty.
type Record struct {
	Offset      int64
	LeaderEpoch int32     // of the record's batch; -1 if unknown
	Timestamp   time.Time // the record's own
	Key, Value  []byte
	Headers     []Header // as they came; valid until Apply returned
	Bytes       int      // size on the wire, for bounds

	Events []Event
	// Dead is set when the record is set aside; then Events have no items, but
	// the ids for their outcomes. Decoding leaves one at most.
	Dead *DeadLetter
	// Replay is set for a dead letter that was sent again.
	Replay *Replay
	// Empty marks a record without value and without CloudEvents headers.
	Empty bool
}

// DeadLetter says why a record was set aside.
type DeadLetter struct {
	Reason string // stable code, for example "bad-json"
	Text   string // for people
	Field  string // the member or header, if one is to blame
	Byte   int64  // offset into the value, -1 if none
	// Attempts counts how often the record was tried.
	Attempts int
}

// Partition names an input partition by its topic's id: a topic created anew
// under the same name is another one.
type Partition struct {
	TopicID [16]byte
	Topic   string // for people; not part of the identity
	Index   int32
}

// Batch is a whole number of records of one partition, applied as one
// transaction. Next is the position after it; it may lie beyond the last
// record's offset plus one when the log has gaps (control records, compaction).
type Batch struct {
	Partition
	First, Next int64
	// OwnerEpoch is the claim under which this batch is written.
	OwnerEpoch int64
	// LeaderEpoch is that of the last record seen, -1 if unknown.
	LeaderEpoch int32
	// DeadRun is the number of dead letters in a row up to and including
	// this batch, stored with the position; DeadRunBefore is that number
	// before its first record.
	DeadRun, DeadRunBefore int
	Records                []Record
}
