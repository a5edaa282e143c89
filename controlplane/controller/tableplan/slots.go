package tableplan

import (
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/keyspace"
)

// Entry is the key_index entry of a key under its KEY_ID. While the key is being added its entry is
// hidden, while it is being removed it is closed, and the entry of its alias is only for the
// controller.
func (p *Plan) Entry(k keyspace.Key) ops.Entry {
	e := p.OpenEntry(k)
	switch {
	case e.Realm == controllerNumber:
	case k.Hidden():
		e.Realm |= ClosedKey
		e.Hidden = true
	case k.State == keyspace.Removing:
		e.Realm |= ClosedKey
	}
	return e
}

// OpenEntry is the key_index entry of a key that clients may use, whatever is done with it.
func (p *Plan) OpenEntry(k keyspace.Key) ops.Entry {
	if k.Leftover() || k.ID == k.Alias {
		return ops.Entry{ID: k.ID, Slot: k.Slot, Realm: controllerNumber}
	}
	return ops.Entry{ID: k.ID, Slot: k.Slot, Realm: p.realm(k.FinalName())}
}

// EntriesBy makes the entries of keys, or of their aliases.
func (p *Plan) EntriesBy(alias bool) func(keyspace.Key) ops.Entry {
	if alias {
		return AliasEntry
	}
	return p.Entry
}

// AliasEntry is the entry of a key's alias.
func AliasEntry(k keyspace.Key) ops.Entry {
	return ops.Entry{ID: k.Alias, Slot: k.Slot, Realm: controllerNumber}
}
