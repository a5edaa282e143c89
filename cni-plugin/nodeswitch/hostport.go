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

// The node's own processes (and pods in the host's network, such as the etcd gateway) reach the
// switch through a pair of interfaces. One end is in the node's stack, the other is the switch's
// port:
//
//	process ──▶ route to the service addresses ──▶ ncqnode ═ ncqnode0 ──▶ the switch
//	        ◀── the node's address ◀──────────────────────────────────────
const (
	// HostPort is the switch's port for the node's own processes.
	HostPort = topology.MaxPort
	hostEnd  = "ncqnode"
	portEnd  = "ncqnode0"
)

// HostMAC is the Ethernet address of the node's end, made from the node's IPv4 address. The
// controller needs it to identify the node as a host.
func HostMAC(node netip.Addr) net.HardwareAddr {
	a := node.As4()
	return append(net.HardwareAddr{2, 0x48}, a[:]...)
}

// ConnectHost makes the node with an IPv4 address a host at the switch's port HostPort, with routes
// to the service addresses. Correct parts stay. If the node has the address at no other interface,
// ConnectHost assigns it to the interface to the switch, only for traffic to the switch.
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
	// before the interface can receive anything
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

// haveAddress assigns an address to the node's end, if no other interface of the node has it, and
// removes addresses of earlier calls.
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
	// scope link, so that the kernel does not choose it as the source of other traffic
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

// FilterStack makes the node's own stack accept NetCRAQ packets only from the switch, forward none,
// and send only those of root's processes. The rules cover packets that the kernel unwraps.
// FilterStack works on the calling thread's network namespace, and its rules stay when the process
// ends.
func FilterStack() error { return ingressfilter.ApplySwitch(wire.Port, hostEnd) }

// DisconnectHost undoes ConnectHost, after the switch has ended. FilterStack's rules stay.
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
