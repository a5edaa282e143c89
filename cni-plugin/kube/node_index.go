package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
)

// takeBack takes all numbers back: where the switches are not on the nodes nobody has one, but from before that was so.
func takeBack(ctx context.Context, c client.Client, nodes []node) error {
	var errs []error
	for _, n := range nodes {
		if n.number == 0 {
			continue
		}
		if err := c.Delete(ctx, &v1alpha1.NetcraqNode{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("taking the number %d of node %s back: %w", n.number, n.Name, err))
		}
	}
	return errors.Join(errs...)
}

// number gives each node that has none the lowest number that is free, and takes those back of nodes that are gone and in no chain any more. Only the leader does it, with
// what the API server says now and not what it said a moment ago. If there were two leaders for a moment and both gave one number away, the younger of the two nodes gets
// another one.
func number(ctx context.Context, c client.Client, now client.Reader, inChain func(node string) bool) error {
	nodes, numbers, err := listNumbers(ctx, now)
	if err != nil {
		return err
	}
	slices.SortFunc(numbers, func(a, b v1alpha1.NetcraqNode) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	taken := map[int32]string{}
	numbered := map[string]bool{}
	var errs []error
	for i := range numbers {
		nn := &numbers[i]
		there := slices.ContainsFunc(nodes, func(n node) bool { return n.Name == nn.Name && n.there })
		if taken[nn.Spec.Number] == "" && (there || inChain(nn.Name)) {
			taken[nn.Spec.Number] = nn.Name
			numbered[nn.Name] = true
			continue
		}
		if err := c.Delete(ctx, nn, client.Preconditions{UID: &nn.UID}); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("taking the number %d of node %s back: %w", nn.Spec.Number, nn.Name, err))
			taken[nn.Spec.Number] = nn.Name
		}
	}
	for _, n := range nodes {
		if !n.there || numbered[n.Name] || !n.Address.IsValid() {
			continue
		}
		free := int32(1)
		for taken[free] != "" {
			free++
		}
		if free > v1alpha1.MaxNodes {
			errs = append(errs, fmt.Errorf("node %s has no number and is in no chain: all %d are given away", n.Name, v1alpha1.MaxNodes))
			continue
		}
		nn := &v1alpha1.NetcraqNode{ObjectMeta: metav1.ObjectMeta{Name: n.Name}, Spec: v1alpha1.NetcraqNodeSpec{Number: free}}
		if err := c.Create(ctx, nn); err != nil {
			errs = append(errs, fmt.Errorf("giving node %s the number %d: %w", n.Name, free, err))
			continue
		}
		taken[free] = n.Name
	}
	return errors.Join(errs...)
}
