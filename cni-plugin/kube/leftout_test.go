package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/netcraq/netcraq/cni-plugin/agentapi"
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// threeNodes are nodes whose agents are there. n1 is the oldest.
func threeNodes() []node {
	nodes := cluster(3)
	for i := range nodes {
		n := &nodes[i]
		n.Address = netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})
		n.PodCIDRs = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(i + 1), 0}), 24)}
		n.status.Agent = fmt.Sprintf("192.0.2.%d:9560", i+1)
	}
	return nodes
}

// nodesWithPods are threeNodes with two pods each, and a chain of all of them.
func nodesWithPods() (nodes []node, pods map[string][]pod) {
	nodes, pods = threeNodes(), map[string][]pod{}
	for i := range nodes {
		n := &nodes[i]
		for j := range 2 {
			pods[n.Name] = append(pods[n.Name], hostAt(fmt.Sprintf("10.244.%d.%d", i+1, j+2),
				fmt.Sprintf("0a:00:00:00:%02x:%02x", i+1, j+1), uint32(64+j)))
		}
	}
	return nodes, pods
}

// hostAt is a pod as an agent says it.
func hostAt(ip, mac string, port uint32) pod {
	a, _ := netip.ParseAddr(ip)
	return pod{agentapi.Pod{UID: ip + mac}, a, mac, port}
}

var mainChain = []formedChain{{name: "main", spec: v1alpha1.NetcraqChainSpec{LeaseMillis: 200}, members: []string{"n1", "n2", "n3"}}}

// leaderView is a leader without a term: it looks at nodes, and what it makes of them is looked at.
type leaderView struct{ *networkReconciler }

func newLeaderView(t *testing.T, chained bool) leaderView {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	a := addressing{services: netip.MustParsePrefix("10.0.254.0/24"), switches: netip.MustParsePrefix("10.0.255.0/24")}
	o := operatorOptions{Addresses: a, Chained: chained, P4RuntimePort: 9559, AgentPort: 9560,
		Claims: newClaims(a, chained)}
	p := &operator{o: o, log: log, fast: newFastPaths(world(t), log, func() bool { return true }, nil)}
	return leaderView{&networkReconciler{operator: p, program: topology.ProgramSpec{Profile: "128", JSON: "a", P4Info: "b"}}}
}

// listedPods are lists of pods in which every entry is one.
type listedPods map[string][]pod

func (l listedPods) follow(context.Context, map[string]string) {}
func (l listedPods) alive(string) bool                         { return true }
func (l listedPods) all() (map[string][]pod, faults)           { return l, nil }

// networkOf is what the leader makes of nodes' words.
func (w leaderView) networkOf(t *testing.T, nodes []node, pods map[string][]pod) (*topology.Topology, faults) {
	t.Helper()
	w.pods = listedPods(pods)
	wrong := w.check(nodes)
	spec, more, err := w.spec(t.Context(), nodes, mainChain)
	if err != nil {
		t.Errorf("building the network: %v", err)
		return nil, nil
	}
	top, err := topology.New(spec, "test")
	if err != nil {
		t.Errorf("the whole network is refused: %.300v", err)
	}
	return top, append(wrong, more...)
}

// of is what a network has of a node: its switch, its hosts, and the chains.
func of(top *topology.Topology, name string) string {
	if top == nil {
		return "nothing"
	}
	var out []string
	if s := top.Switch(name); s != nil {
		out = append(out, fmt.Sprint(s.P4Runtime, " ", s.Address, " ", s.MAC, " ", s.Prefixes))
	}
	for _, h := range top.Hosts {
		if h.Switch.Name == name {
			out = append(out, fmt.Sprint(h.Name, " ", h.IP, " ", h.MAC, " ", h.Port))
		}
	}
	for _, c := range top.Chains {
		out = append(out, fmt.Sprint(c.Name, " ", c.Members))
	}
	return strings.Join(out, "; ")
}

// TestLeftOut: whatever n2 says of itself and its pods, the others' network is as it was.
func TestLeftOut(t *testing.T) {
	many := func() (out []pod) {
		for i := range 4000 {
			out = append(out, hostAt(fmt.Sprintf("10.244.%d.%d", 100+i/200, i%200+2), fmt.Sprintf("0a:00:00:01:%02x:%02x", i/256, i%256), uint32(1000+i)))
		}
		return out
	}
	manyOwn := func() (out []pod) {
		for i := range 4000 {
			out = append(out, hostAt(fmt.Sprintf("10.244.2.%d", i%200+10), fmt.Sprintf("0a:00:00:01:%02x:%02x", i/256, i%256), uint32(400+i)))
		}
		return out
	}
	add := func(entries ...pod) func([]node, map[string][]pod) {
		return func(_ []node, pods map[string][]pod) { pods["n2"] = append(pods["n2"], entries...) }
	}
	first := func(entries ...pod) func([]node, map[string][]pod) {
		return func(_ []node, pods map[string][]pod) { pods["n2"] = append(entries, pods["n2"]...) }
	}
	change := func(f func(n *node)) func([]node, map[string][]pod) {
		return func(nodes []node, _ map[string][]pod) { f(&nodes[1]) }
	}
	for _, c := range []struct {
		what   string
		say    func(nodes []node, pods map[string][]pod)
		reason string
		gone   bool // what n2 itself has is less than before
	}{
		{"nothing wrong", func([]node, map[string][]pod) {}, "", false},
		{"a pod's address of another node", first(hostAt("10.244.3.2", "0a:00:00:00:09:01", 70)), "pod-ip-elsewhere", false},
		{"a free address of another node", add(hostAt("10.244.1.77", "0a:00:00:00:09:01", 70)), "pod-ip-elsewhere", false},
		{"an address of no node's prefix", add(hostAt("198.51.100.7", "0a:00:00:00:09:01", 70)), "pod-ip-elsewhere", false},
		{"another node's own address", add(hostAt("192.0.2.3", "0a:00:00:00:09:01", 70)), "pod-ip-elsewhere", false},
		{"its own node's address", add(hostAt("192.0.2.2", "0a:00:00:00:09:01", 70)), "pod-ip-elsewhere", false},
		{"a chain's address", add(hostAt("10.0.254.1", "0a:00:00:00:09:01", 70)), "pod-ip", false},
		{"a switch's address", add(hostAt("10.0.255.1", "0a:00:00:00:09:01", 70)), "pod-ip", false},
		{"the controller's address", add(hostAt("169.254.78.67", "0a:00:00:00:09:01", 70)), "pod-ip", false},
		{"loopback", add(hostAt("127.0.0.1", "0a:00:00:00:09:01", 70)), "pod-ip", false},
		{"multicast", add(hostAt("224.0.0.1", "0a:00:00:00:09:01", 70)), "pod-ip", false},
		{"unspecified", add(hostAt("0.0.0.0", "0a:00:00:00:09:01", 70)), "pod-ip", false},
		{"broadcast", add(hostAt("255.255.255.255", "0a:00:00:00:09:01", 70)), "pod-ip", false},
		{"no address", add(hostAt("", "0a:00:00:00:09:01", 70)), "pod-ip", false},
		{"IPv4 in IPv6", add(hostAt("::ffff:10.244.3.2", "0a:00:00:00:09:01", 70)), "pod-ip", false},
		{"IPv6 with a zone", add(hostAt("fe80::1%eth0", "0a:00:00:00:09:01", 70)), "pod-ip", false},
		{"IPv6", add(hostAt("fd00::2", "0a:00:00:00:09:01", 70)), "", false},
		{"an address twice", add(hostAt("10.244.2.2", "0a:00:00:00:09:01", 70)), "pod-ip-taken", false},
		{"the port of the node itself", add(hostAt("10.244.2.9", "0a:00:00:00:09:01", 509)), "pod-port", false},
		{"the port of a tunnel", add(hostAt("10.244.2.9", "0a:00:00:00:09:01", 1)), "pod-port", false},
		{"the port of no tunnel yet", add(hostAt("10.244.2.9", "0a:00:00:00:09:01", 63)), "pod-port", false},
		{"the controller's port", add(hostAt("10.244.2.9", "0a:00:00:00:09:01", 510)), "pod-port", false},
		{"the port that drops", add(hostAt("10.244.2.9", "0a:00:00:00:09:01", 511)), "pod-port", false},
		{"port 0", add(hostAt("10.244.2.9", "0a:00:00:00:09:01", 0)), "pod-port", false},
		{"a port that is none", add(hostAt("10.244.2.9", "0a:00:00:00:09:01", 1<<31)), "pod-port", false},
		{"a port twice", add(hostAt("10.244.2.9", "0a:00:00:00:09:01", 64)), "pod-port", false},
		{"a MAC that is none", add(hostAt("10.244.2.9", "x", 70)), "pod-mac", false},
		{"no MAC", add(hostAt("10.244.2.9", "", 70)), "pod-mac", false},
		{"a MAC of 64 bits", add(hostAt("10.244.2.9", "0a:00:00:00:09:01:02:03", 70)), "pod-mac", false},
		{"a multicast MAC", add(hostAt("10.244.2.9", "01:00:5e:00:00:01", 70)), "pod-mac", false},
		{"the MAC of zeros", add(hostAt("10.244.2.9", "00:00:00:00:00:00", 70)), "pod-mac", false},
		{"a switch's MAC", add(hostAt("10.244.2.9", "02:4e:0a:00:ff:01", 70)), "pod-mac", false},
		{"the MAC of a switch that has left", add(hostAt("10.244.2.9", "02:4e:0a:00:ff:09", 70)), "pod-mac", false},
		{"its node's MAC, spelled otherwise", add(hostAt("10.244.2.9", "02-48-C0-00-02-02", 70)), "pod-mac", false},
		{"a MAC twice, spelled otherwise", add(hostAt("10.244.2.9", "0A-00-00-00-02-01", 70)), "pod-mac", false},
		{"another node's pod's MAC", first(hostAt("10.244.2.9", "0a:00:00:00:03:01", 70)), "", false},
		{"the MAC of another node itself", add(hostAt("10.244.2.9", "02:48:c0:00:02:03", 70)), "", false},
		{"4,000 entries", add(many()...), "pod-ip-elsewhere", false},
		{"4,000 entries of its own prefix", add(manyOwn()...), "pod-port", false},
		{"P4Runtime: garbage", change(func(n *node) { n.status.P4Runtime = "garbage" }), "p4runtime", true},
		{"P4Runtime: no port", change(func(n *node) { n.status.P4Runtime = "192.0.2.2" }), "p4runtime", true},
		{"P4Runtime: port 0", change(func(n *node) { n.status.P4Runtime = "192.0.2.2:0" }), "p4runtime", true},
		{"P4Runtime: a name", change(func(n *node) { n.status.P4Runtime = "n2.example:9559" }), "p4runtime", true},
		{"P4Runtime: loopback", change(func(n *node) { n.status.P4Runtime = "127.0.0.1:2379" }), "p4runtime", true},
		{"P4Runtime: of an older node", change(func(n *node) { n.status.P4Runtime = "192.0.2.1:9559" }), "p4runtime", true},
		{"P4Runtime: of a younger node", change(func(n *node) { n.status.P4Runtime = "192.0.2.3:9559" }), "p4runtime", true},
		{"P4Runtime: nothing any more", change(func(n *node) { n.status.P4Runtime = "" }), "", true},
		{"the address of an older node", change(func(n *node) { n.Address = netip.MustParseAddr("192.0.2.1") }), "internal-ip", true},
		{"the address of another node's pod", change(func(n *node) { n.Address = netip.MustParseAddr("10.244.3.2") }), "internal-ip", true},
		{"the address of a switch", change(func(n *node) { n.Address = netip.MustParseAddr("10.0.255.1") }), "internal-ip", true},
		{"the address of a chain", change(func(n *node) { n.Address = netip.MustParseAddr("10.0.254.1") }), "internal-ip", true},
		{"the address of the controller", change(func(n *node) { n.Address = topology.DefaultController }), "internal-ip", true},
		{"a loopback address", change(func(n *node) { n.Address = netip.MustParseAddr("127.0.0.1") }), "internal-ip", true},
		{"a multicast address", change(func(n *node) { n.Address = netip.MustParseAddr("224.0.0.1") }), "internal-ip", true},
		{"a second address of an older node", change(func(n *node) {
			n.Address, n.Second = netip.MustParseAddr("fd01::2"), netip.MustParseAddr("192.0.2.1")
		}), "internal-ip", true},
		{"the prefix of an older node", change(func(n *node) {
			n.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")}
		}), "pod-cidr", true},
		{"all prefixes", change(func(n *node) { n.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")} }), "pod-cidr", true},
		{"a prefix twice", change(func(n *node) { n.PodCIDRs = append(n.PodCIDRs, n.PodCIDRs[0]) }), "pod-cidr", false},
		{"the switches' prefix", change(func(n *node) { n.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.0.255.0/28")} }), "pod-cidr", true},
	} {
		for _, as := range []struct {
			what          string
			seen, chained bool
		}{{"to a leader that begins", false, false}, {"to one that knows the nodes", true, false},
			{"behind another plugin", true, true}} {
			t.Run(c.what+" "+as.what, func(t *testing.T) {
				w := newLeaderView(t, as.chained)
				nodes, pods := nodesWithPods()
				if as.seen { // whoever is the oldest may not take what others have
					nodes[1].created = time.Unix(0, 0)
				}
				good, wrong := newLeaderView(t, false).networkOf(t, nodes, pods)
				if len(wrong) > 0 {
					t.Fatalf("of good nodes is left out: %v", wrong)
				}
				if as.seen {
					w.networkOf(t, slices.Clone(nodes), pods)
				}
				c.say(nodes, pods)
				got, wrong := w.networkOf(t, nodes, pods)
				for _, other := range []string{"n1", "n3"} {
					if was, is := of(good, other), of(got, other); was != is {
						t.Errorf("%s has %s, and had %s", other, is, was)
					}
				}
				if got == nil {
					return
				}
				if !slices.Contains(got.Chain("main").Members, "n2") {
					t.Errorf("a member's word has made the chain %v", got.Chain("main").Members)
				}
				if !c.gone && !strings.HasPrefix(of(got, "n2"), strings.Split(of(good, "n2"), "; main")[0]) && c.reason != "" {
					t.Errorf("n2 has %s, and had %s", of(got, "n2"), of(good, "n2"))
				}
				if slices.ContainsFunc(wrong, func(f fault) bool { return f.node != "n2" }) {
					t.Errorf("of others is left out: %v", wrong)
				}
				// What follows from a wrong address or prefix comes after it.
				if bad := c.reason == "" && len(wrong) > 0 ||
					c.reason != "" && (len(wrong) == 0 || wrong[0].reason != c.reason); bad && !as.chained {
					t.Errorf("left out: %v; not for %q", wrong, c.reason)
				}
			})
		}
	}
}

// TestClaims: who keeps an address or a prefix that two Nodes have.
func TestClaims(t *testing.T) {
	nodes := func(change func(n []node)) []node {
		n := threeNodes()
		for i := range n {
			n[i].created = time.Unix(int64(100+i), 0)
			n[i].Second = netip.MustParseAddr(fmt.Sprintf("fd01::%d", i+1))
			n[i].PodCIDRs = append(n[i].PodCIDRs, netip.MustParsePrefix(fmt.Sprintf("fd00:0:0:%d::/64", i+1)))
		}
		if change != nil {
			change(n)
		}
		return n
	}
	for _, c := range []struct {
		what    string
		chained bool
		seen    bool // the nodes as they were
		change  func(n []node)
		want    string // what nodes lose
	}{
		{"all is well", false, false, nil, ""},
		{"the younger loses", false, false, func(n []node) { n[2].Address = n[0].Address }, "n3: no address"},
		{"the age is not in the name", false, false, func(n []node) {
			n[2].Address, n[2].created = n[0].Address, time.Unix(1, 0)
		}, "n1: no address"},
		{"the older one comes later", false, true, func(n []node) { n[0].Address = n[2].Address }, "n1: no address"},
		{"an IPv6 address", false, true, func(n []node) { n[0].Second = n[2].Second }, "n1: no second address"},
		{"a first address that is another's second", false, true, func(n []node) { n[0].Address = n[2].Second }, "n1: no address"},
		{"an address of another's prefix", false, false, func(n []node) { n[0].Address = netip.MustParseAddr("10.244.3.9") }, "n1: no address"},
		{"... behind another plugin", true, false, func(n []node) { n[0].Address = netip.MustParseAddr("10.244.3.9") }, "n3: 1 prefixes"},
		{"... where the prefix was there before", true, true, func(n []node) { n[0].Address = netip.MustParseAddr("10.244.3.9") }, "n1: no address"},
		{"an IPv6 address of another's prefix", false, false, func(n []node) { n[0].Second = netip.MustParseAddr("fd00:0:0:3::9") }, "n1: no second address"},
		{"its own prefix's address", false, false, func(n []node) { n[0].Address = netip.MustParseAddr("10.244.1.1") }, ""},
		{"a prefix with another's address", true, false, func(n []node) { n[0].PodCIDRs[0] = netip.MustParsePrefix("192.0.2.0/24") }, "n1: 1 prefixes"},
		{"a prefix that overlaps", false, false, func(n []node) { n[2].PodCIDRs[0] = netip.MustParsePrefix("10.244.0.0/16") }, "n3: 1 prefixes"},
		{"the older one's prefix comes later", true, true, func(n []node) { n[0].PodCIDRs[0] = netip.MustParsePrefix("10.244.0.0/16") }, "n1: 1 prefixes"},
		{"an IPv6 prefix that overlaps", false, false, func(n []node) { n[2].PodCIDRs[1] = netip.MustParsePrefix("fd00::/16") }, "n3: 1 prefixes"},
		{"the services' prefix", false, false, func(n []node) { n[0].PodCIDRs[0] = netip.MustParsePrefix("10.0.254.128/25") }, "n1: 1 prefixes"},
		{"a switch's address", false, false, func(n []node) { n[0].Address = netip.MustParseAddr("10.0.255.200") }, "n1: no address"},
		{"IPv4 in IPv6", false, false, func(n []node) { n[0].Address = netip.MustParseAddr("::ffff:192.0.2.3") }, "n1: no address"},
		{"an IPv6 address of a link", false, false, func(n []node) { n[0].Second = netip.MustParseAddr("fe80::1") }, "n1: no second address"},
		{"a node that has gone claims nothing", false, true, func(n []node) {
			n[0].Address, n[2] = n[2].Address, node{Node: podroutes.Node{Name: "n3"}, number: 3, status: n[2].status}
		}, "n3: no address, no second address, 0 prefixes"},
	} {
		t.Run(c.what, func(t *testing.T) {
			x := &claims{addressing: addressing{services: netip.MustParsePrefix("10.0.254.0/24"), switches: netip.MustParsePrefix("10.0.255.0/24")},
				chained: c.chained}
			if c.seen {
				x.settle(nodes(nil))
			}
			for range 2 { // the second look is as the first
				got := nodes(c.change)
				wrong := x.settle(got)
				var lost []string
				for _, n := range got {
					var of []string
					if !n.Address.IsValid() {
						of = append(of, "no address")
					}
					if !n.Second.IsValid() && (n.Address.IsValid() || !n.there) {
						of = append(of, "no second address")
					}
					if len(n.PodCIDRs) != 2 {
						of = append(of, fmt.Sprintf("%d prefixes", len(n.PodCIDRs)))
					}
					if of != nil {
						lost = append(lost, n.Name+": "+strings.Join(of, ", "))
					}
					if (wrong.of(n.Name) != nil) != (of != nil && n.there) {
						t.Errorf("of %s is left out: %v", n.Name, wrong.of(n.Name))
					}
				}
				if s := strings.Join(lost, "; "); s != c.want {
					t.Errorf("lost: %s; not %s", s, c.want)
				}
			}
		})
	}
}

// TestEndpoints: the leader connects to no address but a node's own.
func TestEndpoints(t *testing.T) {
	for _, c := range []struct{ what, p4runtime, agent, want string }{
		{"right", "192.0.2.2:1", "192.0.2.2:2", "192.0.2.2:1 192.0.2.2:2"},
		{"the second address", "[fd01::2]:1", "192.0.2.2:2", "[fd01::2]:1 192.0.2.2:2"},
		{"nothing said", "", "", " "},
		{"garbage", "garbage", "\x00", "192.0.2.2:9559 192.0.2.2:9560"},
		{"no port", "192.0.2.2", "192.0.2.2:", "192.0.2.2:9559 192.0.2.2:9560"},
		{"ports that are none", "192.0.2.2:0", "192.0.2.2:65536", "192.0.2.2:9559 192.0.2.2:9560"},
		{"others' addresses", "192.0.2.1:9559", "192.0.2.3:9560", "192.0.2.2:9559 192.0.2.2:9560"},
		{"addresses of the leader's host", "127.0.0.1:2379", "[::1]:2379", "192.0.2.2:9559 192.0.2.2:9560"},
		{"a cloud's metadata", "169.254.169.254:80", "169.254.169.254:80", "192.0.2.2:9559 192.0.2.2:9560"},
		{"names", "n2:9559", "n2:9560", "192.0.2.2:9559 192.0.2.2:9560"},
		{"one for both", "192.0.2.2:7", "192.0.2.2:7", "192.0.2.2:7 192.0.2.2:9560"},
	} {
		nodes := threeNodes()
		nodes[1].Second = netip.MustParseAddr("fd01::2")
		nodes[1].created, nodes[2].created = time.Unix(0, 0), time.Unix(1, 0) // a hostile node may be the oldest
		nodes[1].status.P4Runtime, nodes[1].status.Agent = c.p4runtime, c.agent
		wrong := endpoints(nodes, 9559, 9560)
		if s := nodes[1].status.P4Runtime + " " + nodes[1].status.Agent; s != c.want {
			t.Errorf("%s: %s, not %s", c.what, s, c.want)
		}
		said := 0
		for _, pair := range [][2]string{{c.p4runtime, nodes[1].status.P4Runtime}, {c.agent, nodes[1].status.Agent}} {
			if pair[0] != pair[1] {
				said++
			}
		}
		if len(wrong) != said || said > 0 && wrong.of("n2") == nil {
			t.Errorf("%s: %d are wrong, and left out was %v", c.what, said, wrong)
		}
		for _, n := range []node{nodes[0], nodes[2]} {
			if n.status.P4Runtime != n.Address.String()+":9559" || n.status.Agent != n.Address.String()+":9560" {
				t.Errorf("%s: %s is at %+v", c.what, n.Name, n.status)
			}
		}
	}
	// Of nodes that have gone the status is left. One that has lost its address has none.
	nodes := threeNodes()
	for i, at := range []string{"192.0.2.3:9559", "192.0.2.9:9559"} {
		nodes[i] = node{Node: podroutes.Node{Name: nodes[i].Name}, number: int32(i + 1),
			status: v1alpha1.NetcraqNodeStatus{P4Runtime: at}}
	}
	nodes = append(nodes, node{Node: podroutes.Node{Name: "n4"}, number: 4, status: nodes[1].status},
		node{Node: podroutes.Node{Name: "n5"}, number: 5, there: true, status: nodes[1].status})
	wrong := endpoints(nodes, 9559, 9560)
	var got []string
	for _, n := range nodes {
		got = append(got, n.status.P4Runtime)
	}
	if s := strings.Join(got, " "); s != " 192.0.2.9:9559 192.0.2.3:9559  " || wrong.total() != 3 {
		t.Errorf("%s; left out: %v", s, wrong)
	}
}

// TestPodsElsewhere: behind another plugin pods have any addresses, and nobody takes another's.
func TestPodsElsewhere(t *testing.T) {
	for _, c := range []struct {
		what  string
		first map[string]string // pods by node, as they were
		then  map[string]string
		node  string // an address that n2 has itself then
		want  string
	}{
		{"one comes", nil, map[string]string{"n2": "172.16.0.1"}, "", "pod@172.16.0.1 at n2"},
		{"the oldest node comes first", nil, map[string]string{"n1": "172.16.0.1", "n2": "172.16.0.1"}, "", "pod@172.16.0.1 at n1"},
		{"who has it keeps it", map[string]string{"n2": "172.16.0.1"}, map[string]string{"n1": "172.16.0.1", "n2": "172.16.0.1"}, "", "pod@172.16.0.1 at n2"},
		{"... until it has not", map[string]string{"n2": "172.16.0.1"}, map[string]string{"n1": "172.16.0.1"}, "", "pod@172.16.0.1 at n1"},
		{"a node takes no pod's", map[string]string{"n3": "172.16.0.1"}, map[string]string{"n3": "172.16.0.1"}, "172.16.0.1", "pod@172.16.0.1 at n3"},
		{"a pod takes no node's", nil, map[string]string{"n3": "172.16.0.1"}, "172.16.0.1", "node@n2 at n2"},
	} {
		w := newLeaderView(t, true)
		lists := func(of map[string]string) map[string][]pod {
			out := map[string][]pod{}
			for node, ip := range of {
				out[node] = []pod{hostAt(ip, "0a:00:00:00:00:01", 64)}
			}
			return out
		}
		fresh := func() []node {
			nodes := threeNodes()
			for i := range nodes {
				nodes[i].PodCIDRs = nil
			}
			return nodes
		}
		if c.first != nil {
			w.networkOf(t, fresh(), lists(c.first))
		}
		nodes := fresh()
		if c.node != "" {
			nodes[1].Address = netip.MustParseAddr(c.node)
		}
		top, _ := w.networkOf(t, nodes, lists(c.then))
		if top == nil {
			continue
		}
		h := top.HostByAddress(netip.MustParseAddr("172.16.0.1"))
		if h == nil || h.Name+" at "+h.Switch.Name != c.want {
			t.Errorf("%s: %+v, not %s", c.what, h, c.want)
		}
	}
}

// TestFairShare: a node with many pods displaces none of a node with few.
func TestFairShare(t *testing.T) {
	for _, c := range []struct {
		most  int
		pods  []int
		want  []int
		wrong int
	}{
		{10, []int{2, 3}, []int{2, 3}, 0},
		{10, nil, nil, 0},
		{12, []int{5, 5}, []int{5, 5}, 0},
		{11, []int{5, 5}, []int{4, 4}, 2},
		{10, []int{1, 100, 2}, []int{1, 4, 2}, 96},
		{13, []int{100, 3, 100}, []int{3, 3, 3}, 194},
		{3, []int{0, 4, 4}, []int{0, 0, 0}, 8},
		{3800, []int{445, 110, 445, 30}, []int{445, 110, 445, 30}, 0},
	} {
		var all []candidateHost
		nodes := make([]node, len(c.pods))
		for i, n := range c.pods {
			nodes[i].Name = fmt.Sprint("n", i)
			all = append(all, candidateHost{of: &nodes[i], self: true})
			for range n {
				all = append(all, candidateHost{of: &nodes[i]})
			}
		}
		var wrong faults
		got := make([]int, len(c.pods))
		self := 0
		for _, h := range fairShare(all, c.most, &wrong) {
			if h.self {
				self++
				continue
			}
			i, _ := strconv.Atoi(h.of.Name[1:])
			got[i]++
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) || wrong.total() != c.wrong || self != len(c.pods) {
			t.Errorf("%v of %d: %v and %d nodes, left out %d", c.pods, c.most, got, self, wrong.total())
		}
	}
}

// TestReadPods: of a list that is no list of pods the leader keeps what can be pods, and no more.
func TestReadPods(t *testing.T) {
	one := `{"uid":"1","ip":"10.244.2.2","mac":"0a:00:00:00:00:01","port":64}`
	for _, c := range []struct {
		list                     string
		pods, malformed, surplus int
		fails                    bool
	}{
		{"[]", 0, 0, 0, false},
		{"null", 0, 0, 0, false},
		{"[" + one + "," + one + "]", 2, 0, 0, false},
		{`[` + one + `,{"ip":"x"},{"port":-1},{"port":"64"},7,null,[[]],{"mac":{}}]`, 2, 6, 0, false}, // null is a pod without anything
		{"[" + strings.Repeat(one+",", 3999) + one + "]", podPorts, 0, 4000 - podPorts, false},
		{"[" + strings.Repeat(`{"ip":"x"},`, 3999) + one + "]", 0, podPorts, 4000 - podPorts, false},
		{"{}", 0, 0, 0, true},
		{`"x"`, 0, 0, 0, true},
		{"[" + one, 0, 0, 0, true},
		{"[" + one + "}", 0, 0, 0, true},
		{"[" + strings.Repeat("0,", podsAtMost), 0, 0, 0, true},
		{"[" + strings.Repeat(" ", podsAtMost), 0, 0, 0, true},
		{`["` + strings.Repeat("x", podsAtMost), 0, 0, 0, true},
		{strings.Repeat("[", podsAtMost), 0, 0, 0, true},
	} {
		l, err := readPods(json.NewDecoder(io.LimitReader(strings.NewReader(c.list+"\n"), podsAtMost)))
		if (err != nil) != c.fails || err == nil &&
			(len(l.pods) != c.pods || l.malformed != c.malformed || l.surplus != c.surplus) {
			t.Errorf("%.60s: %d pods, %d malformed, %d surplus, %v", c.list, len(l.pods), l.malformed, l.surplus, err)
		}
	}
}

// TestPodsLeftOut: what is no pod in a node's list is left out, and said to be.
func TestPodsLeftOut(t *testing.T) {
	f := newFollower(nil, slog.New(slog.DiscardHandler), nil)
	f.pods["n2"] = podList{malformed: 2, surplus: 3}
	if pods, wrong := f.all(); len(pods) != 1 || wrong.total() != 5 || len(wrong) != 2 {
		t.Errorf("%v, left out %v", pods, wrong)
	}
}

// TestFaultReport: what is left out is logged and counted when it changes, and a node that says
// something else all the time does not fill the log.
func TestFaultReport(t *testing.T) {
	var log bytes.Buffer
	r := newFaultReport(slog.New(slog.NewTextHandler(&log, nil)), newFaultCounter())
	now := time.Unix(1000, 0)
	look := func(what string, lines, count int, f faults) {
		t.Helper()
		log.Reset()
		r.update(f, now)
		if n := strings.Count(log.String(), "\n"); n != lines {
			t.Errorf("%s: %d lines: %s", what, n, log.String())
		}
		if n := testutil.ToFloat64(r.counter.WithLabelValues("n2", wrongPodIP)); int(n) != count {
			t.Errorf("%s: counted %v, not %d", what, n, count)
		}
	}
	var two, three faults
	two.addMany("n2", wrongPodIP, 2, "%.64q", strings.Repeat("x", 1000))
	three.addMany("n2", wrongPodIP, 3, "y")
	three.add("n3", wrongPodMAC, "z")
	look("nothing", 0, 0, nil)
	look("two", 1, 2, two)
	if s := log.String(); !strings.Contains(s, "node=n2") || !strings.Contains(s, "pod-ip") || !strings.Contains(s, "and 1 more") || len(s) > 400 {
		t.Errorf("the log says %s", s)
	}
	now = now.Add(time.Minute)
	look("the same", 0, 2, two)
	look("others", 2, 5, three)
	for range 100 {
		now = now.Add(10 * time.Millisecond)
		look("again and again", 0, int(testutil.ToFloat64(r.counter.WithLabelValues("n2", wrongPodIP)))+2, two)
		look("again and again", 0, int(testutil.ToFloat64(r.counter.WithLabelValues("n2", wrongPodIP)))+3, three)
	}
	now = now.Add(reportInterval)
	n := int(testutil.ToFloat64(r.counter.WithLabelValues("n2", wrongPodIP)))
	look("the last word", 2, n+2, two) // n2's, and that all is well with n3
	now = now.Add(reportInterval)
	look("all is well", 1, n+2, nil)
	look("all is well yet", 0, n+2, nil)
}
