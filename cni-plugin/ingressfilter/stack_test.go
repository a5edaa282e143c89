package ingressfilter

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/switch/udpmatch/udptest"
)

// TestSwitchStack: the node's stack takes NetCRAQ's packets from the switch's interface alone and
// forwards none, without any filter at the interfaces by which they come.
func TestSwitchStack(t *testing.T) {
	r := newRoute(t)
	for _, c := range []struct {
		hostEnd string
		arrives bool // from the port, at the node
	}{{"ncqnode", false}, {"ncq", true}} {
		for _, to := range []netip.Addr{victimAddr, nodeAddr} {
			for _, p := range []udptest.Packet{r.packet(1000, to, netcraq),
				r.packet(netcraq, to, other), r.packet(netcraq, to, netcraq),
				r.packet(1000, to, other)} {
				r.node.Do(RemoveSwitch)
				before := r.arrive(p)
				r.node.Do(func() error { return ApplySwitch(netcraq, c.hostEnd) })
				after := r.arrive(p)
				if !slices.Contains(before, "plain") || !slices.Contains(before, "tags 8100 8100") {
					t.Errorf("%s to %s without a filter: %v", p.Src, p.Dst, before)
				}
				want := ""
				if p.Src.Port() != netcraq && p.Dst.Port() != netcraq || c.arrives &&
					to == nodeAddr && p.Src.Port() == netcraq {
					want = strings.Join(before, ", ")
				}
				if got := strings.Join(after, ", "); got != want {
					t.Errorf("%s to %s by ncq, the switch's interface is %s: %q, not %q", p.Src,
						p.Dst, c.hostEnd, got, want)
				}
			}
		}
	}
	// TCP is nobody's business
	for _, address := range []string{"10.2.0.2:20035", "10.1.0.1:20035"} {
		server := r.victim
		if strings.HasPrefix(address, "10.1.") {
			server = r.node
		}
		if err := exchange(t, r.pod, server, "tcp", address, 5000); err != nil {
			t.Errorf("TCP to %s: %v", address, err)
		}
	}
	r.node.Do(RemoveSwitch)
	r.node.Do(RemoveSwitch) // of none
}

// TestBadTunnels: what cannot be is refused before anything is changed.
func TestBadTunnels(t *testing.T) {
	node := netip.MustParseAddr("192.168.0.1")
	for want, rules := range map[string]Tunnels{
		"of an interface": {Port: vxlan, Address: node},
		"not at fd00::1": {Port: vxlan, Address: netip.MustParseAddr("fd00::1"),
			Uplink: "eth0"},
		"none from fd00::2": {Port: vxlan, Address: node, Uplink: "eth0",
			From: []Tunnel{{Peer: netip.MustParseAddr("fd00::2"), VNI: 1}}},
		"with the identifier 167772": {Port: vxlan, Address: node, Uplink: "eth0",
			From: []Tunnel{{Peer: node, VNI: 1 << 24}}},
	} {
		if err := ApplyTunnels(rules); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, not %q", rules, err, want)
		}
	}
}
