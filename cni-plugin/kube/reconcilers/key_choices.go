package reconcilers

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/kube/chainplan"
)

// choiceWait is the timeout for storing a placement rule.
const choiceWait = 5 * time.Second

// keyChoices makes the placement rules equal to those in the chains' specs. The rules are about
// keys, and apply to all chains. keyChoices removes rules that came from elsewhere.
type keyChoices struct{ *Operator }

// Reconcile implements reconcile.Reconciler.
func (k *keyChoices) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	t := k.leading()
	if t == nil {
		return reconcile.Result{}, nil
	}
	h := t.Hosted()
	if h == nil {
		return reconcile.Result{}, nil
	}
	var list v1alpha1.NetcraqChainList
	if err := k.client.List(ctx, &list); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing the chains: %w", err)
	}
	accepted, _ := chainplan.Accept(chainplan.Undeleted(list.Items))
	ctx, cancel := context.WithTimeout(ctx, choiceWait)
	defer cancel()
	shown, err := h.Placement.Show(ctx)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("the choice of keys: %w", err)
	}
	want := chainplan.WantedRules(accepted, chainplan.NeverPlaced(k.o.Namespace))
	for _, c := range chainplan.RuleChanges(shown.Rules, want) {
		if _, err = h.Placement.SetRule(ctx, c); err != nil {
			return reconcile.Result{}, fmt.Errorf("the choice of keys: %s %s: %w", c.Choice, c.Key, err)
		}
	}
	return reconcile.Result{RequeueAfter: restful}, nil
}
