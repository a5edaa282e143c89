package ingressfilter

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/icmp"
	icmp6 "golang.org/x/net/ipv6"

	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/switch/udpmatch/udptest"
)

// here sends an IPv4 packet in every encapsulation. It returns the names of the encapsulations that
// the node's own stack accepts.
func (r *route) here(p udptest.Packet) (names []string) {
	r.t.Helper()
	ways := udptest.Wrap(p)
	for _, w := range ways {
		r.send(w.Frames...)
	}
	for _, ip := range r.settle(nodeAddr) {
		from, to, payload := ports(ip)
		if from == p.Src.Port() && to == p.Dst.Port() && len(payload) == len(p.Payload) {
			names = append(names, ways[binary.BigEndian.Uint16(payload)].Name)
		}
	}
	return names
}

// TestSources checks that a pod can send only from its own addresses, and neither from nor to the
// node's loopback. Here the kernel itself would permit both, because rp_filter is 2 for all
// interfaces, and portmap has opened the loopback to the pod's interface.
func TestSources(t *testing.T) {
	r := newRoute(t)
	r.node.Set(map[string]string{"ipv4/conf/all/rp_filter": "2", "ipv4/conf/ncq/route_localnet": "1"})
	from := func(src, dst string) udptest.Packet {
		p := r.packet(1000, netip.MustParseAddr(dst), other)
		p.Src = netip.AddrPortFrom(netip.MustParseAddr(src), 1000)
		return p
	}
	own := []netip.Addr{netip.MustParseAddr("10.1.0.9"), podAddr, podAddr6}
	for _, c := range []struct {
		src, dst        string
		checked, always bool // checked means dropped if sources are checked; always means dropped from every guest
	}{
		{"10.1.0.2", "10.1.0.1", false, false},
		{"10.1.0.3", "10.1.0.1", true, false},
		{"10.2.0.2", "10.1.0.1", true, false}, // another pod's address, to which the node has a route
		{"10.1.0.2", "127.0.0.1", false, true},
		{"10.1.0.2", "127.9.9.9", false, true},
	} {
		p := from(c.src, c.dst)
		r.node.Do(func() error { return Detach(r.node.Index("ncq")) })
		if got := r.here(p); !slices.Contains(got, "plain") {
			t.Fatalf("%s to %s: without a filter there arrives %v", c.src, c.dst, got)
		}
		for _, tagged := range []bool{false, true} {
			rules := Rules{Port: netcraq, Untagged: !tagged, Guest: true}
			r.node.Do(func() error { return Attach(r.node.Index("ncq"), rules) })
			got := r.here(p)
			if c.always != (len(got) == 0) {
				t.Errorf("%s to %s, a guest: %s", c.src, c.dst, strings.Join(got, "; "))
			}
			rules.CheckSources, rules.Sources = true, own
			r.node.Do(func() error { return Attach(r.node.Index("ncq"), rules) })
			got = r.here(p)
			if (c.always || c.checked) != (len(got) == 0) {
				t.Errorf("%s to %s, sources are checked: %s", c.src, c.dst, strings.Join(got, "; "))
			}
			if !c.always && !c.checked && tagged != slices.Contains(got, "tags 8100") {
				t.Errorf("%s to %s, tags: %v: there arrives %v", c.src, c.dst, tagged, got)
			}
		}
	}
	// A program that uses the pod's own address continues. A pod without a permitted IPv4 address
	// cannot send IPv4 packets.
	r.node.Do(func() error {
		return Attach(r.node.Index("ncq"), Rules{Port: netcraq, CheckSources: true, Sources: own, Guest: true})
	})
	if err := exchange(t, r.pod, r.node, "tcp", "10.1.0.1:80", 5000); err != nil {
		t.Errorf("TCP: %v", err)
	}
	r.node.Do(func() error {
		return Attach(r.node.Index("ncq"), Rules{Port: netcraq, CheckSources: true, Sources: own[2:]})
	})
	if err := ping(t, r.pod, "10.1.0.1", "56"); err == nil {
		t.Error("a pod that has no IPv4 address of the node's sends IPv4")
	}
}

// TestRouters checks that a pod cannot make itself the node's router. The node accepts router
// advertisements (net.ipv6.conf.default.accept_ra is 2), like a node that gets its own address from
// them.
func TestRouters(t *testing.T) {
	r := newRoute(t)
	r.node.Set(map[string]string{"ipv6/conf/all/forwarding": "1", "ipv6/conf/ncq/accept_ra": "2"})
	src, dst := netip.MustParseAddr("fe80::99"), netip.MustParseAddr("ff02::1")
	advertise := func() {
		// These bytes are the hop limit, the flags, 1,800 s, and timers of zero (RFC 4861, section
		// 4.2).
		body := []byte{64, 0, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0}
		b, err := (&icmp.Message{Type: icmp6.ICMPTypeRouterAdvertisement, Body: &icmp.RawBody{Data: body}}).
			Marshal(icmp.IPv6PseudoHeader(net.IP(src.AsSlice()), net.IP(dst.AsSlice())))
		check(t, err)
		f := slices.Concat(net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}, r.pod.MAC("eth0"), []byte{0x86, 0xdd, 0x60, 0, 0, 0})
		f = binary.BigEndian.AppendUint16(f, uint16(len(b)))
		f = append(f, 58, 255)
		r.send(slices.Concat(f, src.AsSlice(), dst.AsSlice(), b))
	}
	routed := func() bool {
		routes, err := r.node.Link.RouteList(nil, netlink.FAMILY_V6)
		check(t, err)
		return slices.ContainsFunc(routes, func(route netlink.Route) bool {
			return route.Gw != nil && route.Gw.Equal(net.IP(src.AsSlice()))
		})
	}
	wait := func() bool {
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			if advertise(); routed() {
				return true
			}
		}
		return false
	}
	r.node.Do(func() error { return Attach(r.node.Index("ncq"), Rules{Port: netcraq, Guest: true}) })
	if wait() {
		t.Fatal("the node has a default route by the pod")
	}
	r.node.Do(func() error { return Attach(r.node.Index("ncq"), Rules{Port: netcraq}) })
	if !wait() {
		t.Error("nobody's advertisement is taken: this says nothing")
	}
}

// TestNeighbours makes a pod ask for the node's address under many sender addresses, by ARP and by
// Neighbor Discovery. The node must remember only the pod's own address. So the pod cannot fill the
// neighbour table, which all pods of a node share.
func TestNeighbours(t *testing.T) {
	const many = 200
	r := newRoute(t)
	mac := r.pod.MAC("eth0")
	arp := func(sender netip.Addr) []byte {
		f := slices.Concat(net.HardwareAddr{255, 255, 255, 255, 255, 255}, mac, []byte{8, 6, 0, 1, 8, 0, 6, 4, 0, 1})
		return slices.Concat(f, mac, sender.AsSlice(), make([]byte, 6), nodeAddr.AsSlice())
	}
	solicit := func(src netip.Addr) []byte {
		group := netip.MustParseAddr("ff02::1:ff00:1")
		body := slices.Concat(make([]byte, 4), nodeAddr6.AsSlice(), []byte{1, 1}, mac)
		b, err := (&icmp.Message{Type: icmp6.ICMPTypeNeighborSolicitation, Body: &icmp.RawBody{Data: body}}).
			Marshal(icmp.IPv6PseudoHeader(net.IP(src.AsSlice()), net.IP(group.AsSlice())))
		check(t, err)
		f := slices.Concat(net.HardwareAddr{0x33, 0x33, 0xff, 0, 0, 1}, mac, []byte{0x86, 0xdd, 0x60, 0, 0, 0})
		f = append(binary.BigEndian.AppendUint16(f, uint16(len(b))), 58, 255)
		return slices.Concat(f, src.AsSlice(), group.AsSlice(), b)
	}
	own := []netip.Addr{podAddr, podAddr6, netip.MustParseAddr("fe80::99")}
	// known returns the numbers of the node's IPv4 and IPv6 neighbours after the pod's requests.
	known := func() (four, six int, all []string) {
		neighbours, err := r.node.Link.NeighList(r.node.Index("ncq"), netlink.FAMILY_ALL)
		check(t, err)
		for _, n := range neighbours {
			check(t, r.node.Link.NeighDel(&n))
		}
		a, b, c := netip.MustParseAddr("10.1.0.10"), netip.MustParseAddr("fe80::1:0"), netip.MustParseAddr("fd00:1::1:0")
		for range many {
			r.send(arp(a), solicit(b), solicit(c))
			a, b, c = a.Next(), b.Next(), c.Next()
		}
		r.send(arp(own[0]), solicit(own[1]), solicit(own[2]))
		poll.Until(t, 10*time.Second, "the node to know the pod", func() bool {
			four, six, all = 0, 0, nil
			neighbours, err := r.node.Link.NeighList(r.node.Index("ncq"), netlink.FAMILY_ALL)
			check(t, err)
			for _, n := range neighbours {
				if n.HardwareAddr.String() != mac.String() {
					continue
				}
				if all = append(all, n.IP.String()); n.IP.To4() != nil {
					four++
				} else {
					six++
				}
			}
			return !slices.ContainsFunc(own, func(a netip.Addr) bool { return !slices.Contains(all, a.String()) })
		})
		return four, six, all
	}
	r.node.Do(func() error { return Attach(r.node.Index("ncq"), Rules{Port: netcraq, Guest: true}) })
	if four, six, _ := known(); four < many/2 || six < many {
		t.Fatalf("sources are not checked, and the node knows %d and %d addresses: the test means nothing", four, six)
	}
	r.node.Do(func() error {
		return Attach(r.node.Index("ncq"), Rules{Port: netcraq, Guest: true, CheckSources: true, Sources: own})
	})
	if four, six, all := known(); four != 1 || six != 2 {
		t.Errorf("the node knows %v", all)
	}
}
