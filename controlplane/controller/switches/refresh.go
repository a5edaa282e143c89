package switches

import (
	"context"
	"errors"

	v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/netcraq/netcraq/controlplane/controller/tableplan"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// complete is what a switch's part of a chain's configuration follows from, besides the chain's id.
type complete struct {
	plan    *tableplan.Plan
	graph   *topology.Graph
	epoch   uint16
	filling bool
}

// RefreshSoon makes the worker refresh the switch soon. One refresh covers all changes that were
// made before it begins.
func (d *Device) RefreshSoon() {
	if d.stale.Swap(true) {
		return
	}
	d.Submit(func(ctx context.Context) {
		d.stale.Store(false) // must come before refresh reads the plan
		d.refresh(ctx)
	})
}

// RefreshLater refreshes the switch after the others that are being refreshed, so that the leases
// and installations that chains wait for are not held up by a change of the routes of a large
// network.
func (d *Device) RefreshLater() {
	if d.staleLater.Swap(true) {
		return
	}
	go func() {
		d.limits.parts <- struct{}{}
		d.Submit(func(ctx context.Context) {
			defer func() { <-d.limits.parts }()
			d.staleLater.Store(false) // before it reads the plan
			d.refresh(ctx)
		})
	}()
}

// refresh writes the changes of a switch's routes, and of the multicast groups of its chains.
func (d *Device) refresh(ctx context.Context) {
	err := d.Read(ctx)
	if errors.Is(err, ErrNotConnected) {
		return // the set-up will write everything
	}
	if err == nil {
		err = d.WriteBase(ctx)
	}
	p := d.owner.Plan()
	by := complete{plan: p, graph: p.Graph()} // before the parts are made of it
	var parts []part
	for id, conf := range d.parts {
		by.epoch, by.filling = conf.Epoch, conf.Filling
		if ct := p.ChainOf(id); ct == nil {
			delete(d.parts, id)
		} else if d.complete[id] != by {
			parts = append(parts, part{ct, conf})
		}
	}
	if err == nil && len(parts) > 0 {
		var rest []*v1.Update
		if rest, err = d.install(ctx, true, parts...); err == nil {
			err = d.Apply(ctx, rest...)
		}
	}
	for _, x := range parts {
		by.epoch, by.filling = x.conf.Epoch, x.conf.Filling
		if err == nil {
			d.complete[x.ct.ID] = by
		}
	}
	if err != nil && !Passing(err) { // a lost switch is written when it is back
		d.owner.Post(func() { d.owner.Event("switch.not-rerouted", d, err.Error()) })
	}
}
