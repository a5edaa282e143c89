package ingressfilter

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/switch/udpmatch/udptest"
)

var (
	podAddr6  = netip.MustParseAddr("fd00:1::2")
	nodeAddr6 = netip.MustParseAddr("fd00:1::1")
)

// arrive6 sends an IPv6 packet to the node in every encapsulation. It returns the names of the
// encapsulations in which the packet arrives.
func (r *route) arrive6(at *udptest.Recorder, p udptest.Packet) (names []string) {
	r.t.Helper()
	ways := udptest.Wrap6(p)
	for _, w := range ways {
		r.send(w.Frames...)
	}
	const sentinel = 99
	last := p
	last.Src, last.Dst = netip.AddrPortFrom(podAddr6, sentinel), netip.AddrPortFrom(nodeAddr6, sentinel)
	got := at.Settle(r.t, func() { r.send(last.Frame6()) },
		func(udp []byte) bool { return len(udp) > 8 && binary.BigEndian.Uint16(udp) == sentinel })
	for _, udp := range got {
		if len(udp) == 8+len(p.Payload) && binary.BigEndian.Uint16(udp) == p.Src.Port() &&
			binary.BigEndian.Uint16(udp[2:]) == p.Dst.Port() {
			names = append(names, ways[binary.BigEndian.Uint16(udp[8:])].Name)
		}
	}
	return names
}

// TestIPv6 checks that the ingress filter also works over IPv6. In every encapsulation, it must
// stop all packets to or from the switches' and the tunnels' ports. It must also stop all packets
// from addresses that are not the pod's.
func TestIPv6(t *testing.T) {
	r := newRoute(t)
	at := r.node.UDP6()
	packet := func(src netip.Addr, from, to uint16) udptest.Packet {
		return udptest.Packet{EthernetDst: r.node.MAC("ncq"), EthernetSrc: r.pod.MAC("eth0"),
			Src: netip.AddrPortFrom(src, from), Dst: netip.AddrPortFrom(nodeAddr6, to), Payload: make([]byte, 64)}
	}
	forged := netip.MustParseAddr("fd00:1::3")
	kinds := []struct {
		p       udptest.Packet
		passes  bool // the packet passes the filter with the rules for pods
		checked bool // the source is not the pod's, so the filter drops the packet
	}{
		{packet(podAddr6, 1000, netcraq), false, false},
		{packet(podAddr6, netcraq, other), false, false},
		{packet(podAddr6, 1000, vxlan), false, false},
		{packet(podAddr6, vxlan, other), true, false},
		{packet(podAddr6, 1000, other), true, false},
		{packet(forged, 1000, other), false, true},
		{packet(netip.MustParseAddr("fe80::99"), 1000, other), true, false},
		{packet(netip.MustParseAddr("fe80::98"), 1000, other), false, true},
	}
	// Linux accepts these encapsulations. It does not accept frames with more option headers than
	// it reads, or with authentication that it does not know.
	wanted := []string{"plain", "plain, tag 8100, tag 8100", "hop-by-hop options", "8 headers of options",
		"fragments of [8]", "fragments of [8 16], the last one first, tag 8100", "fragments of [24] with options"}
	for _, tagged := range []bool{false, true} {
		for _, k := range kinds {
			r.node.Do(func() error { return Detach(r.node.Index("ncq")) })
			before := r.arrive6(at, k.p)
			for _, way := range wanted {
				if !slices.Contains(before, way) {
					t.Errorf("%s to %s, %s: it does not arrive without a filter either", k.p.Src, k.p.Dst, way)
				}
			}
			rules := Rules{Port: netcraq, Destination: vxlan, Untagged: !tagged, CheckSources: true,
				Sources: []netip.Addr{netip.MustParseAddr("fd00:2::2"), podAddr6, netip.MustParseAddr("fe80::99")}}
			r.node.Do(func() error { return Attach(r.node.Index("ncq"), rules) })
			after := r.arrive6(at, k.p)
			switch {
			case !k.passes && len(after) > 0:
				t.Errorf("%s to %s: it arrives: %s", k.p.Src, k.p.Dst, strings.Join(after, "; "))
			case k.passes && (!slices.Contains(after, "plain") || !slices.Contains(after, "fragments of [8]") ||
				tagged != slices.Contains(after, "plain, tag 8100")):
				t.Errorf("%s to %s, tags: %v: there arrives %v", k.p.Src, k.p.Dst, tagged, after)
			}
			if k.checked {
				rules.CheckSources, rules.Sources = false, nil
				r.node.Do(func() error { return Attach(r.node.Index("ncq"), rules) })
				if got := r.arrive6(at, k.p); !slices.Contains(got, "plain") {
					t.Errorf("%s to %s, sources not checked: there arrives %v", k.p.Src, k.p.Dst, got)
				}
			}
			t.Logf("%s to %s: %d ways without a filter, %d with", k.p.Src, k.p.Dst, len(before), len(after))
		}
	}
	// The filter checks the source of TCP and of pings, too. Neighbor Discovery still works.
	r.node.Do(func() error {
		return Attach(r.node.Index("ncq"), Rules{Port: netcraq, CheckSources: true, Sources: []netip.Addr{podAddr6}})
	})
	if err := exchange(t, r.pod, r.node, "tcp", "[fd00:1::1]:80", 5000); err != nil {
		t.Errorf("TCP: %v", err)
	}
	if err := ping(t, r.pod, "fd00:1::1", "4000"); err != nil {
		t.Error(err)
	}
	r.node.Do(func() error {
		return Attach(r.node.Index("ncq"), Rules{Port: netcraq, CheckSources: true})
	})
	if err := ping(t, r.pod, "fd00:1::1", "56"); err == nil {
		t.Error("a pod that has no IPv6 address of the node's sends IPv6")
	}
}

// TestBadSources checks that Attach refuses sources that the filter cannot check.
func TestBadSources(t *testing.T) {
	for want, sources := range map[string][]netip.Addr{
		"not 0 IPv4 and 5 IPv6":      slices.Repeat([]netip.Addr{podAddr6}, 5),
		"not 5 IPv4 and 1 IPv6":      append(slices.Repeat([]netip.Addr{podAddr}, 5), podAddr6),
		"::ffff:10.1.0.2 is neither": {netip.AddrFrom16(podAddr.As16())},
	} {
		err := Attach(1, Rules{Port: netcraq, Sources: sources})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, not %q", sources, err, want)
		}
	}
}
