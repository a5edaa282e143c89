package udpmatch_test

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/netcraq/netcraq/switch/udpmatch"
	"github.com/netcraq/netcraq/switch/udpmatch/udptest"
)

const dropped, plain, passed = udpmatch.Drop, udpmatch.Plain, udpmatch.Pass

// program loads a program that returns the function's verdict on a frame.
func program(t *testing.T, xdp bool, r udpmatch.Rules) *ebpf.Program {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("skipped: needs root, for eBPF")
	}
	// The program is the function itself, after the instructions that load its arguments.
	kind := ebpf.SchedCLS
	if xdp {
		kind = ebpf.XDP
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: kind, License: "Apache-2.0",
		Instructions: append(r.Arguments(), udpmatch.Function(xdp)...)})
	udptest.Check(t, err)
	t.Cleanup(func() { p.Close() })
	return p
}

// TestVerdicts runs the code for tc and for XDP on frames. For tc, the test passes the complete
// frame to the kernel, so no tag is in the metadata.
func TestVerdicts(t *testing.T) {
	const ours, to, other = 20035, 20037, 9
	packet := func(from, dst uint16, change func(*udptest.Packet)) udptest.Packet {
		p := udptest.Packet{EthernetDst: make(net.HardwareAddr, 6),
			EthernetSrc: make(net.HardwareAddr, 6), Payload: make([]byte, 32),
			Src: netip.AddrPortFrom(netip.MustParseAddr("10.1.0.2"), from),
			Dst: netip.AddrPortFrom(netip.MustParseAddr("10.2.0.2"), dst)}
		if change != nil {
			change(&p)
		}
		return p
	}
	tags := func(kinds ...uint16) func(*udptest.Packet) {
		return func(p *udptest.Packet) {
			for _, k := range kinds {
				p.Tags = append(p.Tags, udptest.Tag{Type: k, VLAN: 7})
			}
		}
	}
	change := func(f []byte, at int, b ...byte) []byte {
		f = slices.Clone(f)
		copy(f[at:],
			b)
		return f
	}
	whole := packet(other, ours, nil).Frame()
	pieces := packet(other, ours, nil).Fragments(8)
	five := []uint16{0x8100, 0x88a8, 0x9100, 0x8100, 0x8100}
	options := func(p *udptest.Packet) { p.Options = []byte{1, 1, 1, 1} }
	for _, c := range []struct {
		name  string
		frame []byte
		// The verdict if the code looks through tags, and if it drops tagged frames (Untagged).
		look, untagged int
	}{
		{"to the port", whole, plain, plain},
		{"from the port", packet(ours, other, nil).Frame(), plain, plain},
		{"to another port", packet(other, other, nil).Frame(), passed, passed},
		{"to the one that nobody may send to", packet(other, to, nil).Frame(), dropped, dropped},
		{"from that", packet(to, other, nil).Frame(), passed, passed},
		{"not to be fragmented", change(whole, 20, 0x40), plain, plain},
		{"the evil bit (RFC 3514)", change(whole, 20, 0x80), plain, plain},
		{"one tag", packet(other, ours, tags(0x8100)).Frame(), dropped, dropped},
		{"four tags", packet(other, ours, tags(five[:4]...)).Frame(), dropped, dropped},
		{"five tags", packet(other, ours, tags(five...)).Frame(), dropped, dropped},
		{"one tag, another port", packet(other, other, tags(0x88a8)).Frame(), passed, dropped},
		{"four tags, another port", packet(other, other, tags(five[:4]...)).Frame(), passed,
			dropped},
		{"five tags, another port", packet(other, other, tags(five...)).Frame(), dropped, dropped},
		{"one tag and IPv6", change(packet(other, ours, tags(0x8100)).Frame(), 16, 0x86, 0xdd),
			passed, dropped},
		{"a tag and nothing", packet(other, ours, tags(0x8100)).Frame()[:16], dropped, dropped},
		{"options", packet(other, ours, options).Frame(), dropped, dropped},
		{"options, another port", packet(other, other, options).Frame(), passed, passed},
		{"the first fragment", pieces[0], dropped, dropped},
		{"the second", pieces[1], passed, passed},
		{"TCP", change(whole, 23, 6), passed, passed},
		{"ARP", change(whole, 12, 8, 6), passed, passed},
		{"IPv6", change(whole, 12, 0x86, 0xdd), passed, passed},
		{"version 6 in IPv4", change(whole, 14, 0x65), dropped, dropped},
		{"version 3 in IPv4", change(whole, 14, 0x35), dropped, dropped},
		{"a header of 4 words", change(whole, 14, 0x44), dropped, dropped},
		{"a header of 15 words in a short frame", change(whole, 14, 0x4f)[:60], dropped, dropped},
		{"no ports", whole[:34], dropped, dropped},
		{"half a port", whole[:36], dropped, dropped},
		{"ports and no more", whole[:38], plain, plain},
		{"ARP, short", change(whole, 12, 8, 6)[:20], passed, passed},
	} {
		for _, xdp := range []bool{false, true} {
			for _, untagged := range []bool{false, true} {
				want := c.look
				if untagged {
					want = c.untagged
				}
				got, err := program(t, xdp, udpmatch.Rules{Both: ours, To: to,
					Untagged: untagged}).Run(&ebpf.RunOptions{Data: c.frame})
				if err != nil {
					t.Errorf("%s: %v", c.name, err)
				} else if got != uint32(want) {
					t.Errorf("%s (XDP: %v, no tags: %v): %d, not %d", c.name, xdp, untagged, got,
						want)
				}
			}
		}
	}
	// If the rules only have a port to which nobody may send, no packet is Plain.
	for frame, want := range map[string]uint32{string(whole): passed,
		string(packet(other, to, options).Frame()): dropped} {
		if got, err := program(t, false, udpmatch.Rules{To: to}).Run(
			&ebpf.RunOptions{Data: []byte(frame)}); err != nil || got != want {
			t.Errorf("%x: %d (%v), not %d", frame, got, err, want)
		}
	}
}
