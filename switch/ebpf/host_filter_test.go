package ebpf

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/switch/offload"
	"github.com/netcraq/netcraq/switch/target"
	"github.com/netcraq/netcraq/switch/udpmatch/udptest"
)

// udpFrame returns an Ethernet frame to 02:00:00:00:00:00 with an IPv4 packet from 10.9.0.2 to
// 10.9.0.1. fragment is the IPv4 field with flags and offset.
func udpFrame(from, to uint16, options []byte, fragment uint16) []byte {
	f := append([]byte{2, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 9, 8, 0}, make([]byte, 20)...)
	ip := f[14:]
	header := 20 + len(options)
	const payload = 16
	ip[0], ip[8], ip[9] = 0x40|byte(header/4), 64, 17
	binary.BigEndian.PutUint16(ip[2:], uint16(header+8+payload))
	binary.BigEndian.PutUint16(ip[6:], fragment)
	copy(ip[12:], []byte{10, 9, 0, 2, 10, 9, 0, 1})
	f = append(f, options...)
	sum := uint32(0)
	for i := 14; i < 14+header; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(f[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(f[14+10:], ^uint16(sum))
	f = binary.BigEndian.AppendUint16(f, from)
	f = binary.BigEndian.AppendUint16(f, to)
	f = binary.BigEndian.AppendUint16(f, 8+payload)
	return append(f, make([]byte, 2+payload)...) // a checksum of 0 stands for no checksum
}

// patience returns how long to wait for a frame. An expected frame may be late on a busy machine.
func patience(expected bool) time.Duration {
	if expected {
		return 5 * time.Second
	}
	return 20 * time.Millisecond
}

// TestOnlyUDP sends frames to a port that the switch shares with the host, and checks who receives
// them. The host has a socket on the switch's UDP port, and a socket on another port. The program
// returns every frame to its sender.
func TestOnlyUDP(t *testing.T) {
	const udpPort, other = 20035, 7
	noop := []byte{1, 1, 1, 1}
	tagged := udpFrame(other, udpPort, nil, 0)
	tagged = append(append(tagged[:12:12], 0x81, 0, 0, 5), tagged[12:]...)
	arp := append([]byte{255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 9, 8, 6, 0, 1, 8, 0, 6, 4, 0,
		1, 2, 0, 0, 0, 0, 9, 10, 9, 0, 2, 0, 0, 0, 0, 0, 0, 10, 9, 0, 1}, make([]byte, 18)...)
	cases := []struct {
		name    string
		frame   []byte
		program bool // the program receives the frame and returns it
		socket  int  // the port of the host's socket that receives the frame; 0 for none
		answer  bool // the host's stack answers the frame (ARP)
	}{
		{name: "to the port", frame: udpFrame(other, udpPort, nil, 0), program: true},
		{name: "from the port", frame: udpFrame(udpPort, other, nil, 0), program: true},
		{name: "another port", frame: udpFrame(other, other, nil, 0), socket: other},
		{name: "another port, with options", frame: udpFrame(other, other, noop, 0), socket: other},
		{name: "to the port, with options", frame: udpFrame(other, udpPort, noop, 0)},
		{name: "from the port, with options", frame: udpFrame(udpPort, other, noop, 0)},
		{name: "to the port, a fragment", frame: udpFrame(other, udpPort, nil, 0x2000)},
		{name: "to the port, not to be fragmented", frame: udpFrame(other, udpPort, nil, 0x4000),
			program: true},
		{name: "to the port, tagged", frame: tagged},
		{name: "ARP", frame: arp, answer: true},
	}
	for _, hook := range []Hook{HookTC, HookClsact, HookXDP} {
		t.Run(hook.String(), func(t *testing.T) {
			sw, peer := inNamespace(t)
			check(t, netlink.LinkSetHardwareAddr(sw, net.HardwareAddr{2, 0, 0, 0, 0, 0}))
			check(t, netlink.AddrAdd(sw,
				&netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 9, 0, 1),
					Mask: net.CIDRMask(24, 32)}}))
			d, err := newDevice(Options{Hook: hook, CPUPort: 510, OnlyUDP: udpPort})
			check(t, err)
			defer d.Close()
			check(t, d.AddPort(target.Port{Number: 1, Iface: "sw"}))
			check(t, d.Commit(readProgram(t, "testdata/tally.json")))
			check(t, d.Pipeline().InsertEntry("TallyIngress.where", toPort1))
			sockets := map[int]*net.UDPConn{}
			for _, p := range []int{udpPort, other} {
				s, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(10, 9, 0, 1), Port: p})
				check(t, err)
				defer s.Close()
				sockets[p] = s
			}
			fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC,
				unix.ETH_P_ALL<<8)
			check(t, err)
			defer unix.Close(fd)
			check(t, unix.Bind(fd,
				&unix.SockaddrLinklayer{Protocol: unix.ETH_P_ALL << 8,
					Ifindex: peer.Attrs().Index}))
			check(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO,
				&unix.Timeval{Usec: 20000}))
			back := func(expected bool, match func([]byte) bool) bool {
				buffer := make([]byte, 2048)
				for end := time.Now().Add(patience(expected)); time.Now().Before(end); {
					n, from, err := unix.Recvfrom(fd, buffer, 0)
					if err == nil &&
						from.(*unix.SockaddrLinklayer).Pkttype != unix.PACKET_OUTGOING &&
						match(buffer[:n]) {
						return true
					}
				}
				return false
			}
			for _, c := range cases {
				_, err := unix.Write(fd, c.frame)
				check(t, err)
				kind := binary.BigEndian.Uint16(c.frame[12:])
				if got := back(c.program || c.answer, func(f []byte) bool {
					if binary.BigEndian.Uint16(f[12:]) != kind {
						return false
					}
					if c.answer {
						return f[21] == 2 // the frame is an ARP reply
					}
					return len(f) == len(c.frame) && f[23] == 17
				}); got != (c.program || c.answer) {
					t.Errorf("%s: a frame came back: %v", c.name, got)
				}
				for p, s := range sockets {
					check(t, s.SetReadDeadline(time.Now().Add(patience(p == c.socket))))
					_, _, err := s.ReadFromUDP(make([]byte, 100))
					if got := err == nil; got != (p == c.socket) {
						t.Errorf("%s: the host's socket %d got it: %v", c.name, p, got)
					}
				}
			}
			// A packet-out always goes to the program, whatever it contains.
			check(t, d.PacketOut(append([]byte{2, 0, 0, 0, 0, 0}, make([]byte, 54)...)))
			if !back(true, func(f []byte) bool {
				return len(f) == 60 &&
					binary.BigEndian.Uint16(f[12:]) == 0
			}) {
				t.Error("a packet-out did not come out")
			}
		})
	}
}

// sharing is a switch that shares an interface with the host, and a sender at the other end of the
// cable.
type sharing struct {
	t    *testing.T
	send func(...[]byte)
	// inPages sends frames whose headers an XDP or tc program cannot access directly.
	inPages func(...[]byte)
	host    *udptest.Recorder
	make    func(from, to uint16) udptest.Packet
}

const sharedPort = 20035

func newSharing(t *testing.T) (*sharing, func(Hook)) {
	t.Helper()
	sw, peer := inNamespace(t)
	check(t, netlink.AddrAdd(sw,
		&netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 9, 0, 1), Mask: net.CIDRMask(24, 32)}}))
	here := udptest.Here(t)
	here.Set(map[string]string{"ipv4/conf/all/rp_filter": "0", "ipv4/conf/sw/rp_filter": "0"})
	s := &sharing{t: t, send: here.Sender(peer.Attrs().Name),
		inPages: here.RingSender(peer.Attrs().Name), host: here.UDP()}
	s.make = func(from, to uint16) udptest.Packet {
		return udptest.Packet{EthernetDst: here.MAC("sw"),
			EthernetSrc: net.HardwareAddr{2, 0, 0, 0, 0, 9}, Payload: make([]byte, 64),
			Src: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, 0, 2}), from),
			Dst: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, 0, 1}), to)}
	}
	return s, func(hook Hook) {
		d, err := newDevice(Options{Hook: hook, CPUPort: 510, OnlyUDP: sharedPort})
		check(t, err)
		t.Cleanup(func() { d.Close() })
		check(t, d.AddPort(target.Port{Number: 1, Iface: "sw"}))
		check(t, d.Commit(readProgram(t, "testdata/tally.json")))
		check(t, d.Pipeline().InsertEntry("TallyIngress.where", toPort1))
	}
}

// settle waits for and returns the packets that the host's stack has received.
func (s *sharing) settle() [][]byte {
	s.t.Helper()
	const sentinel = 99
	return s.host.Settle(s.t, func() { s.send(s.make(sentinel, sentinel).Frame()) },
		func(ip []byte) bool {
			return len(ip) >= 28 &&
				binary.BigEndian.Uint16(ip[20:]) == sentinel
		})
}

// arrive sends a packet in every encapsulation. It returns the names of the encapsulations with
// which the packet reached the host's stack.
func (s *sharing) arrive(send func(...[]byte), from, to uint16) (names []string) {
	s.t.Helper()
	p := s.make(from, to)
	ways := udptest.Wrap(p)
	for _, w := range ways {
		send(w.Frames...)
	}
	for _, ip := range s.settle() {
		udp := ip[int(ip[0]&15)*4:]
		if binary.BigEndian.Uint16(udp) == from && binary.BigEndian.Uint16(udp[2:]) == to {
			names = append(names, ways[binary.BigEndian.Uint16(udp[8:])].Name)
		}
	}
	return names
}

// TestHostFilterWrapped sends packets in every encapsulation. The host must not receive packets of
// the program's port, and must receive all other packets as if there were no switch. The same holds
// for frames with random changes.
func TestHostFilterWrapped(t *testing.T) {
	const other = 9
	for _, hook := range []Hook{HookTC, HookClsact, HookXDP} {
		t.Run(hook.String(), func(t *testing.T) {
			s, start := newSharing(t)
			before := map[[2]uint16][]string{}
			for _, ports := range [][2]uint16{{other, sharedPort}, {sharedPort, other},
				{other, other}} {
				before[ports] = s.arrive(s.send, ports[0], ports[1])
				for _, want := range []string{"plain", "tags 8100 8100", "100 priority tags",
					"three fragments, 0 tags", "40 bytes of options, 1 tags"} {
					if !slices.Contains(before[ports], want) {
						t.Errorf("without a switch: %s does not arrive: the test means nothing",
							want)
					}
				}
			}
			start(hook)
			// If this offload is on, the device shows XDP a tagged frame without its tag.
			if on, err := offload.IsOn("sw", offload.RxVLAN); err != nil ||
				on != (hook != HookXDP) {
				t.Errorf("rx-vlan-offload is on: %v (%v)", on, err)
			}
			for ports, names := range before {
				got := s.arrive(s.send, ports[0], ports[1])
				if ports != [2]uint16{other, other} {
					t.Logf("%d to %d: %d ways arrived without a switch, %d do with it", ports[0],
						ports[1], len(names), len(got))
					if got = append(got, s.arrive(s.inPages, ports[0], ports[1])...); len(got) > 0 {
						t.Errorf("%d to %d arrives: %v", ports[0], ports[1], got)
					}
					continue
				}
				missing := slices.DeleteFunc(slices.Clone(names),
					func(n string) bool { return slices.Contains(got, n) })
				// At tc, the kernel has already removed one tag, so the filter looks through the 5
				// that are left.
				want := "6 priority tags, 100 priority tags"
				if hook == HookXDP {
					want = "5 priority tags, " + want
				}
				if paged := s.arrive(s.inPages, other, other); !slices.Equal(paged, got) {
					t.Errorf("of other UDP in pages there arrives %v, not %v", paged, got)
				}
				if m := strings.Join(missing, ", "); m != want {
					t.Errorf("other UDP does not arrive as %q, rather than %q", m, want)
				}
			}
		})
		t.Run(hook.String()+" mutated", func(t *testing.T) {
			s, start := newSharing(t)
			rng := rand.New(rand.NewPCG(14, 5))
			start(hook)
			kinds := []udptest.Packet{s.make(other, sharedPort), s.make(sharedPort, other)}
			for i := range 100_000 {
				s.send(udptest.Mutate(rng, kinds[i%2]))
			}
			passed := 0
			for _, ip := range s.settle() {
				udp := ip[int(ip[0]&15)*4:]
				if len(udp) >= 4 && (binary.BigEndian.Uint16(udp) == sharedPort ||
					binary.BigEndian.Uint16(udp[2:]) == sharedPort) {
					t.Errorf("arrives: %x", ip)
				} else {
					passed++
				}
			}
			if t.Logf("of 100,000 frames %d arrive that are other UDP by now",
				passed); passed < 50 {
				t.Error("the test means little")
			}
		})
	}
}
