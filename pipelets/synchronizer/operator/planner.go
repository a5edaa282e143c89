package operator

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	pipeletapi "github.com/netcraq/netcraq/pipelets/api"
	"github.com/netcraq/netcraq/pipelets/synchronizer/plan"
)

// planEvery is the interval at which the leader checks for dead replicas.
const planEvery = time.Second

// planner assigns each Pipelet to a replica, in Status.Assigned. It runs in the leader.
type planner struct {
	client  client.Client
	members *members
	alone   bool
	log     *slog.Logger
}

// setup makes the planner run while this replica is the leader. All events map to the same request,
// which plans everything.
func (p *planner) setup(mgr ctrl.Manager) error {
	all := func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} }
	told := handler.TypedEnqueueRequestsFromMapFunc(
		func(context.Context, *pipeletapi.Pipelet) []reconcile.Request { return []reconcile.Request{{}} })
	skip := true // skip the check for unique names, because a test may run another operator in the same process
	return ctrl.NewControllerManagedBy(mgr).Named(Name+"-plan").
		Watches(&pipeletapi.Pipelet{}, handler.EnqueueRequestsFromMapFunc(all),
			builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, reassigned))).
		WatchesRawSource(source.Channel(p.members.changed, told)).
		WithOptions(controller.Options{SkipNameValidation: &skip}).
		Complete(p)
}

// reassigned lets only those updates pass that assign a Pipelet to another replica.
var reassigned = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		was, ok := e.ObjectOld.(*pipeletapi.Pipelet)
		is, too := e.ObjectNew.(*pipeletapi.Pipelet)
		return ok && too && was.Status.Assigned != is.Status.Assigned
	},
}

// Reconcile implements reconcile.Reconciler.
func (p *planner) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	var found pipeletapi.PipeletList
	if err := p.client.List(ctx, &found); err != nil {
		return ctrl.Result{}, err
	}
	live, old := p.members.live(time.Now())
	p.members.clean(ctx, old)
	to := plan.Spread(found.Items, live, !p.alone)
	for i := range found.Items {
		x := &found.Items[i]
		on := to[x.Namespace+"/"+x.Name]
		if on == "" || on == x.Status.Assigned || x.DeletionTimestamp != nil {
			continue
		}
		was := x.DeepCopy()
		x.Status.Assigned = on
		err := p.client.Status().Patch(ctx, x, client.MergeFrom(was))
		if err != nil && !apierrors.IsNotFound(err) {
			return ctrl.Result{}, err
		}
		p.log.Info("assigned", "pipelet", x.Namespace+"/"+x.Name, "replica", on, "was", was.Status.Assigned)
	}
	return ctrl.Result{RequeueAfter: planEvery}, nil
}

// List returns the Pipelets of a cluster, with the replicas to which they are assigned.
func List(ctx context.Context, config *rest.Config) ([]pipeletapi.Pipelet, error) {
	scheme, err := Scheme()
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("the API server: %w", err)
	}
	var found pipeletapi.PipeletList
	if err := c.List(ctx, &found); err != nil {
		return nil, fmt.Errorf("listing Pipelets: %w", err)
	}
	return found.Items, nil
}
