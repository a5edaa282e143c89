// Package podroutes makes pods of different nodes reach each other: for the pods of each other node
// there is one route, straight to the node where the two share a link, and through a VXLAN tunnel
// where they do not.
//
//	10.244.2.0/24 via 192.168.0.2            the node 192.168.0.2 is on a link of ours
//	10.244.3.0/24 via 10.244.3.0 dev ncqvx   it is not: VXLAN to 192.168.7.3
//
// The routes carry a protocol number of their own. So what the package made is told from what
// others made, and [Apply] can be called at any time, after a crash as well: it adds what is
// missing, changes what is different, and removes what nobody asks for any more.
//
// A tunnel needs no exchange of addresses: the Ethernet address of a node's end is made from the
// node's address, and its IP address is the first of its pods' prefix, as flannel has it too.
package podroutes

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/cni-plugin/ingressfilter"
	"github.com/netcraq/netcraq/internal/netdump"
)

const (
	// Protocol marks routes of this package (rtm_protocol; iproute2 keeps the numbers below 5 and
	// from 8 to 18, 42 and 186 to 192).
	Protocol = 78
	// VXLANPort is the UDP port of tunnels: not the usual 4789, which pods may have a use for. No
	// pod may send to it (see package agent's podRules).
	VXLANPort = 20037
	// VNI is the tunnels' network identifier, 24 bits.
	VNI = 20035
	// Device is the tunnels' interface.
	Device = "ncqvx"
	// VXLANOverhead is what a tunnel takes of the MTU, in bytes: Ethernet, VXLAN, UDP and IPv4
	// headers.
	VXLANOverhead = 14 + 8 + 8 + 20
)

// Node is one node of the cluster.
type Node struct {
	Name     string         `json:"name"`
	Address  netip.Addr     `json:"address"`  // that other nodes reach it by; IPv4
	PodCIDRs []netip.Prefix `json:"podCIDRs"` // IPv4
}

// Mode says how other nodes' pods are reached.
type Mode string

// The modes.
const (
	Auto   Mode = "auto"   // directly where two nodes share a link, else by VXLAN
	Direct Mode = "direct" // never by VXLAN: a node that is not on a link is an error
	VXLAN  Mode = "vxlan"  // always by VXLAN
)

// Set implements flag.Value.
func (m *Mode) Set(s string) error {
	if !slices.Contains([]Mode{Auto, Direct, VXLAN}, Mode(s)) {
		return fmt.Errorf("the mode is auto, direct or vxlan, not %q", s)
	}
	*m = Mode(s)
	return nil
}

// String implements flag.Value.
func (m *Mode) String() string { return string(*m) }

// Type implements pflag.Value.
func (*Mode) Type() string { return "auto|direct|vxlan" }

// Apply makes the routes of the calling thread's network namespace those to the other nodes' pods.
// The error names the nodes that cannot be reached; the others can, so that one node's mistake is
// not everybody's.
//
// It also says who may send in tunnels, those of PeerLink included: each other node in its own, and
// nobody else. Without that no tunnel is made.
func Apply(self Node, others []Node, mode Mode) error {
	if err := self.Check(); err != nil {
		return err
	}
	filtered := filterTunnels(self, others)
	others, errs := fit(self, others)
	var tunnels []Node
	want := map[netip.Prefix]*netlink.Route{}
	for _, n := range others {
		out, err := onLink(n.Address)
		switch {
		case mode == VXLAN || mode == Auto && err == nil && out == 0:
			tunnels = append(tunnels, n)
		case err != nil:
			errs = append(errs, fmt.Errorf("node %s: %w", n.Name, err))
		case out == 0:
			errs = append(errs, fmt.Errorf("node %s (%s) is on no link of this node, and the mode is %s: use auto or vxlan", n.Name, n.Address, mode))
		default:
			for _, p := range n.PodCIDRs {
				want[p] = &netlink.Route{LinkIndex: out, Gw: n.Address.AsSlice(), Dst: ipNet(p), Protocol: Protocol}
			}
		}
	}
	if len(tunnels) == 0 {
		errs = append(errs, filtered, removeTunnel())
	} else if filtered != nil {
		errs = append(errs, filtered)
	} else if index, err := tunnel(self, tunnels); err != nil {
		errs = append(errs, err)
	} else {
		for _, n := range tunnels {
			for _, p := range n.PodCIDRs {
				want[p] = &netlink.Route{LinkIndex: index, Gw: n.end().AsSlice(), Dst: ipNet(p),
					Protocol: Protocol, Flags: int(netlink.FLAG_ONLINK)}
			}
		}
	}
	return errors.Join(append(errs, replaceRoutes(Protocol, want))...)
}

// Remove removes all that Apply has made, after RemovePeerLinks has removed the other tunnels.
func Remove() error {
	return errors.Join(removeTunnel(), replaceRoutes(Protocol, nil), ingressfilter.RemoveTunnels())
}

// ApplyTunnels is what of Apply the switches' tunnels need where another plugin makes the ways to
// pods: it says who may send in tunnels, and routes and tunnels for pods, of an agent before, go.
func ApplyTunnels(self Node, others []Node) error {
	if !self.Address.Is4() {
		return self.Check()
	}
	return errors.Join(filterTunnels(self, others), removeTunnel(), replaceRoutes(Protocol, nil))
}

// filterTunnels has the node take VXLAN from the other nodes alone, each in its own tunnels.
func filterTunnels(self Node, others []Node) error {
	out, err := sourceLink(self.Address)
	if err != nil {
		return err
	}
	t := ingressfilter.Tunnels{Port: VXLANPort, Address: self.Address, Uplink: out.Attrs().Name}
	for _, n := range others {
		if n.Address.Is4() && n.Address != self.Address {
			t.From = append(t.From, ingressfilter.Tunnel{Peer: n.Address, VNI: VNI},
				ingressfilter.Tunnel{Peer: n.Address, VNI: uint32(PeerVNI(self.Address, n.Address))})
		}
	}
	return ingressfilter.ApplyTunnels(t)
}

// Check says what is wrong with what is known of a node.
func (n Node) Check() error {
	if !n.Address.Is4() {
		return fmt.Errorf("node %s has no IPv4 address (%s)", n.Name, n.Address)
	}
	if len(n.PodCIDRs) == 0 {
		return fmt.Errorf("node %s has no prefix for pods (yet)", n.Name)
	}
	for _, p := range n.PodCIDRs {
		if !p.IsValid() || !p.Addr().Is4() || p != p.Masked() {
			return fmt.Errorf("node %s: the prefix %s for pods is no IPv4 network", n.Name, p)
		}
	}
	return nil
}

// fit leaves out what would send packets astray: nodes of which too little is known, and those with
// a prefix that another one has.
func fit(self Node, others []Node) (good []Node, errs []error) {
	for _, n := range others {
		err := n.Check()
		for _, m := range append([]Node{self}, good...) {
			for _, p := range n.PodCIDRs {
				if err == nil && slices.ContainsFunc(m.PodCIDRs, p.Overlaps) {
					err = fmt.Errorf("the prefix %s for pods of node %s overlaps one of node %s", p, n.Name, m.Name)
				}
			}
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		good = append(good, n)
	}
	return good, errs
}

// onLink is the interface by which an address is reached without a gateway; 0 if it takes one.
func onLink(a netip.Addr) (ifindex int, err error) {
	routes, err := netlink.RouteGet(a.AsSlice())
	if err != nil {
		return 0, fmt.Errorf("looking for a way to %s: %w", a, err)
	}
	for _, r := range routes {
		if r.Gw == nil && r.Type == unix.RTN_UNICAST {
			return r.LinkIndex, nil
		}
	}
	return 0, nil
}

// replaceRoutes makes the routes of a protocol those that are wanted.
func replaceRoutes(protocol int, want map[netip.Prefix]*netlink.Route) error {
	var errs []error
	for to, r := range want {
		if err := netlink.RouteReplace(r); err != nil {
			errs = append(errs, fmt.Errorf("the route to %s: %w", to, err))
		}
	}
	have, err := netdump.Whole(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Protocol: netlink.RouteProtocol(protocol)},
			netlink.RT_FILTER_PROTOCOL)
	})
	if err != nil {
		return errors.Join(append(errs, fmt.Errorf("listing routes: %w", err))...)
	}
	for _, r := range have {
		ip, _ := netip.AddrFromSlice(r.Dst.IP)
		bits, _ := r.Dst.Mask.Size()
		if w := want[netip.PrefixFrom(ip.Unmap(), bits)]; w != nil && w.LinkIndex == r.LinkIndex && w.Gw.Equal(r.Gw) {
			continue
		}
		if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("removing the route to %s: %w", r.Dst, err))
		}
	}
	return errors.Join(errs...)
}

// end is the address of a node's end of tunnels, in the tunnels.
func (n Node) end() netip.Addr { return n.PodCIDRs[0].Addr() }

// hardwareAddress is the Ethernet address of a node's end of tunnels: locally administered, and the
// node's address.
func (n Node) hardwareAddress() net.HardwareAddr {
	a := n.Address.As4()
	return append(net.HardwareAddr{2, 0x56}, a[:]...)
}

// tunnel makes the interface for tunnels to nodes, and gives its index.
func tunnel(self Node, to []Node) (int, error) {
	out, err := sourceLink(self.Address)
	if err != nil {
		return 0, err
	}
	l, err := netlink.LinkByName(Device)
	if old, ok := l.(*netlink.Vxlan); err == nil && (!ok || !old.SrcAddr.Equal(self.Address.AsSlice()) ||
		old.VxlanId != VNI || old.Port != VXLANPort) {
		if err := netlink.LinkDel(l); err != nil {
			return 0, fmt.Errorf("removing an old %s: %w", Device, err)
		}
		err = netlink.LinkNotFoundError{}
		l = nil
	}
	if l == nil || err != nil {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU, attrs.HardwareAddr = Device, out.Attrs().MTU-VXLANOverhead, self.hardwareAddress()
		v := &netlink.Vxlan{LinkAttrs: attrs, VxlanId: VNI, VtepDevIndex: out.Attrs().Index,
			SrcAddr: self.Address.AsSlice(), Port: VXLANPort}
		if err := netlink.LinkAdd(v); err != nil {
			return 0, fmt.Errorf("making %s: %w", Device, err)
		}
		if l, err = netlink.LinkByName(Device); err != nil {
			return 0, fmt.Errorf("making %s: %w", Device, err)
		}
	}
	index := l.Attrs().Index
	if err := netlink.AddrReplace(l, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(self.end(), 32))}); err != nil {
		return 0, fmt.Errorf("the address %s of %s: %w", self.end(), Device, err)
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return 0, fmt.Errorf("setting %s up: %w", Device, err)
	}
	return index, neighbours(index, to)
}

// sourceLink is the interface that has an address.
func sourceLink(a netip.Addr) (netlink.Link, error) {
	addrs, err := netdump.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_V4) })
	if err != nil {
		return nil, fmt.Errorf("listing addresses: %w", err)
	}
	for _, x := range addrs {
		if ip, ok := netip.AddrFromSlice(x.IP); ok && ip.Unmap() == a {
			return netlink.LinkByIndex(x.LinkIndex)
		}
	}
	return nil, fmt.Errorf("no interface of this node has its address %s", a)
}

// neighbours says where the other nodes' ends are: which Ethernet address an end has, and to which
// node frames to it go.
func neighbours(index int, to []Node) error {
	var want []netlink.Neigh
	for _, n := range to {
		want = append(want,
			netlink.Neigh{LinkIndex: index, Family: netlink.FAMILY_V4, State: netlink.NUD_PERMANENT,
				IP: n.end().AsSlice(), HardwareAddr: n.hardwareAddress()},
			netlink.Neigh{LinkIndex: index, Family: unix.AF_BRIDGE, Flags: netlink.NTF_SELF,
				State: netlink.NUD_PERMANENT, IP: n.Address.AsSlice(), HardwareAddr: n.hardwareAddress()})
	}
	for i := range want {
		if err := netlink.NeighSet(&want[i]); err != nil {
			return fmt.Errorf("where %s is: %w", want[i].IP, err)
		}
	}
	for _, family := range []int{netlink.FAMILY_V4, unix.AF_BRIDGE} {
		have, err := netdump.Whole(func() ([]netlink.Neigh, error) { return netlink.NeighList(index, family) })
		if err != nil {
			return fmt.Errorf("listing the tunnels' neighbours: %w", err)
		}
		for _, h := range have {
			if h.State&netlink.NUD_PERMANENT == 0 || slices.ContainsFunc(want, func(w netlink.Neigh) bool {
				return w.IP.Equal(h.IP) && w.HardwareAddr.String() == h.HardwareAddr.String()
			}) {
				continue
			}
			if err := netlink.NeighDel(&h); err != nil && !errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("removing the neighbour %s: %w", h.IP, err)
			}
		}
	}
	return nil
}

func removeTunnel() error {
	l, err := netlink.LinkByName(Device)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(l)
	}
	if err != nil {
		return fmt.Errorf("removing %s: %w", Device, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
