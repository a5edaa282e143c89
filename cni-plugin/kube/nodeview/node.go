// Package nodeview is the API server's view of the cluster's nodes. It has one value for each node,
// which it makes from the node's Node and NetcraqNode, or from a switch of the fabric.
//
// These values contain a node's statements about itself, unchecked. Package nodeclaims decides
// which statements to trust. Addressing computes the addresses of the data plane from a node's
// number and a chain's ID.
package nodeview

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
)

// Node has the API server's information about one node.
type Node struct {
	podroutes.Node
	Number      int32 // number of the node; 0 means that it has none yet
	Status      v1alpha1.NetcraqNodeStatus
	Labels      map[string]string
	There       bool      // whether the node has a Node object; if not, only its NetcraqNode is left
	Created     time.Time // creation time of the Node object
	Ready       bool      // whether the node is ready, according to its kubelet
	Schedulable bool
}

// List returns the API server's information about all nodes, in the order of their names. It does
// not check the nodes' statements about themselves (package nodeclaims does).
func List(ctx context.Context, r client.Reader) ([]Node, error) {
	nodes, _, err := ListWithNumbers(ctx, r)
	return nodes, err
}

// ListWithNumbers is like List, and also returns the NetcraqNode objects.
func ListWithNumbers(ctx context.Context, r client.Reader) ([]Node, []v1alpha1.NetcraqNode, error) {
	var nodes corev1.NodeList
	if err := r.List(ctx, &nodes); err != nil {
		return nil, nil, fmt.Errorf("listing nodes: %w", err)
	}
	var numbers v1alpha1.NetcraqNodeList
	if err := r.List(ctx, &numbers); err != nil {
		return nil, nil, fmt.Errorf("listing the nodes' numbers: %w", err)
	}
	byName := map[string]*Node{}
	for i := range nodes.Items {
		n := FromNode(&nodes.Items[i])
		byName[n.Name] = &n
	}
	for _, nn := range numbers.Items {
		n := byName[nn.Name]
		if n == nil {
			n = &Node{Node: podroutes.Node{Name: nn.Name}}
			byName[nn.Name] = n
		}
		n.Number, n.Status = nn.Spec.Number, nn.Status
	}
	var out []Node
	for _, n := range byName {
		out = append(out, *n)
	}
	slices.SortFunc(out, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return out, numbers.Items, nil
}

// FromNode makes a Node from a Node object of the API server.
func FromNode(n *corev1.Node) Node {
	out := Node{Node: podroutes.Node{Name: n.Name}, Labels: n.Labels, There: true,
		Created: n.CreationTimestamp.Time, Schedulable: !n.Spec.Unschedulable}
	for _, a := range n.Status.Addresses { // the node's primary address comes first
		ip, err := netip.ParseAddr(a.Address)
		switch {
		case err != nil || a.Type != corev1.NodeInternalIP:
		case !out.Address.IsValid():
			out.Address = ip
		case !out.Second.IsValid() && ip.Is4() != out.Address.Is4():
			out.Second = ip
		}
	}
	for _, s := range n.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(s); err == nil {
			out.PodCIDRs = append(out.PodCIDRs, p.Masked())
		}
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			out.Ready = c.Status == corev1.ConditionTrue
		}
	}
	return out
}

// Around returns the node with the name self, and all other existing nodes.
func Around(nodes []Node, self string) (own Node, others []podroutes.Node) {
	for _, n := range nodes {
		switch {
		case n.Name == self:
			own = n
		case n.There:
			others = append(others, n.Node)
		}
	}
	return own, others
}

// Peers returns the other nodes that have numbers, by number. A node's number is also the port by
// which this node's switch reaches that node's switch.
func Peers(nodes []Node, self string) map[uint32]podroutes.Node {
	out := map[uint32]podroutes.Node{}
	for _, n := range nodes {
		if n.Name != self && n.There && n.Number != 0 && n.Address.IsValid() {
			out[uint32(n.Number)] = n.Node
		}
	}
	return out
}

// Connected reports whether the leader can reach a node's switch, or could reach it earlier.
func (n Node) Connected() bool { return n.Number != 0 && n.Status.P4Runtime != "" }

// CompareAge orders nodes by the age of their Node objects according to the API server, the oldest
// first. Nodes without a Node object come last.
func CompareAge(a, b *Node) int {
	switch {
	case a.There != b.There && a.There:
		return -1
	case a.There != b.There:
		return 1
	}
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
}
