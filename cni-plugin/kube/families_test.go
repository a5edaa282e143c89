package kube

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/netcraq/netcraq/cni-plugin/agentapi"
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/nodeswitch"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
)

// ownAddress is for nodes that are hosts of the network under an address of their own.
func ownAddress(n node) (netip.Addr, error) { return n.Address, nil }

// TestFromNode: a node's primary address comes first, and the first one of the other family with
// it.
func TestFromNode(t *testing.T) {
	for _, c := range []struct{ addresses, prefixes, want string }{
		{"192.0.2.1 fd01::1", "10.244.1.0/24 fd00::/64", "192.0.2.1 fd01::1 [10.244.1.0/24 fd00::/64]"},
		{"fd01::1 192.0.2.1", "fd00::/64 10.244.1.0/24", "fd01::1 192.0.2.1 [fd00::/64 10.244.1.0/24]"},
		{"fd01::1", "fd00::/64", "fd01::1 invalid IP [fd00::/64]"},
		{"192.0.2.1 192.0.2.9 fd01::1 fd01::2", "10.244.1.0/24", "192.0.2.1 fd01::1 [10.244.1.0/24]"},
		{"nonsense 192.0.2.1", "10.244.1.0/24 nonsense", "192.0.2.1 invalid IP [10.244.1.0/24]"},
	} {
		n := &corev1.Node{Spec: corev1.NodeSpec{PodCIDRs: strings.Fields(c.prefixes)}}
		for _, a := range strings.Fields(c.addresses) {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "198.51.100.1"},
				corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
		}
		got := fromNode(n)
		var prefixes []string
		for _, p := range got.PodCIDRs {
			prefixes = append(prefixes, p.String())
		}
		if s := got.Address.String() + " " + got.Second.String() + " [" + strings.Join(prefixes, " ") + "]"; s != c.want {
			t.Errorf("%s, %s: %s, not %s", c.addresses, c.prefixes, s, c.want)
		}
	}
}

// TestBuildIPv6: nodes without IPv4 are hosts of the network under addresses of their own, and pods
// without it are none.
func TestBuildIPv6(t *testing.T) {
	nodes := cluster(3)
	for i := range nodes {
		nodes[i].Address = netip.MustParseAddr("fd01::1")
		for range i {
			nodes[i].Address = nodes[i].Address.Next()
		}
		nodes[i].PodCIDRs = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 7: byte(i)}), 64)}
	}
	nodes[2].Second, nodes[2].PodCIDRs = netip.MustParseAddr("192.0.2.3"), append(nodes[2].PodCIDRs, netip.MustParsePrefix("10.244.3.0/24"))
	program, err := writeProgram(t.TempDir(), 128)
	if err != nil {
		t.Fatal(err)
	}
	a := addressing{services: netip.MustParsePrefix("10.0.254.0/24"), switches: netip.MustParsePrefix("10.0.255.0/24")}
	six := pod{agentapi.Pod{UID: "six"}, netip.MustParseAddr("fd00::2"), "02:00:00:00:00:01", 64}
	asks := six
	asks.UID, asks.MAC, asks.Port = "asks", "02:00:00:00:00:02", 65
	four := pod{agentapi.Pod{UID: "four"}, netip.MustParseAddr("10.244.3.2"), "02:00:00:00:00:03", 64}
	spec, wrong, err := build(a, clusterState{program: program, nodes: nodes,
		pods: map[string][]pod{"n1": {six, asks}, "n3": {four}}, open: map[podOn]string{{"asks", "n1"}: "team"},
		chains: []formedChain{{name: "main", spec: v1alpha1.NetcraqChainSpec{LeaseMillis: 200}, members: []string{"n1", "n2", "n3"}}}})
	if err != nil {
		t.Fatal(err)
	}
	if wrong.total() != 1 || wrong[0].reason != podWithoutIPv4 { // the one that asks for what it cannot have
		t.Errorf("left out: %v", wrong)
	}
	var hosts []string
	for _, h := range spec.Hosts {
		hosts = append(hosts, h.Name+"="+h.IP+" "+h.MAC)
	}
	want := "node@n1=10.0.255.65 " + nodeswitch.HostMAC(netip.MustParseAddr("10.0.255.65")).String() +
		", node@n2=10.0.255.66 02:48:0a:00:ff:42, node@n3=192.0.2.3 02:48:c0:00:02:03, pod@10.244.3.2=10.244.3.2 02:00:00:00:00:03"
	if got := strings.Join(hosts, ", "); got != want {
		t.Errorf("hosts: %s, not %s", got, want)
	}
	if p := spec.Switches[2].Prefixes; len(p) != 1 || p[0] != "10.244.3.0/24" || len(spec.Switches[0].Prefixes) != 0 {
		t.Errorf("prefixes: %v, %v", spec.Switches[0].Prefixes, p)
	}
	newTopology(t, spec)
	small := addressing{services: a.services, switches: netip.MustParsePrefix("10.0.255.0/26")}
	spec, wrong, err = build(small, clusterState{program: program, nodes: nodes})
	if err != nil || len(spec.Hosts) != 1 || len(wrong) != 2 || !strings.Contains(wrong.String(), "larger prefix") {
		t.Errorf("no address is left for nodes without IPv4: %v, hosts %v, left out %v", err, spec.Hosts, wrong)
	}
}

// TestMemberNumbered: a node without IPv4 is connected to its switch when it has a number, and
// begins anew when that is another one.
func TestMemberNumbered(t *testing.T) {
	w := world(t, kubeNode(1), numbered("n01", 5, 0))
	var restart, fails error
	var numbers []int32
	m := &member{client: w, self: fromNode(kubeNode(1)).Node, claims: &claims{}, log: slog.New(slog.DiscardHandler),
		route:   func(podroutes.Node, []podroutes.Node) error { return nil },
		connect: func(podroutes.Node, map[uint32]podroutes.Node) error { return nil },
		connectNumbered: func(number int32) error {
			numbers = append(numbers, number)
			return fails
		},
		restart: func(err error) { restart = err }}
	once(t, m)
	if len(numbers) != 1 || numbers[0] != 5 || restart != nil {
		t.Errorf("connected by the numbers %v, %v", numbers, restart)
	}
	fails = errRenumbered
	once(t, m)
	if restart == nil || !strings.Contains(restart.Error(), "under another address") {
		t.Errorf("its number has changed: %v", restart)
	}
}
