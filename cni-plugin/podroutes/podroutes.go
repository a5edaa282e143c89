// Package podroutes connects pods of different nodes. It makes one route to the pods of each other
// node: directly to the node if the two share a link, and otherwise through a VXLAN tunnel.
//
//	10.244.2.0/24 via 192.168.0.2            the node 192.168.0.2 is on a shared link
//	10.244.3.0/24 via 10.244.3.0 dev ncqvx   it is not: VXLAN to 192.168.7.3
//	fd00:244:3::/64 via fd00:244:3:: dev ncqvx   its IPv6 pods, in the same tunnel
//	unreachable 10.244.1.0/24                this node's prefix: unused addresses
//
// The node drops packets for unused addresses of its own prefixes (RFC 4632, 5.1). Without that,
// the default route would send them out of the node, and a router with a route to the node would
// send them back. A pod's own route is more specific, and any other route to the prefix has a lower
// metric.
//
// Packets of both address families go through one tunnel. The tunnel is over IPv4 if both nodes
// have IPv4, and otherwise over IPv6 (the interface ncqvx6).
//
// The routes carry their own protocol number, which distinguishes them from other programs' routes.
// So [Apply] can be called at any time, even after a crash. It adds missing routes, corrects wrong
// ones, and removes unwanted ones.
//
// A tunnel needs no exchange of addresses. The Ethernet address of a node's end is made from the
// node's address. Its IP address is the first address of the node's pod prefix, as with flannel.
package podroutes

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/cni-plugin/ingressfilter"
	"github.com/netcraq/netcraq/switch/netlinkdump"
)

const (
	// Protocol is the protocol number of this package's routes (rtm_protocol). iproute2 reserves
	// the numbers below 5, 8 to 18, 42, and 186 to 192.
	Protocol = 78
	// VXLANPort is the UDP port of this package's tunnels. It is not the usual port 4789, because
	// pods must not send to VXLANPort (see package agent's podRules), and may need 4789.
	VXLANPort = 20037
	// VNI is the network identifier of the tunnels, 24 bits.
	VNI = 20035
	// Device is the interface of tunnels over IPv4, and Device6 the interface of tunnels over IPv6.
	Device  = "ncqvx"
	Device6 = "ncqvx6"
	// VXLANOverhead is the overhead of a tunnel over IPv4, in bytes: Ethernet, VXLAN, UDP and IPv4
	// headers. VXLANOverhead6 is the overhead of a tunnel over IPv6.
	VXLANOverhead  = 14 + 8 + 8 + 20
	VXLANOverhead6 = 14 + 8 + 8 + 40
)

// discardMetric is the metric of the routes that discard packets. Any route of another program to
// the same prefix has a better metric.
const discardMetric = 1 << 30

// Node is one node of the cluster.
type Node struct {
	Name    string     `json:"name"`
	Address netip.Addr `json:"address"` // IPv4 or IPv6 address at which other nodes reach this node
	// Second is the node's address of the other address family, if it has one.
	Second   netip.Addr     `json:"secondAddress,omitzero"`
	PodCIDRs []netip.Prefix `json:"podCIDRs"` // prefixes of the node's pods, of one or both address families
}

// In returns the node's address of a family, or the zero Addr. six selects IPv6.
func (n Node) In(six bool) netip.Addr {
	for _, a := range []netip.Addr{n.Address, n.Second} {
		if a.IsValid() && a.Is6() == six {
			return a
		}
	}
	return netip.Addr{}
}

// Overlapping returns the node's network that a prefix overlaps, or "".
func (n Node) Overlapping(p netip.Prefix) string {
	for _, a := range []netip.Addr{n.Address, n.Second} {
		if p.Contains(a) {
			return fmt.Sprintf("the address of node %s (%s)", n.Name, a)
		}
	}
	for _, x := range n.PodCIDRs {
		if p.Overlaps(x) {
			return fmt.Sprintf("the range of the pods of node %s (%s)", n.Name, x)
		}
	}
	return ""
}

// between returns the tunnel addresses of two nodes. If both nodes have IPv4 addresses, it returns
// these, because they have less overhead.
func between(a, b Node) (x, y netip.Addr, err error) {
	for _, six := range []bool{false, true} {
		if x, y = a.In(six), b.In(six); x.IsValid() && y.IsValid() {
			return x, y, nil
		}
	}
	return x, y, fmt.Errorf("it has no address of a family that this node has, too (%s and %s)", b.Address, a.Address)
}

// overhead returns the overhead of a tunnel between addresses of a's family, in bytes.
func overhead(a netip.Addr) int {
	if a.Is6() {
		return VXLANOverhead6
	}
	return VXLANOverhead
}

// Mode selects how packets reach the pods of other nodes.
type Mode string

// The modes for routes to other nodes' pods.
const (
	Auto   Mode = "auto"   // directly if two nodes share a link, and otherwise through VXLAN
	Direct Mode = "direct" // never through VXLAN; a node that is not on a shared link is an error
	VXLAN  Mode = "vxlan"  // always through VXLAN
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

// Apply makes the routes to the other nodes' pods in the calling thread's network namespace, and
// removes unwanted routes. If it returns an error, the error names the nodes that cannot be
// reached. The other nodes have their routes.
//
// Apply also sets which nodes may send in tunnels, including those of PeerLink. Each node may send
// only in its own tunnels. If this fails, Apply makes no tunnels.
func Apply(self Node, others []Node, mode Mode) error {
	if err := self.Check(); err != nil {
		return err
	}
	filtered := filterTunnels(self, others)
	others, errs := fit(self, others)
	tunnels := map[bool][]Node{} // the nodes to reach through tunnels, over IPv6 (true) and over IPv4 (false)
	want := map[netip.Prefix]*netlink.Route{}
	for _, p := range self.PodCIDRs {
		want[p] = &netlink.Route{Dst: ipNet(p), Type: unix.RTN_UNREACHABLE, Priority: discardMetric, Protocol: Protocol}
	}
	for _, n := range others {
		inTunnel, err := direct(self, n, mode, want)
		if err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", n.Name, err))
		} else if len(inTunnel) > 0 {
			_, y, _ := between(self, n) // direct has already checked that there is an address
			n.PodCIDRs = inTunnel
			tunnels[y.Is6()] = append(tunnels[y.Is6()], n)
		}
	}
	errs = append(errs, filtered)
	for _, six := range []bool{false, true} {
		if len(tunnels[six]) == 0 {
			errs = append(errs, removeTunnel(device(six)))
			continue
		}
		if filtered != nil {
			continue
		}
		index, err := tunnel(self, tunnels[six], six)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, n := range tunnels[six] {
			for _, p := range n.PodCIDRs {
				end, _ := n.end(p.Addr().Is6())
				want[p] = &netlink.Route{LinkIndex: index, Gw: end.AsSlice(), Dst: ipNet(p),
					Protocol: Protocol, Flags: int(netlink.FLAG_ONLINK)}
			}
		}
	}
	return errors.Join(append(errs, replaceRoutes(Protocol, want))...)
}

// direct adds the routes to a node's pods that need no tunnel. It returns the prefixes that need a
// tunnel, because this node has no link with an address of the other node of the prefix's family.
func direct(self, n Node, mode Mode, want map[netip.Prefix]*netlink.Route) (inTunnel []netip.Prefix, err error) {
	for _, p := range n.PodCIDRs {
		gateway, out := n.In(p.Addr().Is6()), 0
		if gateway.IsValid() && mode != VXLAN {
			if out, err = onLink(gateway); err != nil && mode == Direct {
				return nil, err
			}
		}
		if out != 0 {
			want[p] = &netlink.Route{LinkIndex: out, Gw: gateway.AsSlice(), Dst: ipNet(p), Protocol: Protocol}
			continue
		}
		if mode == Direct {
			if !gateway.IsValid() {
				return nil, fmt.Errorf("it has no address of the family of %s, and the mode is %s: use auto or vxlan", p, mode)
			}
			return nil, fmt.Errorf("it (%s) is on no link of this node, and the mode is %s: use auto or vxlan", gateway, mode)
		}
		inTunnel = append(inTunnel, p)
	}
	if len(inTunnel) == 0 {
		return nil, nil
	}
	_, y, err := between(self, n)
	if err == nil {
		_, err = onLink(y) // onLink fails if there is no route to y
	}
	return inTunnel, err
}

// Remove removes everything that Apply has made. Call RemovePeerLinks first, because it removes the
// tunnels between switches.
func Remove() error {
	return errors.Join(removeTunnel(Device), removeTunnel(Device6), replaceRoutes(Protocol, nil),
		ingressfilter.RemoveTunnels())
}

// ApplyTunnels sets which nodes may send in tunnels. It replaces Apply if another plugin makes the
// routes to pods. It also removes routes and tunnels for pods that an earlier agent has made.
func ApplyTunnels(self Node, others []Node) error {
	if err := self.checkAddresses(); err != nil {
		return err
	}
	return errors.Join(filterTunnels(self, others), removeTunnel(Device), removeTunnel(Device6),
		replaceRoutes(Protocol, nil))
}

// filterTunnels makes the node accept VXLAN only from the other nodes. Each node may send only in
// its own tunnels.
func filterTunnels(self Node, others []Node) error {
	if err := checkPort(); err != nil {
		return err
	}
	t := ingressfilter.Tunnels{Port: VXLANPort, Devices: []string{Device, Device6}}
	for _, a := range []netip.Addr{self.Address, self.Second} {
		if !a.IsValid() {
			continue
		}
		out, err := sourceLink(a)
		if err != nil {
			return err
		}
		t.Ends = append(t.Ends, ingressfilter.TunnelEnd{Address: a, Uplink: out.Attrs().Name})
	}
	for _, n := range others {
		if x, y, err := between(self, n); err == nil && x != y {
			t.From = append(t.From, ingressfilter.Tunnel{Peer: y, VNI: VNI},
				ingressfilter.Tunnel{Peer: y, VNI: uint32(PeerVNI(x, y))})
		}
	}
	return ingressfilter.ApplyTunnels(t)
}

// Check returns an error if a field of the node is wrong.
func (n Node) Check() error {
	if err := n.checkAddresses(); err != nil {
		return err
	}
	if len(n.PodCIDRs) == 0 {
		return fmt.Errorf("node %s has no prefix for pods (yet)", n.Name)
	}
	for _, p := range n.PodCIDRs {
		if !p.IsValid() || p.Addr().Is4In6() || p != p.Masked() {
			return fmt.Errorf("node %s: the prefix %s for pods is no network", n.Name, p)
		}
	}
	return nil
}

func (n Node) checkAddresses() error {
	if !n.Address.IsValid() || n.Address.Is4In6() {
		return fmt.Errorf("node %s has no IPv4 or IPv6 address (%s)", n.Name, n.Address)
	}
	if n.Address.Zone() != "" || n.Address.Is6() && n.Address.IsLinkLocalUnicast() {
		return fmt.Errorf("node %s: the address %s is of one link alone", n.Name, n.Address)
	}
	if n.Second.IsValid() && (n.Second.Is4() == n.Address.Is4() || n.Second.Is4In6()) {
		return fmt.Errorf("node %s: the second address, %s, is to be of the other family than %s", n.Name, n.Second, n.Address)
	}
	return nil
}

// fit leaves out nodes that would misdirect packets. These are incomplete nodes, and nodes that
// have a prefix of another node.
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

// onLink returns the index of the interface through which an address is reached without a gateway.
// It returns 0 if the address needs a gateway.
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

// replaceRoutes makes the routes with this protocol number equal to want.
func replaceRoutes(protocol int, want map[netip.Prefix]*netlink.Route) error {
	var errs []error
	for to, r := range want {
		if err := netlink.RouteReplace(r); err != nil {
			errs = append(errs, fmt.Errorf("the route to %s: %w", to, err))
		}
	}
	have, err := netlinkdump.Whole(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: netlink.RouteProtocol(protocol)},
			netlink.RT_FILTER_PROTOCOL)
	})
	if err != nil {
		return errors.Join(append(errs, fmt.Errorf("listing routes: %w", err))...)
	}
	for _, r := range have {
		ip, _ := netip.AddrFromSlice(r.Dst.IP)
		bits, _ := r.Dst.Mask.Size()
		if w := want[netip.PrefixFrom(ip.Unmap(), bits)]; w != nil && sameWay(*w, r) {
			continue
		}
		if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("removing the route to %s: %w", r.Dst, err))
		}
	}
	return errors.Join(errs...)
}

// sameWay reports whether an existing route leads to the same next hop as a wanted route. The
// kernel assigns the loopback interface to an IPv6 route that discards packets.
func sameWay(want, have netlink.Route) bool {
	if want.Type == unix.RTN_UNREACHABLE || have.Type == unix.RTN_UNREACHABLE {
		return want.Type == have.Type && want.Priority == have.Priority
	}
	return want.LinkIndex == have.LinkIndex && want.Gw.Equal(have.Gw)
}

// end returns the address of a node's end in the tunnels. It returns false if the node has no pods
// of that family.
func (n Node) end(six bool) (netip.Addr, bool) {
	for _, p := range n.PodCIDRs {
		if p.Addr().Is6() == six {
			return p.Addr(), true
		}
	}
	return netip.Addr{}, false
}

// ends returns the addresses of the node's end in the tunnels, of both families.
func (n Node) ends() (out []netip.Addr) {
	for _, six := range []bool{false, true} {
		if a, ok := n.end(six); ok {
			out = append(out, a)
		}
	}
	return out
}

// hardwareAddress returns the Ethernet address of a node's end in the tunnels. It is locally
// administered. It is made from the node's IPv4 address, or from a hash of the node's other data.
func (n Node) hardwareAddress() net.HardwareAddr {
	if four := n.In(false); four.IsValid() {
		return append(net.HardwareAddr{2, 0x56}, four.AsSlice()...)
	}
	sum := sha256.Sum256(n.Address.AsSlice())
	return append(net.HardwareAddr{6}, sum[:5]...)
}

func device(six bool) string {
	if six {
		return Device6
	}
	return Device
}

// tunnel makes the interface for tunnels to other nodes, and returns its index. six selects tunnels
// over IPv6.
func tunnel(self Node, to []Node, six bool) (int, error) {
	source, name := self.In(six), device(six)
	out, err := sourceLink(source)
	if err != nil {
		return 0, err
	}
	mtu := out.Attrs().MTU - overhead(source)
	l, err := netlink.LinkByName(name)
	if old, ok := l.(*netlink.Vxlan); err == nil && (!ok || !old.SrcAddr.Equal(source.AsSlice()) ||
		old.VxlanId != VNI || old.Port != VXLANPort) {
		if err := netlink.LinkDel(l); err != nil {
			return 0, fmt.Errorf("removing an old %s: %w", name, err)
		}
		err = netlink.LinkNotFoundError{}
		l = nil
	}
	if l == nil || err != nil {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU, attrs.HardwareAddr = name, mtu, self.hardwareAddress()
		v := &netlink.Vxlan{LinkAttrs: attrs, VxlanId: VNI, VtepDevIndex: out.Attrs().Index,
			SrcAddr: source.AsSlice(), Port: VXLANPort}
		if err := netlink.LinkAdd(v); err != nil {
			return 0, fmt.Errorf("making %s: %w", name, err)
		}
		if l, err = netlink.LinkByName(name); err != nil {
			return 0, fmt.Errorf("making %s: %w", name, err)
		}
	}
	index := l.Attrs().Index
	for _, end := range self.ends() {
		a := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(end, end.BitLen()))}
		if end.Is6() {
			a.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrReplace(l, a); err != nil {
			return 0, fmt.Errorf("the address %s of %s: %w", end, name, err)
		}
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return 0, fmt.Errorf("setting %s up: %w", name, err)
	}
	return index, neighbours(index, to, six)
}

// sourceLink returns the interface that has an address.
func sourceLink(a netip.Addr) (netlink.Link, error) {
	addrs, err := netlinkdump.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
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

// neighbours writes the neighbour and forwarding tables of a tunnel interface. They have the
// Ethernet address of each other node's end, and the node to which frames for it go.
func neighbours(index int, to []Node, six bool) error {
	var want []netlink.Neigh
	for _, n := range to {
		for _, end := range n.ends() {
			family := netlink.FAMILY_V4
			if end.Is6() {
				family = netlink.FAMILY_V6
			}
			want = append(want, netlink.Neigh{LinkIndex: index, Family: family, State: netlink.NUD_PERMANENT,
				IP: end.AsSlice(), HardwareAddr: n.hardwareAddress()})
		}
		want = append(want, netlink.Neigh{LinkIndex: index, Family: unix.AF_BRIDGE, Flags: netlink.NTF_SELF,
			State: netlink.NUD_PERMANENT, IP: n.In(six).AsSlice(), HardwareAddr: n.hardwareAddress()})
	}
	for i := range want {
		if err := netlink.NeighSet(&want[i]); err != nil {
			return fmt.Errorf("where %s is: %w", want[i].IP, err)
		}
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6, unix.AF_BRIDGE} {
		have, err := netlinkdump.Whole(func() ([]netlink.Neigh, error) { return netlink.NeighList(index, family) })
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

func removeTunnel(name string) error {
	l, err := netlink.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(l)
	}
	if err != nil {
		return fmt.Errorf("removing %s: %w", name, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
