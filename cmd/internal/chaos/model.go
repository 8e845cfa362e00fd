package chaos

import (
	"maps"
	"strings"
)

// The states.
const (
	advised  = "ADVISED"
	ready    = "READY"
	locked   = "LOCKED"
	deleting = "DELETING"
	deleted  = "DELETED"
)

// The codes of failures.
const (
	codeNotFound  = "100"
	codeNotReady  = "101"
	codeUnknown   = "108"
	codeExists    = "109"
	codeInvalidID = "110"
)

const (
	trustNone     = "NONE"
	trustComplete = "COMPLETE"
)

// handle is a CM handle as the rules see it. Handles are replaced, never
// changed, once they are stored in a model.
type handle struct {
	id, alt, tag, producer string
	dmi                    map[string]string // by leaf; absent is not given
	public, private        map[string]string
	state                  string
	lock                   *Lock
	sync                   *bool
	operational            *operational
}

// operational is the operational datastore of a handle's state.
type operational struct{ state, last *string }

// place is where in an event something is asked for, and which of its steps an
// effect is.
type place struct {
	op    string
	index int
	step  byte
}

// Effect is one message about a handle that an event causes: an LCM event, or a
// change of the trust level.
type effect struct {
	place
	handle string
	trust  bool
	kind   string // create, update or delete; LCM events only
	alt    string // the alternate id after it
	// old and new are the values shown; nil is none at all.
	old, new map[string]any
}

// failure is one refused entry.
type failure struct{ handle, op, code string }

// result is what one event comes to.
type result struct {
	effects   []effect
	failures  []failure
	succeeded int
}

// model is the inventory, changed by one event after the other.
type model struct {
	handles map[string]*handle
	owner   map[string]string // by id and alternate id
	trust   map[string]string // levels other than COMPLETE
}

func newModel() *model {
	return &model{handles: map[string]*handle{}, owner: map[string]string{}, trust: map[string]string{}}
}

func (m *model) clone() *model {
	return &model{maps.Clone(m.handles), maps.Clone(m.owner), maps.Clone(m.trust)}
}

// run is one event being applied.
type run struct {
	m *model
	result
	created, removed map[string]bool // by this event
}

// apply changes the model by one event, of a record with a key.
func (m *model) apply(e *Event, key []byte) result {
	r := &run{m: m, created: map[string]bool{}, removed: map[string]bool{}}
	switch {
	case e.Registration != nil:
		r.registration(e.Registration)
	case e.Beat != nil:
		r.heartbeat(e.ID, string(key), e.Beat.Level)
	default:
		for i := range e.States {
			r.entry(opState, e.States[i].ID, func() string { return r.state(&e.States[i], place{op: opState, index: i}) })
		}
	}
	return r.result
}

// repeated is what an entry answers that counts neither way.
const repeated = "again"

// entry counts what became of one entry: f's answer is a code, "" is success.
func (r *run) entry(op, id string, f func() string) {
	switch code := f(); code {
	case "":
		r.succeeded++
	case repeated:
	default:
		r.failures = append(r.failures, failure{id, op, code})
	}
}

func (r *run) registration(g *Registration) {
	for i, id := range g.Removed {
		r.entry(opRemove, id, func() string { return r.remove(id, place{op: opRemove, index: i}) })
	}
	badDMI := false
	for _, name := range g.DMI {
		badDMI = badDMI || name != nil && *name != "" && !strings.HasPrefix(*name, "http://") && !strings.HasPrefix(*name, "https://")
	}
	for i := range g.Created {
		e := &g.Created[i]
		r.entry(opCreate, e.ID, func() string {
			if badDMI {
				return codeUnknown
			}
			return r.create(e, g.DMI, place{op: opCreate, index: i})
		})
	}
	for i := range g.Updated {
		e := &g.Updated[i]
		r.entry(opUpdate, e.ID, func() string { return r.update(e, place{op: opUpdate, index: i}) })
	}
	if g.Upgraded == nil {
		return
	}
	for i, id := range g.Upgraded.IDs {
		r.entry(opUpgrade, id, func() string { return r.upgrade(id, strings.TrimSpace(g.Upgraded.Tag), place{op: opUpgrade, index: i}) })
	}
}

// shape judges an entry's form, which comes before everything else.
func shape(e *Entry) string {
	switch {
	case e.ID == "":
		return codeInvalidID
	case e.Bad:
		return codeUnknown
	case e.Trust != "" && e.Trust != trustNone && e.Trust != trustComplete:
		return codeUnknown
	}
	return ""
}

const forbidden = "=! \"#$%&'()*+,./\\:;<>?@[]^`{|}~"

// dmiLeaves are the leaves that hold the DMI names, by member.
var dmiLeaves = map[string]string{
	"dmiPlugin":              "dmi-service-name",
	"dmiDataPlugin":          "dmi-data-service-name",
	"dmiModelPlugin":         "dmi-model-service-name",
	"dmiDatajobsReadPlugin":  "dmi-datajobs-read-service",
	"dmiDatajobsWritePlugin": "dmi-datajobs-write-service",
}

func (r *run) create(e *Entry, dmi map[string]*string, at place) string {
	if strings.ContainsAny(e.ID, forbidden) && !e.Bad {
		return codeInvalidID
	}
	if code := shape(e); code != "" {
		return code
	}
	h := &handle{
		id: e.ID, alt: trimmed(e.Alt), tag: trimmed(e.Tag), producer: trimmed(e.Producer), dmi: map[string]string{},
		public: given(e.Public), private: given(e.Private), state: advised,
	}
	for member, leaf := range dmiLeaves {
		switch name, ok := dmi[member]; {
		case !ok:
			h.dmi[leaf] = ""
		case name != nil:
			h.dmi[leaf] = *name
		}
	}
	if r.created[e.ID] {
		return codeExists
	}
	if stored := r.m.handles[e.ID]; stored != nil {
		if !stored.registeredAs(h) {
			return codeExists
		}
		r.created[e.ID] = true
		return ""
	}
	if o := r.m.owner[e.ID]; o != "" || r.taken(h.alt, e.ID) {
		return codeExists
	}
	r.created[e.ID] = true
	r.m.handles[e.ID] = h
	r.m.owner[e.ID] = e.ID
	if h.alt != "" {
		r.m.owner[h.alt] = e.ID
	}
	r.tell(at, stepCreate, "create", h, nil, map[string]any{
		"cmHandleState": advised, "dataSyncEnabled": nil, "alternateId": h.alt, "moduleSetTag": h.tag,
		"dataProducerIdentifier": h.producer, "cmHandleProperties": shown(h.public),
	})
	if e.Trust == trustNone {
		r.m.trust[e.ID] = trustNone
		at.step = stepTrust
		r.effects = append(r.effects, effect{place: at, handle: e.ID, trust: true, new: map[string]any{"trustLevel": trustNone}})
	}
	return ""
}

// taken says that a name is another handle's id or alternate id.
func (r *run) taken(name, id string) bool {
	o := r.m.owner[name]
	return name != "" && o != "" && o != id
}

func (h *handle) registeredAs(o *handle) bool {
	return h.alt == o.alt && h.tag == o.tag && h.producer == o.producer && maps.Equal(h.dmi, o.dmi) &&
		maps.Equal(h.public, o.public) && maps.Equal(h.private, o.private)
}

func (r *run) update(e *Entry, at place) string {
	if code := shape(e); code != "" {
		return code
	}
	h := r.m.handles[e.ID]
	if h == nil {
		return codeNotFound
	}
	next, old, values := *h, map[string]any{}, map[string]any{}
	if alt := trimmed(e.Alt); alt != "" && alt != h.alt {
		if h.alt != "" || r.taken(alt, e.ID) {
			return codeExists
		}
		next.alt = alt
		old["alternateId"], values["alternateId"] = h.alt, alt
	}
	if p := trimmed(e.Producer); p != "" && p != h.producer {
		next.producer = p
		old["dataProducerIdentifier"], values["dataProducerIdentifier"] = h.producer, p
	}
	next.public, next.private = merged(h.public, e.Public), merged(h.private, e.Private)
	if !maps.Equal(next.public, h.public) {
		old["cmHandleProperties"], values["cmHandleProperties"] = shown(h.public), shown(next.public)
	}
	r.m.handles[e.ID] = &next
	if next.alt != "" {
		r.m.owner[next.alt] = e.ID
	}
	if len(values) > 0 {
		r.tell(at, stepUpdate, "update", &next, old, values)
	}
	return ""
}

func (r *run) remove(id string, at place) string {
	h := r.m.handles[id]
	switch {
	case id == "":
		return codeInvalidID
	case h == nil && r.removed[id]:
		return repeated
	case h == nil:
		return codeNotFound
	}
	r.removed[id] = true
	r.drop(h, at)
	return ""
}

func (r *run) drop(h *handle, at place) {
	r.tell(at, stepDeleting, "update", h, map[string]any{"cmHandleState": h.state}, map[string]any{"cmHandleState": deleting})
	r.tell(at, stepDelete, "delete", h, nil, nil)
	delete(r.m.handles, h.id)
	delete(r.m.owner, h.id)
	delete(r.m.owner, h.alt)
	delete(r.m.trust, h.id)
	delete(r.created, h.id)
}

func (r *run) upgrade(id, tag string, at place) string {
	h := r.m.handles[id]
	switch {
	case id == "":
		return codeInvalidID
	case h == nil:
		return codeNotFound
	case h.state != ready:
		return codeNotReady
	case tag != "" && tag == h.tag:
		return ""
	}
	next := *h
	reason, details := "MODULE_UPGRADE", "Upgrade to ModuleSetTag: "+tag
	next.state, next.lock, next.sync, next.operational = locked, &Lock{&reason, &details}, nil, nil
	r.m.handles[id] = &next
	r.tell(at, stepUpgrade, "update", &next, map[string]any{"cmHandleState": ready}, map[string]any{"cmHandleState": locked})
	return ""
}

// moves are the legal transitions of state changes, removal aside.
var moves = map[[2]string]bool{{advised, ready}: true, {advised, locked}: true, {locked, advised}: true, {ready, locked}: true}

func (r *run) state(e *StateEntry, at place) string {
	switch e.To {
	case advised, ready, locked, deleting, deleted:
	default:
		return codeUnknown
	}
	h := r.m.handles[e.ID]
	sync := e.Sync != nil || e.SyncState != nil || e.LastSync != nil
	switch {
	case h == nil:
		return codeNotFound
	case e.To == deleting, e.To != deleted && e.To != h.state && !moves[[2]string{h.state, e.To}], sync && e.To != ready:
		return codeUnknown
	case e.To == deleted:
		r.drop(h, at)
		return ""
	}
	next := *h
	next.state = e.To
	if e.To != h.state {
		next.lock, next.sync, next.operational = nil, nil, nil
		switch {
		case e.To == ready:
			off, none := false, "NONE_REQUESTED"
			next.sync, next.operational = &off, &operational{state: &none}
		case e.To == advised:
			next.lock, next.operational = h.lock, h.operational
		case h.state == advised:
			next.operational = h.operational
		}
	}
	if e.Lock != nil {
		next.lock = e.Lock
	}
	if e.Sync != nil && *e.Sync != on(next.sync) {
		state := "NONE_REQUESTED"
		if *e.Sync {
			state = "UNSYNCHRONIZED"
		}
		next.sync, next.operational = e.Sync, &operational{state: &state}
	}
	if e.SyncState != nil || e.LastSync != nil {
		op := operational{}
		if next.operational != nil {
			op = *next.operational
		}
		if e.SyncState != nil {
			op.state = e.SyncState
		}
		if e.LastSync != nil {
			op.last = e.LastSync
		}
		next.operational = &op
	}
	if e.Tag != nil {
		next.tag = strings.TrimSpace(*e.Tag)
	}
	r.m.handles[e.ID] = &next
	old, values := map[string]any{}, map[string]any{}
	if next.state != h.state {
		old["cmHandleState"], values["cmHandleState"] = h.state, next.state
	}
	if next.state == ready && visible(h) != visible(&next) {
		old["dataSyncEnabled"], values["dataSyncEnabled"] = visible(h), visible(&next)
	}
	if next.tag != h.tag {
		old["moduleSetTag"], values["moduleSetTag"] = h.tag, next.tag
	}
	if len(values) > 0 {
		r.tell(at, stepState, "update", &next, old, values)
	}
	return ""
}

func on(flag *bool) bool { return flag != nil && *flag }

// visible is the data-sync flag as events show it: in READY only.
func visible(h *handle) any {
	if h.state != ready || h.sync == nil {
		return nil
	}
	return *h.sync
}

// heartbeat is about the handle that the event's id names, or else the key.
func (r *run) heartbeat(id, key, level string) {
	at := place{op: opHeartbeat, step: stepTrust}
	r.entry(opHeartbeat, id, func() string {
		if level != trustNone && level != trustComplete {
			return codeUnknown
		}
		if r.m.handles[id] == nil {
			id = key
		}
		if r.m.handles[id] == nil {
			return codeNotFound
		}
		before := trustComplete
		if t := r.m.trust[id]; t != "" {
			before = t
		}
		if before == level {
			return ""
		}
		r.m.trust[id] = level
		if level == trustComplete {
			delete(r.m.trust, id)
		}
		r.effects = append(r.effects, effect{
			place: at, handle: id, trust: true,
			old: map[string]any{"trustLevel": before}, new: map[string]any{"trustLevel": level},
		})
		return ""
	})
}

func (r *run) tell(at place, step byte, kind string, h *handle, old, values map[string]any) {
	at.step = step
	r.effects = append(r.effects, effect{place: at, handle: h.id, kind: kind, alt: h.alt, old: old, new: values})
}

func trimmed(s *string) string {
	if s == nil {
		return ""
	}
	return strings.TrimSpace(*s)
}

// given are the properties of a new handle: a null is as if it were not there.
func given(ps map[string]*string) map[string]string { return merged(nil, ps) }

func merged(stored map[string]string, changes map[string]*string) map[string]string {
	out := make(map[string]string, len(stored)+len(changes))
	maps.Copy(out, stored)
	for name, value := range changes {
		if value == nil {
			delete(out, name)
		} else {
			out[name] = *value
		}
	}
	return out
}

// shown are public properties in the form in which JSON gives them back.
func shown(ps map[string]string) map[string]any {
	out := make(map[string]any, len(ps))
	for name, value := range ps {
		out[name] = value
	}
	return out
}

// rows are the data nodes of the model's handles: attributes by xpath, without
// times.
func (m *model) rows() map[string]map[string]any {
	all := map[string]map[string]any{}
	for _, h := range m.handles {
		root := "/dmi-registry/cm-handles[@id='" + quoted(h.id) + "']"
		leaves := map[string]any{"id": h.id, "alternate-id": h.alt, "module-set-tag": h.tag, "data-producer-identifier": h.producer}
		for leaf, name := range h.dmi {
			leaves[leaf] = name
		}
		all[root] = leaves
		for step, ps := range map[string]map[string]string{"public-properties": h.public, "additional-properties": h.private} {
			for name, value := range ps {
				all[root+"/"+step+"[@name='"+quoted(name)+"']"] = map[string]any{"name": name, "value": value}
			}
		}
		state := map[string]any{"cm-handle-state": h.state}
		if h.sync != nil {
			state["data-sync-enabled"] = *h.sync
		}
		all[root+"/state"] = state
		if h.lock != nil {
			all[root+"/state/lock-reason"] = leavesOf("reason", h.lock.Reason, "details", h.lock.Details)
		}
		if h.operational != nil {
			all[root+"/state/datastores"] = map[string]any{}
			all[root+"/state/datastores/operational"] = leavesOf("sync-state", h.operational.state, "last-sync-time", h.operational.last)
		}
	}
	return all
}

func quoted(s string) string { return strings.ReplaceAll(s, "'", "''") }

func leavesOf(a string, av *string, b string, bv *string) map[string]any {
	leaves := map[string]any{}
	if av != nil {
		leaves[a] = *av
	}
	if bv != nil {
		leaves[b] = *bv
	}
	return leaves
}
