package kube

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

// node is what the API server knows of one node.
type node struct {
	podroutes.Node
	number      int32 // 0: none yet
	status      v1alpha1.NetcraqNodeStatus
	labels      map[string]string
	there       bool      // it has a Node; else only its number is left
	created     time.Time // the Node
	ready       bool      // as its kubelet says
	schedulable bool
}

// listNodes is what the API server knows of all nodes, in the order of their names. What the nodes
// say of themselves there is not checked (claims, endpoints).
func listNodes(ctx context.Context, r client.Reader) ([]node, error) {
	nodes, _, err := listNumbers(ctx, r)
	return nodes, err
}

// listNumbers is the same, and the numbers as they are written.
func listNumbers(ctx context.Context, r client.Reader) ([]node, []v1alpha1.NetcraqNode, error) {
	var nodes corev1.NodeList
	if err := r.List(ctx, &nodes); err != nil {
		return nil, nil, fmt.Errorf("listing nodes: %w", err)
	}
	var numbers v1alpha1.NetcraqNodeList
	if err := r.List(ctx, &numbers); err != nil {
		return nil, nil, fmt.Errorf("listing the nodes' numbers: %w", err)
	}
	byName := map[string]*node{}
	for i := range nodes.Items {
		n := fromNode(&nodes.Items[i])
		byName[n.Name] = &n
	}
	for _, nn := range numbers.Items {
		n := byName[nn.Name]
		if n == nil {
			n = &node{Node: podroutes.Node{Name: nn.Name}}
			byName[nn.Name] = n
		}
		n.number, n.status = nn.Spec.Number, nn.Status
	}
	var out []node
	for _, n := range byName {
		out = append(out, *n)
	}
	slices.SortFunc(out, func(a, b node) int { return cmp.Compare(a.Name, b.Name) })
	return out, numbers.Items, nil
}

// fromNode takes what is needed from a Node.
func fromNode(n *corev1.Node) node {
	out := node{Node: podroutes.Node{Name: n.Name}, labels: n.Labels, there: true,
		created: n.CreationTimestamp.Time, schedulable: !n.Spec.Unschedulable}
	for _, a := range n.Status.Addresses { // the node's primary one comes first
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
			out.ready = c.Status == corev1.ConditionTrue
		}
	}
	return out
}

// around splits nodes into one and the others that there are.
func around(nodes []node, self string) (own node, others []podroutes.Node) {
	for _, n := range nodes {
		switch {
		case n.Name == self:
			own = n
		case n.there:
			others = append(others, n.Node)
		}
	}
	return own, others
}

// peers are the other nodes that have numbers, by these: the ports by which a node's switch reaches
// theirs.
func peers(nodes []node, self string) map[uint32]podroutes.Node {
	out := map[uint32]podroutes.Node{}
	for _, n := range nodes {
		if n.Name != self && n.there && n.number != 0 && n.Address.IsValid() {
			out[uint32(n.number)] = n.Node
		}
	}
	return out
}

// connected is a node whose switch is, or was, to be reached.
func (n node) connected() bool { return n.number != 0 && n.status.P4Runtime != "" }

// compareAge orders nodes by the age of their Node objects, which the API server wrote down. The
// oldest comes first. Nodes without a Node object come last.
func compareAge(a, b *node) int {
	switch {
	case a.there != b.there && a.there:
		return -1
	case a.there != b.there:
		return 1
	}
	return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.Name, b.Name))
}
