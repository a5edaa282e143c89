package netplan

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/cni-plugin/agentapi"
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/kube/internal/testutil"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeclaims"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeview"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// TestFairShare checks that a node with many pods displaces no pod of a node with few pods.
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
		nodes := make([]nodeview.Node, len(c.pods))
		for i, n := range c.pods {
			nodes[i].Name = fmt.Sprint("n", i)
			all = append(all, candidateHost{of: &nodes[i], self: true})
			for range n {
				all = append(all, candidateHost{of: &nodes[i]})
			}
		}
		var wrong nodeclaims.Faults
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
		if fmt.Sprint(got) != fmt.Sprint(c.want) || wrong.Total() != c.wrong || self != len(c.pods) {
			t.Errorf("%v of %d: %v and %d nodes, left out %d", c.pods, c.most, got, self, wrong.Total())
		}
	}
}

// TestBuild checks that the controller accepts the network that Build makes from nodes, pods and
// chains, even if entries of pods are wrong.
func TestBuild(t *testing.T) {
	nodes := testutil.Cluster(3)
	for i := range nodes {
		nodes[i].Address = netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})
		nodes[i].PodCIDRs = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(i), 0}), 24)}
	}
	nodes = append(nodes, nodeview.Node{Node: podroutes.Node{Name: "without-agent"}, Number: 9, There: true})
	program, err := WriteProgram(t.TempDir(), 128)
	if err != nil {
		t.Fatal(err)
	}
	a := nodeview.Addressing{Services: netip.MustParsePrefix("10.0.254.0/24"), Switches: netip.MustParsePrefix("10.0.255.0/24")}
	pods := map[string][]Pod{
		"n1": {{agentapi.Pod{}, netip.MustParseAddr("10.244.0.2"), "02:00:00:00:00:01", 64}, {agentapi.Pod{}, netip.MustParseAddr("10.244.0.3"), "02:00:00:00:00:01", 65}},
		"n2": {{agentapi.Pod{}, netip.MustParseAddr("10.244.0.2"), "02:00:00:00:00:02", 64},
			{agentapi.Pod{}, netip.MustParseAddr("10.0.254.3"), "02:00:00:00:00:03", 65}, {agentapi.Pod{}, netip.MustParseAddr("10.244.1.4"), "02:00:00:00:00:04", 66}},
		"n4": {{agentapi.Pod{}, netip.MustParseAddr("10.244.3.2"), "02:00:00:00:00:05", 64}},
	}
	spec, wrong, err := Build(a, Cluster{Program: program, Nodes: nodes, Pods: pods,
		Chains: []Chain{{Name: "main", Spec: v1alpha1.NetcraqChainSpec{ID: 2, LeaseMillis: 200}, Members: []string{"n1", "n3"}}}})
	if err != nil {
		t.Fatal(err)
	}
	// The wrong entries have another pod's Ethernet address, another node's IP address, and a
	// chain's address.
	if len(spec.Switches) != 3 || len(spec.Links) != 3 || len(spec.Hosts) != 5 || wrong.Total() != 3 {
		t.Errorf("%d switches, %d links, %d hosts, left out: %v", len(spec.Switches), len(spec.Links), len(spec.Hosts), wrong)
	}
	if c := spec.Chains[0]; c.Address != "10.0.254.3" || spec.Switches[2].Address != "10.0.255.3" {
		t.Errorf("addresses: %s, %s", c.Address, spec.Switches[2].Address)
	}
	top := newTopology(t, spec)
	if p, ok := top.Switch("n1").Port(3); !ok || p.Peer.Name != "n3" || p.PeerPort != 1 {
		t.Errorf("port 3 of n1 leads to %v", p)
	}
	if _, _, err := Build(a, Cluster{Program: program, Nodes: nodes,
		Chains: []Chain{{Name: "far", Spec: v1alpha1.NetcraqChainSpec{ID: 253}, Members: []string{"n1"}}}}); err != nil {
		t.Errorf("the last id: %v", err)
	}
	small := nodeview.Addressing{Services: netip.MustParsePrefix("10.0.254.0/30"), Switches: a.Switches}
	if _, _, err := Build(small, Cluster{Program: program, Nodes: nodes,
		Chains: []Chain{{Name: "far", Spec: v1alpha1.NetcraqChainSpec{ID: 2}, Members: []string{"n1"}}}}); err == nil ||
		!strings.Contains(err.Error(), "larger prefix") {
		t.Errorf("no address is left: %v", err)
	}
}

func newTopology(t *testing.T, s topology.Spec) *topology.Topology {
	t.Helper()
	top, err := topology.New(s, "test")
	if err != nil {
		t.Fatal(err)
	}
	return top
}
