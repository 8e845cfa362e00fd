// Package load makes input events in bulk: CM handles shaped as in ONAP CPS's
// k6 performance tests, for the demo, the benchmarks and the end-to-end tests.
//
// Everything is a function of the configuration: two loads with equal
// configurations make equal bytes, and Handle tells what a handle looks like
// without making the ones before it. Events are made one at a time, so a load
// of any size takes the memory of one event.
package load

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"strconv"

	"ncmp-inventory/inventory"
)

// Sizes of the k6 profile.
const (
	DefaultPerEvent = 100
	// DefaultDMIs spreads the registrations over partitions: bulk events
	// have the name of their DMI plugin as key.
	DefaultDMIs = 24
)

// Config shapes a load.
type Config struct {
	// Handles is how many there are, First the number of the first one.
	Handles, First int
	// PerEvent is how many share a registration event; 0 is DefaultPerEvent.
	PerEvent int
	// DMIs is how many DMI plugins the events name, in turn; 0 is
	// DefaultDMIs. A handle stays with one.
	DMIs int
	// Seed varies the values, and the ids of the events.
	Seed uint64
	// Prefix starts every CM-handle id; "" is "ch-", as k6 has it.
	Prefix string
}

// Load is a Config that can be drawn from, any number of times and from any
// goroutine.
type Load struct{ c Config }

// New fills in the defaults.
func New(c Config) (*Load, error) {
	if c.Handles < 0 || c.First < 0 || c.PerEvent < 0 || c.DMIs < 0 {
		return nil, errors.New("load: a number is negative")
	}
	if c.PerEvent == 0 {
		c.PerEvent = DefaultPerEvent
	}
	if c.DMIs == 0 {
		c.DMIs = DefaultDMIs
	}
	if c.Prefix == "" {
		c.Prefix = "ch-"
	}
	return &Load{c}, nil
}

// First is the number before that of the first handle.
func (l *Load) First() int { return l.c.First }

// Handles is how many handles the load has.
func (l *Load) Handles() int { return l.c.Handles }

// Handle is a CM handle as its registration gives it.
type Handle struct {
	ID             string            `json:"cmHandle"`
	AlternateID    string            `json:"alternateId"`
	ModuleSetTag   string            `json:"moduleSetTag"`
	DataProducerID string            `json:"dataProducerIdentifier"`
	Private        PrivateProperties `json:"cmHandleProperties"`
	Public         PublicProperties  `json:"publicCmHandleProperties"`
}

// PrivateProperties are k6's seven.
type PrivateProperties struct {
	SegmentID        string `json:"segmentId"`
	NetworkSegment   string `json:"networkSegment"`
	DeviceIdentifier string `json:"deviceIdentifier"`
	HardwareVersion  string `json:"hardwareVersion"`
	SoftwareVersion  string `json:"softwareVersion"`
	SyncStatus       string `json:"syncStatus"`
	NodeCategory     string `json:"nodeCategory"`
}

// PublicProperties are k6's two.
type PublicProperties struct {
	SystemID   string `json:"systemId"`
	SystemName string `json:"systemName"`
}

// Values that Handle and Updates give.
const (
	Producer        = "some-data-producer-id"
	UpdatedProducer = "another-data-producer-id"
	System          = "ncmp"
	UpdatedSystem   = "ncmp-2"
)

// ID is the CM-handle id of the i-th handle, from 0.
func (l *Load) ID(i int) string { return l.c.Prefix + strconv.Itoa(l.number(i)) }

// DMI is the plugin name of the i-th handle, from 0.
func (l *Load) DMI(i int) string {
	return fmt.Sprintf("http://dmi-%d:8080", i/l.c.PerEvent%l.c.DMIs+1)
}

// number counts from 1, as k6 does.
func (l *Load) number(i int) int { return l.c.First + i + 1 }

// Handle is the i-th handle, from 0, as registered.
func (l *Load) Handle(i int) Handle {
	n := l.number(i)
	place := strconv.Itoa(i%l.c.PerEvent + 1)
	number := strconv.Itoa(n)
	tag := "tag" + string(rune('A'+i%l.c.PerEvent%5))
	segment := rand.New(rand.NewPCG(l.c.Seed, uint64(n))).IntN(10) + 1
	return Handle{
		ID: l.ID(i),
		AlternateID: "/SubNetwork=Europe/SubNetwork=Ireland/MeContext=MyRadioNode" + number +
			"/ManagedElement=MyManagedElement" + number,
		ModuleSetTag:   tag,
		DataProducerID: Producer,
		Private: PrivateProperties{
			SegmentID:        place,
			NetworkSegment:   "Region=NorthAmerica,Segment=" + strconv.Itoa(segment),
			DeviceIdentifier: "Element=RadioBaseStation_5G_" + strconv.Itoa(i%l.c.PerEvent+1000),
			HardwareVersion:  "HW-" + tag,
			SoftwareVersion:  "Firmware_" + tag,
			SyncStatus:       "ACTIVE",
			NodeCategory:     "VirtualNode",
		},
		Public: PublicProperties{SystemID: place, SystemName: System},
	}
}

// registration is NCMP's DmiPluginRegistration, as far as the load needs it.
type registration struct {
	DMI     string   `json:"dmiPlugin,omitempty"`
	Created []Handle `json:"createdCmHandles,omitempty"`
	Updated []update `json:"updatedCmHandles,omitempty"`
	Removed []string `json:"removedCmHandles,omitempty"`
}

type update struct {
	ID             string            `json:"cmHandle"`
	DataProducerID string            `json:"dataProducerIdentifier"`
	Public         map[string]string `json:"publicCmHandleProperties"`
}

// Registrations create every handle.
func (l *Load) Registrations() iter.Seq[Event] {
	handles := make([]Handle, 0, l.c.PerEvent)
	return l.events("create", func(first, end int) registration {
		handles = handles[:0]
		for i := first; i < end; i++ {
			handles = append(handles, l.Handle(i))
		}
		return registration{DMI: l.DMI(first), Created: handles}
	})
}

// Updates give every handle UpdatedProducer and the public property systemName
// UpdatedSystem.
func (l *Load) Updates() iter.Seq[Event] {
	updates := make([]update, 0, l.c.PerEvent)
	public := map[string]string{"systemName": UpdatedSystem}
	return l.events("update", func(first, end int) registration {
		updates = updates[:0]
		for i := first; i < end; i++ {
			updates = append(updates, update{ID: l.ID(i), DataProducerID: UpdatedProducer, Public: public})
		}
		return registration{Updated: updates}
	})
}

// Removals remove every handle.
func (l *Load) Removals() iter.Seq[Event] {
	ids := make([]string, 0, l.c.PerEvent)
	return l.events("remove", func(first, end int) registration {
		ids = ids[:0]
		for i := first; i < end; i++ {
			ids = append(ids, l.ID(i))
		}
		return registration{Removed: ids}
	})
}

// events cuts the load into events of PerEvent handles. The key is the DMI
// plugin's name, so that what one plugin says about a handle stays in order.
func (l *Load) events(verb string, body func(first, end int) registration) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		for first := 0; first < l.c.Handles; first += l.c.PerEvent {
			end := min(first+l.c.PerEvent, l.c.Handles)
			e := Event{
				ID:      fmt.Sprintf("%s-%x-%d", verb, l.c.Seed, l.number(first)),
				Type:    RegistrationType,
				Key:     l.DMI(first),
				Data:    encode(body(first, end)),
				Handles: end - first,
			}
			if !yield(e) {
				return
			}
		}
	}
}

type stateChange struct {
	ID    string `json:"cmHandle"`
	State struct {
		To inventory.State `json:"cmHandleState"`
	} `json:"state"`
}

// StateChange moves one handle to a state. The event's id has to be given: a
// handle may reach one state more than once.
func StateChange(eventID, handle string, to inventory.State) Event {
	change := stateChange{ID: handle}
	change.State.To = to
	return Event{ID: eventID, Type: StateChangeType, Key: handle, Subject: handle, Data: encode(&change), Handles: 1}
}

// StateChanges move every handle to a state, one event each.
func (l *Load) StateChanges(to inventory.State) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		for i := range l.c.Handles {
			id := l.ID(i)
			if !yield(StateChange(fmt.Sprintf("state-%x-%s-%s", l.c.Seed, id, to), id, to)) {
				return
			}
		}
	}
}

// encode cannot fail: it is given strings in structs.
func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}
