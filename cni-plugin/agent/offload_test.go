package agent_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/cni-plugin/framefilter"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/switch/udpmatch/udptest"
)

// mallory is a text that marks every packet that these tests forge.
const mallory = "mallory!"

// way is a path on which packets of a pod could reach another receiver.
type way struct {
	from    *node  // the pod's node
	out     string // interface through which the packets leave the pod's node
	space   string // namespace in which the packets would arrive
	in      string // interface at which the packets would arrive
	targets []netip.Addr
	// masquerade is the source address with which the packets leave the node. It is not set if this
	// is the pod's own address.
	masquerade netip.Addr
}

// offloaded makes pods with raw sockets send frames that the kernel would change after all checks,
// when the frames leave the node. No frame may arrive as a packet of the switches or of tunnels.
// The pods' own frames with checksum offload must arrive. Without the filter, the forged frames
// arrive, too.
func (w *way) offloaded(t *testing.T, pods ...*pod) {
	t.Helper()
	if err := framefilter.Supported(); err != nil {
		t.Skipf("skipped: %v", err)
	}
	sh(t, "ip", "netns", "exec", w.from.space, "ethtool", "-K", w.out, "tx", "off", "tso", "off", "gso", "off")
	at := spaceOf(t, w.space)
	recorder := at.Frames(w.in)
	arrived := func(is func(from, to uint16) bool) bool {
		return slices.ContainsFunc(recorder.Take(), func(frame []byte) bool { return forgedInside(frame, is) })
	}
	var withoutFilter func() bool
	for i, p := range slices.Backward(pods) {
		host := hostEnd(t, w.from, p)
		send := spaceOf(t, p.space).OffloadSender("eth0")
		for j, to := range slices.Backward(w.targets) {
			plain := packetFrom(t, w.from, p, netip.AddrPortFrom(p.addressLike(to), 5000), netip.AddrPortFrom(to, 5053),
				bytes.Repeat([]byte(mallory), 12))
			poll.Until(t, 10*time.Second, fmt.Sprintf("a frame to %v whose checksum is left to the kernel arrives", to),
				func() bool {
					frame := frameOf(plain)
					check(t, send(udptest.Offload{Flags: udptest.NeedsChecksum, Start: udpOf(frame), Place: 6}, frame))
					time.Sleep(20 * time.Millisecond)
					return arrived(func(_, to uint16) bool { return to == 5053 })
				})
			changes := func() bool {
				for _, f := range w.changing(plain) {
					_ = send(f.Offload, f.frame) // the pod's own kernel may refuse the frame
				}
				time.Sleep(50 * time.Millisecond)
				return arrived(ours)
			}
			if changes() {
				t.Errorf("a frame of a pod to %v becomes one of the switches' or of tunnels when it leaves the node", to)
			}
			if i == 0 && j == 0 {
				withoutFilter = func() bool {
					w.from.onHost(t, host, framefilter.Detach) // repeated, because the agent attaches the filter again
					return changes()
				}
			}
		}
	}
	poll.Until(t, 20*time.Second, "without the filter one becomes so: else the test means nothing", withoutFilter)
}

// addressLike returns that address of the pod that has the same family as another address.
func (p *pod) addressLike(other netip.Addr) netip.Addr {
	return p.ips[slices.IndexFunc(p.ips, func(a netip.Addr) bool { return a.Is4() == other.Is4() })]
}

// ours reports whether UDP ports belong to the switches or to the nodes' tunnels.
func ours(from, to uint16) bool {
	return from == wire.Port || to == wire.Port || to == podroutes.VXLANPort
}

type changed struct {
	udptest.Offload
	frame []byte
}

// changing returns frames that the kernel would change into packets other than p.
func (w *way) changing(p udptest.Packet) (all []changed) {
	for _, c := range []struct {
		field int // offset in the UDP header, in bytes
		port  uint16
	}{{2, wire.Port}, {2, podroutes.VXLANPort}, {0, wire.Port}} {
		frame := frameOf(p)
		udp := int(udpOf(frame))
		// The UDP checksum of the changed packet can have any value, because no one checks it.
		frame, o := udptest.Becoming(frame, udp, udp+c.field, udp+6, c.port)
		if w.masquerade.Is4() { // the kernel changes the address before it completes the checksum
			without, with := p.Src.Addr().As4(), w.masquerade.As4()
			sum := uint32(binary.BigEndian.Uint16(frame[udp+6:]))
			for i := 0; i < 4; i += 2 {
				sum += uint32(binary.BigEndian.Uint16(without[i:])) + uint32(^binary.BigEndian.Uint16(with[i:]))
			}
			sum = sum>>16 + sum&0xffff
			binary.BigEndian.PutUint16(frame[udp+6:], uint16(sum>>16+sum))
		}
		all = append(all, changed{o, frame})
	}
	// Several datagrams are in one frame. Each is as long as the first one, which is a read.
	const segment = 48
	p.Dst = netip.AddrPortFrom(p.Dst.Addr(), wire.Port)
	frame := frameOf(p)
	udp := udpOf(frame)
	binary.BigEndian.PutUint16(frame[udp+4:], 8+segment)
	if p.Dst.Addr().Is4() {
		binary.BigEndian.PutUint16(frame[14+2:], 20+8+segment)
		udptest.Checksum(frame[14:])
	} else {
		binary.BigEndian.PutUint16(frame[14+4:], 8+segment)
	}
	return append(all, changed{udptest.Offload{Flags: udptest.NeedsChecksum, Split: udptest.SplitUDPL4,
		Headers: udp + 8, Segment: segment, Start: udp, Place: 6}, frame})
}

func frameOf(p udptest.Packet) []byte {
	if p.Dst.Addr().Is6() {
		return p.Frame6()
	}
	return p.Frame()
}

// udpOf returns the offset of the UDP header in a frame that frameOf has made.
func udpOf(frame []byte) uint16 {
	if frame[12] == 0x86 {
		return 14 + 40
	}
	return 14 + 20
}

// forgedInside reports whether a frame contains a forged packet, directly or inside one or more
// tunnels of the pods' network. The function is decides by a packet's ports whether it counts.
func forgedInside(frame []byte, is func(from, to uint16) bool) bool {
	if len(frame) < 14+20 || !bytes.Contains(frame, []byte(mallory)) {
		return false
	}
	at := int(udpOf(frame))
	if frame[12] == 8 {
		at = 14 + int(frame[14]&15)*4
	} else if frame[12] != 0x86 {
		return false
	}
	if len(frame) < at+8 {
		return false
	}
	from, to, inner := binary.BigEndian.Uint16(frame[at:]), binary.BigEndian.Uint16(frame[at+2:]), frame[at+8:]
	if wrapped := to == podroutes.VXLANPort || to == flannelPort; wrapped && !bytes.HasPrefix(inner, []byte(mallory)) {
		return len(inner) > 8 && forgedInside(inner[8:], is)
	}
	return is(from, to)
}

// spaceOf returns the network namespace with a name.
func spaceOf(t *testing.T, name string) *udptest.Space {
	t.Helper()
	s, err := inside(t, name, func() (*udptest.Space, error) { return udptest.Here(t), nil })
	check(t, err)
	return s
}

// flannelPort is the UDP port of flannel's tunnels.
const flannelPort = 8472

// flannelUnderlay connects the nodes' pods by a tunnel, as flannel does.
func flannelUnderlay(t *testing.T, nodes []*node) {
	t.Helper()
	for i, n := range nodes {
		sh(t, "ip", "-n", n.space, "link", "add", "flannel.1", "address", fmt.Sprintf("02:00:00:00:0f:0%d", i+1), "type", "vxlan", "id", "1",
			"dstport", fmt.Sprint(flannelPort), "local", fmt.Sprintf("192.168.0.%d", i+1), "dev", "eth0", "nolearning")
		sh(t, "ip", "-n", n.space, "link", "set", "flannel.1", "up")
		sh(t, "ip", "netns", "exec", n.space, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
	}
	for i, n := range nodes {
		for j, m := range nodes {
			if i == j {
				continue
			}
			mac, gateway := fmt.Sprintf("02:00:00:00:0f:0%d", j+1), m.cidr.Addr().String()
			sh(t, "ip", "-n", n.space, "neigh", "replace", gateway, "lladdr", mac, "dev", "flannel.1", "nud", "permanent")
			sh(t, "bridge", "-n", n.space, "fdb", "append", mac, "dev", "flannel.1", "dst", fmt.Sprintf("192.168.0.%d", j+1))
			sh(t, "ip", "-n", n.space, "route", "add", m.cidr.String(), "via", gateway, "dev", "flannel.1", "onlink")
		}
	}
}

// TestOffloadedFrames makes pods send frames that the kernel must complete. After the checks, no
// such frame may become a packet of the switches. It tests all set-ups of a node, over IPv4 and
// IPv6. TestNetCRAQ covers tunnels between the switches, TestBehind the plugins bridge and ptp, and
// TestFabric top-of-rack switches.
func TestOffloadedFrames(t *testing.T) {
	for _, engine := range []string{"ebpf", "interp"} {
		t.Run("uplink "+engine, func(t *testing.T) {
			nodes := lan(t, 2, false, "--engine", engine, "--services", "10.0.254.0/24", "--uplink", "1@eth0")
			a, b := nodes[0], nodes[1]
			a.start()
			b.start()
			p, q, closed := a.mustAdd(t), b.mustAdd(t), a.mustAdd(t)
			control := startController(t, nodes, p, q)
			added, err := control.AddKey(t.Context(), "main", admin.KeySpec{Name: "/leader", Value: []byte("alice")})
			check(t, err)
			(&way{from: a, out: "eth0", space: b.space, in: "eth0", targets: []netip.Addr{q.ip,
				netip.MustParseAddr("192.168.0.2")}}).offloaded(t, closed, p)
			expect(t, "a pod at the head", newClient(t, p.space), wire.Key(added.KeyID), "alice")
		})
		t.Run("flannel "+engine, func(t *testing.T) {
			nodes := lan(t, 2, false, "--engine", engine, "--services", "10.0.254.0/24", "--chained")
			flannelUnderlay(t, nodes)
			var pods []*pod
			for _, n := range nodes {
				n.start()
				pods = append(pods, n.mustAddTo(t, n.list(n.bridgePlugin(), n.chainedPlugin())))
			}
			check(t, talk(t, pods[0].space, pods[1].space, netip.AddrPortFrom(pods[1].ip, 80)))
			(&way{from: nodes[0], out: "flannel.1", space: nodes[1].space, in: "flannel.1",
				targets: []netip.Addr{pods[1].ip}}).offloaded(t, pods[0])
		})
		t.Run("both families "+engine, func(t *testing.T) {
			nodes := familiesLAN(t, "46", "46", false, "--engine", engine, "--services", "10.0.254.0/24", "--routes", "direct")
			var pods []*pod
			for _, n := range nodes {
				n.start()
				pods = append(pods, n.mustAdd(t))
			}
			slices.Reverse(pods[1].ips) // IPv6 first: only the first address is also tried without the filter
			(&way{from: nodes[0], out: "eth0", space: nodes[1].space, in: "eth0",
				targets: append(pods[1].ips, netip.MustParseAddr("fd00:c::2"))}).offloaded(t, pods[0])
		})
	}
}
