package kube

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/netcraq/netcraq/cni-plugin/agentapi"
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
)

// TestMember: an agent is connected to the nodes that there are, by their numbers, and says where
// it is.
func TestMember(t *testing.T) {
	impostor := kubeNode(5) // with an address of n02
	impostor.Status.Addresses[1].Address = "192.0.2.2"
	w := world(t, kubeNode(1), kubeNode(2), kubeNode(3), kubeNode(4), impostor, numbered("n01", 1, 0),
		numbered("n02", 7, 0), numbered("n04", 2, 0), numbered("n05", 3, 0), numbered("gone", 5, 0))
	var routes, ports []string
	var restart error
	m := &member{client: w, self: fromNode(kubeNode(1)).Node, claims: &claims{},
		status: v1alpha1.NetcraqNodeStatus{P4Runtime: "192.0.2.1:9559"}, log: slog.New(slog.DiscardHandler),
		route: func(_ podroutes.Node, others []podroutes.Node) error {
			routes = nil
			for _, n := range others {
				if n.Address.IsValid() { // podroutes leaves out those without an address
					routes = append(routes, fmt.Sprintf("%s via %s", n.PodCIDRs[0], n.Address))
				}
			}
			return errors.New("one of them cannot be reached") // which must not keep it from the rest
		},
		connect: func(_ podroutes.Node, peers map[uint32]podroutes.Node) error {
			ports = nil
			for number, n := range peers {
				ports = append(ports, fmt.Sprintf("%d@%s", number, n.Name))
			}
			slices.Sort(ports)
			return nil
		},
		connectNumbered: func(int32) error { return nil },
		restart:         func(err error) { restart = err }}
	once(t, m)
	if got := strings.Join(routes, ", "); got != "10.244.2.0/24 via 192.0.2.2, 10.244.3.0/24 via 192.0.2.3, 10.244.4.0/24 via 192.0.2.4" {
		t.Errorf("routes: %s", got)
	}
	if got := strings.Join(ports, " "); got != "2@n04 7@n02" { // n03 has no number yet, and "gone" is no node
		t.Errorf("ports: %s", got)
	}
	var own v1alpha1.NetcraqNode
	if err := w.Get(t.Context(), client.ObjectKey{Name: "n01"}, &own); err != nil || own.Status != m.status {
		t.Errorf("it says %+v, %v", own.Status, err)
	}
	version := own.ResourceVersion
	once(t, m)
	if err := w.Get(t.Context(), client.ObjectKey{Name: "n01"}, &own); err != nil || own.ResourceVersion != version {
		t.Errorf("it says so again: %v", err)
	}

	n := kubeNode(1)
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(n), n); err != nil {
		t.Fatal(err)
	}
	n.Status.Addresses[1].Address = "192.0.2.100"
	if err := w.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if err := w.Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	once(t, m)
	if restart == nil || !strings.Contains(restart.Error(), "192.0.2.100") {
		t.Errorf("its address has changed: %v", restart)
	}
}

// TestBuild: the network that follows from nodes, pods and chains is one that the controller takes,
// whatever is wrong with a pod.
func TestBuild(t *testing.T) {
	nodes := cluster(3)
	for i := range nodes {
		nodes[i].Address = netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})
		nodes[i].PodCIDRs = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(i), 0}), 24)}
	}
	nodes = append(nodes, node{Node: podroutes.Node{Name: "without-agent"}, number: 9, there: true})
	program, err := writeProgram(t.TempDir(), 128)
	if err != nil {
		t.Fatal(err)
	}
	a := addressing{services: netip.MustParsePrefix("10.0.254.0/24"), switches: netip.MustParsePrefix("10.0.255.0/24")}
	pods := map[string][]pod{
		"n1": {{agentapi.Pod{}, netip.MustParseAddr("10.244.0.2"), "02:00:00:00:00:01", 64}, {agentapi.Pod{}, netip.MustParseAddr("10.244.0.3"), "02:00:00:00:00:01", 65}},
		"n2": {{agentapi.Pod{}, netip.MustParseAddr("10.244.0.2"), "02:00:00:00:00:02", 64},
			{agentapi.Pod{}, netip.MustParseAddr("10.0.254.3"), "02:00:00:00:00:03", 65}, {agentapi.Pod{}, netip.MustParseAddr("10.244.1.4"), "02:00:00:00:00:04", 66}},
		"n4": {{agentapi.Pod{}, netip.MustParseAddr("10.244.3.2"), "02:00:00:00:00:05", 64}},
	}
	spec, wrong, err := build(a, clusterState{program: program, nodes: nodes, pods: pods,
		chains: []formedChain{{name: "main", spec: v1alpha1.NetcraqChainSpec{ID: 2, LeaseMillis: 200}, members: []string{"n1", "n3"}}}})
	if err != nil {
		t.Fatal(err)
	}
	// an Ethernet address twice, an IP address of another node, and a chain's
	if len(spec.Switches) != 3 || len(spec.Links) != 3 || len(spec.Hosts) != 5 || wrong.total() != 3 {
		t.Errorf("%d switches, %d links, %d hosts, left out: %v", len(spec.Switches), len(spec.Links), len(spec.Hosts), wrong)
	}
	if c := spec.Chains[0]; c.Address != "10.0.254.3" || spec.Switches[2].Address != "10.0.255.3" {
		t.Errorf("addresses: %s, %s", c.Address, spec.Switches[2].Address)
	}
	top := newTopology(t, spec)
	if p, ok := top.Switch("n1").Port(3); !ok || p.Peer.Name != "n3" || p.PeerPort != 1 {
		t.Errorf("port 3 of n1 leads to %v", p)
	}
	if _, _, err := build(a, clusterState{program: program, nodes: nodes,
		chains: []formedChain{{name: "far", spec: v1alpha1.NetcraqChainSpec{ID: 253}, members: []string{"n1"}}}}); err != nil {
		t.Errorf("the last id: %v", err)
	}
	small := addressing{services: netip.MustParsePrefix("10.0.254.0/30"), switches: a.switches}
	if _, _, err := build(small, clusterState{program: program, nodes: nodes,
		chains: []formedChain{{name: "far", spec: v1alpha1.NetcraqChainSpec{ID: 2}, members: []string{"n1"}}}}); err == nil ||
		!strings.Contains(err.Error(), "larger prefix") {
		t.Errorf("no address is left: %v", err)
	}
}
