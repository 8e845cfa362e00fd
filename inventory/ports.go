package inventory

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// Attr is a set of a handle's visible attributes.
type Attr uint8

// The visible attributes. Private properties are not among them.
const (
	AttrState Attr = 1 << iota
	AttrDataSync
	AttrAlternateID
	AttrModuleSetTag
	AttrDataProducerID
	AttrPublic
)

// AllAttrs is every visible attribute.
const AllAttrs = AttrState | AttrDataSync | AttrAlternateID | AttrModuleSetTag | AttrDataProducerID | AttrPublic

// Values are the visible attributes of a handle at one moment. DataSync is
// Unset in every state but READY: the flag is visible only there.
type Values struct {
	State          State
	DataSync       Tri
	AlternateID    string
	ModuleSetTag   string
	DataProducerID string
	Public         []Property
}

// TransitionKind is the type of an LCM event.
type TransitionKind uint8

// The three types.
const (
	Created TransitionKind = iota
	Updated
	Removed
)

// Transition is one fact about one handle, to be told as one LCM event. The
// encoder uses it before the planner goes on, so it may point into live state.
type Transition struct {
	EventID uuid.UUID
	Kind    TransitionKind
	ID      string
	// Changed says which attributes of Old and New an update shows; a
	// creation shows all of New, a removal shows neither. An update's Old
	// and New hold all attributes; those at the top of a v1 body are New's.
	Changed  Attr
	Old, New Values
	At       time.Time
	Cause    *Event
}

// TrustChange is one fact about a handle's trust level. Old is TrustUnset when
// the handle was just created.
type TrustChange struct {
	EventID  uuid.UUID
	ID       string
	Old, New TrustLevel
	At       time.Time
	Cause    *Event
}

// Outcome is what became of one source event.
type Outcome struct {
	EventID   uuid.UUID
	Source    *Batch // for topic and partition
	Record    *Record
	Cause     *Event
	At        time.Time
	Succeeded int
	Failures  []Failure
	// Dead is set when the event was a dead letter: its reason is the one failure.
	Dead *DeadLetter
}

// DeadLetterOf is a record set aside.
type DeadLetterOf struct {
	Source *Batch
	Record *Record
	At     time.Time
}

// Encoder turns facts into messages. It is pure: equal facts give equal bytes.
// It is called from many goroutines. Package lcm implements it.
type Encoder interface {
	LCMEvent(*Transition) Message
	InventoryEvent(*TrustChange) Message
	Outcome(*Outcome) Message
	DeadLetter(*DeadLetterOf) Message
}

// Ledger is the store as a batch sees it. Package store implements it.
type Ledger interface {
	// Transact applies one batch as one transaction: it compares and moves
	// the position, locks and reads what need names, lets decide plan, and
	// writes the plan, all or nothing. decide may run more than once and
	// must be pure. Deadlocks, lost races for a key and lost COMMIT answers
	// are dealt with inside. Errors are of the classes of this package;
	// anything else is fatal.
	Transact(ctx context.Context, b *Batch, need Need, decide func(*Snapshot) (*Plan, error)) (Receipt, error)
	// Trial does the same and rolls back: it tells whether PostgreSQL would
	// take the plan. It returns an ErrData if not.
	Trial(ctx context.Context, b *Batch, need Need, decide func(*Snapshot) (*Plan, error)) error
	// CanaryWrite makes a small harmless write durable: it tells a database
	// that refuses everything from one that refuses this record.
	CanaryWrite(ctx context.Context) error
}

// Leaf encodes values of one leaf of the inventory's YANG model as JSON.
type Leaf interface {
	// Append appends the JSON form of a value given as text, or says why
	// the model refuses it.
	Append(dst []byte, value string) ([]byte, error)
}

// LeafCodec finds the leaves of the inventory's model. Package schemas
// implements it from the YANG module.
type LeafCodec interface {
	// Leaf finds a leaf by its schema path, for example
	// "/dmi-registry/cm-handles/state/cm-handle-state".
	Leaf(schemaPath string) (Leaf, error)
}
