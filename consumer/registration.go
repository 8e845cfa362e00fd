package consumer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"ncmp-inventory/inventory"
)

// dmiMembers are the DMI names of a registration, by their place in inventory.DMINames.
var dmiMembers = [...]string{
	inventory.DMIService:       "dmiPlugin",
	inventory.DMIDataService:   "dmiDataPlugin",
	inventory.DMIModelService:  "dmiModelPlugin",
	inventory.DMIDatajobsRead:  "dmiDatajobsReadPlugin",
	inventory.DMIDatajobsWrite: "dmiDatajobsWritePlugin",
}

// registration decodes NCMP's DmiPluginRegistration object. Its lists may stand
// in any order; they apply as NCMP applies them: removed, created, updated,
// upgraded.
func (w *work) registration() {
	in := &w.in
	if !w.dataObject() {
		return
	}
	for i := range w.dmi {
		w.dmi[i] = inventory.SetText("") // NCMP's default; an explicit null is none
	}
	for in.open(); in.more(); {
		switch name := in.name(); name {
		case "removedCmHandles":
			w.ids(inventory.OpRemove, name)
		case "createdCmHandles":
			w.handles(inventory.OpCreate, name)
		case "updatedCmHandles":
			w.handles(inventory.OpUpdate, name)
		case "upgradedCmHandles":
			w.upgrades(name)
		default:
			if i := slices.Index(dmiMembers[:], name); i >= 0 {
				w.dmi[i] = w.eventLabel()
			} else {
				in.skip()
			}
		}
	}
	if in.dead != nil || len(w.lists[inventory.OpCreate]) == 0 {
		return
	}
	if reject := checkDMINames(&w.dmi); reject != nil {
		for i := range w.lists[inventory.OpCreate] {
			w.lists[inventory.OpCreate][i].Reject = reject
		}
	}
}

// dataObject reports whether the data is an object; if not, the event fails.
func (w *work) dataObject() bool {
	in := &w.in
	kind := in.kind()
	if kind == jsontext.KindBeginObject {
		return in.dead == nil
	}
	in.skip()
	in.shape("an object as data", kind)
	return false
}

// eventLabel reads a member that is shared by many entries: a wrong type costs
// the event.
func (w *work) eventLabel() inventory.Text {
	s, kind := w.in.scalar()
	switch kind {
	case jsontext.KindNull, jsontext.KindInvalid:
		return inventory.Text{}
	case jsontext.KindBeginObject, jsontext.KindBeginArray:
		w.in.shape("a string", kind)
	}
	return inventory.SetText(s)
}

// list reports whether the next value is an array, which is then to be opened.
// Null is an empty one; anything else costs the event.
func (w *work) list() bool {
	kind := w.in.kind()
	if kind == jsontext.KindBeginArray {
		return w.in.dead == nil
	}
	w.in.skip()
	if kind != jsontext.KindNull {
		w.in.shape("an array", kind)
	}
	return false
}

// ids decodes a list of CM-handle ids.
func (w *work) ids(op inventory.Op, list string) {
	if !w.list() {
		return
	}
	for w.in.open(); w.in.more(); {
		id, kind := w.in.scalar()
		n := len(w.lists[op])
		switch kind {
		case jsontext.KindNull, jsontext.KindBeginObject, jsontext.KindBeginArray:
			w.wrong("cmHandle", "a string", kind)
		default:
			w.refuseID(op, id, list, n, "")
		}
		w.add(op, list, w.shownID(id), fields{})
	}
}

// refuseID judges the id of the n-th entry of a list; member is what holds it there.
func (w *work) refuseID(op inventory.Op, id, list string, n int, member string) {
	switch {
	case id == "":
		w.reject = inventory.Reject(inventory.CodeInvalidID, place(list, n)+member+" is missing or empty")
	case op == inventory.OpCreate:
		w.refuse(checkNewID(id))
	default:
		w.refuse(checkKnownID(id))
	}
}

// shownID bounds the id of a refused entry: it only goes into an outcome.
func (w *work) shownID(id string) string {
	if w.reject != nil {
		return clip(id)
	}
	return id
}

func place(list string, n int) string { return fmt.Sprintf("%s[%d]", list, n) }

// upgrades decodes {"cmHandles":[…],"moduleSetTag":…}, members in any order.
func (w *work) upgrades(name string) {
	in := &w.in
	kind := in.kind()
	if kind != jsontext.KindBeginObject {
		in.skip()
		if kind != jsontext.KindNull {
			in.shape("an object", kind)
		}
		return
	}
	tag := ""
	for in.open(); in.more(); {
		switch in.name() {
		case "cmHandles":
			w.ids(inventory.OpUpgrade, name+".cmHandles")
		case "moduleSetTag":
			tag = trimBlank(w.eventLabel().Value)
		default:
			in.skip()
		}
	}
	for i := range w.lists[inventory.OpUpgrade] {
		w.lists[inventory.OpUpgrade][i].Tag = tag
	}
}

// handles decodes a list of created or updated CM handles.
func (w *work) handles(op inventory.Op, list string) {
	if !w.list() {
		return
	}
	for w.in.open(); w.in.more(); {
		w.handle(op, list)
	}
}

func (w *work) handle(op inventory.Op, list string) {
	in, n := &w.in, len(w.lists[op])
	if kind := in.kind(); kind != jsontext.KindBeginObject {
		in.skip()
		w.wrong("entry", "an object", kind)
		w.add(op, list, "", fields{})
		return
	}
	id, idKnown := "", true
	var f fields
	for in.open(); in.more(); {
		switch name := in.name(); name {
		case "cmHandle":
			var kind jsontext.Kind
			if id, kind = in.scalar(); kind == jsontext.KindBeginObject || kind == jsontext.KindBeginArray {
				w.wrong(name, "a string", kind)
				idKnown = false
			}
		case "alternateId":
			f.AlternateID = trimBlank(w.label(name).Value)
			if len(f.AlternateID) > maxAlternateID {
				w.refuse(unknownError(fmt.Sprintf("alternateId: %d bytes, at most %d are allowed", len(f.AlternateID), maxAlternateID)))
			}
		case "moduleSetTag":
			f.ModuleSetTag = trimBlank(w.label(name).Value)
		case "dataProducerIdentifier":
			f.DataProducerID = trimBlank(w.label(name).Value)
		case "trustLevel":
			f.Trust = w.trustLevel(name)
		case publicMember:
			f.public = w.properties(op, name)
		case privateMember:
			f.private = w.properties(op, name)
		default:
			in.skip()
		}
	}
	if op == inventory.OpUpdate {
		f.ModuleSetTag, f.Trust = "", inventory.TrustUnset
	}
	if idKnown {
		w.refuseID(op, id, list, n, ".cmHandle")
		w.checkXPaths(id, f)
	}
	w.add(op, list, w.shownID(id), f)
}

func (w *work) trustLevel(member string) inventory.TrustLevel {
	t := w.str(member)
	level := inventory.TrustLevel(t.Value)
	switch {
	case !t.Set:
	case level == inventory.TrustNone, level == inventory.TrustComplete:
		return level
	default:
		w.refuse(unknownError(fmt.Sprintf("%s: unknown trust level %q, want NONE or COMPLETE", member, clip(visible(t.Value)))))
	}
	return inventory.TrustUnset
}

// properties decodes a map of properties into w.props, sorted by name. The
// reader has refused duplicates.
func (w *work) properties(op inventory.Op, member string) propRange {
	in, from := &w.in, len(w.props)
	if !w.object(member) {
		return propRange{}
	}
	for in.open(); in.more(); {
		p := inventory.Property{Name: in.name()}
		var kind jsontext.Kind
		p.Value, kind = in.scalar()
		switch kind {
		case jsontext.KindBeginObject, jsontext.KindBeginArray:
			w.wrong(propertyPath(member, p.Name), "a string", kind)
		case jsontext.KindNull:
			if op == inventory.OpCreate {
				continue // as if it were not there
			}
			p.Null = true
		}
		if len(p.Name) > maxPropertyName {
			w.refuse(unknownError(fmt.Sprintf("%s: name of %d bytes, at most %d are allowed",
				propertyPath(member, p.Name), len(p.Name), maxPropertyName)))
		}
		w.props = append(w.props, p)
	}
	slices.SortFunc(w.props[from:], func(a, b inventory.Property) int { return strings.Compare(a.Name, b.Name) })
	return propRange{from, len(w.props)}
}

// propertyPath names a property in a text for people; a private one stays unnamed.
func propertyPath(member, name string) string {
	if member == privateMember {
		return privateMember + "[…]"
	}
	return member + "[" + clip(visible(name)) + "]"
}

// checkXPaths judges the xpaths of an entry's properties. With an id that today's
// rules allow none can be too long; older ids are longer.
func (w *work) checkXPaths(id string, f fields) {
	if handleXPathLen(id)+propertyXPathLen(privateMember, "")+2*maxPropertyName <= maxXPath {
		return
	}
	check := func(member string, s propRange) {
		for _, p := range w.props[s.from:s.to] {
			if n := handleXPathLen(id) + propertyXPathLen(member, p.Name); n > maxXPath {
				w.refuse(unknownError(fmt.Sprintf("%s: xpath of %d bytes, at most %d are allowed", propertyPath(member, p.Name), n, maxXPath)))
			}
		}
	}
	check(publicMember, f.public)
	check(privateMember, f.private)
}
