package netplan

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/cni-plugin/agentapi"
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/kube/internal/testutil"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeclaims"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeview"
	"github.com/netcraq/netcraq/cni-plugin/nodeswitch"
)

// TestBuildIPv6 checks that nodes without IPv4 are hosts of the network under separate addresses.
// Pods without IPv4 must not be hosts.
func TestBuildIPv6(t *testing.T) {
	nodes := testutil.Cluster(3)
	for i := range nodes {
		nodes[i].Address = netip.MustParseAddr("fd01::1")
		for range i {
			nodes[i].Address = nodes[i].Address.Next()
		}
		nodes[i].PodCIDRs = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 7: byte(i)}), 64)}
	}
	nodes[2].Second, nodes[2].PodCIDRs = netip.MustParseAddr("192.0.2.3"), append(nodes[2].PodCIDRs, netip.MustParsePrefix("10.244.3.0/24"))
	program, err := WriteProgram(t.TempDir(), 128)
	if err != nil {
		t.Fatal(err)
	}
	a := nodeview.Addressing{Services: netip.MustParsePrefix("10.0.254.0/24"), Switches: netip.MustParsePrefix("10.0.255.0/24")}
	six := Pod{agentapi.Pod{UID: "six"}, netip.MustParseAddr("fd00::2"), "02:00:00:00:00:01", 64}
	asks := six
	asks.UID, asks.MAC, asks.Port = "asks", "02:00:00:00:00:02", 65
	four := Pod{agentapi.Pod{UID: "four"}, netip.MustParseAddr("10.244.3.2"), "02:00:00:00:00:03", 64}
	spec, wrong, err := Build(a, Cluster{Program: program, Nodes: nodes,
		Pods: map[string][]Pod{"n1": {six, asks}, "n3": {four}}, Open: map[PodOn]string{{"asks", "n1"}: "team"},
		Chains: []Chain{{Name: "main", Spec: v1alpha1.NetcraqChainSpec{LeaseMillis: 200}, Members: []string{"n1", "n2", "n3"}}}})
	if err != nil {
		t.Fatal(err)
	}
	if wrong.Total() != 1 || wrong[0].Reason != nodeclaims.PodWithoutIPv4 { // the fast path needs IPv4
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
	small := nodeview.Addressing{Services: a.Services, Switches: netip.MustParsePrefix("10.0.255.0/26")}
	spec, wrong, err = Build(small, Cluster{Program: program, Nodes: nodes})
	if err != nil || len(spec.Hosts) != 1 || len(wrong) != 2 || !strings.Contains(wrong.String(), "larger prefix") {
		t.Errorf("no address is left for nodes without IPv4: %v, hosts %v, left out %v", err, spec.Hosts, wrong)
	}
}
