package inventory

// State is the state of a CM handle as NCMP spells it. It is text so that a
// state written by a newer system survives a read.
type State string

// The states of a CM handle. Deleted is announced but never stored.
const (
	Advised  State = "ADVISED"
	Ready    State = "READY"
	Locked   State = "LOCKED"
	Deleting State = "DELETING"
	Deleted  State = "DELETED"
)

// Known reports whether s is one of the five states.
func (s State) Known() bool {
	switch s {
	case Advised, Ready, Locked, Deleting, Deleted:
		return true
	}
	return false
}

// legalMoves is NCMP's transition table for state changes that are neither a
// creation nor a removal.
var legalMoves = map[State][]State{
	Advised: {Ready, Locked},
	Locked:  {Advised},
	Ready:   {Locked},
}

// CanMoveTo reports whether a state change may take a stored handle from s to
// to. Deleted is legal from everywhere (a removal), Deleting from nowhere: it
// exists only inside a removal.
func (s State) CanMoveTo(to State) bool {
	if to == Deleted {
		return true
	}
	for _, t := range legalMoves[s] {
		if t == to {
			return true
		}
	}
	return false
}

// SyncState values of a datastore, as NCMP spells them.
const (
	NoneRequested  = "NONE_REQUESTED"
	Unsynchronized = "UNSYNCHRONIZED"
)

// ModuleUpgrade is the lock reason category of an accepted upgrade.
const ModuleUpgrade = "MODULE_UPGRADE"

// Tri is a boolean that may be absent.
type Tri uint8

// The three values of a Tri.
const (
	Unset Tri = iota
	False
	True
)

// TriOf turns a bool into a Tri.
func TriOf(b bool) Tri {
	if b {
		return True
	}
	return False
}

// Text is a string that may be absent; absent is not "".
type Text struct {
	Value string
	Set   bool
}

// SetText is a Text that is present.
func SetText(s string) Text { return Text{Value: s, Set: true} }

// LockReason is why a handle is LOCKED. Either member may be absent.
type LockReason struct {
	Reason, Details Text
}

// SyncState is the synchronization state of one datastore.
type SyncState struct {
	State        Text
	LastSyncTime Text
}

// CompositeState is everything stored below a handle's state node.
type CompositeState struct {
	State      State
	LastUpdate string // in NCMP's format, see FormatTime
	DataSync   Tri
	// Lock is nil when the handle has no lock reason.
	Lock *LockReason
	// Operational is nil when there is no operational datastore; Datastores
	// says whether the container above it exists.
	Datastores  bool
	Operational *SyncState
}
