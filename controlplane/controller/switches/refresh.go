package switches

import (
	"context"
	"errors"

	v1 "github.com/p4lang/p4runtime/go/p4/v1"
)

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

// refresh writes the changes of a switch's routes, and of the multicast groups of its chains.
func (d *Device) refresh(ctx context.Context) {
	err := d.Read(ctx)
	if errors.Is(err, ErrNotConnected) {
		return // the set-up will write everything
	}
	if err == nil {
		err = d.WriteBase(ctx)
	}
	for id, conf := range d.parts {
		if ct := d.owner.Plan().ChainOf(id); ct == nil {
			delete(d.parts, id)
		} else if err == nil {
			var rest []*v1.Update
			if rest, err = d.install(ctx, ct, conf, true); err == nil {
				err = d.Apply(ctx, rest...)
			}
		}
	}
	if err != nil && !Passing(err) { // a lost switch is written when it is back
		d.owner.Post(func() { d.owner.Event("switch.not-rerouted", d, err.Error()) })
	}
}
