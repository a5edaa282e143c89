package agent_test

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client"
	"github.com/netcraq/netcraq/cni-plugin/agent"
	"github.com/netcraq/netcraq/cni-plugin/ingressfilter"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/switch/udpmatch/udptest"
)

// sendFrames sends raw frames from a pod, as a process with CAP_NET_RAW can.
func (p *pod) sendFrames(t *testing.T, frames ...[]byte) {
	t.Helper()
	_, err := inside(t, p.space, func() (struct{}, error) { return struct{}{}, sendFrame("eth0", frames...) })
	check(t, err)
}

// packetFrom returns a UDP packet from a pod, with the Ethernet addresses of the pod and its node.
func packetFrom(t *testing.T, n *node, p *pod, from, to netip.AddrPort, payload []byte) udptest.Packet {
	t.Helper()
	macs, err := inside(t, n.space, func() (net.HardwareAddr, error) {
		l, err := net.InterfaceByName(hostEnd(t, n, p))
		if err != nil {
			return nil, err
		}
		return l.HardwareAddr, nil
	})
	check(t, err)
	return udptest.Packet{EthernetDst: macs, EthernetSrc: net.HardwareAddr{2, 0, 0, 0, 0, 9}, Src: from,
		Dst: to, Payload: payload, Mark: len(payload) - 2}
}

// tunnelled returns inner as a frame in the tunnel from the first of two nodes to the second.
func tunnelled(t *testing.T, nodes []*node, inner []byte) []byte {
	t.Helper()
	vni, err := inside(t, nodes[0].space, func() (int, error) {
		l, err := netlink.LinkByName(podroutes.PeerName(podroutes.Node{Address: netip.MustParseAddr("192.168.0.2")}))
		if err != nil {
			return 0, err
		}
		v, ok := l.(*netlink.Vxlan)
		if !ok {
			return 0, errors.New("the tunnel is none")
		}
		return v.VxlanId, nil
	})
	check(t, err)
	return append(binary.BigEndian.AppendUint32([]byte{8, 0, 0, 0}, uint32(vni)<<8), inner...)
}

// forgedFabric makes a pod of the first node forge acknowledgements and stamped writes of a switch.
// The pod sends them to other switches and into the tunnel between the switches, in every
// encapsulation that a kernel unwraps. No switch may accept them while the filters are attached.
// Without the filters, the tail accepts a stamped write that seems to come from its predecessor.
// This shows that the filters stop it.
func forgedFabric(t *testing.T, nodes []*node, p *pod, forged wire.Packet, readers map[string]*client.Client) {
	t.Helper()
	ack, err := forged.Marshal(wire.Profile128)
	check(t, err)
	stamped := forged
	for _, c := range readers {
		r, err := c.Get(t.Context(), forged.Key)
		check(t, err)
		stamped.Epoch = r.Version.Epoch()
	}
	stamped.Op, stamped.Flags, stamped.Version = wire.Write, wire.Stamped, wire.MakeVersion(stamped.Epoch, 1000)
	write, err := stamped.Marshal(wire.Profile128)
	check(t, err)
	at := func(addr string, port uint16) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr(addr), port)
	}
	own, s1, s2 := netip.AddrPortFrom(p.ip, wire.Port), at("10.0.255.1", wire.Port), at("10.0.255.2", wire.Port)
	inTunnel := func(from, to netip.AddrPort, node string, payload []byte) udptest.Packet {
		inner := packetFrom(t, nodes[0], p, from, to, payload)
		inner.ID = 0xffff // ID of the controller's principal
		return packetFrom(t, nodes[0], p, netip.AddrPortFrom(p.ip, 5000), at(node, podroutes.VXLANPort),
			tunnelled(t, nodes, inner.Frame()))
	}
	tunnels := []udptest.Packet{inTunnel(s1, s2, "192.168.0.2", write), inTunnel(s2, s1, "192.168.0.1", ack)}
	all := tunnels
	for _, to := range []netip.AddrPort{service, s1, s2} {
		all = append(all, packetFrom(t, nodes[0], p, own, to, ack), packetFrom(t, nodes[0], p, own, to, write))
	}
	var frames [][]byte
	for _, packet := range all {
		for _, way := range udptest.Wrap(packet) {
			frames = append(frames, way.Frames...)
		}
	}
	p.sendFrames(t, frames...)
	for name, c := range readers {
		expect(t, name+", after forged acknowledgements in all ways", c, forged.Key, "bob")
	}
	t.Logf("nobody believes forged messages of the chain in %d frames", len(frames))
	for _, n := range nodes {
		_, err := inside(t, n.space, func() (struct{}, error) { return struct{}{}, openTunnels() })
		check(t, err)
	}
	atPod := func(do func(ifindex int) error) {
		t.Helper()
		_, err := inside(t, nodes[0].space, func() (struct{}, error) {
			l, err := net.InterfaceByName(hostEnd(t, nodes[0], p))
			if err != nil {
				return struct{}{}, err
			}
			return struct{}{}, do(l.Index)
		})
		check(t, err)
	}
	double := tunnels[0]
	double.Tags = []udptest.Tag{{Type: 0x8100}, {Type: 0x8100}}
	defer atPod(func(ifindex int) error { return ingressfilter.Attach(ifindex, agent.PodRules) })
	poll.Until(t, 5*time.Second, "without the filters somebody believes a forged write: else the test means nothing", func() bool {
		atPod(ingressfilter.Detach) // repeated, because the agent attaches the filter again
		p.sendFrames(t, double.Frame())
		for name, c := range readers {
			if r, err := c.Get(t.Context(), forged.Key); err == nil && string(r.Value) == string(forged.Value) {
				t.Logf("without the filters one of them has %s read %q", name, r.Value)
				return true
			}
		}
		return false
	})
}

// contained makes the second of two nodes send packets other than NetCRAQ's into the tunnel between
// the switches, as a compromised node could. The first node's stack must not route them.
func contained(t *testing.T, nodes []*node, p *pod) {
	t.Helper()
	names := []string{podroutes.PeerName(podroutes.Node{Address: netip.MustParseAddr("192.168.0.2")}),
		podroutes.PeerName(podroutes.Node{Address: netip.MustParseAddr("192.168.0.1")})}
	l, err := inside(t, nodes[0].space, func() (*net.Interface, error) { return net.InterfaceByName(names[0]) })
	check(t, err)
	socket, err := inside(t, p.space, func() (net.PacketConn, error) { return net.ListenPacket("udp4", "0.0.0.0:5003") })
	check(t, err)
	defer socket.Close()
	packet := udptest.Packet{EthernetDst: l.HardwareAddr, EthernetSrc: net.HardwareAddr{2, 0, 0, 0, 0, 9},
		Payload: []byte("from another node"),
		Src:     netip.MustParseAddrPort("10.244.2.200:5000"), Dst: netip.AddrPortFrom(p.ip, 5003)}
	arrives := func(patience time.Duration) bool {
		for end := time.Now().Add(patience); time.Now().Before(end); {
			_, err := inside(t, nodes[1].space, func() (struct{}, error) {
				return struct{}{}, sendFrame(names[1], packet.Frame())
			})
			check(t, err)
			check(t, socket.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
			if _, _, err := socket.ReadFrom(make([]byte, 100)); err == nil {
				return true
			}
		}
		return false
	}
	if arrives(200 * time.Millisecond) {
		t.Error("what another node sends in the tunnel between the switches is routed by the node")
	}
	filter := func(do func() error) {
		_, err := inside(t, nodes[0].space, func() (struct{}, error) { return struct{}{}, do() })
		check(t, err)
	}
	poll.Until(t, 5*time.Second, "it is routed without the filter: else the test means nothing", func() bool {
		filter(func() error { return ingressfilter.Detach(l.Index) }) // the agent attaches the filter again
		return arrives(50 * time.Millisecond)
	})
	filter(func() error { return ingressfilter.Attach(l.Index, ingressfilter.Rules{Everything: true}) })
}

// openTunnels removes the rules from the tables that protect the tunnels. It does not remove the
// tables, because the agent would restore missing tables at once.
func openTunnels() error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	for _, f := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyIPv6} {
		conn.FlushTable(&nftables.Table{Family: f, Name: ingressfilter.TunnelsTable})
	}
	return conn.Flush()
}

// sendFrame sends frames through an interface in the network namespace of the current thread.
func sendFrame(iface string, frames ...[]byte) error {
	l, err := net.InterfaceByName(iface)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	err = unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: l.Index})
	for _, f := range frames {
		if err == nil {
			_, err = unix.Write(fd, f)
		}
	}
	return err
}
