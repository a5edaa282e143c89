package controller

import (
	"context"
	"fmt"

	"github.com/netcraq/netcraq/controlplane/chain"
)

// erase empties a switch by loading its program again, unless another chain would lose a member or
// its joiner.
func (c *Controller) erase(ch *chainState, a chain.Erase) {
	d := c.net().byName[a.Switch]
	if err := c.mayErase(ch, d); err != nil {
		c.post(func() { c.touch(ch).EraseFailed(c.now(), a.Seq, err) })
		return
	}
	failed := func(err error) {
		c.notErased(d)
		c.touch(ch).EraseFailed(c.now(), a.Seq, err)
	}
	d.emptying = true
	// Routes must avoid an empty switch, because it routes no packets.
	c.avoided[d.Spec.Name] = true
	c.reroute("switch.avoided", d, "it is being emptied: routes go around it where they can")
	c.afterOthers(d, func() {
		// A chain may have made the switch a member meanwhile. Later requests are queued after this
		// check.
		if err := c.mayErase(ch, d); err != nil {
			failed(err)
			return
		}
		d.Submit(func(ctx context.Context) {
			if err := d.Empty(ctx); err != nil {
				c.post(func() { failed(err) })
			}
		})
	})
}

// notErased lets routes use a switch again if emptying it has failed.
func (c *Controller) notErased(d *device) {
	d.emptying = false
	if d.ready && c.avoided[d.Spec.Name] {
		delete(c.avoided, d.Spec.Name)
		c.reroute("switch.rerouted", d, "it is not emptied: routes go by it")
	}
}

// mayErase returns why a switch must not be emptied for a chain, or nil if it may.
func (c *Controller) mayErase(ch *chainState, d *device) error {
	for _, other := range c.net().chains {
		conf := other.m.Status(c.now()).Config
		if conf.IsMember(d.Spec.Name) || other != ch && conf.Shadow == d.Spec.Name {
			return fmt.Errorf("it has values of before, which only loading its program anew can empty, and chain %s needs it as it is: "+
				"take it out of that chain first, or restart it", other.topo.Name)
		}
	}
	return nil
}
