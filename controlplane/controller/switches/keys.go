package switches

import (
	"context"

	v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/controller/tableplan"
	"github.com/netcraq/netcraq/controlplane/keyspace"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// forgetFormer deletes the key_index entries that a switch must not have as a member (ops.Former).
func (d *Device) forgetFormer(ctx context.Context, ct *topology.Chain, keys []keyspace.Key,
	used func(wire.Key) bool) error {
	configs, err := d.have("chain_config", ofChain(ct))
	if err != nil {
		return err
	}
	had := chain.None
	for _, te := range configs { // there is at most one entry
		e, err := d.prog.Pipeline.Info.Decode(te)
		if err != nil {
			return err
		}
		had = chain.Role(e.Param("role").Uint64())
	}
	former := ops.Former(had, keys, used)
	strange, err := d.have("key_index", func(e p4rt.Entry) bool {
		id := wire.Key(e.Exact("KEY_ID").Uint64())
		return id.Chain() == ct.ID && former(id)
	})
	if err != nil {
		return err
	}
	return d.Apply(ctx, p4rt.DiffEntries(strange, nil)...)
}

// WriteKeys inserts or deletes the key_index entries of keys. The switch must have been read.
func (d *Device) WriteKeys(ctx context.Context, insert bool, keys []ops.Entry) error {
	var updates []*v1.Update
	for _, k := range keys {
		te, err := d.encode(d.slotEntry(k))
		if err != nil {
			return err
		}
		old := d.entries["key_index"][p4rt.MatchKey(te[0])]
		switch {
		case insert && old == nil:
			updates = append(updates, p4rt.Insert(p4rt.EntryEntity(te[0])))
		case insert && !p4rt.SameAction(old, te[0]):
			updates = append(updates, p4rt.Modify(p4rt.EntryEntity(te[0])))
		case !insert && old != nil:
			updates = append(updates, p4rt.Delete(p4rt.EntryEntity(&v1.TableEntry{TableId: te[0].TableId,
				Match: te[0].Match})))
		}
	}
	return d.Apply(ctx, updates...)
}

// slotEntry returns a key's entry in the form that the switch's program supports. If the program
// has no hidden keys, a hidden entry becomes a closed one.
func (d *Device) slotEntry(e ops.Entry) p4rt.Entry {
	e.Hidden = e.Hidden && !d.Former()
	return tableplan.SlotEntry(e)
}

// Realign updates the given keys' entries in the switch if they have another realm. It skips hidden
// entries, which have no realm. Closed entries stay closed, because only the operation on the key
// opens them.
func (d *Device) Realign(ctx context.Context, keys []ops.Entry) error {
	var updates []*v1.Update
	for _, k := range keys {
		has, ok := d.placed[k.ID.Chain()][k.ID] // only the worker changes d.placed, so no lock is needed
		if !ok || has.Hidden {
			continue
		}
		k.Realm |= has.Realm & tableplan.ClosedKey
		te, err := d.encode(tableplan.SlotEntry(k))
		if err != nil {
			return err
		}
		if !p4rt.SameAction(d.entries["key_index"][p4rt.MatchKey(te[0])], te[0]) {
			updates = append(updates, p4rt.Modify(p4rt.EntryEntity(te[0])))
		}
	}
	return d.Apply(ctx, updates...)
}
