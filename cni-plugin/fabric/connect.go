package fabric

import (
	"net/netip"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/cni-plugin/ingressfilter"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// Connect makes the routes from this node to the chains' service addresses and to the switches.
// They lead through the interface to the node's switch. Connect does not change correct routes.
// Only root's processes on the node may use the routes. The node does not forward NetCRAQ packets
// of pods, because a pod would otherwise reach the switches under the node's address and with the
// node's rights.
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
