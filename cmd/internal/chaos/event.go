package chaos

// Event is one input event as it is meant. Exactly one of the kinds of content
// is used: the lists of a registration, States, Beat.
type Event struct {
	ID, Source string
	// Outcome is the extension of that name: "", "all", "failures" or "off".
	Outcome string
	// Correlation is the extension correlationid, "" is none.
	Correlation string

	Registration *Registration
	States       []StateEntry
	// Many writes a single state entry as a list of one.
	Many bool
	Beat *Beat
}

// Registration is the content of a registration event.
type Registration struct {
	// DMI are the DMI names by member; a nil value is an explicit null.
	DMI      map[string]*string
	Removed  []string
	Created  []Entry
	Updated  []Entry
	Upgraded *Upgrade
}

// Entry is a created or updated handle. Nil pointers are absent members, nil
// values of a map explicit nulls.
type Entry struct {
	ID                 string
	Alt, Tag, Producer *string
	Public, Private    map[string]*string
	Trust              string
	// Bad gives the entry a member of the wrong type.
	Bad bool
}

// Upgrade is the upgradedCmHandles member.
type Upgrade struct {
	IDs []string
	Tag string
}

// StateEntry is one entry of a state change.
type StateEntry struct {
	ID   string
	To   string
	Lock *Lock
	Sync *bool
	// SyncState and LastSync are dataSyncState.operational's members.
	SyncState, LastSync *string
	Tag                 *string
}

// Lock is a lock reason; either member may be absent.
type Lock struct{ Reason, Details *string }

// Beat is a heartbeat: the handle is the event's id.
type Beat struct{ Level string }

// Garbage is a record that no worker can apply.
type Garbage struct {
	// Reason is the code that its dead letter has to carry.
	Reason string
	// EventID is the id that can be read in spite of all, "" is none: then
	// nobody is told an outcome.
	EventID string
}

// Input is one record of an input topic: Events, or Garbage, or nothing at all,
// which is to be skipped.
type Input struct {
	Topic     string
	Partition int32
	Key       []byte
	Value     []byte
	Headers   []Header

	Events  []Event
	Garbage *Garbage
	// Cluster is the group of handles that several partitions share, -1 for
	// a partition's own handles.
	Cluster int
}

// Header is a record's header.
type Header struct {
	Key   string
	Value []byte
}

// The operations, as outcomes spell them, and their numbers in event ids.
const (
	opRemove    = "remove"
	opCreate    = "create"
	opUpdate    = "update"
	opUpgrade   = "upgrade"
	opState     = "state"
	opHeartbeat = "heartbeat"
)

var opNumbers = map[string]byte{opRemove: 1, opCreate: 2, opUpdate: 3, opUpgrade: 4, opState: 5, opHeartbeat: 6}

// The steps of event ids.
const (
	stepCreate   byte = 1
	stepUpdate   byte = 2
	stepState    byte = 3
	stepDeleting byte = 4
	stepDelete   byte = 5
	stepUpgrade  byte = 6
	stepTrust    byte = 7
	stepOutcome  byte = 8
)

// stepsOf are the steps that an operation can cause.
var stepsOf = map[string][]byte{
	opRemove:    {stepDeleting, stepDelete},
	opCreate:    {stepCreate, stepTrust},
	opUpdate:    {stepUpdate},
	opUpgrade:   {stepUpgrade},
	opState:     {stepState, stepDeleting, stepDelete},
	opHeartbeat: {stepTrust},
}

// places are all the places of events that e can cause.
func (e *Event) places() []place {
	var all []place
	add := func(op string, count int) {
		for i := range count {
			for _, step := range stepsOf[op] {
				all = append(all, place{op, i, step})
			}
		}
	}
	switch g := e.Registration; {
	case g != nil:
		add(opRemove, len(g.Removed))
		add(opCreate, len(g.Created))
		add(opUpdate, len(g.Updated))
		if g.Upgraded != nil {
			add(opUpgrade, len(g.Upgraded.IDs))
		}
	case e.Beat != nil:
		add(opHeartbeat, 1)
	default:
		add(opState, len(e.States))
	}
	return all
}
