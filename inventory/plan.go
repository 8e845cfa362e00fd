package inventory

import (
	"time"

	"github.com/google/uuid"
)

// Rows are the fragment ids of a stored handle, for the store's own use. A
// zero id is a row that does not exist. They are valid only inside the
// transaction that read them.
type Rows struct {
	Handle, State, Lock, Datastores, Operational int64
	// Public and Private run parallel to the handle's properties. They are
	// nil when the properties were not read.
	Public, Private []int64
}

// Stored is a handle as the locked snapshot shows it.
type Stored struct {
	Handle
	Rows Rows
	// Full says whether the properties were read.
	Full bool
}

// Need is what a batch has to lock and read before it can be planned.
type Need struct {
	// Keys are all handle ids and alternate ids that the batch names, sorted
	// bytewise and without duplicates; Owners runs parallel and proposes the
	// handle id that a key not yet known would belong to.
	Keys, Owners []string
	// Handles are the ids whose rows are read, sorted. Deep runs parallel: it
	// says whether what lies below the state (lock reason, datastores) is
	// needed; else those members of the snapshot's handle may be empty.
	// Full holds those whose
	// properties are needed too: true for an update, which needs them for
	// certain, false for a creation, which needs them only in the rarer case
	// that the handle exists already.
	Handles []string
	Deep    []bool
	Full    map[string]bool
	// Frees are the ids whose removal would free an alternate id: that
	// alternate id has to be locked as well, although the input does not
	// name it.
	Frees []string
	// Trust are the ids whose trust level is needed.
	Trust []string
	// Replayed are the records that must not overwrite what came later.
	Replayed []Replayed
}

// Snapshot is what the locked rows show. It holds only what Need asked for.
type Snapshot struct {
	// Handles by id; an absent id is not stored.
	Handles map[string]*Stored
	// Owners maps each locked key that belonged to a handle before this
	// transaction to that handle's id. It is not read, and may be empty, when a
	// batch names only ids and neither creates, updates nor removes.
	Owners map[string]string
	// Trust holds the stored levels; an absent id is Complete.
	Trust map[string]TrustLevel
	// Later holds, by the offset of a record of Need.Replayed, changes of its
	// handles that came after its origin, as the history knows them. Seen is
	// when the history last saw a handle that such a record names.
	Later map[int64][]Later
	Seen  map[string]time.Time
}

// Change is the net effect of a batch on one handle.
type Change struct {
	// Before is nil when the handle is new.
	Before *Stored
	// After is nil when the handle is gone.
	After *Handle
	// Removed says that the stored handle was removed on the way: its rows
	// go even if After exists, which is then a new handle of the same id.
	Removed bool
	// Trust is the level to store; TrustUnset leaves what is stored, and a
	// removal drops it.
	Trust TrustLevel
}

// Claim gives a key of the reference table to a handle.
type Claim struct{ Key, Owner string }

// MessageKind says which output topic a message belongs to. The numbers are
// stored; they never change.
type MessageKind int16

// The kinds of output.
const (
	LCMEvent MessageKind = iota
	InventoryEvent
	OutcomeEvent
	DeadLetterRecord
)

// MessageKinds are all kinds.
var MessageKinds = []MessageKind{LCMEvent, InventoryEvent, OutcomeEvent, DeadLetterRecord}

func (k MessageKind) String() string {
	switch k {
	case LCMEvent:
		return "lcm"
	case InventoryEvent:
		return "inventory"
	case OutcomeEvent:
		return "outcomes"
	case DeadLetterRecord:
		return "dead-letters"
	}
	return "unknown"
}

// Message is one output record, encoded before the commit so that every
// repeat has equal bytes. Its position in the plan is its order.
type Message struct {
	Kind MessageKind
	Key  []byte // nil is a null key
	// Headers are in Kafka's own form: a varint count, then for each header
	// varint key length, key, varint value length (-1 null), value. The
	// publisher adds the sequence header to LCM events.
	Headers []byte
	Value   []byte // nil is a null value
}

// Plan is what one transaction writes.
type Plan struct {
	Changes  []Change // at most one a handle, sorted by id
	Claims   []Claim  // keys whose owner changes, sorted by key
	Releases []string // keys that become free, sorted
	Messages []Message
	// Facts is what happened, item by item, for the history. It is empty
	// unless PlannerConfig.Facts asks for it.
	Facts []Fact
	Tally Tally
}

// Fact is one change of one handle. Old and New are read-only.
type Fact struct {
	// Step says what happened. StepUpdate and StepState also stand for
	// changes that no event shows: private properties, a lock reason, a
	// synchronization state.
	Step Step
	// EventID is that of the LCM or inventory event that tells the change;
	// the zero UUID if none does.
	EventID uuid.UUID
	ID      string
	// Old is nil for a creation. New is nil from StepDeleting on: the handle
	// is on its way out. Both are nil for StepTrust.
	Old, New           *Handle
	OldTrust, NewTrust TrustLevel // StepTrust only
	// Offset and Time are those of the source record, in the batch's partition.
	Offset int64
	Time   time.Time
	// Origin is where a record that was sent again first stood, else nil.
	Origin *Place
	At     time.Time // when it was planned
	Cause  *Event
}

// SourceTime is the record's own time. It is foreign: a time that nobody's
// clock can have shown is replaced by ours.
func (f *Fact) SourceTime() time.Time {
	if f.Time.Unix() <= 0 || f.Time.Year() > 9999 {
		return f.At
	}
	return f.Time
}

// Tally counts what the plan does, for metrics.
type Tally struct {
	Succeeded   map[Op]int
	Rejected    map[OpCode]int
	Transitions map[Move]int
	DeadLetters map[string]int // by reason
	Empty       int
	Unchanged   int // entries that succeeded and wrote nothing
}

// OpCode is an operation and the code it was refused with.
type OpCode struct {
	Op   Op
	Code Code
}

// Move is one transition of states; From is "" for a creation.
type Move struct{ From, To State }

// Receipt tells how a batch became durable.
type Receipt struct {
	Next int64
	// AlreadyApplied says that an earlier attempt, whose answer was lost,
	// had committed.
	AlreadyApplied            bool
	Tally                     Tally
	Read, Plan, Write, Commit time.Duration
	Fragments                 int // rows written or removed directly
}
