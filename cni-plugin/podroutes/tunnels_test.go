package podroutes

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/cni-plugin/ingressfilter"
	"github.com/netcraq/netcraq/switch/udpmatch/udptest"
)

// tunnelled is a node with a pod and with tunnels to two other nodes. Any host on the nodes' link
// can forge its source address:
//
//	pod 10.244.1.2 ──▶ ncq node eth0 192.168.0.1 ◀── eth0 lan (192.168.0.2 and .3, which are nodes, and .9)
type tunnelled struct {
	t              *testing.T
	node, pod, lan *udptest.Space
	self           Node
	others         []Node
	links          []string // interfaces of the tunnels: to the first and the second node's switch, and for pods
	vnis           []uint32
	arrived        []*udptest.Recorder // recorders at the tunnels' interfaces
	fromPod        func(...[]byte)
	fromLAN        func(...[]byte)
	onLAN          *udptest.Recorder
}

func newTunnelled(t *testing.T) *tunnelled {
	t.Helper()
	x := &tunnelled{t: t, node: udptest.NewSpace(t), pod: udptest.NewSpace(t), lan: udptest.NewSpace(t)}
	x.node.Set(map[string]string{"ipv4/ip_forward": "1", "ipv4/conf/all/rp_filter": "0", "ipv4/conf/default/rp_filter": "0",
		"ipv4/conf/default/accept_local": "1"})
	udptest.Cable(t, x.node, "eth0", []string{"192.168.0.1/24"}, x.lan, "eth0", []string{"192.168.0.2/24", "192.168.0.3/24", "192.168.0.9/24"})
	udptest.Cable(t, x.node, "ncq", []string{"10.244.1.1/24"}, x.pod, "eth0", []string{"10.244.1.2/24"})
	udptest.Check(t, x.pod.Link.RouteAdd(&netlink.Route{Gw: net.IPv4(10, 244, 1, 1)}))
	x.self = node("node1", "192.168.0.1", "10.244.1.0/24")
	x.others = []Node{node("node2", "192.168.0.2", "10.244.2.0/24"), node("node3", "192.168.0.3", "10.244.3.0/24")}
	x.apply()
	x.node.Do(func() error {
		for _, n := range x.others {
			name, err := PeerLink(x.self, n)
			if err != nil {
				return err
			}
			x.links, x.vnis = append(x.links, name), append(x.vnis, uint32(PeerVNI(x.self.Address, n.Address)))
		}
		return nil
	})
	x.links, x.vnis = append(x.links, Device), append(x.vnis, VNI)
	for _, l := range x.links {
		link, err := x.node.Link.LinkByName(l)
		udptest.Check(t, err)
		udptest.Check(t, x.node.Link.LinkSetUp(link))
		x.arrived = append(x.arrived, x.node.Frames(l))
	}
	x.fromPod, x.fromLAN, x.onLAN = x.pod.Sender("eth0"), x.lan.Sender("eth0"), x.lan.Frames("eth0")
	return x
}

func (x *tunnelled) apply() {
	x.t.Helper()
	x.node.Do(func() error { return Apply(x.self, x.others, VXLAN) })
}

// packet returns a tunnel packet that contains a frame for the switch. The frame's mark identifies
// the sender.
func (x *tunnelled) packet(by *udptest.Space, into, from, to string, vni uint32) udptest.Packet {
	inner := append(append(net.HardwareAddr{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9}, 8, 0), make([]byte, 50)...)
	payload := binary.BigEndian.AppendUint32([]byte{8, 0, 0, 0}, vni<<8)
	payload = append(payload, inner...)
	return udptest.Packet{EthernetDst: x.node.MAC(into), EthernetSrc: by.MAC("eth0"), Src: netip.AddrPortFrom(
		netip.MustParseAddr(from), 5000),
		Dst: netip.AddrPortFrom(netip.MustParseAddr(to), VXLANPort), Payload: payload, Mark: 8 + 14}
}

// sentinel is the mark of a frame in the first tunnel that is sent after all others.
const sentinel = 0xfffe

// take returns the marks of the frames that have come out of each tunnel.
func (x *tunnelled) take() (marks [3][]uint16) {
	x.t.Helper()
	p := x.packet(x.lan, "eth0", "192.168.0.2", "192.168.0.1", x.vnis[0])
	binary.BigEndian.PutUint16(p.Payload[p.Mark:], sentinel)
	mark := func(f []byte) uint16 { return binary.BigEndian.Uint16(f[14:]) }
	for i, r := range x.arrived {
		var got [][]byte
		if i == 0 {
			got = r.Settle(x.t, func() { x.fromLAN(p.Frame()) }, func(f []byte) bool { return mark(f) == sentinel })
		} else {
			got = r.Take()
		}
		for _, f := range got {
			if len(f) == 64 { // only test frames have this length, and the kernel's own frames do not
				marks[i] = append(marks[i], mark(f))
			}
		}
	}
	return marks
}

// ways sends a packet in every encapsulation. It returns the names of the encapsulations in which
// the packet comes out of a tunnel.
func (x *tunnelled) ways(send func(...[]byte), p udptest.Packet, tunnel int) (names []string) {
	x.t.Helper()
	all := udptest.Wrap(p)
	for _, w := range all {
		send(w.Frames...)
	}
	for i, marks := range x.take() {
		for _, m := range marks {
			if i != tunnel {
				x.t.Errorf("from %s: a frame comes out of %s", p.Src, x.links[i])
				continue
			}
			names = append(names, all[m].Name)
		}
	}
	return names
}

// TestTunnels checks that a packet comes out of a tunnel only if the tunnel's other end has sent it
// over the nodes' link.
func TestTunnels(t *testing.T) {
	x := newTunnelled(t)
	type source struct {
		name string
		send func(...[]byte)
		by   *udptest.Space
		into string
		from string
	}
	sources := []source{
		{"the first node", x.fromLAN, x.lan, "eth0", "192.168.0.2"},
		{"the second node", x.fromLAN, x.lan, "eth0", "192.168.0.3"},
		{"a stranger on the link", x.fromLAN, x.lan, "eth0", "192.168.0.9"},
		{"a pod", x.fromPod, x.pod, "ncq", "10.244.1.2"},
		{"a pod as the first node", x.fromPod, x.pod, "ncq", "192.168.0.2"},
		{"a pod as this node", x.fromPod, x.pod, "ncq", "192.168.0.1"},
	}
	may := map[string]bool{"192.168.0.2 0": true, "192.168.0.2 2": true, "192.168.0.3 1": true, "192.168.0.3 2": true}
	for _, s := range sources {
		for tunnel, vni := range x.vnis {
			p := x.packet(s.by, s.into, s.from, "192.168.0.1", vni)
			x.node.Do(ingressfilter.RemoveTunnels)
			before := x.ways(s.send, p, tunnel)
			for _, want := range []string{"plain", "tags 8100 8100", "three fragments, 0 tags", "40 bytes of options, 1 tags"} {
				if !slices.Contains(before, want) {
					t.Errorf("%s, in the tunnel %s: %s does not get through even without a filter: the test means nothing", s.name, x.links[tunnel], want)
				}
			}
			x.apply()
			after := x.ways(s.send, p, tunnel)
			want := 0
			if s.into == "eth0" && may[fmt.Sprint(s.from, " ", tunnel)] {
				want = len(before)
			}
			if len(after) != want {
				t.Errorf("%s, in the tunnel %s: %d ways get through, not %d: %v", s.name, x.links[tunnel], len(after), want, after)
			}
			t.Logf("%s, in the tunnel %s: %d ways got through, %d do", s.name, x.links[tunnel], len(before), len(after))
		}
	}
}

// TestTunnelsLocal checks that a process on the node cannot impersonate another node, through the
// loopback interface or otherwise. A service's address must not lead into a tunnel either.
func TestTunnelsLocal(t *testing.T) {
	x := newTunnelled(t)
	p := x.packet(x.pod, "ncq", "10.244.1.2", "192.168.0.1", x.vnis[0])
	local := func(to string) func() {
		return func() {
			x.node.Do(func() error {
				c, err := net.Dial("udp4", net.JoinHostPort(to, strconv.Itoa(VXLANPort)))
				if err != nil {
					return err
				}
				defer c.Close()
				_, err = c.Write(p.Payload)
				return err
			})
		}
	}
	for name, try := range map[string]func(){
		"a process, to 127.0.0.1":          local("127.0.0.1"),
		"a process, to the node's address": local("192.168.0.1"),
		"a process, to the pods' gateway":  local("10.244.1.1"),
		"a pod, to a service that leads to the tunnels": func() {
			x.redirect(99, "192.168.0.1", VXLANPort)
			q := p
			q.Dst = netip.MustParseAddrPort("10.96.0.1:99")
			x.fromPod(q.Frame())
		},
	} {
		x.node.Do(ingressfilter.RemoveTunnels)
		try()
		if marks := x.take(); len(marks[0]) != 1 {
			t.Errorf("%s: without a filter %d frames come out of the tunnel", name, len(marks[0]))
		}
		x.apply()
		try()
		if marks := x.take(); len(marks[0]) != 0 {
			t.Errorf("%s: %d frames come out of the tunnel", name, len(marks[0]))
		}
	}
}

// TestTunnelsOfProcesses makes a non-root process send to the tunnel port of other nodes, directly
// or in frames that the kernel splits. No such packet may leave the node. The process's packets to
// another node's pod must leave.
func TestTunnelsOfProcesses(t *testing.T) {
	const nobody = 65534
	x := newTunnelled(t)
	tunnel := x.packet(x.pod, "ncq", "10.244.1.2", "192.168.0.1", x.vnis[0]).Payload
	// leave reports whether tunnel packets that contain IPv4 leave the node.
	leave := func(uid int, to string, segment int, payload []byte) (leaves bool) {
		x.onLAN.Take()
		x.node.Do(func() error {
			_, _ = unix.SetfsuidRetUid(uid)
			defer unix.SetfsuidRetUid(0)
			c, err := net.Dial("udp4", to)
			if err != nil {
				return err
			}
			defer c.Close()
			raw, err := c.(*net.UDPConn).SyscallConn()
			if err != nil {
				return err
			}
			if segment > 0 {
				udptest.Check(t, raw.Control(func(fd uintptr) {
					err = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, segment)
				}))
				udptest.Check(t, err)
			}
			_, _ = c.Write(payload) // Write fails with EPERM if the output hook drops the packet
			return nil
		})
		for range 20 {
			time.Sleep(5 * time.Millisecond)
			for _, f := range x.onLAN.Take() {
				leaves = leaves || len(f) > 64 && f[23] == unix.IPPROTO_UDP &&
					binary.BigEndian.Uint16(f[36:]) == VXLANPort &&
					binary.BigEndian.Uint16(f[62:]) == unix.ETH_P_IP
			}
		}
		return leaves
	}
	peer := net.JoinHostPort("192.168.0.2", strconv.Itoa(VXLANPort))
	twice := slices.Concat(tunnel, tunnel)
	for _, c := range []struct {
		name    string
		uid     int
		to      string
		segment int
		payload []byte
		want    bool
	}{
		{"nobody to the tunnel's port", nobody, peer, 0, tunnel, false},
		{"nobody, by a packet that is split", nobody, peer, len(tunnel), twice, false},
		{"nobody to another node's pod", nobody, "10.244.2.5:1234", 0, []byte("x"), true},
		{"nobody to another node's pod, in several packets", nobody, "10.244.2.5:1234", 100, make([]byte, 300), true},
		{"nobody to the tunnel's port of another node's pod", nobody, "10.244.2.5:20037", 0, tunnel, false},
		{"root", 0, peer, 0, tunnel, true},
		{"root to another node's pod", 0, "10.244.2.5:1234", 0, []byte("x"), true},
	} {
		if leaves := leave(c.uid, c.to, c.segment, c.payload); leaves != c.want {
			t.Errorf("%s: tunnel packets leave the node: %v", c.name, leaves)
		}
	}
	x.node.Do(ingressfilter.RemoveTunnels)
	if !leave(nobody, peer, 0, tunnel) {
		t.Error("without the filter nothing leaves the node either: the test above means nothing")
	}
}

// redirect makes 10.96.0.1 a service whose port leads to another address, with the node's own
// address as the source. Proxies do that if answers must come back through them.
func (x *tunnelled) redirect(port uint16, to string, toPort uint16) {
	x.node.Do(func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		table := &nftables.Table{Family: nftables.TableFamilyIPv4, Name: "service"}
		c.AddTable(table)
		c.DelTable(table)
		c.AddTable(table)
		pre := c.AddChain(&nftables.Chain{Table: table, Name: "pre", Type: nftables.ChainTypeNAT,
			Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityNATDest})
		post := c.AddChain(&nftables.Chain{Table: table, Name: "post", Type: nftables.ChainTypeNAT,
			Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource})
		c.AddRule(&nftables.Rule{Table: table, Chain: pre, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1,
				Data: []byte{unix.IPPROTO_UDP}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(port)},
			&expr.Immediate{Register: 1, Data: netip.MustParseAddr(to).AsSlice()},
			&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(toPort)},
			&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1, RegProtoMin: 2},
		}})
		c.AddRule(&nftables.Rule{Table: table, Chain: post, Exprs: []expr.Any{&expr.Masq{}}})
		return c.Flush()
	})
}

// TestTunnelsForwarded checks that a node does not forward packets to another node's tunnels. That
// node would take them for this node's own packets.
func TestTunnelsForwarded(t *testing.T) {
	x := newTunnelled(t)
	sent := func(p udptest.Packet) (count int) {
		t.Helper()
		x.fromPod(p.Frame())
		for _, f := range x.onLAN.Settle(t, func() {
			q := p
			q.Dst = netip.MustParseAddrPort("192.168.0.2:4789")
			x.fromPod(q.Frame())
		}, func(f []byte) bool {
			return len(f) > 38 && f[12] == 8 && f[13] == 0 && binary.BigEndian.Uint16(f[36:]) == 4789
		}) {
			if len(f) > 38 && f[12] == 8 && f[13] == 0 && f[23] == unix.IPPROTO_UDP &&
				binary.BigEndian.Uint16(f[36:]) == VXLANPort &&
				string(f[len(f)-len(p.Payload):]) == string(p.Payload) {
				count++
			}
		}
		return count
	}
	direct := x.packet(x.pod, "ncq", "10.244.1.2", "192.168.0.2", x.vnis[0])
	service := direct
	service.Dst = netip.MustParseAddrPort("10.96.0.1:99")
	x.node.Do(ingressfilter.RemoveTunnels)
	for i, p := range []udptest.Packet{direct, service} {
		if i == 1 {
			x.redirect(99, "192.168.0.2", VXLANPort)
		}
		if n := sent(p); n != 1 {
			t.Errorf("without a filter, to %s: %d packets arrive at the other node", p.Dst, n)
		}
	}
	x.apply()
	for _, p := range []udptest.Packet{direct, service} {
		if n := sent(p); n != 0 {
			t.Errorf("to %s: %d packets arrive at the other node", p.Dst, n)
		}
	}
}

// TestTunnelsUnwrapped checks that packets are also dropped if an operator's tunnel unwraps them.
func TestTunnelsUnwrapped(t *testing.T) {
	x := newTunnelled(t)
	const vni, port = 7, 4789
	l := &netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: "operators"}, VxlanId: vni, Port: port}
	udptest.Check(t, x.node.Link.LinkAdd(l))
	udptest.Check(t, x.node.Link.LinkSetUp(l))
	inner := x.packet(x.pod, "ncq", "192.168.0.2", "192.168.0.1", x.vnis[0])
	inner.EthernetDst, inner.EthernetSrc = x.node.MAC("operators"), net.HardwareAddr{2, 0, 0, 0, 0, 8}
	outer := x.packet(x.pod, "ncq", "10.244.1.2", "192.168.0.1", 0)
	outer.Dst = netip.AddrPortFrom(outer.Dst.Addr(), port)
	outer.Payload = append(binary.BigEndian.AppendUint32([]byte{8, 0, 0, 0}, vni<<8), inner.Frame()...)
	for _, filtered := range []bool{false, true} {
		if filtered {
			x.apply()
		} else {
			x.node.Do(ingressfilter.RemoveTunnels)
		}
		x.fromPod(outer.Frame())
		if n := len(x.take()[0]); (n == 0) != filtered {
			t.Errorf("filtered: %v: %d frames come out of the tunnel", filtered, n)
		}
	}
}

// TestTunnelsMutated checks that no frame with random changes comes out of a tunnel.
func TestTunnelsMutated(t *testing.T) {
	x := newTunnelled(t)
	rng := rand.New(rand.NewPCG(14, 4))
	kinds := []udptest.Packet{x.packet(x.pod, "ncq", "192.168.0.2", "192.168.0.1", x.vnis[0]), x.packet(x.pod, "ncq", "10.244.1.2", "192.168.0.1", VNI),
		x.packet(x.pod, "ncq", "10.244.1.2", "192.168.0.1", x.vnis[1])}
	for _, filtered := range []bool{false, true} {
		n := 0
		if filtered {
			x.apply()
		} else {
			x.node.Do(ingressfilter.RemoveTunnels)
		}
		for i := range 50_000 {
			x.fromPod(udptest.Mutate(rng, kinds[i%len(kinds)]))
		}
		for _, marks := range x.take() {
			n += len(marks)
		}
		t.Logf("filtered: %v: of 50,000 frames %d come out of tunnels", filtered, n)
		if filtered && n > 0 || !filtered && n < 500 {
			t.Errorf("filtered: %v: of 50,000 frames %d come out of tunnels", filtered, n)
		}
	}
}

// TestPeerLinkNeedsFilter checks that PeerLink makes no tunnel without the filter, and that Remove
// leaves no tunnel.
func TestPeerLinkNeedsFilter(t *testing.T) {
	x := newTunnelled(t)
	x.node.Do(func() error { return ingressfilter.RemoveTunnels() })
	x.node.Do(func() error {
		if name, err := PeerLink(x.self, x.others[0]); err == nil || !strings.Contains(err.Error(), "before podroutes.Apply") {
			t.Errorf("a tunnel, %s, that nothing filters: %v", name, err)
		}
		return nil
	})
	x.apply()
	x.node.Do(func() error {
		if there, err := ingressfilter.TunnelsFiltered(); err != nil || !there {
			t.Errorf("tunnels are filtered: %v (%v)", there, err)
		}
		if err := RemovePeerLinks(nil); err != nil {
			return err
		}
		if err := Remove(); err != nil {
			return err
		}
		if there, err := ingressfilter.TunnelsFiltered(); err != nil || there {
			t.Errorf("after Remove tunnels are filtered: %v (%v)", there, err)
		}
		return Remove() // the tunnels were already removed
	})
}
