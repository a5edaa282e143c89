package ebpf

import (
	"encoding/binary"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/switch/target"
)

// udpFrame is an Ethernet frame to 02:00:00:00:00:00 with an IPv4 packet from 10.9.0.2 to 10.9.0.1. fragment is the word of flags and offset.
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
	return append(f, make([]byte, 2+payload)...) // checksum 0: none
}

// patience is how long to wait for what is expected, on a busy machine, and for what is not.
func patience(expected bool) time.Duration {
	if expected {
		return 5 * time.Second
	}
	return 20 * time.Millisecond
}

// TestOnlyUDP sends frames to a port that the switch shares with the host, which has a socket on the switch's UDP port and one on another, and looks who gets them. The
// program sends everything back.
func TestOnlyUDP(t *testing.T) {
	const udpPort, other = 20035, 7
	noop := []byte{1, 1, 1, 1}
	tagged := udpFrame(other, udpPort, nil, 0)
	tagged = append(append(tagged[:12:12], 0x81, 0, 0, 5), tagged[12:]...)
	arp := append([]byte{255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 9, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 9, 10, 9, 0, 2, 0, 0, 0, 0, 0, 0, 10, 9, 0, 1}, make([]byte, 18)...)
	cases := []struct {
		name    string
		frame   []byte
		program bool // sends it back
		socket  int  // of the host that gets it; 0: none
		answer  bool // of the host's stack: ARP
	}{
		{name: "to the port", frame: udpFrame(other, udpPort, nil, 0), program: true},
		{name: "from the port", frame: udpFrame(udpPort, other, nil, 0), program: true},
		{name: "another port", frame: udpFrame(other, other, nil, 0), socket: other},
		{name: "another port, with options", frame: udpFrame(other, other, noop, 0), socket: other},
		{name: "to the port, with options", frame: udpFrame(other, udpPort, noop, 0)},
		{name: "from the port, with options", frame: udpFrame(udpPort, other, noop, 0)},
		{name: "to the port, a fragment", frame: udpFrame(other, udpPort, nil, 0x2000)},
		{name: "to the port, not to be fragmented", frame: udpFrame(other, udpPort, nil, 0x4000), program: true},
		{name: "to the port, tagged", frame: tagged},
		{name: "ARP", frame: arp, answer: true},
	}
	for _, hook := range []Hook{HookTC, HookClsact, HookXDP} {
		t.Run(hook.String(), func(t *testing.T) {
			sw, peer := inNamespace(t)
			check(t, netlink.LinkSetHardwareAddr(sw, net.HardwareAddr{2, 0, 0, 0, 0, 0}))
			check(t, netlink.AddrAdd(sw, &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 9, 0, 1), Mask: net.CIDRMask(24, 32)}}))
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
			fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.ETH_P_ALL<<8)
			check(t, err)
			defer unix.Close(fd)
			check(t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: unix.ETH_P_ALL << 8, Ifindex: peer.Attrs().Index}))
			check(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 20000}))
			back := func(expected bool, match func([]byte) bool) bool {
				buffer := make([]byte, 2048)
				for end := time.Now().Add(patience(expected)); time.Now().Before(end); {
					n, from, err := unix.Recvfrom(fd, buffer, 0)
					if err == nil && from.(*unix.SockaddrLinklayer).Pkttype != unix.PACKET_OUTGOING && match(buffer[:n]) {
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
						return f[21] == 2 // an ARP reply
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
			// A packet-out is the program's, whatever it is.
			check(t, d.PacketOut(append([]byte{2, 0, 0, 0, 0, 0}, make([]byte, 54)...)))
			if !back(true, func(f []byte) bool { return len(f) == 60 && binary.BigEndian.Uint16(f[12:]) == 0 }) {
				t.Error("a packet-out did not come out")
			}
		})
	}
}
