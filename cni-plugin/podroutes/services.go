package podroutes

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/netcraq/netcraq/switch/netlinkdump"
)

// servicesProtocol is the protocol number of routes to service addresses. Protocol is the number of
// all other routes of this package.
const servicesProtocol = 79

// servicesGateway is the gateway of the routes to service addresses. No host has this address. Its
// neighbour entry is permanent, because switches do not answer ARP.
var servicesGateway = netip.MustParseAddr("169.254.78.2")

// ApplyServices makes the routes to service addresses. They have the source address source of this
// node, and lead through the interface link to the switch with the Ethernet address sw.
// ApplyServices removes unwanted routes and neighbour entries of earlier calls, and does not change
// correct ones.
func ApplyServices(link int, sw net.HardwareAddr, source netip.Addr, services []netip.Prefix) error {
	if err := netlink.NeighSet(&netlink.Neigh{LinkIndex: link, State: netlink.NUD_PERMANENT,
		IP: servicesGateway.AsSlice(), HardwareAddr: sw}); err != nil {
		return fmt.Errorf("where the switch is: %w", err)
	}
	want := map[netip.Prefix]*netlink.Route{}
	for _, p := range services {
		want[p.Masked()] = &netlink.Route{LinkIndex: link, Dst: ipNet(p.Masked()),
			Gw: servicesGateway.AsSlice(), Src: source.AsSlice(), Flags: int(netlink.FLAG_ONLINK),
			Protocol: servicesProtocol}
	}
	return errors.Join(replaceRoutes(servicesProtocol, want), forgetSwitches(link))
}

// RemoveServices removes the routes that ApplyServices has made.
func RemoveServices() error {
	return errors.Join(replaceRoutes(servicesProtocol, nil), forgetSwitches(0))
}

// forgetSwitches removes the neighbour entries that ApplyServices has made, except for those of one
// interface.
func forgetSwitches(but int) error {
	all, err := netlinkdump.Whole(func() ([]netlink.Neigh, error) { return netlink.NeighList(0, netlink.FAMILY_V4) })
	if err != nil {
		return fmt.Errorf("listing neighbours: %w", err)
	}
	var errs []error
	for _, n := range all {
		if n.LinkIndex != but && n.IP.Equal(servicesGateway.AsSlice()) {
			if err := netlink.NeighDel(&n); err != nil {
				errs = append(errs, fmt.Errorf("forgetting where a switch was: %w", err))
			}
		}
	}
	return errors.Join(errs...)
}
