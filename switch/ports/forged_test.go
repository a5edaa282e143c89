package ports

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/switch/udpmatch/udptest"
)

// TestUnfinishedIsWhereTheHeadersSay checks that a checksum can be unfinished only where TCP, UDP
// or SCTP have their checksum, whatever headers come before.
func TestUnfinishedIsWhereTheHeadersSay(t *testing.T) {
	p := udptest.Packet{EthernetDst: make([]byte, 6), EthernetSrc: make([]byte, 6),
		Src: netip.MustParseAddrPort("10.0.0.1:5"), Dst: netip.MustParseAddrPort("10.0.0.2:9"), Payload: make([]byte, 64)}
	tagged, optioned, tcp, sctp, icmp := p, p, p, p, p
	tagged.Tags = []udptest.Tag{{Type: 0x88a8}, {Type: 0x8100, VLAN: 5}}
	optioned.Options = make([]byte, 8)
	tcp.Protocol, sctp.Protocol, icmp.Protocol = unix.IPPROTO_TCP, unix.IPPROTO_SCTP, unix.IPPROTO_ICMP
	fragment := p.Fragments(16)[0]
	six := append(make([]byte, 12), 0x86, 0xdd)
	six = append(six, make([]byte, 40+8+20+30)...) // hop-by-hop options followed by TCP
	six[14+6], six[14+40] = unix.IPPROTO_HOPOPTS, unix.IPPROTO_TCP
	for name, c := range map[string]struct {
		frame         []byte
		start, offset int // -1 if no checksum can be unfinished
	}{
		"UDP": {p.Frame(), 34, 6}, "behind tags": {tagged.Frame(), 42, 6}, "behind options": {optioned.Frame(), 42, 6},
		"TCP": {tcp.Frame(), 34, 16}, "SCTP": {sctp.Frame(), 34, 8}, "ICMP": {icmp.Frame(), -1, 0},
		"a fragment": {fragment, -1, 0}, "IPv6": {six, 62, 16}, "nothing": {nil, -1, 0}, "a piece": {p.Frame()[:20], -1, 0},
	} {
		found := 0
		for start := range len(c.frame) + 4 {
			for offset := range 24 {
				if unfinished(c.frame, start, offset) {
					if found++; start != c.start || offset != c.offset {
						t.Errorf("%s: at %d, %d", name, start, offset)
					}
				}
			}
		}
		if (found == 1) != (c.start >= 0) {
			t.Errorf("%s: %d places", name, found)
		}
	}
}

// TestForgedFrames sends frames that request a checksum at an arbitrary offset. The switch must
// count and drop them. It must complete checksums that a stack leaves unfinished.
func TestForgedFrames(t *testing.T) {
	veth(t, "pf", 1500)
	type seen struct {
		port uint16
		sum  uint16
	}
	got := make(chan seen, 256)
	s := newSet(t, func(_ *Set, _ uint32, f []byte) {
		if len(f) > 42 && f[12] == 8 && f[13] == 0 && f[23] == unix.IPPROTO_UDP {
			got <- seen{binary.BigEndian.Uint16(f[36:]), binary.BigEndian.Uint16(f[40:])}
		}
	}, Options{})
	add(t, s, 1, "pf")
	// A host that controls its interface turns on the offload that the switch turned off.
	if out, err := exec.Command("ethtool", "-K", "pfp", "tx", "on").CombinedOutput(); err != nil {
		t.Fatalf("ethtool: %v: %s", err, out)
	}
	send := udptest.Here(t).OffloadSender("pfp")
	p := udptest.Packet{EthernetDst: make([]byte, 6), EthernetSrc: make([]byte, 6), Payload: make([]byte, 64),
		Src: netip.MustParseAddrPort("10.0.0.1:5"), Dst: netip.MustParseAddrPort("10.0.0.2:9999")}
	rng := rand.New(rand.NewPCG(1, 1))
	const forged = 200
	sent := uint64(0)
	for range forged {
		start, offset := uint16(rng.IntN(60)), uint16(rng.IntN(24))
		if start == 34 && offset == 6 {
			continue
		}
		if send(udptest.Offload{Flags: udptest.NeedsChecksum, Start: start, Place: offset}, p.Frame()) == nil {
			sent++
		}
	}
	whole := p
	whole.Dst = netip.MustParseAddrPort("10.0.0.2:7")
	if err := send(udptest.Offload{Flags: udptest.NeedsChecksum, Start: 34, Place: 6}, whole.Frame()); err != nil {
		t.Fatal(err)
	}
	if first := <-got; first.port != 7 || first.sum == 0 {
		t.Errorf("there comes %+v, and not first what may", first)
	}
	if n := s.Ports()[1].RxForged; n != sent || sent < forged/2 {
		t.Errorf("%d of %d were counted as forged", n, sent)
	}
}
