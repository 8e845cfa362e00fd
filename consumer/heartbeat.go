package consumer

import (
	"strings"
	"unicode/utf8"

	"ncmp-inventory/inventory"
)

// heartbeat decodes {"data":{"trustLevel":…}}. The handle is the event's id,
// as NCMP has it, or the record's key when that id names no handle. An unknown
// level rejects the entry, it is no dead letter.
func (w *work) heartbeat() {
	in := &w.in
	if !w.dataObject() {
		return
	}
	level, found := inventory.TrustUnset, false
	for in.open(); in.more(); {
		if in.name() != "data" {
			in.skip()
			continue
		}
		if !w.object("data") {
			continue
		}
		for in.open(); in.more(); {
			if in.name() == "trustLevel" {
				level, found = w.trustLevel("data.trustLevel"), true
			} else {
				in.skip()
			}
		}
	}
	if level == inventory.TrustUnset {
		if found {
			w.refuse(unknownError("data.trustLevel: null is no trust level"))
		}
		w.refuse(unknownError("data.trustLevel: missing"))
	}
	id, fallback := w.env.text[attrID], w.key()
	if checkKnownID(id) != nil {
		id, fallback = fallback, "" // no handle can have this id
	}
	if id == "" {
		id = clip(w.env.text[attrID])
		w.refuse(inventory.Reject(inventory.CodeNotFound, "neither the event's id nor the key can be a handle's"))
	}
	if fallback == id {
		fallback = ""
	}
	w.add(inventory.OpHeartbeat, "", id, fields{})
	if in.dead == nil {
		it := &w.lists[inventory.OpHeartbeat][len(w.lists[inventory.OpHeartbeat])-1]
		it.Trust, it.Fallback = level, fallback
	}
}

// key is the record's key if it can be a handle's id.
func (w *work) key() string {
	k := string(w.r.Key)
	if !utf8.ValidString(k) || strings.IndexByte(k, 0) >= 0 || checkKnownID(k) != nil {
		return ""
	}
	return k
}
