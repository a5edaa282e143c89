package reconcilers

import (
	"crypto/rand"
	"fmt"
	"net"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/kube/apiobjects"
	"github.com/netcraq/netcraq/cni-plugin/kube/fastpath"
	"github.com/netcraq/netcraq/cni-plugin/kube/leaderlink"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeclaims"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeview"
	"github.com/netcraq/netcraq/cni-plugin/leader"
	"github.com/netcraq/netcraq/controlplane/etcdstore"
	"github.com/netcraq/netcraq/nodeapi/durable"
	"github.com/netcraq/netcraq/nodeapi/durable/door"
)

// New makes the reconcilers, and registers them with a manager.
func New(o Options, mgr manager.Manager) (*Operator, error) {
	leases, err := coordination.NewForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("the leader's Lease: %w", err)
	}
	id := etcdstore.Identity{Name: o.Self.Name + "-" + rand.Text()[:6],
		Admin: net.JoinHostPort(o.Self.Address.String(), strconv.Itoa(o.HealthPort))}
	p := &Operator{o: o, log: o.Log, client: mgr.GetClient(), recorder: mgr.GetEventRecorderFor("netcraq"),
		leftOut: nodeclaims.NewCounter()}
	o.Metrics.MustRegister(p.leftOut)
	for _, w := range []*apiobjects.Waker{&p.network, &p.chains, &p.membership, &p.keyChoices, &p.nodeIndexes,
		&p.accounts} {
		*w = apiobjects.NewWaker()
	}
	p.pods = leaderlink.NewPodFollower(o.TLS, o.Log, p.network.Wake)
	var keys *door.Door
	if o.Durable.Given() {
		connection, err := durable.Dial(o.Durable)
		if err != nil {
			return nil, fmt.Errorf("the gateways for durable keys: %w", err)
		}
		keys = door.New(door.Options{Etcd: connection})
	}
	p.nodes = leaderlink.NewAnswerer(o.TLS, o.Quota, &p.replica, keys, o.Log)
	p.fast = fastpath.New(p.client, o.Log, func() bool { return p.leading() != nil }, p.network.Wake)
	options := leader.Options{Config: o.Lead.Config, Node: o.Self.Name, Namespace: o.Namespace, Leases: leases,
		Identity: id, Replica: &p.replica, Log: o.Log, Metrics: o.Leads, Follow: p.follow, Began: p.began, Dir: o.Dir}
	if o.Fabric == nil {
		options.TLS = o.TLS
	}
	p.leader = leader.New(options)
	o.Mux.Handle("GET "+etcdstore.AlivePath, etcdstore.Alive(id))
	if err := p.setup(mgr); err != nil {
		return nil, fmt.Errorf("following the cluster's objects: %w", err)
	}
	return p, nil
}

// setup registers the reconcilers and the leader election with a manager.
func (p *Operator) setup(mgr manager.Manager) error {
	build := func(name string) *builder.Builder {
		return ctrl.NewControllerManagedBy(mgr).Named(name).WithOptions(retries(1, restful))
	}
	indexes := NewNodeIndexes(p.client, mgr.GetAPIReader(), p.o.Fabric != nil, p.inChain)
	byIndex := handler.EnqueueRequestsFromMapFunc(indexes.concerned)
	if err := build("node-index").
		Watches(&corev1.Node{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(nodeview.Changed)).
		Watches(&v1alpha1.NetcraqNode{}, byIndex).
		WatchesRawSource(p.nodeIndexes.Source(indexes.inconsistent)).Complete(indexes); err != nil {
		return err
	}
	network := build("network").
		Watches(&corev1.Node{}, apiobjects.Everything, builder.WithPredicates(nodeview.Changed)).
		Watches(&v1alpha1.NetcraqNode{}, apiobjects.Everything).
		Watches(&v1alpha1.NetcraqChain{}, apiobjects.Everything, builder.WithPredicates(specChanged)).
		WatchesRawSource(p.network.Source(apiobjects.One))
	if p.o.Fabric == nil { // with a fabric, no pod has a port
		network = network.Watches(&corev1.Pod{}, apiobjects.Everything, builder.WithPredicates(fastpath.Changed)).
			Watches(&networking.NetworkPolicy{}, apiobjects.Everything)
		if err := build("fast-path").
			Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(fastpath.AccountOf),
				builder.WithPredicates(fastpath.Changed)).
			WatchesRawSource(p.accounts.Source(p.fast.Accounts)).Complete(p.fast); err != nil {
			return err
		}
	}
	if err := network.Complete(&networkReconciler{Operator: p,
		report: nodeclaims.NewReport(p.log, p.leftOut)}); err != nil {
		return err
	}
	if err := build("chain").
		Watches(&v1alpha1.NetcraqChain{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(specChanged)).
		WatchesRawSource(p.chains.Source(p.planned)).Complete(&chainReconciler{Operator: p}); err != nil {
		return err
	}
	if err := build("membership").WithOptions(retries(chainsAtOnce, stepAtMost)).
		WatchesRawSource(p.membership.Source(p.planned)).Complete(&membershipReconciler{p}); err != nil {
		return err
	}
	if err := build("key-choices").
		WatchesRawSource(p.keyChoices.Source(apiobjects.One)).Complete(&keyChoices{p}); err != nil {
		return err
	}
	return mgr.Add(p)
}

// retries returns the options of a reconciler's controller. atOnce is the number of objects that it
// reconciles concurrently. atMost is the maximum interval before it retries a failure.
func retries(atOnce int, atMost time.Duration) controller.Options {
	return controller.Options{MaxConcurrentReconciles: atOnce,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryAfter, atMost)}
}
