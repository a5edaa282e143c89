package tableplan

import (
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/keyspace"
)

// Entry returns the key_index entry of a key under its KEY_ID. The entry is hidden while the key is
// being added, and closed while it is being removed. Only the controller uses the entry of the
// key's alias.
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

// OpenEntry returns the key_index entry that a key has while clients may use it, whatever its
// state.
func (p *Plan) OpenEntry(k keyspace.Key) ops.Entry {
	if k.Leftover() || k.ID == k.Alias {
		return ops.Entry{ID: k.ID, Slot: k.Slot, Realm: controllerNumber}
	}
	return ops.Entry{ID: k.ID, Slot: k.Slot, Realm: p.realm(k.FinalName())}
}

// EntriesBy returns a function that makes the entries of keys, or of their aliases.
func (p *Plan) EntriesBy(alias bool) func(keyspace.Key) ops.Entry {
	if alias {
		return AliasEntry
	}
	return p.Entry
}

// AliasEntry returns the entry of a key's alias.
func AliasEntry(k keyspace.Key) ops.Entry {
	return ops.Entry{ID: k.Alias, Slot: k.Slot, Realm: controllerNumber}
}
