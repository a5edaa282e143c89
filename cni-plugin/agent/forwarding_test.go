package agent_test

import (
	"encoding/binary"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/cni-plugin/agent"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// advertise sends a Router Advertisement (RFC 4861, section 4.2) through an interface.
func advertise(iface string) error {
	l, err := net.InterfaceByName(iface)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, l.Index); err != nil {
		return err
	}
	ra := make([]byte, 16)
	ra[0], ra[4] = 134, 64
	binary.BigEndian.PutUint16(ra[6:], 1800) // lifetime of the router in seconds
	to := unix.SockaddrInet6{ZoneId: uint32(l.Index)}
	copy(to.Addr[:], net.IPv6linklocalallnodes)
	return unix.Sendto(fd, ra, 0, &to)
}

// TestRouterAdvertisements checks a node that gets its IPv6 default route from a router. The node
// must not lose the route when it starts to forward. It must also accept the router's next
// advertisement.
func TestRouterAdvertisements(t *testing.T) {
	needs(t)
	node, router := namespace(t, "node"), namespace(t, "router")
	sh(t, "ip", "-n", node, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", router)
	for _, space := range []string{node, router} {
		sh(t, "ip", "-n", space, "link", "set", "eth0", "up")
	}
	route := func() string { return sh(t, "ip", "-n", node, "-6", "route", "show", "default") }
	told := func() {
		t.Helper()
		poll.Until(t, 20*time.Second, "the router's word counts", func() bool {
			_, err := inside(t, router, func() (struct{}, error) { return struct{}{}, advertise("eth0") })
			return err == nil && strings.Contains(route(), "proto ra")
		}, route)
	}
	told()
	_, err := inside(t, node, func() (struct{}, error) { return struct{}{}, agent.EnableForwarding() })
	check(t, err)
	if r := route(); !strings.Contains(r, "proto ra") {
		t.Errorf("when the node forwards its default route has gone: %q", r)
	}
	sh(t, "ip", "-n", node, "-6", "route", "del", "default")
	told()
}
