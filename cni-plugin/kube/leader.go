package kube

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/netcraq/netcraq/api/kubernetes/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
	"github.com/netcraq/netcraq/controlplane/admin"
	"github.com/netcraq/netcraq/controlplane/etcdstore"
	"github.com/netcraq/netcraq/controlplane/server"
)

// LeaseName is the Lease that says which agent leads.
const LeaseName = "netcraq-leader"

// Times of the Lease. A leader that renews it late goes on leading until another agent has it: that etcd knows of one leader only is what counts.
const (
	leaseDuration = 5 * time.Second
	renewDeadline = 4 * time.Second
	retryPeriod   = time.Second
)

// Lead are what an agent needs to lead.
type Lead struct {
	Etcd       server.Etcd
	Admin      admin.Config // where the admin API is served, for netcraqctl and the node's gateway
	Prometheus string       // the URL of one that scrapes the gateways; "": no keys of etcd's are placed
	// GatewayPrefix is what the names of the gateways' own keys in etcd begin with.
	GatewayPrefix string
	// PodRate is how many NetCRAQ packets a second a pod's port takes; 0: any number.
	PodRate int
	// HeatWindow is what rates are taken over.
	HeatWindow time.Duration
}

// leader is an agent that may lead.
type leader struct {
	o        Options
	log      *slog.Logger
	self     podroutes.Node
	tls      *tls.Config
	client   client.Client
	now      client.Reader // past the cache
	recorder record.EventRecorder
	health   *health
	pods     *follower
	fast     *fastPaths
	replica  admin.Replica
	wake     chan event.GenericEvent
	leases   coordination.LeasesGetter
	id       etcdstore.Identity

	mu      sync.Mutex
	holder  string             // who has the Lease
	leading *leaderTerm        // nil: this agent does not lead
	resign  context.CancelFunc // ends the campaign; nil: there is none
	running sync.WaitGroup     // what resign ends, slowly: state is saved, and etcd told

	serving sync.WaitGroup // the admin API
}

func newLeader(o Options, mgr manager.Manager, conf *tls.Config, self podroutes.Node, h *health) (*leader, error) {
	leases, err := coordination.NewForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("the leader's Lease: %w", err)
	}
	l := &leader{o: o, log: o.Log, self: self, tls: conf, client: mgr.GetClient(), now: mgr.GetAPIReader(), recorder: mgr.GetEventRecorderFor("netcraq"), health: h,
		wake: make(chan event.GenericEvent, 1), leases: leases,
		id: etcdstore.Identity{Name: self.Name + "-" + rand.Text()[:6], Admin: net.JoinHostPort(self.Address.String(), strconv.Itoa(o.HealthPort))}}
	l.pods = newFollower(conf, o.Log, l.soon)
	l.fast = newFastPaths(l.client, o.Log)
	h.mux.Handle("GET "+etcdstore.AlivePath, etcdstore.Alive(l.id))
	b := ctrl.NewControllerManagedBy(mgr).Named("network").
		Watches(&corev1.Node{}, everything, builder.WithPredicates(nodeChanged)).
		Watches(&v1alpha1.NetcraqNode{}, everything).
		Watches(&v1alpha1.NetcraqChain{}, everything, builder.WithPredicates(specChanged)).
		WatchesRawSource(source.Channel(l.wake, everything))
	if o.Fabric == nil { // where the switches are elsewhere no pod has a port
		b = b.Watches(&corev1.Pod{}, everything, builder.WithPredicates(asksOtherwise))
	}
	if err := b.Complete(l); err != nil {
		return nil, fmt.Errorf("following the chains: %w", err)
	}
	return l, nil
}

// soon has the network looked at.
func (l *leader) soon() {
	select {
	case l.wake <- event.GenericEvent{Object: &v1alpha1.NetcraqChain{}}:
	default: // it is about to be
	}
}

// Start implements manager.Runnable: it stands for leader until ctx ends.
func (l *leader) Start(ctx context.Context) error {
	defer func() {
		l.campaign(ctx, "")
		l.running.Wait()
		l.serving.Wait()
	}()
	for ctx.Err() == nil {
		var e *leaderelection.LeaderElector
		var err error
		e, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: l.o.Namespace, Name: LeaseName}, Client: l.leases,
				LockConfig: resourcelock.ResourceLockConfig{Identity: l.self.Name}}, // the node's name: an agent that was killed is its own successor
			LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod, ReleaseOnCancel: true, Name: LeaseName,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) {},
				OnStoppedLeading: func() {},
				OnNewLeader:      func(string) { l.campaign(ctx, e.GetLeader()) }, // these calls may overtake each other
			},
		})
		if err != nil {
			return fmt.Errorf("the leader's Lease: %w", err)
		}
		e.Run(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(retryPeriod):
		}
	}
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: this is the election.
func (l *leader) NeedLeaderElection() bool { return false }

// campaign makes this agent lead, or not any more, as soon as etcd takes it, by who has the Lease.
func (l *leader) campaign(ctx context.Context, holder string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if holder == "" && ctx.Err() == nil {
		return // given up by somebody who was late with it, perhaps by this agent; who takes it next is heard
	}
	l.holder = holder
	switch mine := holder == l.self.Name && ctx.Err() == nil; {
	case mine && l.resign == nil:
		campaigning, resign := context.WithCancel(ctx)
		l.resign = resign
		l.running.Go(func() { l.run(campaigning) })
	case !mine && l.resign != nil:
		l.resign()
		l.resign = nil
	}
}

// run leads again and again until ctx ends.
func (l *leader) run(ctx context.Context) {
	_ = server.Run(ctx, server.Config{ // it says no more than that ctx has ended
		Etcd:     &l.o.Lead.Etcd,
		Identity: l.id,
		StandBy:  func(other etcdstore.Identity) { l.log.Info("another agent leads yet", "leader", other.Name) },
		Lead:     l.once,
		Log:      l.log,
	})
}

// once leads for one term.
func (l *leader) once(ctx context.Context, term *server.Term) error {
	r, err := newLeaderTerm(ctx, l, term)
	if err != nil {
		return err
	}
	defer r.close()
	l.log.Info("leading", "election id", fmt.Sprint(term.Elected.ElectionID()))
	l.setTerm(nil, r)
	defer l.setTerm(r, nil)
	l.soon()
	<-r.ctx.Done()
	return context.Cause(r.ctx)
}

// setTerm replaces one term by another, unless another has begun meanwhile.
func (l *leader) setTerm(old, r *leaderTerm) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leading == old || r != nil {
		l.leading = r
	}
}

func (l *leader) current() *leaderTerm {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leading
}

// holds is the node whose agent has the Lease, as far as is known.
func (l *leader) holds() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holder
}
