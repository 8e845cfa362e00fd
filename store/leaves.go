package store

import (
	"fmt"

	"ncmp-inventory/inventory"
)

// leaf is one leaf of the inventory's model: its JSON name and its encoder.
type leaf struct {
	member string // `"name":`
	codec  inventory.Leaf
}

// leaves are the leaves that the worker writes.
type leaves struct {
	id, tag, alternateID, producer                     leaf
	dmi                                                [len(inventory.DMINames{})]leaf
	publicName, publicValue, privateName, privateValue leaf
	state, lastUpdate, dataSync                        leaf
	lockReason, lockDetails                            leaf
	syncState, lastSync                                leaf
}

func newLeaves(codec inventory.LeafCodec) (*leaves, error) {
	const (
		handle  = "/dmi-registry/cm-handles/"
		state   = handle + "state/"
		lock    = state + "lock-reason/"
		oper    = state + "datastores/operational/"
		public  = handle + "public-properties/"
		private = handle + "additional-properties/"
	)
	l := new(leaves)
	for _, f := range []struct {
		to         *leaf
		path, name string
	}{
		{&l.id, handle, "id"},
		{&l.tag, handle, "module-set-tag"},
		{&l.alternateID, handle, "alternate-id"},
		{&l.producer, handle, "data-producer-identifier"},
		{&l.dmi[inventory.DMIService], handle, "dmi-service-name"},
		{&l.dmi[inventory.DMIDataService], handle, "dmi-data-service-name"},
		{&l.dmi[inventory.DMIModelService], handle, "dmi-model-service-name"},
		{&l.dmi[inventory.DMIDatajobsRead], handle, "dmi-datajobs-read-service"},
		{&l.dmi[inventory.DMIDatajobsWrite], handle, "dmi-datajobs-write-service"},
		{&l.publicName, public, "name"},
		{&l.publicValue, public, "value"},
		{&l.privateName, private, "name"},
		{&l.privateValue, private, "value"},
		{&l.state, state, "cm-handle-state"},
		{&l.lastUpdate, state, "last-update-time"},
		{&l.dataSync, state, "data-sync-enabled"},
		{&l.lockReason, lock, "reason"},
		{&l.lockDetails, lock, "details"},
		{&l.syncState, oper, "sync-state"},
		{&l.lastSync, oper, "last-sync-time"},
	} {
		c, err := codec.Leaf(f.path + f.name)
		if err != nil {
			return nil, fmt.Errorf("the inventory's model: %w", err)
		}
		*f.to = leaf{member: `"` + f.name + `":`, codec: c}
	}
	return l, nil
}

// object builds the JSON object of one data node's leaves. The first leaf that
// the model refuses is remembered in err.
type object struct {
	buf []byte
	err error
}

func newObject() object { return object{buf: append(make([]byte, 0, 96), '{')} }

func (o *object) add(l *leaf, value string) {
	if len(o.buf) > 1 {
		o.buf = append(o.buf, ',')
	}
	o.buf = append(o.buf, l.member...)
	buf, err := l.codec.Append(o.buf, value)
	if err != nil {
		if o.err == nil {
			// Not the codec's own text: it may quote a private value.
			o.err = fmt.Errorf("the model refuses leaf %s: %w", l.member[1:len(l.member)-2], inventory.ErrData)
		}
		return
	}
	o.buf = buf
}

func (o *object) addText(l *leaf, t inventory.Text) {
	if t.Set {
		o.add(l, t.Value)
	}
}

func (o *object) bytes() []byte { return append(o.buf, '}') }
