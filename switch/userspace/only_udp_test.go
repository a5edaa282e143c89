package userspace

import (
	"net"
	"net/netip"
	"testing"

	"github.com/netcraq/netcraq/switch/udpmatch/udptest"
)

// TestOfUDPPort sends a packet of the program's port in all encapsulations, as package ports
// delivers it (with its tags put back). The program must receive only the packet without
// encapsulation.
func TestOfUDPPort(t *testing.T) {
	const port, other = 20035, 9
	for _, ports := range [][2]uint16{{other, port}, {port, other}, {other, other}} {
		p := udptest.Packet{EthernetDst: make(net.HardwareAddr, 6),
			EthernetSrc: make(net.HardwareAddr, 6), Payload: make([]byte, 64),
			Src: netip.AddrPortFrom(netip.MustParseAddr("10.1.0.2"), ports[0]),
			Dst: netip.AddrPortFrom(netip.MustParseAddr("10.1.0.1"), ports[1])}
		for _, way := range udptest.Wrap(p) {
			for _, f := range way.Frames {
				want := way.Name == "plain" && ports != [2]uint16{other, other}
				if got := ofUDPPort(f, port); got != want {
					t.Errorf("%d to %d, %s: the program gets it: %v", ports[0], ports[1], way.Name,
						got)
				}
			}
		}
	}
	for n := range 38 {
		if ofUDPPort(make([]byte, n), 0) {
			t.Errorf("the program gets %d bytes", n)
		}
	}
}
