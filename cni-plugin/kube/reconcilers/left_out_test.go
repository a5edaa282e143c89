package reconcilers

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/cni-plugin/agentapi"
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/kube/fastpath"
	"github.com/netcraq/netcraq/cni-plugin/kube/internal/testutil"
	"github.com/netcraq/netcraq/cni-plugin/kube/netplan"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeclaims"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeview"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// nodesWithPods returns testutil.ThreeNodes, with two pods on each node.
func nodesWithPods() (nodes []nodeview.Node, pods map[string][]netplan.Pod) {
	nodes, pods = testutil.ThreeNodes(), map[string][]netplan.Pod{}
	for i := range nodes {
		n := &nodes[i]
		for j := range 2 {
			pods[n.Name] = append(pods[n.Name], hostAt(fmt.Sprintf("10.244.%d.%d", i+1, j+2),
				fmt.Sprintf("0a:00:00:00:%02x:%02x", i+1, j+1), uint32(64+j)))
		}
	}
	return nodes, pods
}

// hostAt returns a pod in the form in which an agent lists it.
func hostAt(ip, mac string, port uint32) netplan.Pod {
	a, _ := netip.ParseAddr(ip)
	return netplan.Pod{Pod: agentapi.Pod{UID: ip + mac}, IP: a, MAC: mac, Port: port}
}

var mainChain = []netplan.Chain{{Name: "main", Spec: v1alpha1.NetcraqChainSpec{LeaseMillis: 200}, Members: []string{"n1", "n2", "n3"}}}

// leaderView is a leader without a term. It reads nodes, and the tests check the network that it
// makes.
type leaderView struct{ *networkReconciler }

func newLeaderView(t *testing.T, chained bool) leaderView {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	a := nodeview.Addressing{Services: netip.MustParsePrefix("10.0.254.0/24"), Switches: netip.MustParsePrefix("10.0.255.0/24")}
	o := Options{Addresses: a, Chained: chained, P4RuntimePort: 9559, AgentPort: 9560,
		Claims: nodeclaims.New(a, chained)}
	p := &Operator{o: o, log: log, fast: fastpath.New(testutil.World(t), log, func() bool { return true }, nil)}
	return leaderView{&networkReconciler{Operator: p, program: topology.ProgramSpec{Profile: "128", JSON: "a", P4Info: "b"}}}
}

// listedPods are lists of pods in which all entries are valid.
type listedPods map[string][]netplan.Pod

func (l listedPods) Follow(context.Context, map[string]string) {}

func (l listedPods) Alive(string) bool { return true }

func (l listedPods) All() (map[string][]netplan.Pod, nodeclaims.Faults) { return l, nil }

// networkOf returns the network that the leader makes from the nodes' statements.
func (w leaderView) networkOf(t *testing.T, nodes []nodeview.Node, pods map[string][]netplan.Pod) (
	*topology.Topology, nodeclaims.Faults) {
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

// of describes the part of a network that concerns a node: its switch, its hosts, and the chains.
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

// TestLeftOut checks that whatever n2 says about itself and its pods, the network of the other
// nodes is unchanged.
func TestLeftOut(t *testing.T) {
	many := func() (out []netplan.Pod) {
		for i := range 4000 {
			out = append(out, hostAt(fmt.Sprintf("10.244.%d.%d", 100+i/200, i%200+2), fmt.Sprintf("0a:00:00:01:%02x:%02x", i/256, i%256), uint32(1000+i)))
		}
		return out
	}
	manyOwn := func() (out []netplan.Pod) {
		for i := range 4000 {
			out = append(out, hostAt(fmt.Sprintf("10.244.2.%d", i%200+10), fmt.Sprintf("0a:00:00:01:%02x:%02x", i/256, i%256), uint32(400+i)))
		}
		return out
	}
	add := func(entries ...netplan.Pod) func([]nodeview.Node, map[string][]netplan.Pod) {
		return func(_ []nodeview.Node, pods map[string][]netplan.Pod) { pods["n2"] = append(pods["n2"], entries...) }
	}
	first := func(entries ...netplan.Pod) func([]nodeview.Node, map[string][]netplan.Pod) {
		return func(_ []nodeview.Node, pods map[string][]netplan.Pod) { pods["n2"] = append(entries, pods["n2"]...) }
	}
	change := func(f func(n *nodeview.Node)) func([]nodeview.Node, map[string][]netplan.Pod) {
		return func(nodes []nodeview.Node, _ map[string][]netplan.Pod) { f(&nodes[1]) }
	}
	for _, c := range []struct {
		what   string
		say    func(nodes []nodeview.Node, pods map[string][]netplan.Pod)
		reason string
		gone   bool // the change makes n2's own part of the network smaller
	}{
		{"nothing wrong", func([]nodeview.Node, map[string][]netplan.Pod) {}, "", false},
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
		{"P4Runtime: garbage", change(func(n *nodeview.Node) { n.Status.P4Runtime = "garbage" }), "p4runtime", true},
		{"P4Runtime: no port", change(func(n *nodeview.Node) { n.Status.P4Runtime = "192.0.2.2" }), "p4runtime", true},
		{"P4Runtime: port 0", change(func(n *nodeview.Node) { n.Status.P4Runtime = "192.0.2.2:0" }), "p4runtime", true},
		{"P4Runtime: a name", change(func(n *nodeview.Node) { n.Status.P4Runtime = "n2.example:9559" }), "p4runtime", true},
		{"P4Runtime: loopback", change(func(n *nodeview.Node) { n.Status.P4Runtime = "127.0.0.1:2379" }), "p4runtime", true},
		{"P4Runtime: of an older node", change(func(n *nodeview.Node) { n.Status.P4Runtime = "192.0.2.1:9559" }), "p4runtime", true},
		{"P4Runtime: of a younger node", change(func(n *nodeview.Node) { n.Status.P4Runtime = "192.0.2.3:9559" }), "p4runtime", true},
		{"P4Runtime: nothing any more", change(func(n *nodeview.Node) { n.Status.P4Runtime = "" }), "", true},
		{"the address of an older node", change(func(n *nodeview.Node) { n.Address = netip.MustParseAddr("192.0.2.1") }), "internal-ip", true},
		{"the address of another node's pod", change(func(n *nodeview.Node) { n.Address = netip.MustParseAddr("10.244.3.2") }), "internal-ip", true},
		{"the address of a switch", change(func(n *nodeview.Node) { n.Address = netip.MustParseAddr("10.0.255.1") }), "internal-ip", true},
		{"the address of a chain", change(func(n *nodeview.Node) { n.Address = netip.MustParseAddr("10.0.254.1") }), "internal-ip", true},
		{"the address of the controller", change(func(n *nodeview.Node) { n.Address = topology.DefaultController }), "internal-ip", true},
		{"a loopback address", change(func(n *nodeview.Node) { n.Address = netip.MustParseAddr("127.0.0.1") }), "internal-ip", true},
		{"a multicast address", change(func(n *nodeview.Node) { n.Address = netip.MustParseAddr("224.0.0.1") }), "internal-ip", true},
		{"a second address of an older node", change(func(n *nodeview.Node) {
			n.Address, n.Second = netip.MustParseAddr("fd01::2"), netip.MustParseAddr("192.0.2.1")
		}), "internal-ip", true},
		{"the prefix of an older node", change(func(n *nodeview.Node) {
			n.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")}
		}), "pod-cidr", true},
		{"all prefixes", change(func(n *nodeview.Node) { n.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")} }), "pod-cidr", true},
		{"a prefix twice", change(func(n *nodeview.Node) { n.PodCIDRs = append(n.PodCIDRs, n.PodCIDRs[0]) }), "pod-cidr", false},
		{"the switches' prefix", change(func(n *nodeview.Node) { n.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.0.255.0/28")} }), "pod-cidr", true},
	} {
		for _, as := range []struct {
			what          string
			seen, chained bool
		}{{"to a leader that begins", false, false}, {"to one that knows the nodes", true, false},
			{"behind another plugin", true, true}} {
			t.Run(c.what+" "+as.what, func(t *testing.T) {
				w := newLeaderView(t, as.chained)
				nodes, pods := nodesWithPods()
				if as.seen { // even the oldest node may not take addresses that other nodes have
					nodes[1].Created = time.Unix(0, 0)
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
				if slices.ContainsFunc(wrong, func(f nodeclaims.Fault) bool { return f.Node != "n2" }) {
					t.Errorf("of others is left out: %v", wrong)
				}
				// A wrong address or prefix is reported first, and its consequences afterwards.
				if bad := c.reason == "" && len(wrong) > 0 ||
					c.reason != "" && (len(wrong) == 0 || wrong[0].Reason != c.reason); bad && !as.chained {
					t.Errorf("left out: %v; not for %q", wrong, c.reason)
				}
			})
		}
	}
}

// TestPodsElsewhere checks that with another plugin, pods may have any addresses, but no pod takes
// another pod's address.
func TestPodsElsewhere(t *testing.T) {
	for _, c := range []struct {
		what  string
		first map[string]string // pods by node before the change
		then  map[string]string
		node  string // an address that n2 has itself after the change
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
		lists := func(of map[string]string) map[string][]netplan.Pod {
			out := map[string][]netplan.Pod{}
			for node, ip := range of {
				out[node] = []netplan.Pod{hostAt(ip, "0a:00:00:00:00:01", 64)}
			}
			return out
		}
		fresh := func() []nodeview.Node {
			nodes := testutil.ThreeNodes()
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
