package fabric

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/controlplane/topology"
)

// protocol marks routes of this package (rtm_protocol; that of podroutes is 78).
const protocol = 79

// gateway is what the routes go by. Nobody has it: its neighbour entry is written down, since switches answer no ARP.
var gateway = netip.MustParseAddr("169.254.78.2")

// Connect makes the routes from this node to the chains' service addresses and to the switches themselves, by the interface that is at its switch. What is as it should be stays.
func (f *Fabric) Connect(h *topology.Host, services []netip.Prefix) error {
	l, err := interfaceOf(h)
	if err != nil {
		return err
	}
	if err := netlink.NeighSet(&netlink.Neigh{LinkIndex: l.Index, State: netlink.NUD_PERMANENT, IP: gateway.AsSlice(), HardwareAddr: h.Switch.MAC}); err != nil {
		return fmt.Errorf("where the switch %s is: %w", h.Switch.Name, err)
	}
	want := map[string]bool{}
	for _, p := range f.addresses(services) {
		r := &netlink.Route{LinkIndex: l.Index, Dst: &net.IPNet{IP: p.Masked().Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), 32)}, Gw: gateway.AsSlice(), Src: h.IP.AsSlice(),
			Flags: int(netlink.FLAG_ONLINK), Protocol: protocol}
		if err := netlink.RouteReplace(r); err != nil {
			return fmt.Errorf("the route to %s by the switch %s: %w", p, h.Switch.Name, err)
		}
		want[r.Dst.String()] = true
	}
	return removeRoutes(func(r *netlink.Route) bool { return r.LinkIndex != l.Index || !want[r.Dst.String()] })
}

// Disconnect removes what Connect has made.
func Disconnect() error {
	return removeRoutes(func(r *netlink.Route) bool {
		// The neighbour entry first: without the route it is not known where it is.
		_ = netlink.NeighDel(&netlink.Neigh{LinkIndex: r.LinkIndex, IP: gateway.AsSlice()})
		return true
	})
}

func removeRoutes(which func(*netlink.Route) bool) error {
	have, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Protocol: protocol}, netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return fmt.Errorf("listing the routes to the switches: %w", err)
	}
	var errs []error
	for _, r := range have {
		if r.Dst == nil || !which(&r) {
			continue
		}
		if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("removing the route to %s: %w", r.Dst, err))
		}
	}
	return errors.Join(errs...)
}
