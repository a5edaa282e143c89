package controller

import (
	"context"
	"fmt"
	"slices"

	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/p4rt"
)

// erase empties a switch by loading its program again, unless another chain would lose a member or
// its joiner.
func (c *Controller) erase(ch *chainState, a chain.Erase) {
	d := c.net().byName[a.Switch]
	for _, other := range c.net().chains {
		if other != ch && slices.Contains(other.m.Status(c.now()).Config.Learners(), a.Switch) {
			err := fmt.Errorf("it has values of before, which only loading its program anew can empty, and chain %s needs it as it is: "+
				"take it out of that chain first, or restart it", other.topo.Name)
			c.post(func() { c.touch(ch).EraseFailed(c.now(), a.Seq, err) })
			return
		}
	}
	d.emptying = true
	// While it is empty it routes nothing either.
	c.avoided[d.sw.Name] = true
	c.reroute("switch.avoided", d, "it is being emptied: routes go around it where they can")
	c.afterOthers(d, func() {
		d.submit(func(ctx context.Context) {
			s := d.client.State()
			err := error(errNotConnected)
			if s.Phase == p4rt.Primary {
				err = d.client.ReloadIn(ctx, s.Stream, c.prog.pipeline)
			}
			if err != nil {
				c.post(func() {
					d.emptying = false
					c.touch(ch).EraseFailed(c.now(), a.Seq, err)
				})
				return
			}
			d.freshAt, d.loadedAt = s.Stream, 0
			d.setUp(ctx, s.Stream)
		})
	})
}
