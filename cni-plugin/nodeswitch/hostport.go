package nodeswitch

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/cni-plugin/ingressfilter"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/switch/netlinkdump"
)

// The node's own processes reach the switch through a pair of interfaces. So do pods in the host's
// network, for example the etcd gateway. One end of the pair belongs to the node's stack, and the
// other end is a port of the switch:
//
//	process ──▶ route to the service addresses ──▶ ncqnode ═ ncqnode0 ──▶ the switch
//	        ◀── the node's address ◀──────────────────────────────────────
const (
	// HostPort is the number of the switch's port for the node's own processes.
	HostPort = topology.MaxPort
	hostEnd  = "ncqnode"
	portEnd  = "ncqnode0"
)

// HostMAC returns the Ethernet address of the node's end of the pair, which is made from the node's
// IPv4 address. The controller identifies the node as a host by it.
func HostMAC(node netip.Addr) net.HardwareAddr {
	a := node.As4()
	return append(net.HardwareAddr{2, 0x48}, a[:]...)
}

// ConnectHost makes the node a host at the switch's port HostPort, with routes to the service
// addresses. node is the node's IPv4 address. If no other interface has this address, ConnectHost
// assigns it to the interface to the switch, only for traffic to the switch. ConnectHost does not
// change parts that are already correct.
func (s *Switch) ConnectHost(node netip.Addr, services []netip.Prefix) error {
	if !node.Is4() {
		return fmt.Errorf("connecting the node to its switch: %s is no IPv4 address", node)
	}
	l, err := netlink.LinkByName(hostEnd)
	if err == nil && l.Attrs().HardwareAddr.String() != HostMAC(node).String() {
		if err := netlink.LinkDel(l); err != nil {
			return fmt.Errorf("removing an old %s: %w", hostEnd, err)
		}
		l = nil
	}
	if err != nil || l == nil {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.HardwareAddr = hostEnd, HostMAC(node)
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: portEnd}); err != nil {
			return fmt.Errorf("connecting the node to its switch: making %s: %w", hostEnd, err)
		}
	}
	var ends [2]netlink.Link
	for i, name := range []string{hostEnd, portEnd} {
		if ends[i], err = netlink.LinkByName(name); err != nil {
			return fmt.Errorf("connecting the node to its switch: %s: %w", name, err)
		}
	}
	// the filter comes before the interface can receive anything
	if err := s.filter(ends[1].Attrs().Index, betweenSwitches); err != nil {
		return err
	}
	if err := haveAddress(ends[0], node); err != nil {
		return fmt.Errorf("connecting the node to its switch: %w", err)
	}
	for _, l := range ends {
		if err := setUp(l); err != nil {
			return fmt.Errorf("connecting the node to its switch: %w", err)
		}
	}
	if err := s.AddPort(HostPort, portEnd); err != nil {
		return fmt.Errorf("connecting the node to its switch: %w", err)
	}
	return podroutes.ApplyServices(ends[0].Attrs().Index, ends[1].Attrs().HardwareAddr, node, services)
}

// haveAddress assigns an address to the node's end of the pair, if no other interface of the node
// has it. It removes addresses that earlier calls have assigned.
func haveAddress(l netlink.Link, node netip.Addr) error {
	all, err := netlinkdump.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_V4) })
	if err != nil {
		return fmt.Errorf("listing addresses: %w", err)
	}
	elsewhere := false
	for _, a := range all {
		ip, _ := netip.AddrFromSlice(a.IP)
		here := a.LinkIndex == l.Attrs().Index
		if elsewhere = elsewhere || !here && ip.Unmap() == node; here && ip.Unmap() != node {
			if err := netlink.AddrDel(l, &a); err != nil {
				return fmt.Errorf("removing the address %s of %s: %w", ip.Unmap(), hostEnd, err)
			}
		}
	}
	if elsewhere {
		return nil
	}
	// with scope link, the kernel does not choose this address as the source of other traffic
	a := &netlink.Addr{IPNet: &net.IPNet{IP: node.AsSlice(), Mask: net.CIDRMask(32, 32)}, Scope: unix.RT_SCOPE_LINK}
	if err := netlink.AddrReplace(l, a); err != nil {
		return fmt.Errorf("the address %s of %s: %w", node, hostEnd, err)
	}
	return nil
}

func setUp(l netlink.Link) error {
	if err := netlink.LinkSetUp(l); err != nil {
		return fmt.Errorf("setting %s up: %w", l.Attrs().Name, err)
	}
	return nil
}

// FilterStack restricts how the node's own stack handles NetCRAQ packets. The stack accepts them
// only from the switch, forwards none, and sends only those of root's processes. The rules also
// cover packets that the kernel unwraps. FilterStack works on the calling thread's network
// namespace. Its rules stay when the process ends.
func FilterStack() error { return ingressfilter.ApplySwitch(wire.Port, hostEnd) }

// DisconnectHost undoes ConnectHost after the switch has ended. The rules of FilterStack stay.
func DisconnectHost() error {
	l, err := netlink.LinkByName(hostEnd)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(l)
	}
	if err != nil {
		return fmt.Errorf("removing %s: %w", hostEnd, err)
	}
	return nil
}
