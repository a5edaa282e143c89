package ingressfilter

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/netcraq/netcraq/switch/udpmatch/udptest"
)

// Ports, with the same values as in agents.
const (
	netcraq = 20035
	vxlan   = 20037
	other   = 9
)

// route is a pod, its node, which forwards packets, and a victim on the node's other side:
//
//	pod eth0 10.1.0.2 ──▶ ncq 10.1.0.1 node out 10.2.0.1 ──▶ eth0 10.2.0.2 victim
type route struct {
	t                 testing.TB
	pod, node, victim *udptest.Space
	send              func(...[]byte)
	atNode, atVictim  *udptest.Recorder
}

var (
	podAddr    = netip.MustParseAddr("10.1.0.2")
	nodeAddr   = netip.MustParseAddr("10.1.0.1")
	victimAddr = netip.MustParseAddr("10.2.0.2")
)

func newRoute(t testing.TB) *route {
	t.Helper()
	r := &route{t: t, pod: udptest.NewSpace(t), node: udptest.NewSpace(t),
		victim: udptest.NewSpace(t)}
	r.node.Set(map[string]string{"ipv4/ip_forward": "1", "ipv4/conf/all/rp_filter": "0",
		"ipv4/conf/default/rp_filter": "0"})
	udptest.Cable(t, r.node, "ncq", []string{"10.1.0.1/24", "fd00:1::1/64"}, r.pod, "eth0",
		[]string{"10.1.0.2/24", "fd00:1::2/64"})
	udptest.Cable(t, r.node, "out", []string{"10.2.0.1/24"}, r.victim, "eth0",
		[]string{"10.2.0.2/24"})
	for space, gateway := range map[*udptest.Space]netip.Addr{r.pod: nodeAddr,
		r.victim: netip.MustParseAddr("10.2.0.1")} {
		check(t, space.Link.RouteAdd(&netlink.Route{Gw: gateway.AsSlice()}))
	}
	r.send, r.atNode, r.atVictim = r.pod.Sender("eth0"), r.node.UDP(), r.victim.UDP()
	return r
}

// packet returns a UDP packet from the pod.
func (r *route) packet(from uint16, to netip.Addr, port uint16) udptest.Packet {
	return udptest.Packet{EthernetDst: r.node.MAC("ncq"), EthernetSrc: r.pod.MAC("eth0"),
		Src: netip.AddrPortFrom(podAddr, from), Dst: netip.AddrPortFrom(to, port),
		Payload: make([]byte, 64)}
}

// ports parses a recorded IP packet. It returns the UDP ports and the payload.
func ports(ip []byte) (from, to uint16, payload []byte) {
	udp := ip[int(ip[0]&15)*4:]
	if len(udp) < 8 {
		return 0, 0, nil
	}
	return binary.BigEndian.Uint16(udp), binary.BigEndian.Uint16(udp[2:]), udp[8:]
}

// ours reports whether only switches and nodes may use the packet's source or destination port.
func ours(ip []byte) bool {
	from, to, _ := ports(ip)
	return from == netcraq || to == netcraq || to == vxlan
}

// settle returns those packets that the test has sent and that have arrived at the victim or at the
// node.
func (r *route) settle(to netip.Addr) [][]byte {
	r.t.Helper()
	const sentinel = 99
	recorder := r.atVictim
	if to == nodeAddr {
		recorder = r.atNode
	}
	p := r.packet(sentinel, to, sentinel)
	return recorder.Settle(r.t, func() { r.send(p.Frame()) },
		func(ip []byte) bool { from, _, _ := ports(ip); return from == sentinel })
}

// arrive sends a packet in every encapsulation. It returns the names of the encapsulations in which
// the packet arrives.
func (r *route) arrive(p udptest.Packet) (names []string) {
	r.t.Helper()
	ways := udptest.Wrap(p)
	for _, w := range ways {
		r.send(w.Frames...)
	}
	for _, ip := range r.settle(p.Dst.Addr()) {
		from, to, payload := ports(ip)
		if from == p.Src.Port() && to == p.Dst.Port() && len(payload) == len(p.Payload) {
			names = append(names, ways[binary.BigEndian.Uint16(payload)].Name)
		}
	}
	return names
}

// TestWrapped sends packets with the switches' and the tunnels' ports through a node and to it, in
// every encapsulation. It does so without a filter, with the previous version's filter, and with
// the current one.
func TestWrapped(t *testing.T) {
	pods := Rules{Port: netcraq, Destination: vxlan, Untagged: true}
	uplink := Rules{Port: netcraq, Destination: vxlan}
	for hook, old := range map[string]bool{"tcx": false, "clsact": true} {
		t.Run(hook, func(t *testing.T) {
			withoutTCX = old
			defer func() { withoutTCX = false }()
			r := newRoute(t)
			attach := func(f func(ifindex int)) {
				r.node.Do(func() error { f(r.node.Index("ncq")); return nil })
			}
			for _, to := range []netip.Addr{victimAddr, nodeAddr} {
				kinds := []udptest.Packet{r.packet(1000, to, netcraq), r.packet(netcraq, to, other),
					r.packet(1000, to, vxlan)}
				var without, before int
				for _, p := range kinds {
					attach(func(i int) { check(t, Detach(i)) })
					none := r.arrive(p)
					attach(func(i int) { attachFormer(t, i, uplink) })
					former := r.arrive(p)
					without, before = without+len(none), before+len(former)
					for _, want := range []string{"plain", "tags 8100 8100", "tags 88a8 8100 8100",
						"100 priority tags", "4 bytes of options, 1 tags",
						"three fragments, 0 tags"} {
						if !slices.Contains(none, want) {
							t.Errorf(
								"%s to %s: %s does not arrive even without a filter: the test means nothing", p.Src, p.Dst, want)
						}
					}
					for _, want := range []string{"tags 8100 8100",
						"fragments, 8 bytes first, 2 tags (88a8 outside)"} {
						if !slices.Contains(former, want) {
							t.Errorf(
								"%s to %s: %s does not arrive with the former filter: the test means nothing", p.Src, p.Dst, want)
						}
					}
					for name, rules := range map[string]Rules{"pods": pods, "uplink": uplink} {
						attach(func(i int) { check(t, Attach(i, rules)) })
						if got := r.arrive(p); len(got) > 0 {
							t.Errorf("%s to %s arrives with the rules for %s: %v", p.Src, p.Dst,
								name, got)
						}
					}
				}
				t.Logf("to %s, of %d ways: %d arrived without a filter, %d with the former, 0 now",
					to, 3*len(udptest.Wrap(kinds[0])), without, before)
				// Packets with other ports arrive as they did without the filter.
				p := r.packet(1000, to, other)
				attach(func(i int) { check(t, Detach(i)) })
				none := r.arrive(p)
				attach(func(i int) { check(t, Attach(i, uplink)) })
				for _, name := range r.arrive(p) {
					none = slices.DeleteFunc(none, func(s string) bool { return s == name })
				}
				// in the frames with priority tags, one tag is in the metadata and not in the frame
				if got := strings.Join(none, ", "); got != "6 priority tags, 100 priority tags" {
					t.Errorf("other UDP to %s does not arrive as %s", to, got)
				}
				attach(func(i int) { check(t, Attach(i, pods)) })
				if got := r.arrive(p); !slices.Contains(got, "three fragments, 0 tags") ||
					!slices.Contains(got, "40 bytes of options, 0 tags") ||
					slices.ContainsFunc(got, func(s string) bool {
						return strings.HasPrefix(s,
							"tags")
					}) {
					t.Errorf("of a pod's other UDP to %s there arrives %v", to, got)
				}
			}
		})
	}
}

// TestRules checks that Attach refuses rules that make no sense.
func TestRules(t *testing.T) {
	if err := Attach(1, Rules{Untagged: true}); err == nil ||
		!strings.Contains(err.Error(), "nothing to do") {
		t.Errorf("%v", err)
	}
}

// TestEverything checks that with Rules.Everything no packet passes, not even ARP.
func TestEverything(t *testing.T) {
	r := newRoute(t)
	r.node.Do(func() error { return Attach(r.node.Index("ncq"), Rules{Everything: true}) })
	p := r.packet(1, nodeAddr, other)
	for range 5 {
		r.send(p.Frame())
	}
	r.node.Do(func() error { return Detach(r.node.Index("ncq")) })
	if got := r.settle(nodeAddr); len(got) > 0 {
		t.Errorf("%d packets arrive", len(got))
	}
}

// TestMutated sends frames with random changes. No frame that a filter should stop may arrive in
// the stack of the node or of the victim.
func TestMutated(t *testing.T) {
	rng := rand.New(rand.NewPCG(14, 3))
	run := func(r *route, count int) (stopped, passed int) {
		for _, to := range []netip.Addr{victimAddr, nodeAddr} {
			kinds := []udptest.Packet{r.packet(1000, to, netcraq), r.packet(netcraq, to, other),
				r.packet(1000, to, vxlan)}
			for i := range count / 2 {
				r.send(udptest.Mutate(rng, kinds[i%len(kinds)]))
			}
			for _, ip := range r.settle(to) {
				if ours(ip) {
					stopped++
				} else {
					passed++
				}
			}
		}
		return stopped, passed
	}
	// a separate route is used, because leftover fragments may combine into a packet
	control, _ := run(newRoute(t), 5000)
	if control < 250 {
		t.Errorf("without a filter %d of 5,000 mutated frames arrive: the test means little",
			control)
	}
	for name, rules := range map[string]Rules{
		"pods":   {Port: netcraq, Destination: vxlan, Untagged: true},
		"uplink": {Port: netcraq, Destination: vxlan},
	} {
		r := newRoute(t)
		r.node.Do(func() error { return Attach(r.node.Index("ncq"), rules) })
		bad, passed := run(r, 100_000)
		t.Logf(
			"rules for %s: of 100,000 frames %d arrive that should not (%d of 5,000 without a filter), %d that are other UDP by now", name, bad, control, passed)
		if bad > 0 || passed < 100 {
			t.Errorf(
				"rules for %s: of 100,000 mutated frames %d arrive that should not, and %d that may", name, bad, passed)
		}
	}
}

// TestReplaced checks that Attach replaces the filters of previous versions, also if both kinds of
// them are attached.
func TestReplaced(t *testing.T) {
	for hook, old := range map[string]bool{"tcx": false, "clsact": true} {
		t.Run(hook, func(t *testing.T) {
			withoutTCX = old
			defer func() { withoutTCX = false }()
			filtered, other, ifindex := pair(t)
			passing := func(what string, port int, want bool) {
				t.Helper()
				if got := passes(t, filtered, other, 7, port, want); got != want {
					t.Errorf("%s: a packet to %d passes: %v", what, port, got)
				}
			}
			attachFormer(t, ifindex, Rules{Port: 98})
			passing("an agent before", 98, false)
			check(t, Attach(ifindex, Rules{Port: 99}))
			passing("after its upgrade", 98, true)
			passing("after its upgrade", 99, false)
			attachFormer(t, ifindex, Rules{Port: 98}) // adds the former filter next to the current one
			check(t, Attach(ifindex, Rules{Port: 97}))
			passing("forward again", 98, true)
			passing("forward again", 99, true)
			passing("forward again", 97, false)
			check(t, Detach(ifindex))
			there, err := Attached(ifindex)
			check(t, err)
			if there {
				t.Error("it is there after Detach")
			}
			passing("taken off", 97, true)
		})
	}
}

// TestLegitimate checks that each kind of ordinary traffic of a pod passes.
func TestLegitimate(t *testing.T) {
	r := newRoute(t)
	r.node.Do(func() error {
		return Attach(r.node.Index("ncq"), Rules{Port: netcraq,
			Destination: vxlan, Untagged: true})
	})
	for _, c := range []struct{ network, to string }{
		{"tcp", "10.2.0.2:80"}, {"tcp", fmt.Sprintf("10.2.0.2:%d", netcraq)},
		{"tcp", fmt.Sprintf("10.1.0.1:%d", vxlan)}, {"tcp", "[fd00:1::1]:80"},
		{"udp", "10.2.0.2:53"}, {"udp", "10.2.0.2:4789"},
		{"udp", "[fd00:1::1]:53"}, {"udp", "[fd00:1::1]:4789"},
	} {
		server := r.victim
		if !strings.HasPrefix(c.to, "10.2.") {
			server = r.node
		}
		for _, size := range []int{10, 8000} { // the larger size needs fragments or several segments
			if err := exchange(t, r.pod, server, c.network, c.to, size); err != nil {
				t.Errorf("%s to %s, %d bytes: %v", c.network, c.to, size, err)
			}
		}
	}
	for _, to := range []string{"10.1.0.1", "10.2.0.2", "fd00:1::1"} {
		for _, size := range []string{"56", "4000"} {
			if err := ping(t, r.pod, to, size); err != nil {
				t.Errorf("ping of %s bytes to %s: %v", size, to, err)
			}
		}
	}
}

// TestNonlinear sends frames of which an eBPF program can access only the Ethernet header directly.
func TestNonlinear(t *testing.T) {
	r := newRoute(t)
	send := r.send
	r.send = r.pod.RingSender("eth0")
	for _, p := range []udptest.Packet{r.packet(1000, victimAddr, netcraq),
		r.packet(netcraq, victimAddr, other), r.packet(1000, victimAddr, vxlan),
		r.packet(1000, victimAddr, other)} {
		r.node.Do(func() error { return Detach(r.node.Index("ncq")) })
		before := r.arrive(p)
		if !slices.Contains(before, "plain") || !slices.Contains(before, "tags 8100 8100") {
			t.Errorf("%s to %s, without a filter: %v", p.Src, p.Dst, before)
		}
		for _, untagged := range []bool{true, false} {
			r.node.Do(func() error {
				return Attach(r.node.Index("ncq"),
					Rules{Port: netcraq, Destination: vxlan,
						Untagged: untagged})
			})
			got := r.arrive(p)
			if ordinary := p.Src.Port() == 1000 && p.Dst.Port() == other; !ordinary &&
				len(got) > 0 || ordinary && (!slices.Contains(got, "plain") ||
				untagged == slices.Contains(got, "tags 8100") ||
				untagged == slices.Contains(got, "tags 8100 8100")) {
				t.Errorf("%s to %s, all tagged frames dropped: %v: there arrives %v", p.Src, p.Dst,
					untagged, got)
			}
		}
	}
	r.send = send
}
