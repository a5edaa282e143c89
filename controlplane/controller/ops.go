package controller

import (
	"strings"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/controller/switches"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// This file implements what package ops needs: goroutines, the system's clock, and switches over
// P4Runtime.

// procedures returns the procedures of a chain.
func (c *Controller) procedures(ct *topology.Chain) *ops.Chain {
	return &ops.Chain{Runtime: switches.NewGoroutines(c.now), ID: ct.ID, Pool: c.pool, Equality: &c.equality,
		Entry: func(k ops.Key) ops.Entry { return c.net().plan.Entry(k) },
		// The controller buries only keys of the node API. Other keys belong to their users: for
		// example, a gateway treats a value that it has not written as a forgery.
		Buries: func(k ops.Key) bool { return strings.HasPrefix(k.Name, nodeapi.KeyPrefix) },
		Switch: func(name string) (*ops.Switch, error) {
			d, err := c.device(name)
			if err != nil {
				return nil, err
			}
			return d.Switch, nil
		}}
}
