package testutil

import (
	"fmt"
	"net/netip"

	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeview"
)

// Cluster returns healthy nodes with the numbers 1 to n.
func Cluster(n int) []nodeview.Node {
	var out []nodeview.Node
	for i := range n {
		x := nodeview.Node{Number: int32(i + 1), There: true, Ready: true, Schedulable: true,
			Status: v1alpha1.NetcraqNodeStatus{P4Runtime: fmt.Sprintf("192.0.2.%d:9559", i+1)}}
		x.Name = fmt.Sprintf("n%d", i+1)
		out = append(out, x)
	}
	return out
}

// OwnAddress returns a node's own address. It is for nodes that are hosts of the network under that
// address.
func OwnAddress(n nodeview.Node) (netip.Addr, error) { return n.Address, nil }

// ThreeNodes returns three nodes whose agents run. The node n1 is the oldest.
func ThreeNodes() []nodeview.Node {
	nodes := Cluster(3)
	for i := range nodes {
		n := &nodes[i]
		n.Address = netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})
		n.PodCIDRs = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(i + 1), 0}), 24)}
		n.Status.Agent = fmt.Sprintf("192.0.2.%d:9560", i+1)
	}
	return nodes
}
