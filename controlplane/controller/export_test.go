package controller

import "github.com/netcraq/netcraq/api/wire"

// SendLease sends a LEASE that belongs to no chain to a switch.
func (c *Controller) SendLease(sw string) error {
	return c.net().byName[sw].SendLease(&wire.Packet{Op: wire.Lease})
}
