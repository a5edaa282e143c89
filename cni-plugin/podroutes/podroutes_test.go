package podroutes

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func node(name, address string, cidrs ...string) Node {
	n := Node{Name: name}
	n.Address, _ = netip.ParseAddr(address)
	for _, c := range cidrs {
		p, _ := netip.ParsePrefix(c)
		n.PodCIDRs = append(n.PodCIDRs, p)
	}
	return n
}

// TestFit has nodes that cannot be taken among those that can.
func TestFit(t *testing.T) {
	self := node("self", "192.168.0.1", "10.244.1.0/24")
	for _, c := range []struct {
		name   string
		others []Node
		good   string
		says   string // "": nothing
	}{
		{"all good", []Node{node("a", "192.168.0.2", "10.244.2.0/24"), node("b", "192.168.0.3", "10.244.3.0/24", "10.245.0.0/16")}, "a b", ""},
		{"no prefix yet", []Node{node("a", "192.168.0.2"), node("b", "192.168.0.3", "10.244.3.0/24")}, "b", "node a has no prefix for pods"},
		{"no address", []Node{node("a", "", "10.244.2.0/24")}, "", "node a has no IPv4 address"},
		{"IPv6", []Node{node("a", "192.168.0.2", "fd00::/64")}, "", "is no IPv4 network"},
		{"host bits", []Node{node("a", "192.168.0.2", "10.244.2.1/24")}, "", "is no IPv4 network"},
		{"ours", []Node{node("a", "192.168.0.2", "10.244.0.0/16")}, "", "overlaps one of node self"},
		{"another's", []Node{node("a", "192.168.0.2", "10.244.2.0/24"), node("b", "192.168.0.3", "10.244.2.128/25")}, "a", "of node b overlaps one of node a"},
	} {
		good, errs := fit(self, c.others)
		var names []string
		for _, n := range good {
			names = append(names, n.Name)
		}
		if got := strings.Join(names, " "); got != c.good {
			t.Errorf("%s: %q are taken, not %q", c.name, got, c.good)
		}
		if err := errors.Join(errs...); (err == nil) != (c.says == "") ||
			err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, not %q", c.name, err, c.says)
		}
	}
}

// TestPeerNames: both ends of a tunnel have one identifier, and no two tunnels of a node the same
// interface.
func TestPeerNames(t *testing.T) {
	a, b, c := node("a", "192.168.0.1"), node("b", "192.168.0.2"), node("c", "192.168.0.3")
	if x, y := PeerVNI(a.Address, b.Address), PeerVNI(b.Address, a.Address); x != y || x <= 0 || x >= 1<<24 ||
		x == VNI {
		t.Errorf("the tunnel between a and b is %d at one end and %d at the other", x, y)
	}
	if PeerVNI(a.Address, b.Address) == PeerVNI(a.Address, c.Address) || PeerName(b) == PeerName(c) {
		t.Error("two tunnels are one")
	}
	if n := PeerName(node("x", "255.255.255.255")); len(n) > 15 {
		t.Errorf("the name %q is too long for an interface", n)
	}
}
