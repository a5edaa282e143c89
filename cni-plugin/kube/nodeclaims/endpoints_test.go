package nodeclaims

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/kube/internal/testutil"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeview"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
)

// TestEndpoints checks that the leader connects only to a node's own address.
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
		nodes := testutil.ThreeNodes()
		nodes[1].Second = netip.MustParseAddr("fd01::2")
		nodes[1].Created, nodes[2].Created = time.Unix(0, 0), time.Unix(1, 0) // a hostile node may be the oldest
		nodes[1].Status.P4Runtime, nodes[1].Status.Agent = c.p4runtime, c.agent
		wrong := Endpoints(nodes, 9559, 9560)
		if s := nodes[1].Status.P4Runtime + " " + nodes[1].Status.Agent; s != c.want {
			t.Errorf("%s: %s, not %s", c.what, s, c.want)
		}
		said := 0
		for _, pair := range [][2]string{{c.p4runtime, nodes[1].Status.P4Runtime}, {c.agent, nodes[1].Status.Agent}} {
			if pair[0] != pair[1] {
				said++
			}
		}
		if len(wrong) != said || said > 0 && wrong.ErrorOf("n2") == nil {
			t.Errorf("%s: %d are wrong, and left out was %v", c.what, said, wrong)
		}
		for _, n := range []nodeview.Node{nodes[0], nodes[2]} {
			if n.Status.P4Runtime != n.Address.String()+":9559" || n.Status.Agent != n.Address.String()+":9560" {
				t.Errorf("%s: %s is at %+v", c.what, n.Name, n.Status)
			}
		}
	}
	// Deleted nodes have only a status. A node that has lost its address gets no endpoints.
	nodes := testutil.ThreeNodes()
	for i, at := range []string{"192.0.2.3:9559", "192.0.2.9:9559"} {
		nodes[i] = nodeview.Node{Node: podroutes.Node{Name: nodes[i].Name}, Number: int32(i + 1),
			Status: v1alpha1.NetcraqNodeStatus{P4Runtime: at}}
	}
	nodes = append(nodes, nodeview.Node{Node: podroutes.Node{Name: "n4"}, Number: 4, Status: nodes[1].Status},
		nodeview.Node{Node: podroutes.Node{Name: "n5"}, Number: 5, There: true, Status: nodes[1].Status})
	wrong := Endpoints(nodes, 9559, 9560)
	var got []string
	for _, n := range nodes {
		got = append(got, n.Status.P4Runtime)
	}
	if s := strings.Join(got, " "); s != " 192.0.2.9:9559 192.0.2.3:9559  " || wrong.Total() != 3 {
		t.Errorf("%s; left out: %v", s, wrong)
	}
}
