package netplan

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/cni-plugin/agentapi"
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/kube/internal/testutil"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeview"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// TestPodAuthority checks which rights pods and nodes have in the network that the controller gets.
func TestPodAuthority(t *testing.T) {
	nodes := testutil.Cluster(2)
	for i := range nodes {
		nodes[i].Address = netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})
		nodes[i].PodCIDRs = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, 0, byte(8 * i)}), 29)}
	}
	program, err := WriteProgram(t.TempDir(), 128)
	if err != nil {
		t.Fatal(err)
	}
	at := func(uid string, last byte) Pod {
		return Pod{agentapi.Pod{Namespace: "whatever-the-agent-says", Name: uid, UID: uid},
			netip.AddrFrom4([4]byte{10, 244, 0, last}), fmt.Sprintf("02:00:00:00:00:%02x", last), 64 + uint32(last)}
	}
	pods := map[string][]Pod{"n1": {at("1", 1), at("2", 2), at("", 3), at("4", 4)}, "n2": {at("3", 13), at("1", 14)}}
	open := map[PodOn]string{{"1", "n1"}: "team", {"3", "n2"}: "team", {"4", "n1"}: "other", {"5", "n2"}: "without-a-pod"}
	a := nodeview.Addressing{Services: netip.MustParsePrefix("10.0.254.0/24"), Switches: netip.MustParsePrefix("10.0.255.0/24")}
	spec, _, err := Build(a, Cluster{Program: program, Nodes: nodes, Pods: pods, Open: open, PodRate: 20000,
		Chains: []Chain{{Name: "main", Spec: v1alpha1.NetcraqChainSpec{LeaseMillis: 200}, Members: []string{"n1", "n2"}}}})
	if err != nil {
		t.Fatal(err)
	}
	top := newTopology(t, spec)
	if top.Open() {
		t.Error("somebody may do everything with any session")
	}
	var got []string
	for _, h := range top.Hosts {
		got = append(got, fmt.Sprintf("%s=%s/%d", h.Name, h.Principal, h.Rate))
	}
	if s := strings.Join(got, " "); s != "node@n1=system/0 node@n2=system/0 pod@10.244.0.1=ns:team/20000 pod@10.244.0.2=/20000 pod@10.244.0.3=/20000 pod@10.244.0.4=ns:other/20000 "+
		"pod@10.244.0.13=ns:team/20000 pod@10.244.0.14=/20000" { // an agent reports the last pod, which is on another node
		t.Errorf("hosts: %s", s)
	}
	got = nil
	for _, g := range top.Grants {
		got = append(got, fmt.Sprintf("%s %s read=%v write=%v", g.Principal, g.Realm, g.Read, g.Write))
	}
	if s := strings.Join(got, ", "); s != "system default read=true write=true, system node read=true write=true, system ns:other read=true write=true, system ns:team read=true write=true" {
		t.Errorf("grants: %s", s)
	}
	for key, realm := range map[string]string{"ns/team/a": "ns:team", "ns/other/": "ns:other",
		"node/team/a": nodeRealm, "ns/team": topology.DefaultRealm, "ns/teams/a": topology.DefaultRealm, "/registry/pods/team/a": topology.DefaultRealm,
		"ns/without-a-pod/a": topology.DefaultRealm} {
		if r := top.RealmOf(key); r != realm {
			t.Errorf("%s is of the realm %s, not %s", key, r, realm)
		}
	}
}
