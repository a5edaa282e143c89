package switches

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/controller/tableplan"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// errChanged says that a switch's content differs from what the controller read in the same
// connection.
var errChanged = fmt.Errorf("somebody else changes it, or it was emptied, and it is read again: %w", ErrNotConnected)

// chainTables lists the tables that a chain's guarantees depend on. Only this controller changes
// their content.
var chainTables = []string{"chain_config", "key_index"}

// write sends updates in the connection in which the switch's tables were read. In a later
// connection, the switch may have been restarted or replaced.
func (d *Device) write(ctx context.Context, updates ...*v1.Update) error {
	if d.loadedAt == 0 {
		return fmt.Errorf("%s has not been read in this connection: %w", d.Spec.Name, ErrNotConnected)
	}
	return d.Client.WriteIn(ctx, d.loadedAt, updates...)
}

// Apply writes updates and remembers the resulting content of the switch. If the switch
// unexpectedly has an entry, or lacks one, Apply repeats the update as an insertion or a
// modification, whichever fits, because only the result counts. chainTables are an exception. A
// switch that has lost an entry of these tables has lost more, and must get no role based on its
// former content. So Apply ends the connection, and the chains check the content that is read in
// the next connection (chain.Machine.compare).
func (d *Device) Apply(ctx context.Context, updates ...*v1.Update) error {
	if len(updates) == 0 {
		return nil
	}
	err := d.write(ctx, updates...)
	var we *p4rt.WriteError
	refused := errors.As(err, &we)
	if err == nil || refused {
		d.worked.Store(int64(d.owner.Now()))
	}
	if refused {
		var again []*v1.Update
		var final []p4rt.UpdateError
		for _, u := range we.Updates {
			other := u.Code == codes.AlreadyExists && u.Update.Type == v1.Update_INSERT ||
				u.Code == codes.NotFound && u.Update.Type != v1.Update_INSERT
			if other && slices.Contains(chainTables, d.tableOf(u.Update)) {
				return d.loseTrack(fmt.Errorf("%w: %w", errChanged, we))
			}
			switch {
			case u.Code == codes.AlreadyExists && u.Update.Type == v1.Update_INSERT:
				again = append(again, p4rt.Modify(u.Update.Entity))
			case u.Code == codes.NotFound && u.Update.Type == v1.Update_MODIFY:
				again = append(again, p4rt.Insert(u.Update.Entity))
			case u.Code == codes.NotFound && u.Update.Type == v1.Update_DELETE:
			default:
				final = append(final, u)
			}
		}
		if len(final) > 0 {
			failed := map[int]bool{}
			for _, u := range we.Updates {
				failed[u.Index] = u.Update.Type != v1.Update_DELETE || u.Code != codes.NotFound
			}
			for i, u := range updates {
				if !failed[i] {
					d.remember(u)
				}
			}
			we.Updates = final
			return we
		}
		err = nil
		if len(again) > 0 {
			err = d.write(ctx, again...)
		}
	}
	if err != nil {
		return d.loseTrack(err) // it is not known which of the updates took effect
	}
	for _, u := range updates {
		d.remember(u)
	}
	return nil
}

// loseTrack notes that the switch's content is no longer known, for the reason that it returns. The
// switch is then read again. If chains have already checked the switch's content, the switch is
// read in another connection, so that the chains also check the new content.
func (d *Device) loseTrack(err error) error {
	if d.setUpAt == d.loadedAt {
		d.Client.Reconnect(d.loadedAt, err)
	}
	d.loadedAt = 0
	return err
}

// tableOf returns the table of an update, or "" if it has none.
func (d *Device) tableOf(u *v1.Update) string {
	te := u.GetEntity().GetTableEntry()
	if te == nil {
		return ""
	}
	e, err := d.prog.Pipeline.Info.Decode(&v1.TableEntry{TableId: te.TableId})
	if err != nil {
		return "" // only updates of this P4Info are ours, so this update is not
	}
	return e.Table
}

func (d *Device) remember(u *v1.Update) {
	if te := u.Entity.GetTableEntry(); te != nil {
		table := d.tableOf(u)
		if table == "" {
			return
		}
		if u.Type == v1.Update_DELETE {
			delete(d.entries[table], p4rt.MatchKey(te))
		} else {
			d.entries[table][p4rt.MatchKey(te)] = te
		}
		if table == "key_index" {
			d.rememberSlot(te, u.Type == v1.Update_DELETE)
		}
		return
	}
	if me := u.Entity.GetMeterEntry(); me != nil {
		d.rates[int(me.Index.Index)] = me.GetConfig().GetPir()
	}
	if g, ok := p4rt.DecodeGroup(u.Entity); ok {
		if u.Type == v1.Update_DELETE {
			delete(d.groups, g.ID)
		} else {
			d.groups[g.ID] = g
		}
	}
}

// rememberSlot notes a key_index entry that was made, changed or deleted.
func (d *Device) rememberSlot(te *v1.TableEntry, deleted bool) {
	k, err := d.readSlot(te)
	if err != nil {
		return // this program has no such entry (see remember)
	}
	d.placedMu.Lock()
	defer d.placedMu.Unlock()
	if deleted {
		delete(d.placed[k.ID.Chain()], k.ID)
		return
	}
	if d.placed[k.ID.Chain()] == nil {
		d.placed[k.ID.Chain()] = map[wire.Key]ops.Entry{}
	}
	d.placed[k.ID.Chain()][k.ID] = k
}

// readSlot decodes a key_index entry. If the entry will be deleted, readSlot decodes only its
// KEY_ID.
func (d *Device) readSlot(te *v1.TableEntry) (ops.Entry, error) {
	e, err := d.prog.Pipeline.Info.Decode(te)
	if err != nil {
		return ops.Entry{}, err
	}
	return tableplan.ReadSlotEntry(e), nil
}

// KeyEntries returns the key_index entries of a chain in the switch, if the switch has acknowledged
// them. It is safe for concurrent use.
func (d *Device) KeyEntries(chain uint8) map[wire.Key]ops.Entry {
	d.placedMu.Lock()
	defer d.placedMu.Unlock()
	return maps.Clone(d.placed[chain])
}

// have returns the known entries of a table, in no particular order.
func (d *Device) have(table string, choose func(p4rt.Entry) bool) ([]*v1.TableEntry, error) {
	var out []*v1.TableEntry
	for _, te := range d.entries[table] {
		e, err := d.prog.Pipeline.Info.Decode(te)
		if err != nil {
			return nil, err
		}
		if choose(e) {
			out = append(out, te)
		}
	}
	return out, nil
}

// encode makes protobufs of planned entries. program.Read has already rejected programs that lack a
// table or action of the plan.
func (d *Device) encode(entries ...p4rt.Entry) ([]*v1.TableEntry, error) {
	var out []*v1.TableEntry
	for _, e := range entries {
		te, err := d.prog.Pipeline.Info.Encode(e)
		if err == nil && d.Former() {
			te, err = d.asFormer(d.prog.Pipeline.Info, e, te)
		}
		if err != nil {
			return nil, err
		}
		if te != nil {
			out = append(out, te)
		}
	}
	return out, nil
}

// writeDefault writes the default entry of a table.
func (d *Device) writeDefault(ctx context.Context, e p4rt.Entry) error {
	te, err := d.prog.Pipeline.Info.Encode(e)
	if err != nil {
		return err
	}
	return d.write(ctx, p4rt.Modify(p4rt.EntryEntity(te)))
}

// readDefault reads the default entry of a table. ok is false if the switch does not return a
// default entry.
func (d *Device) readDefault(ctx context.Context, table string) (e p4rt.Entry, ok bool, err error) {
	te, err := d.Client.ReadDefault(ctx, table)
	if err != nil || te == nil {
		return e, false, err
	}
	e, err = d.prog.Pipeline.Info.Decode(te)
	return e, err == nil, err
}

// ofChain returns a filter for entries whose key names a chain.
func ofChain(ct *topology.Chain) func(p4rt.Entry) bool {
	return func(e p4rt.Entry) bool { return uint8(e.Exact("chain").Uint64()) == ct.ID }
}

// Read reads a switch's tables again, so that their remembered content is right. It returns
// ErrNotConnected if the switch was not set up in this connection.
func (d *Device) Read(ctx context.Context) error {
	s := d.Client.State()
	if s.Phase != p4rt.Primary || d.setUpAt != s.Stream {
		return fmt.Errorf("%s: %w", d.Spec.Name, ErrNotConnected)
	}
	return d.load(ctx, s.Stream)
}

// ReadIn is Read in a given connection, in which a chain has checked the switch's content. In a
// later connection the switch may be empty.
func (d *Device) ReadIn(ctx context.Context, stream int) error {
	if d.Client.State().Stream != stream {
		return fmt.Errorf("%s was connected anew meanwhile: %w", d.Spec.Name, ErrNotConnected)
	}
	return d.Read(ctx)
}
