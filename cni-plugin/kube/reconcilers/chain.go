package reconcilers

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/kube/apiobjects"
	"github.com/netcraq/netcraq/cni-plugin/kube/chainplan"
)

// specChanged ignores updates of the status, which the leader itself writes.
var specChanged = predicate.GenerationChangedPredicate{}

// keysEvery is the minimum time between two status updates if only the number of keys has changed.
// Hot keys come and go all the time, and each update costs the cluster's etcd a write.
const keysEvery = time.Minute

// chainReconciler writes the status of a chain's resource. A finalizer keeps the resource until the
// chain is empty.
type chainReconciler struct {
	*Operator

	in    *term            // term to which the following fields belong
	shown map[string]shown // statuses that were written last
}

// shown is a status that was written.
type shown struct {
	status v1alpha1.NetcraqChainStatus
	at     time.Time
}

// Reconcile implements reconcile.Reconciler.
func (r *chainReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	t := r.leading()
	if t == nil {
		return reconcile.Result{}, nil
	}
	if r.in != t {
		r.in, r.shown = t, map[string]shown{}
	}
	c := &v1alpha1.NetcraqChain{}
	if err := r.client.Get(ctx, req.NamespacedName, c); err != nil {
		delete(r.shown, req.Name)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	p, ok := t.of(c.Name)
	if !ok || p.Generation < c.Generation {
		return reconcile.Result{}, nil // the network reconciler runs first and then wakes this reconciler
	}
	now, _, err := t.look(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	is := chainNamed(now, c.Name)
	if p.Refused != "" {
		is = nil
	}
	if err := Hold(ctx, r.client, c, c.DeletionTimestamp == nil || is != nil || t.inherits(c.Name)); err != nil {
		return reconcile.Result{}, err
	}
	again := reconcile.Result{RequeueAfter: restless}
	if c.DeletionTimestamp != nil {
		return again, nil
	}
	if is != nil && is.Ready && len(is.Members) == int(c.Spec.Length) || p.Refused != "" {
		again.RequeueAfter = restful
	}
	return again, r.show(ctx, c, is, &p)
}

// Finalizer keeps the resource of a deleted chain until the chain holds no keys. If the agents were
// removed first, no one could take the keys out of the network, and gateways would wait for that.
const Finalizer = "netcraq.io/keys"

// Hold adds or removes the finalizer of a chain's resource. It patches only the finalizers, because
// Go's type omits an empty list (excludedNodes: []) of the spec. An update of the whole object
// would therefore change the spec, which the admission policy forbids to agents.
func Hold(ctx context.Context, api client.Client, c *v1alpha1.NetcraqChain, hold bool) error {
	if controllerutil.ContainsFinalizer(c, Finalizer) == hold {
		return nil
	}
	before := c
	c = c.DeepCopy()
	if hold {
		if c.DeletionTimestamp != nil {
			return nil // the object is gone already
		}
		controllerutil.AddFinalizer(c, Finalizer)
	} else {
		controllerutil.RemoveFinalizer(c, Finalizer)
	}
	changed := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := api.Patch(ctx, c, changed); apiobjects.IgnoreGone(err) != nil {
		return fmt.Errorf("the finalizer of the chain %s: %w", c.Name, err)
	}
	return nil
}

// show updates a chain's status if it has changed.
func (r *chainReconciler) show(ctx context.Context, c *v1alpha1.NetcraqChain,
	is *admin.Chain, p *chainplan.Plan) error {
	was := c.Status
	if s, ok := r.shown[c.Name]; ok {
		was = s.status // the cache may not have the last update of the status yet
	}
	to := chainplan.Status(c, was, is, p)
	if to.PlacedKeys != was.PlacedKeys && time.Since(r.shown[c.Name].at) < keysEvery {
		same := to
		same.PlacedKeys = was.PlacedKeys
		if equality.Semantic.DeepEqual(same, was) {
			return nil
		}
	}
	if equality.Semantic.DeepEqual(to, c.Status) {
		r.shown[c.Name] = shown{to, r.shown[c.Name].at}
		return nil
	}
	fresh := &v1alpha1.NetcraqChain{}
	if err := r.client.Get(ctx, apiobjects.Key(c.Name), fresh); err != nil {
		return apiobjects.IgnoreGone(err)
	}
	fresh.Status = to
	if err := r.client.Status().Update(ctx, fresh); err != nil {
		return apiobjects.IgnoreGone(err)
	}
	r.shown[c.Name] = shown{to, time.Now()}
	return nil
}
