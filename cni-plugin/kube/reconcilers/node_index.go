package reconcilers

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/kube/apiobjects"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeview"
)

// NodeIndexes gives each node the lowest free index, from 1 to MaxNodes. The index is the number in
// the node's NetcraqNode. NodeIndexes releases the index when the node no longer exists and is in
// no chain. Two leaders that overlapped for a moment may have assigned the same index. NodeIndexes
// then deletes the younger object, and its node gets another index.
type NodeIndexes struct {
	client    client.Client
	fresh     client.Reader // reads without the cache, because indexes depend on the API server's current state
	elsewhere bool          // the switches are not on the nodes, so no node gets a new index
	// inChain returns a function that reports whether a chain still needs a node's switch. It
	// returns nil if this agent does not lead.
	inChain func(context.Context) (func(node string) bool, error)
}

// NewNodeIndexes makes the reconciler that gives nodes their indexes.
func NewNodeIndexes(c client.Client, fresh client.Reader, elsewhere bool,
	inChain func(context.Context) (func(node string) bool, error)) *NodeIndexes {
	return &NodeIndexes{client: c, fresh: fresh, elsewhere: elsewhere, inChain: inChain}
}

// Reconcile implements reconcile.Reconciler.
func (r *NodeIndexes) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	inChain, err := r.inChain(ctx)
	if inChain == nil || err != nil {
		return reconcile.Result{}, err
	}
	nodes, objects, err := nodeview.ListWithNumbers(ctx, r.client)
	if err != nil {
		return reconcile.Result{}, err
	}
	i := slices.IndexFunc(nodes, func(n nodeview.Node) bool { return n.Name == req.Name })
	if i < 0 {
		return reconcile.Result{}, nil
	}
	n := nodes[i]
	if n.Number == 0 {
		if !lacksIndex(n) || r.elsewhere {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, r.assign(ctx, n.Name)
	}
	own := slices.IndexFunc(objects, func(o v1alpha1.NetcraqNode) bool { return o.Name == n.Name })
	if r.elsewhere || !n.There && !inChain(n.Name) || elder(objects, &objects[own]) {
		return reconcile.Result{}, r.release(ctx, &objects[own])
	}
	return reconcile.Result{}, nil
}

// lacksIndex reports whether a node needs an index but has none.
func lacksIndex(n nodeview.Node) bool { return n.Number == 0 && n.There && n.Address.IsValid() }

// elder reports whether an older object has the same index.
func elder(all []v1alpha1.NetcraqNode, one *v1alpha1.NetcraqNode) bool {
	return slices.ContainsFunc(all, func(o v1alpha1.NetcraqNode) bool {
		return o.Spec.Number == one.Spec.Number &&
			cmp.Or(o.CreationTimestamp.Compare(one.CreationTimestamp.Time), cmp.Compare(o.Name, one.Name)) < 0
	})
}

// release frees the index of an object.
func (r *NodeIndexes) release(ctx context.Context, o *v1alpha1.NetcraqNode) error {
	if err := r.client.Delete(ctx, o, client.Preconditions{UID: &o.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("taking the number %d of node %s back: %w", o.Spec.Number, o.Name, err)
	}
	return nil
}

// assign gives a node the lowest free index.
func (r *NodeIndexes) assign(ctx context.Context, name string) error {
	var all v1alpha1.NetcraqNodeList
	if err := r.fresh.List(ctx, &all); err != nil {
		return fmt.Errorf("listing the nodes' numbers: %w", err)
	}
	taken := map[int32]bool{}
	for _, o := range all.Items {
		if o.Name == name {
			return nil // the node has an index that the cache does not show yet
		}
		taken[o.Spec.Number] = true
	}
	free := int32(1)
	for taken[free] {
		free++
	}
	if free > v1alpha1.MaxNodes {
		// The assignment is not retried until another node's index is released.
		return reconcile.TerminalError(fmt.Errorf("node %s has no number, so its switch is in no chain, and its pods reach none: all %d are given away", name, v1alpha1.MaxNodes))
	}
	o := &v1alpha1.NetcraqNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NetcraqNodeSpec{Number: free}}
	if err := r.client.Create(ctx, o); err != nil {
		return fmt.Errorf("giving node %s the number %d: %w", name, free, err)
	}
	return nil
}

// concerned returns the nodes that the creation, change or deletion of a NetcraqNode affects. These
// are its own node, nodes with the same index, and nodes without an index.
func (r *NodeIndexes) concerned(ctx context.Context, o client.Object) []reconcile.Request {
	names := []string{o.GetName()}
	nodes, err := nodeview.List(ctx, r.client)
	changed, ok := o.(*v1alpha1.NetcraqNode)
	if err != nil || !ok {
		return apiobjects.Named(names) // reading from the cache returns no errors
	}
	for _, n := range nodes {
		if n.Name != o.GetName() && (lacksIndex(n) || n.Number == changed.Spec.Number) {
			names = append(names, n.Name)
		}
	}
	return apiobjects.Named(names)
}

// inconsistent returns the nodes whose index is missing, equals another node's index, or must be
// released once no chain needs it.
func (r *NodeIndexes) inconsistent(ctx context.Context) []reconcile.Request {
	nodes, objects, err := nodeview.ListWithNumbers(ctx, r.client)
	if err != nil {
		return nil // reading from the cache returns no errors
	}
	var names []string
	for _, n := range nodes {
		if lacksIndex(n) || !n.There || r.elsewhere && n.Number != 0 {
			names = append(names, n.Name)
		}
	}
	for i := range objects {
		if elder(objects, &objects[i]) {
			names = append(names, objects[i].Name)
		}
	}
	return apiobjects.Named(names)
}
