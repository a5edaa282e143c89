package kube

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	api "github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/leader"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
	"github.com/netcraq/netcraq/controlplane/adminserver"
	"github.com/netcraq/netcraq/controlplane/chain/rejoin"
	"github.com/netcraq/netcraq/controlplane/etcdstore"
	"github.com/netcraq/netcraq/nodeapi/durable"
	"github.com/netcraq/netcraq/nodeapi/durable/door"
)

// Lead are what an agent needs to lead.
type Lead struct {
	leader.Config
	Admin adminserver.Config // where the admin API is served, for netcraqctl and the node's gateway
	// PodRate is how many NetCRAQ packets a second a pod's port takes; 0: any number.
	PodRate int
	// Durable is where gateways are that keep the durable keys of the node API; none: there are no
	// such keys.
	Durable durable.Access
}

const (
	// restless is the time between two looks at what is under way, restful at what is not.
	restless = time.Second
	restful  = 15 * time.Second
	// What failed is tried again after retryAfter, and later each time, up to restful. A step that
	// a chain could not take, which may have cost it an epoch, waits up to stepAtMost.
	retryAfter = time.Second
	stepAtMost = time.Minute
	// chainsAtOnce is how many chains' members are changed at the same time.
	chainsAtOnce = 8
)

// operator is an agent that may lead, and reconciles the cluster's objects while it does:
//
//	Node, NetcraqNode ──▶ nodeIndexes    a node's index
//	ServiceAccount ─────▶ fastPaths      whether its pods may use the fast path
//	all of them ────────▶ network        what the controller is told of (one for all)
//	                        │ plan
//	NetcraqChain ───────────┼──▶ chains      finalizer, status
//	                        ├──▶ membership  a chain's next step, or emptying it
//	                        └──▶ keyChoices  pins and exclusions (one for all)
type operator struct {
	o        Options
	log      *slog.Logger
	self     podroutes.Node
	tls      *tls.Config
	client   client.Client
	recorder record.EventRecorder
	leader   *leader.Leader
	pods     *follower
	nodes    *answerer // of what the nodes' agents ask the controller
	fast     *fastPaths
	claims   *claims // of the nodes
	leftOut  *prometheus.CounterVec
	replica  adminserver.Replica

	// What has the reconcilers look for another reason than that an object has changed.
	network, chains, membership, keyChoices, nodeIndexes, accounts waker

	mu   sync.Mutex
	term *term // of the present term; nil: this agent does not lead

	serving sync.WaitGroup // the admin API
}

func newOperator(
	o Options, mgr manager.Manager, conf *tls.Config, self podroutes.Node, h *health, claims *claims,
) (*operator, error) {
	leases, err := coordination.NewForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("the leader's Lease: %w", err)
	}
	id := etcdstore.Identity{Name: self.Name + "-" + rand.Text()[:6],
		Admin: net.JoinHostPort(self.Address.String(), strconv.Itoa(o.HealthPort))}
	p := &operator{o: o, log: o.Log, self: self, tls: conf, client: mgr.GetClient(),
		recorder: mgr.GetEventRecorderFor("netcraq"), claims: claims, leftOut: newFaultCounter()}
	h.own.MustRegister(p.leftOut)
	for _, w := range []*waker{&p.network, &p.chains, &p.membership, &p.keyChoices, &p.nodeIndexes, &p.accounts} {
		*w = newWaker()
	}
	p.pods = newFollower(conf, o.Log, p.network.wake)
	var keys *door.Door
	if o.Lead.Durable.Given() {
		connection, err := durable.Dial(o.Lead.Durable)
		if err != nil {
			return nil, fmt.Errorf("the gateways for durable keys: %w", err)
		}
		keys = door.New(door.Options{Etcd: connection})
	}
	p.nodes = newAnswerer(conf, &p.replica, keys, o.Log)
	p.fast = newFastPaths(p.client, o.Log, func() bool { return p.leading() != nil }, p.network.wake)
	options := leader.Options{Config: o.Lead.Config, Node: self.Name, Namespace: o.Namespace, Leases: leases,
		Identity: id, Replica: &p.replica, Log: o.Log, Metrics: h.lead, Follow: p.follow, Began: p.began,
		// An agent in a container may have no other folder to write to.
		Dir: filepath.Join(filepath.Dir(o.Socket), "program")}
	if o.Fabric == nil {
		options.TLS = conf
	}
	p.leader = leader.New(options)
	h.mux.Handle("GET "+etcdstore.AlivePath, etcdstore.Alive(id))
	if err := p.setup(mgr); err != nil {
		return nil, fmt.Errorf("following the cluster's objects: %w", err)
	}
	return p, nil
}

// setup has a manager call the reconcilers, and the leader campaign.
func (p *operator) setup(mgr manager.Manager) error {
	build := func(name string) *builder.Builder {
		return ctrl.NewControllerManagedBy(mgr).Named(name).WithOptions(retries(1, restful))
	}
	indexes := &nodeIndexes{client: p.client, fresh: mgr.GetAPIReader(), elsewhere: p.o.Fabric != nil,
		inChain: p.inChain}
	byIndex := handler.EnqueueRequestsFromMapFunc(indexes.concerned)
	if err := build("node-index").
		Watches(&corev1.Node{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(nodeChanged)).
		Watches(&v1alpha1.NetcraqNode{}, byIndex).
		WatchesRawSource(p.nodeIndexes.source(indexes.inconsistent)).Complete(indexes); err != nil {
		return err
	}
	network := build("network").
		Watches(&corev1.Node{}, everything, builder.WithPredicates(nodeChanged)).
		Watches(&v1alpha1.NetcraqNode{}, everything).
		Watches(&v1alpha1.NetcraqChain{}, everything, builder.WithPredicates(specChanged)).
		WatchesRawSource(p.network.source(theOne))
	if p.o.Fabric == nil { // where the switches are elsewhere no pod has a port
		network = network.Watches(&corev1.Pod{}, everything, builder.WithPredicates(asksOtherwise)).
			Watches(&networking.NetworkPolicy{}, everything)
		if err := build("fast-path").
			Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(accountOf),
				builder.WithPredicates(asksOtherwise)).
			WatchesRawSource(p.accounts.source(p.fast.accounts)).Complete(p.fast); err != nil {
			return err
		}
	}
	if err := network.Complete(&networkReconciler{operator: p,
		report: faultReport{log: p.log, counter: p.leftOut}}); err != nil {
		return err
	}
	if err := build("chain").
		Watches(&v1alpha1.NetcraqChain{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(specChanged)).
		WatchesRawSource(p.chains.source(p.planned)).Complete(&chainReconciler{operator: p}); err != nil {
		return err
	}
	if err := build("membership").WithOptions(retries(chainsAtOnce, stepAtMost)).
		WatchesRawSource(p.membership.source(p.planned)).Complete(&membershipReconciler{p}); err != nil {
		return err
	}
	if err := build("key-choices").
		WatchesRawSource(p.keyChoices.source(theOne)).Complete(&keyChoices{p}); err != nil {
		return err
	}
	return mgr.Add(p)
}

// retries are the options of a controller: how many objects it looks at at once, and how long at
// most it waits before it tries again what failed.
func retries(atOnce int, atMost time.Duration) controller.Options {
	return controller.Options{MaxConcurrentReconciles: atOnce,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryAfter, atMost)}
}

// Start implements manager.Runnable: it leads, when it is this agent's turn, until ctx ends.
func (p *operator) Start(ctx context.Context) error {
	defer p.serving.Wait()
	return p.leader.Start(ctx)
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: this has the election.
func (p *operator) NeedLeaderElection() bool { return false }

// began has everything looked at, since until now nothing was.
func (p *operator) began() {
	for _, w := range []*waker{&p.network, &p.nodeIndexes, &p.accounts} {
		w.retry()
	}
}

// everything is the one request of reconcilers that look at all objects each time, since all that
// they make depends on several.
var everything = handler.EnqueueRequestsFromMapFunc(
	func(ctx context.Context, _ client.Object) []reconcile.Request { return theOne(ctx) })

func theOne(context.Context) []reconcile.Request { return []reconcile.Request{{}} }

// named are the requests for objects that are of no namespace.
func named(names []string) (out []reconcile.Request) {
	for _, n := range names {
		out = append(out, reconcile.Request{NamespacedName: clientKey(n)})
	}
	return out
}

// waker has a reconciler look at its objects again for reasons that the API server does not know
// of.
type waker struct {
	signals chan event.GenericEvent
	anew    *atomic.Bool // what failed is not to wait for its next try
}

func newWaker() waker { return waker{make(chan event.GenericEvent, 1), new(atomic.Bool)} }

// wake has it look, but for what failed and waits for its next try.
func (w waker) wake() {
	select {
	case w.signals <- event.GenericEvent{Object: &v1alpha1.NetcraqChain{}}:
	default: // it is about to
	}
}

// retry has it look at what failed, too.
func (w waker) retry() {
	w.anew.Store(true)
	w.wake()
}

// source is what the reconciler's queue is fed by: keys gives the objects.
func (w waker) source(keys func(context.Context) []reconcile.Request) source.Source {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	enqueue := func(ctx context.Context, _ event.GenericEvent, q queue) {
		anew := w.anew.Swap(false)
		for _, k := range keys(ctx) {
			if anew {
				q.Forget(k)
			}
			if q.NumRequeues(k) == 0 {
				q.Add(k)
			}
		}
	}
	return source.Channel(w.signals, handler.Funcs{GenericFunc: enqueue})
}

// term is what the reconcilers know in a term of this agent's.
type term struct {
	*leader.Term

	mu        sync.Mutex
	plan      map[string]planned                   // by the chain's name; nil: the network was not looked at yet
	recorded  map[string][]string                  // as the Term has them, without chains that are gone
	inherited map[string]v1alpha1.NetcraqChainSpec // ... and those that run again
	back      *rejoin.Tracker                      // of switches that are no members
	began     time.Time                            // the term
}

// planned is what the network's reconciler has decided about a chain.
type planned struct {
	generation int64 // of the resource that it has seen; 0: there is none
	spec       v1alpha1.NetcraqChainSpec
	wanted     bool // else it is to go, where it is there yet
	formed     bool // it has members
	refused    string
	waiting    string // for what, before it is formed
	trouble    error  // with the network
}

// leading is the present term; nil: this agent does not lead.
func (p *operator) leading() *term {
	t := p.leader.Term()
	p.mu.Lock()
	defer p.mu.Unlock()
	if t == nil || t.Context().Err() != nil {
		p.term = nil
	} else if p.term == nil || p.term.Term != t {
		p.term = &term{Term: t, recorded: maps.Clone(t.Recorded), inherited: maps.Clone(t.Inherited),
			back: rejoin.New(rejoin.Default()), began: time.Now()}
	}
	return p.term
}

// planned are the chains that there is a plan for.
func (p *operator) planned(context.Context) []reconcile.Request {
	t := p.leading()
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return named(slices.Collect(maps.Keys(t.plan)))
}

// of is the plan for a chain.
func (t *term) of(chain string) (planned, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, ok := t.plan[chain]
	return p, ok
}

// look asks the controller, if there is one, how chains are and which switches can be worked with.
func (t *term) look(ctx context.Context) (chains []api.Chain, ready map[string]bool, err error) {
	h := t.Hosted()
	if h == nil {
		return nil, nil, nil
	}
	if chains, err = h.Controller.Chains(ctx); err != nil {
		return nil, nil, err
	}
	switches, err := h.Controller.Switches(ctx)
	if err != nil {
		return nil, nil, err
	}
	ready = map[string]bool{}
	for _, s := range switches {
		if s.Ready {
			ready[s.Name] = true
		}
	}
	return chains, ready, nil
}

// chainNamed is a chain among those that the controller has; nil: it is not there.
func chainNamed(chains []api.Chain, name string) *api.Chain {
	if i := slices.IndexFunc(chains, func(c api.Chain) bool { return c.Name == name }); i >= 0 {
		return &chains[i]
	}
	return nil
}

// members are those that a chain has, or had when it was last heard of; nil: it was never formed.
func (t *term) members(chain string, now []api.Chain) []string {
	if c := chainNamed(now, chain); c != nil {
		var out []string
		for _, m := range c.Members {
			out = append(out, m.Switch)
		}
		return out
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.recorded[chain]
}

// load is in how many of some chains a switch is a member.
func (t *term) load(chains []string, now []api.Chain) map[string]int {
	load := map[string]int{}
	for _, name := range chains {
		for _, m := range t.members(name, now) {
			load[m]++
		}
	}
	return load
}

// inChain says of which nodes chains need the switches yet; nil: this agent does not lead.
func (p *operator) inChain(ctx context.Context) (func(node string) bool, error) {
	t := p.leading()
	if t == nil {
		return nil, nil
	}
	var list v1alpha1.NetcraqChainList
	if err := p.client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing the chains: %w", err)
	}
	now, _, err := t.look(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, c := range list.Items {
		names = append(names, c.Name)
	}
	load := t.load(names, now)
	return func(node string) bool { return load[node] > 0 }, nil
}
