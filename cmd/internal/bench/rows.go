package bench

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"ncmp-inventory/cmd/internal/load"
	"ncmp-inventory/inventory"
	"ncmp-inventory/lcm"
)

// Rows of one handle. The ids of a handle's rows stand together, in this order.
const (
	rowHandle      = 0
	rowPublic      = 1 // systemId, systemName
	rowPrivate     = 3
	rowState       = 10
	rowDatastores  = 11
	rowOperational = 12
	rowsAdvised    = 11
	rowsReady      = 13
	rowsPerHandle  = 13
)

// nodes are data nodes as columns.
type nodes struct {
	ids, parents []int64
	xpaths       []string
	attributes   [][]byte
}

func (n *nodes) add(id, parent int64, xpath string, attributes any) {
	n.ids = append(n.ids, id)
	n.parents = append(n.parents, parent)
	n.xpaths = append(n.xpaths, xpath)
	n.attributes = append(n.attributes, encode(attributes))
}

// outbox are messages as columns.
type outbox struct {
	kinds                 []int16
	hashes                []int32
	keys, headers, values [][]byte
}

func (o *outbox) add(m inventory.Message) {
	o.kinds = append(o.kinds, int16(m.Kind))
	o.hashes = append(o.hashes, int32(len(o.hashes))) // any number costs the same
	o.keys, o.headers, o.values = append(o.keys, m.Key), append(o.headers, m.Headers), append(o.values, m.Value)
}

// history is entries of the handles' history as columns.
type history struct {
	handles, causes, sources, before, after []string
	steps                                   []int16
	events                                  []uuid.UUID
	offsets                                 []int64
	times                                   []time.Time
}

func (h *history) add(id string, step inventory.Step, event uuid.UUID, at time.Time, before, after *shown) {
	h.handles, h.steps, h.events = append(h.handles, id), append(h.steps, int16(step)), append(h.events, event)
	h.causes, h.sources = append(h.causes, "create-1-"+id), append(h.sources, load.Source)
	h.offsets, h.times = append(h.offsets, int64(len(h.offsets))), append(h.times, at)
	h.before, h.after = append(h.before, before.text()), append(h.after, after.text())
}

// shown is what an entry shows of a handle.
type shown struct {
	State      inventory.State `json:"cmHandleState,omitempty"`
	DataSync   *bool           `json:"dataSyncEnabled,omitempty"`
	SyncState  string          `json:"syncState,omitempty"`
	Alternate  string          `json:"alternateId,omitempty"`
	Tag        string          `json:"moduleSetTag,omitempty"`
	Producer   string          `json:"dataProducerIdentifier,omitempty"`
	Properties map[string]any  `json:"publicCmHandleProperties,omitempty"`
}

// text is "" for nothing, which is stored as null.
func (s *shown) text() string {
	if s == nil {
		return ""
	}
	return string(encode(s))
}

// encode cannot fail: it is given maps of strings and booleans.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// shaper makes the rows and messages that the worker makes of a load's events,
// without its code: only the LCM events' bytes come from the encoder.
type shaper struct {
	encoder *lcm.Encoder
	root    int64 // id of the root data node
	first   int64 // id of the first handle's first row
	now     time.Time
}

func newShaper(root, first int64) (*shaper, error) {
	e, err := lcm.NewEncoder(lcm.Config{})
	return &shaper{encoder: e, root: root, first: first, now: time.Now()}, err
}

// id is the first row id of the load's i-th handle, from 0.
func (s *shaper) id(l *load.Load, i int) int64 {
	return s.first + int64(l.First()+i)*rowsPerHandle
}

func handleXPath(id string) string { return "/dmi-registry/cm-handles[@id='" + id + "']" }

type leaves map[string]any

// advised adds the rows of a handle that was just registered.
func (s *shaper) advised(n *nodes, l *load.Load, i int) {
	h, id := l.Handle(i), s.id(l, i)
	xpath := handleXPath(h.ID)
	n.add(id, s.root, xpath, leaves{
		"id": h.ID, "alternate-id": h.AlternateID, "module-set-tag": h.ModuleSetTag,
		"data-producer-identifier": h.DataProducerID, "dmi-service-name": l.DMI(i),
		"dmi-data-service-name": "", "dmi-model-service-name": "",
		"dmi-datajobs-read-service": "", "dmi-datajobs-write-service": "",
	})
	property := func(row int64, list, name, value string) {
		n.add(id+row, id, fmt.Sprintf("%s/%s[@name='%s']", xpath, list, name), leaves{"name": name, "value": value})
	}
	property(rowPublic, "public-properties", "systemId", h.Public.SystemID)
	property(rowPublic+1, "public-properties", "systemName", h.Public.SystemName)
	for k, p := range [...][2]string{
		{"deviceIdentifier", h.Private.DeviceIdentifier}, {"hardwareVersion", h.Private.HardwareVersion},
		{"networkSegment", h.Private.NetworkSegment}, {"nodeCategory", h.Private.NodeCategory},
		{"segmentId", h.Private.SegmentID}, {"softwareVersion", h.Private.SoftwareVersion}, {"syncStatus", h.Private.SyncStatus},
	} {
		property(rowPrivate+int64(k), "additional-properties", p[0], p[1])
	}
	n.add(id+rowState, id, xpath+"/state", s.state(inventory.Advised))
}

func (s *shaper) state(to inventory.State) leaves {
	v := leaves{"cm-handle-state": string(to), "last-update-time": inventory.FormatTime(s.now)}
	if to == inventory.Ready {
		v["data-sync-enabled"] = false
	}
	return v
}

// ready adds the rows that READY adds.
func (s *shaper) ready(n *nodes, l *load.Load, i int) {
	id := s.id(l, i)
	xpath := handleXPath(l.ID(i)) + "/state/datastores"
	n.add(id+rowDatastores, id+rowState, xpath, leaves{})
	n.add(id+rowOperational, id+rowDatastores, xpath+"/operational", leaves{"sync-state": inventory.NoneRequested})
}

// values are what a handle shows in its events.
func values(h *load.Handle, state inventory.State) inventory.Values {
	v := inventory.Values{
		State: state, AlternateID: h.AlternateID, ModuleSetTag: h.ModuleSetTag, DataProducerID: h.DataProducerID,
		Public: []inventory.Property{{Name: "systemId", Value: h.Public.SystemID}, {Name: "systemName", Value: h.Public.SystemName}},
	}
	if state == inventory.Ready {
		v.DataSync = inventory.False
	}
	return v
}

// tell encodes one LCM event.
func (s *shaper) tell(o *outbox, kind inventory.TransitionKind, changed inventory.Attr, id string, old, now inventory.Values) {
	o.add(s.encoder.LCMEvent(&inventory.Transition{
		EventID: s.eventID(id), Kind: kind, ID: id, Changed: changed, Old: old, New: now, At: s.now,
		Cause: &inventory.Event{ID: "create-1-" + id, Source: load.Source, Type: load.RegistrationType},
	}))
}

func (s *shaper) eventID(id string) uuid.UUID { return uuid.NewSHA1(uuid.NameSpaceURL, []byte(id)) }

// note adds the entries of the history of a phase for one handle.
func (s *shaper) note(h *history, p phase, l *load.Load, i int) {
	id, at := l.ID(i), s.now
	handle := l.Handle(i)
	all := func(state inventory.State) *shown {
		return &shown{State: state, Alternate: handle.AlternateID, Tag: handle.ModuleSetTag, Producer: handle.DataProducerID}
	}
	properties := func(system string) map[string]any {
		return leaves{"systemId": handle.Public.SystemID, "systemName": system}
	}
	switch p {
	case register:
		now := all(inventory.Advised)
		now.Properties = properties(handle.Public.SystemName)
		h.add(id, inventory.StepCreate, s.eventID(id), at, nil, now)
	case becomeReady:
		h.add(id, inventory.StepState, s.eventID(id), at, &shown{State: inventory.Advised},
			&shown{State: inventory.Ready, DataSync: new(bool), SyncState: inventory.NoneRequested})
	case update:
		h.add(id, inventory.StepUpdate, s.eventID(id), at,
			&shown{Producer: handle.DataProducerID, Properties: properties(handle.Public.SystemName)},
			&shown{Producer: load.UpdatedProducer, Properties: properties(load.UpdatedSystem)})
	case remove:
		h.add(id, inventory.StepDeleting, s.eventID(id), at, &shown{State: inventory.Ready}, &shown{State: inventory.Deleting})
		gone := all(inventory.Deleting)
		gone.Producer = load.UpdatedProducer
		h.add(id, inventory.StepDelete, s.eventID(id), at, gone, nil)
	}
}

// phase is a kind of event that every handle of a load gets.
type phase int

const (
	register phase = iota
	becomeReady
	update
	remove
)

// facts of a phase: the rows that it touches and the LCM events it causes,
// per handle.
func (p phase) rows() int {
	return [...]int{register: rowsAdvised, becomeReady: 3, update: 2, remove: rowsReady}[p]
}

func (p phase) events() int { return [...]int{register: 1, becomeReady: 1, update: 1, remove: 2}[p] }

// tellPhase adds the LCM events of a phase for one handle.
func (s *shaper) tellPhase(o *outbox, p phase, l *load.Load, i int) {
	h := l.Handle(i)
	advised, ready := values(&h, inventory.Advised), values(&h, inventory.Ready)
	updated := values(&h, inventory.Ready)
	updated.DataProducerID = load.UpdatedProducer
	updated.Public = slices.Clone(updated.Public)
	updated.Public[1].Value = load.UpdatedSystem
	switch p {
	case register:
		s.tell(o, inventory.Created, 0, h.ID, inventory.Values{}, advised)
	case becomeReady:
		s.tell(o, inventory.Updated, inventory.AttrState|inventory.AttrDataSync, h.ID, advised, ready)
	case update:
		s.tell(o, inventory.Updated, inventory.AttrDataProducerID|inventory.AttrPublic, h.ID, ready, updated)
	case remove:
		deleting := updated // or not: an id more or less of three bytes
		deleting.State, deleting.DataSync = inventory.Deleting, inventory.Unset
		s.tell(o, inventory.Updated, inventory.AttrState, h.ID, updated, deleting)
		s.tell(o, inventory.Removed, 0, h.ID, deleting, deleting)
	}
}
