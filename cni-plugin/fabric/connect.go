package fabric

import (
	"net/netip"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/cni-plugin/ingressfilter"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// Connect makes the routes from this node to the chains' service addresses and to the switches,
// through the interface that leads to the node's switch. Correct routes stay. Only root's processes
// on the node use them. The node forwards no NetCRAQ packets of pods, because a pod would reach the
// switches under the node's address and with its rights.
func (f *Fabric) Connect(h *topology.Host, services []netip.Prefix) error {
	l, err := interfaceOf(h)
	if err != nil {
		return err
	}
	if err := ingressfilter.ApplySwitch(wire.Port, l.Name); err != nil {
		return err
	}
	return podroutes.ApplyServices(l.Index, h.Switch.MAC, h.IP, f.addresses(services))
}
