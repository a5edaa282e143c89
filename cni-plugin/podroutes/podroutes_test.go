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

func second(n Node, address string) Node {
	n.Second = netip.MustParseAddr(address)
	return n
}

// TestFit mixes unusable nodes with usable ones.
func TestFit(t *testing.T) {
	self := node("self", "192.168.0.1", "10.244.1.0/24")
	for _, c := range []struct {
		name   string
		others []Node
		good   string
		says   string // part of the error; "" means no error
	}{
		{"all good", []Node{node("a", "192.168.0.2", "10.244.2.0/24"), node("b", "192.168.0.3", "10.244.3.0/24", "10.245.0.0/16")}, "a b", ""},
		{"no prefix yet", []Node{node("a", "192.168.0.2"), node("b", "192.168.0.3", "10.244.3.0/24")}, "b", "node a has no prefix for pods"},
		{"no address", []Node{node("a", "", "10.244.2.0/24")}, "", "node a has no IPv4 or IPv6 address"},
		{"IPv6", []Node{node("a", "192.168.0.2", "fd00::/64"), node("b", "fd01::3", "10.244.3.0/24", "fd00:0:0:3::/64")}, "a b", ""},
		{"an address of one link", []Node{node("a", "fe80::2", "10.244.2.0/24")}, "", "fe80::2 is of one link alone"},
		{"two addresses of one family", []Node{second(node("a", "192.168.0.2", "10.244.2.0/24"), "192.168.0.3")}, "", "to be of the other family"},
		{"two addresses", []Node{second(node("a", "192.168.0.2", "10.244.2.0/24"), "fd01::2")}, "a", ""},
		{"host bits", []Node{node("a", "192.168.0.2", "10.244.2.1/24")}, "", "is no network"},
		{"an IPv6 prefix that another has", []Node{node("a", "fd01::2", "fd00::/64"), node("b", "fd01::3", "fd00::/48")}, "a", "of node b overlaps one of node a"},
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

// TestPeerNames checks that both ends of a tunnel compute the same identifier, and that two tunnels
// of a node never have the same interface name.
func TestPeerNames(t *testing.T) {
	a, b, c := node("a", "192.168.0.1"), node("b", "192.168.0.2"), node("c", "192.168.0.3")
	if x, y := PeerVNI(a.Address, b.Address), PeerVNI(b.Address, a.Address); x != y || x <= 0 || x >= 1<<24 ||
		x == VNI {
		t.Errorf("the tunnel between a and b is %d at one end and %d at the other", x, y)
	}
	if PeerVNI(a.Address, b.Address) == PeerVNI(a.Address, c.Address) || PeerName(b) == PeerName(c) {
		t.Error("two tunnels are one")
	}
	for _, address := range []string{"255.255.255.255", "fd00::1"} {
		if n := PeerName(node("x", address)); len(n) > 15 {
			t.Errorf("the name %q is too long for an interface", n)
		}
	}
	if x, y := PeerName(node("x", "fd00::1")), PeerName(second(node("x", "fd00::1"), "192.168.0.1")); x == y || y != PeerName(a) {
		t.Errorf("tunnels to %s and %s: a node's IPv4 address comes first", x, y)
	}
}

// TestBetween checks that tunnels are over IPv4 if both nodes have IPv4.
func TestBetween(t *testing.T) {
	four, six := node("four", "192.168.0.1"), node("six", "fd00::2")
	both, other := second(node("both", "fd00::3"), "192.168.0.3"), second(node("other", "192.168.0.4"), "fd00::4")
	for _, c := range []struct {
		a, b Node
		want string
	}{
		{four, both, "192.168.0.1 192.168.0.3"}, {both, other, "192.168.0.3 192.168.0.4"},
		{six, both, "fd00::2 fd00::3"}, {other, six, "fd00::4 fd00::2"}, {four, six, ""},
	} {
		x, y, err := between(c.a, c.b)
		if got := x.String() + " " + y.String(); err == nil && got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s and %s: %s (%v), not %s", c.a.Name, c.b.Name, got, err, c.want)
		}
	}
	if len(six.hardwareAddress()) != 6 || six.hardwareAddress().String() == both.hardwareAddress().String() ||
		four.hardwareAddress().String() != "02:56:c0:a8:00:01" {
		t.Errorf("Ethernet addresses: %s, %s", six.hardwareAddress(), four.hardwareAddress())
	}
}
