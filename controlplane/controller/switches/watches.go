package switches

import (
	"context"
	"slices"

	"github.com/netcraq/netcraq/controlplane/controller/tableplan"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	v1 "github.com/p4lang/p4runtime/go/p4/v1"
)

// WatchSoon makes the worker update the tables of watches soon. One update covers all changes that
// were made before it begins.
func (d *Device) WatchSoon() {
	if d.watchesStale.Swap(true) {
		return
	}
	d.Submit(func(ctx context.Context) {
		d.watchesStale.Store(false) // must come before writeWatches reads the watches
		err := d.Read(ctx)
		if err == nil {
			err = d.writeWatches(ctx)
		}
		if err != nil && !Passing(err) {
			d.owner.Post(func() { d.owner.Event("switch.not-watching", d, err.Error()) })
		}
	})
}

// writeWatches makes the switch hold the watches of its chains, in the configurations that were
// last installed.
func (d *Device) writeWatches(ctx context.Context) error {
	if slices.ContainsFunc(tableplan.WatchTables, d.lacks) {
		return nil
	}
	p := d.owner.Plan()
	sw := p.Topology.Switch(d.Spec.Name)
	if sw == nil {
		return ErrGone
	}
	var want tableplan.WatchPart
	for id, conf := range d.parts {
		ct := p.ChainOf(id)
		if ct == nil {
			continue
		}
		w := p.Watch(ct, sw, conf, d.owner.Watches())
		want.Groups = append(want.Groups, w.Groups...)
		want.Chain = append(want.Chain, w.Chain...)
		want.Keys = append(want.Keys, w.Keys...)
	}
	var have []p4rt.Group
	groups := p.GroupsAt(sw)
	for _, g := range d.groups {
		if slices.ContainsFunc(p.Chains, func(id uint8) bool {
			return groups.OwnsWatch(id, g.ID)
		}) {
			have = append(have, g)
		}
	}
	byID := func(a, b p4rt.Group) int { return int(a.ID) - int(b.ID) }
	slices.SortFunc(have, byID)
	slices.SortFunc(want.Groups, byID)
	change, remove, err := p4rt.DiffGroups(have, want.Groups)
	if err != nil {
		return err
	}
	diff := func(want []p4rt.Entry, tables ...string) ([]*v1.Update, error) {
		entries, err := d.encode(want...)
		if err != nil {
			return nil, err
		}
		var have []*v1.TableEntry
		for _, table := range tables {
			h, err := d.have(table, func(p4rt.Entry) bool { return true })
			if err != nil {
				return nil, err
			}
			have = append(have, h...)
		}
		return p4rt.DiffEntries(have, entries), nil
	}
	keys, err := diff(want.Keys, "watched_key", "watcher")
	if err != nil {
		return err
	}
	chains, err := diff(want.Chain, "watched_chain")
	if err != nil {
		return err
	}
	// A chain's watch groups are changed only while no packet uses them. Meanwhile packets use the
	// chain's own multicast tree, so that no acknowledgement to a member is lost.
	if len(change)+len(remove) > 0 {
		off, err := diff(nil, "watched_chain")
		if err != nil {
			return err
		}
		if err := d.Apply(ctx, off...); err != nil {
			return err
		}
		if chains, err = diff(want.Chain, "watched_chain"); err != nil {
			return err
		}
	}
	for _, updates := range [][]*v1.Update{change, remove, keys, chains} {
		if err := d.Apply(ctx, updates...); err != nil {
			return err
		}
	}
	return nil
}
