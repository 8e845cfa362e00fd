package store

import (
	"errors"
	"fmt"
	"strings"

	"ncmp-inventory/inventory"
)

// writer turns changes of handles into changes of rows. What is equal before
// and after is not written.
type writer struct {
	leaves *leaves
	root   int64
	ids    idLease
	spare  map[int64][]int64 // by handle row: rows to go with any write of properties

	inserts rowSet
	merges  leafSet
	deletes []int64 // rows of handles that stay
	handles []int64 // rows of handles that go, with all below

	removed []string // ids of handles that go
	trusted trustSet
	rows    int // written or removed directly
}

// rowsOf is the most rows that writing a change can insert.
func rowsOf(c *inventory.Change) int {
	if c.After == nil {
		return 0
	}
	const most = 5 // the handle, state, lock-reason, datastores, operational
	return most + len(c.After.Public) + len(c.After.Private)
}

// pending is the number of rows gathered for the next statements.
func (w *writer) pending() int {
	return w.inserts.len() + w.merges.len() + len(w.deletes) + len(w.handles)
}

func (w *writer) reset() {
	w.inserts.reset()
	w.merges.reset()
	w.deletes, w.handles = w.deletes[:0], w.handles[:0]
}

func (w *writer) change(c *inventory.Change) error {
	id := ""
	switch {
	case c.After != nil:
		id = c.After.ID
	case c.Before != nil:
		id = c.Before.ID
	default:
		return nil
	}
	gone := c.Before != nil && (c.After == nil || c.Removed)
	if gone {
		w.handles = append(w.handles, c.Before.Rows.Handle)
		w.removed = append(w.removed, id)
		w.rows++
	}
	w.trusted.set(id, c.Trust, gone)
	var err error
	switch {
	case c.After == nil:
	case gone || c.Before == nil:
		err = w.create(c.After)
	case c.After != &c.Before.Handle:
		err = w.update(c.Before, c.After)
	}
	if err != nil {
		return fmt.Errorf("handle %s: %w", id, err)
	}
	return nil
}

// insert adds a row and returns its id.
func (w *writer) insert(parent int64, xpath string, o *object) (int64, error) {
	if o.err != nil {
		return 0, o.err
	}
	id, err := w.ids.next()
	if err != nil {
		return 0, err
	}
	w.inserts.add(id, parent, xpath, o.bytes())
	w.rows++
	return id, nil
}

// set changes the leaves of a row.
func (w *writer) set(id int64, o *object, replace bool) error {
	if o.err != nil {
		return o.err
	}
	w.merges.add(id, o.bytes(), replace)
	w.rows++
	return nil
}

func (w *writer) remove(id int64) {
	w.deletes = append(w.deletes, id)
	w.rows++
}

func (w *writer) create(h *inventory.Handle) error {
	xpath := handleXPath(h.ID)
	o := w.handleLeaves(h)
	id, err := w.insert(w.root, xpath, &o)
	if err != nil {
		return err
	}
	for _, p := range h.Public {
		if err := w.insertProperty(id, xpath, publicStep, p); err != nil {
			return err
		}
	}
	for _, p := range h.Private {
		if err := w.insertProperty(id, xpath, privateStep, p); err != nil {
			return err
		}
	}
	return w.state(id, xpath, inventory.Rows{}, &inventory.CompositeState{}, &h.State)
}

// handleLeaves are all leaves of the handle's own data node. Alternate id, tag
// and data producer id are always there, DMI names only if given.
func (w *writer) handleLeaves(h *inventory.Handle) object {
	o := newObject()
	o.add(&w.leaves.id, h.ID)
	for i := range h.DMI {
		o.addText(&w.leaves.dmi[i], h.DMI[i])
	}
	o.add(&w.leaves.tag, h.ModuleSetTag)
	o.add(&w.leaves.alternateID, h.AlternateID)
	o.add(&w.leaves.producer, h.DataProducerID)
	return o
}

func (w *writer) insertProperty(parent int64, handle, step string, p inventory.Property) error {
	o := w.propertyLeaves(step, p)
	_, err := w.insert(parent, propertyXPath(handle, step, p.Name), &o)
	return err
}

func (w *writer) propertyLeaves(step string, p inventory.Property) object {
	name, value := &w.leaves.publicName, &w.leaves.publicValue
	if step == privateStep {
		name, value = &w.leaves.privateName, &w.leaves.privateValue
	}
	o := newObject()
	o.add(name, p.Name)
	o.add(value, p.Value)
	return o
}

// errUnread means that properties were changed that were not read: a fault of
// the caller, found before it deletes what it did not see.
var errUnread = errors.New("the plan changes properties that were not read")

func (w *writer) update(before *inventory.Stored, h *inventory.Handle) error {
	xpath := handleXPath(h.ID)
	if err := w.updateLeaves(before, h); err != nil {
		return err
	}
	changed := !equalProperties(before.Public, h.Public) || !equalProperties(before.Private, h.Private)
	if changed {
		if !before.Full {
			return errUnread
		}
		for _, id := range w.spare[before.Rows.Handle] {
			w.remove(id)
		}
		if err := w.properties(before.Rows.Handle, xpath, publicStep, before.Public, before.Rows.Public, h.Public); err != nil {
			return err
		}
		if err := w.properties(before.Rows.Handle, xpath, privateStep, before.Private, before.Rows.Private, h.Private); err != nil {
			return err
		}
	}
	return w.state(before.Rows.Handle, xpath, before.Rows, &before.State, &h.State)
}

// updateLeaves merges the leaves that changed, so that leaves which the worker
// does not know survive. Only taking a DMI name away needs the whole.
func (w *writer) updateLeaves(before *inventory.Stored, h *inventory.Handle) error {
	o := newObject()
	changed, whole := false, false
	for i := range h.DMI {
		if h.DMI[i] != before.DMI[i] {
			changed = true
			whole = whole || !h.DMI[i].Set
			o.addText(&w.leaves.dmi[i], h.DMI[i])
		}
	}
	for _, f := range []struct {
		leaf     *leaf
		old, new string
	}{
		{&w.leaves.tag, before.ModuleSetTag, h.ModuleSetTag},
		{&w.leaves.alternateID, before.AlternateID, h.AlternateID},
		{&w.leaves.producer, before.DataProducerID, h.DataProducerID},
	} {
		if f.old != f.new {
			changed = true
			o.add(f.leaf, f.new)
		}
	}
	if !changed {
		return nil
	}
	if whole {
		o = w.handleLeaves(h)
	}
	return w.set(before.Rows.Handle, &o, whole)
}

func equalProperties(a, b []inventory.Property) bool {
	if len(a) != len(b) {
		return false
	}
	if len(a) == 0 || &a[0] == &b[0] {
		return true
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// properties walks two lists sorted by name.
func (w *writer) properties(handle int64, xpath, step string, old []inventory.Property, rows []int64, now []inventory.Property) error {
	for len(old) > 0 || len(now) > 0 {
		order := 0
		switch {
		case len(old) == 0:
			order = 1
		case len(now) == 0:
			order = -1
		default:
			order = strings.Compare(old[0].Name, now[0].Name)
		}
		if order < 0 {
			w.remove(rows[0])
		}
		if order > 0 {
			if err := w.insertProperty(handle, xpath, step, now[0]); err != nil {
				return err
			}
		}
		if order == 0 && old[0].Value != now[0].Value {
			o := w.propertyLeaves(step, now[0])
			if err := w.set(rows[0], &o, true); err != nil {
				return err
			}
		}
		if order <= 0 {
			old, rows = old[1:], rows[1:]
		}
		if order >= 0 {
			now = now[1:]
		}
	}
	return nil
}

// state replaces the state node's leaves as a whole, and adds, replaces or
// removes what lies below. Without a row for it, it is inserted.
func (w *writer) state(handle int64, xpath string, rows inventory.Rows, old, now *inventory.CompositeState) error {
	xpath += "/state"
	id := rows.State
	if id == 0 || old.State != now.State || old.LastUpdate != now.LastUpdate || old.DataSync != now.DataSync {
		o := newObject()
		o.add(&w.leaves.state, string(now.State))
		o.add(&w.leaves.lastUpdate, now.LastUpdate)
		switch now.DataSync {
		case inventory.True:
			o.add(&w.leaves.dataSync, "true")
		case inventory.False:
			o.add(&w.leaves.dataSync, "false")
		}
		var err error
		if id, err = w.put(handle, id, xpath, &o); err != nil {
			return err
		}
	}
	if err := w.lock(id, xpath, rows.Lock, old.Lock, now.Lock); err != nil {
		return err
	}
	return w.datastores(id, xpath, rows, old, now)
}

// put inserts a row, or replaces the leaves of the one that is there.
func (w *writer) put(parent, id int64, xpath string, o *object) (int64, error) {
	if id == 0 {
		return w.insert(parent, xpath, o)
	}
	return id, w.set(id, o, true)
}

func (w *writer) lock(state int64, xpath string, row int64, old, now *inventory.LockReason) error {
	switch {
	case now == nil && row != 0:
		w.remove(row)
	case now != nil && (row == 0 || old == nil || *old != *now):
		o := newObject()
		o.addText(&w.leaves.lockReason, now.Reason)
		o.addText(&w.leaves.lockDetails, now.Details)
		_, err := w.put(state, row, xpath+"/lock-reason", &o)
		return err
	}
	return nil
}

func (w *writer) datastores(state int64, xpath string, rows inventory.Rows, old, now *inventory.CompositeState) error {
	parent := rows.Datastores
	if !now.Datastores && now.Operational == nil {
		if parent != 0 {
			w.remove(parent)
		}
		return nil
	}
	xpath += "/datastores"
	if parent == 0 {
		var err error
		o := newObject()
		if parent, err = w.insert(state, xpath, &o); err != nil {
			return err
		}
	}
	switch {
	case now.Operational == nil && rows.Operational != 0:
		w.remove(rows.Operational)
	case now.Operational != nil && (rows.Operational == 0 || old.Operational == nil || *old.Operational != *now.Operational):
		o := newObject()
		o.addText(&w.leaves.syncState, now.Operational.State)
		o.addText(&w.leaves.lastSync, now.Operational.LastSyncTime)
		_, err := w.put(parent, rows.Operational, xpath+"/operational", &o)
		return err
	}
	return nil
}
