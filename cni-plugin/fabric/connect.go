package fabric

import (
	"net/netip"

	"github.com/netcraq/netcraq/cni-plugin/podroutes"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// Connect makes the routes from this node to the chains' service addresses and to the switches themselves, by the interface that is at its switch. What is as it should be stays.
func (f *Fabric) Connect(h *topology.Host, services []netip.Prefix) error {
	l, err := interfaceOf(h)
	if err != nil {
		return err
	}
	return podroutes.ApplyServices(l.Index, h.Switch.MAC, h.IP, f.addresses(services))
}
