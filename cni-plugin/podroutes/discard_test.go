package podroutes

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/switch/udpmatch/udptest"
)

// TestDiscard checks that the node drops packets to unused addresses of its own prefixes. Otherwise
// the default route would send them out. A pod's route is more specific. Applying the routes again
// keeps the discarding routes. When a prefix is removed, so is its discarding route. Remove removes
// all of them.
func TestDiscard(t *testing.T) {
	n, lan := udptest.NewSpace(t), udptest.NewSpace(t)
	udptest.Cable(t, n, "eth0", []string{"192.168.0.1/24", "fd01::1/64"}, lan, "eth0",
		[]string{"192.168.0.2/24", "fd01::2/64"})
	for _, gateway := range []string{"192.168.0.2", "fd01::2"} {
		udptest.Check(t, n.Link.RouteAdd(&netlink.Route{Gw: net.ParseIP(gateway)}))
	}
	eth0, err := n.Link.LinkByName("eth0")
	udptest.Check(t, err)
	for _, pod := range []string{"10.244.1.2/32", "fd00:244:1::2/128"} {
		udptest.Check(t, n.Link.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index,
			Dst: ipNet(netip.MustParsePrefix(pod)), Scope: netlink.SCOPE_LINK}))
	}
	self := second(node("self", "192.168.0.1", "10.244.1.0/24", "fd00:244:1::/64"), "fd01::1")
	other := second(node("other", "192.168.0.2", "10.244.2.0/24", "fd00:244:2::/64"), "fd01::2")
	expect := func(what string, want error, addresses ...string) {
		t.Helper()
		for _, a := range addresses {
			if _, err := n.Link.RouteGet(net.ParseIP(a)); !errors.Is(err, want) {
				t.Errorf("%s: the way to %s: %v, want %v", what, a, err, want)
			}
		}
	}
	pods := []string{"10.244.1.2", "fd00:244:1::2", "10.244.2.9", "fd00:244:2::9"}
	for range 2 {
		n.Do(func() error { return Apply(self, []Node{other}, Auto) })
		expect("addresses that no pod has", unix.EHOSTUNREACH, "10.244.1.9", "fd00:244:1::9")
		expect("pods, and others' prefixes", nil, pods...)
	}
	self.PodCIDRs = self.PodCIDRs[:1]
	n.Do(func() error { return Apply(self, []Node{other}, Auto) })
	expect("the prefix that is left", unix.EHOSTUNREACH, "10.244.1.9")
	expect("a prefix that is not the node's any more", nil, "fd00:244:1::9")
	n.Do(Remove)
	expect("after Remove", nil, append(pods, "10.244.1.9")...)
}
