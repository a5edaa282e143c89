package leader

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/netcraq/netcraq/controlplane/adminserver"
	"github.com/netcraq/netcraq/controlplane/controller"
	"github.com/netcraq/netcraq/controlplane/etcdstore"
	"github.com/netcraq/netcraq/controlplane/leadership"
)

// LeaseName is the Lease that says which agent leads.
const LeaseName = "netcraq-leader"

// Times of the Lease. A leader that renews it late continues leading until another agent has it:
// etcd's single leader is what counts.
const (
	leaseDuration = 5 * time.Second
	renewDeadline = 4 * time.Second
	retryPeriod   = time.Second
)

// A candidate that etcd has not heard for unheardLimit gives the Lease up, and is not a candidate
// for restPeriod: the member of etcd that it asks may be dead or cut off while those of other
// agents are well, and nobody leads as long as it has the Lease.
const (
	unheardLimit = 8 * time.Second
	restPeriod   = 2 * leaseDuration
)

// Config is the command line's part of leading.
type Config struct {
	Etcd       leadership.Etcd
	Prometheus string // the URL of one that scrapes the gateways; "": no keys of etcd's are placed
	// GatewayPrefix is the prefix of the gateways' own keys in etcd.
	GatewayPrefix string
	// HeatWindow is the time over which rates are averaged.
	HeatWindow time.Duration
}

// Options configure an agent that may lead.
type Options struct {
	Config
	Node      string // this node's name, which the Lease has: an agent that was killed is its own successor
	Namespace string // of the Lease
	Leases    coordination.LeasesGetter
	Identity  etcdstore.Identity
	Dir       string               // folder for the controller's program
	TLS       *tls.Config          // towards switches; nil: as the topology says
	Replica   *adminserver.Replica // of the admin API
	Log       *slog.Logger

	// Began is called when a term has begun, and Follow follows a controller until its context
	// ends.
	Began  func()
	Follow func(context.Context, *controller.Controller)
	// Metrics gets a controller's metrics; nil: there is none any more.
	Metrics func(prometheus.Gatherer)
}

// Leader is an agent that may lead.
type Leader struct {
	o Options

	unheardLimit, restPeriod time.Duration

	mu      sync.Mutex
	heard   time.Time          // when etcd last answered the candidate, or elected it
	holder  string             // holder of the Lease
	term    *Term              // nil: this agent does not lead
	resign  context.CancelFunc // ends its candidacy; nil: it is not a candidate
	running sync.WaitGroup     // what resign ends, slowly: state is saved, and etcd told
}

// New makes one, which does nothing until it is started.
func New(o Options) *Leader {
	return &Leader{o: o, unheardLimit: unheardLimit, restPeriod: restPeriod}
}

// Start implements manager.Runnable: it campaigns until ctx ends.
func (l *Leader) Start(ctx context.Context) error {
	defer func() {
		l.campaign(ctx, "")
		l.running.Wait()
	}()
	for ctx.Err() == nil {
		pause := retryPeriod
		unheard, err := l.stand(ctx)
		if err != nil {
			return err
		}
		if unheard {
			l.withdraw()
			pause = l.restPeriod
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}

// stand is in the election for the Lease until it has lost it, ctx ends, or etcd does not hear it
// though it has the Lease, which is free then.
func (l *Leader) stand(ctx context.Context) (unheard bool, err error) {
	standing, stop := context.WithCancel(ctx)
	var e *leaderelection.LeaderElector
	e, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: l.o.Namespace, Name: LeaseName},
			Client:     l.o.Leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: l.o.Node},
		},
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		ReleaseOnCancel: true, Name: LeaseName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {},
			OnStoppedLeading: func() {},
			// These calls may overtake each other.
			OnNewLeader: func(string) { l.campaign(ctx, e.GetLeader()) },
		},
	})
	if err != nil {
		stop()
		return false, fmt.Errorf("the leader's Lease: %w", err)
	}
	var watching sync.WaitGroup
	watching.Go(func() { unheard = l.waitUnheard(standing, stop) })
	e.Run(standing)
	stop()
	watching.Wait()
	return unheard, nil
}

// waitUnheard ends with ctx, or stops it when etcd has not heard this agent for too long.
func (l *Leader) waitUnheard(ctx context.Context, stop func()) bool {
	ticks := time.NewTicker(retryPeriod / 2)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-ticks.C:
		}
		if silent, is := l.silent(); is && silent > l.unheardLimit {
			l.o.Log.Warn("this node's etcd does not answer: another agent is to lead",
				"silent", silent.Round(time.Second), "rest", l.restPeriod)
			stop()
			return true
		}
	}
}

// silent is how long etcd has said nothing to this agent, if it is a candidate.
func (l *Leader) silent() (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.heard), l.resign != nil && l.term == nil
}

// hears takes note that etcd has answered.
func (l *Leader) hears() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = time.Now()
}

// withdraw ends the candidacy.
func (l *Leader) withdraw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holder = ""
	if l.resign != nil {
		l.resign()
		l.resign = nil
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: this is the election.
func (l *Leader) NeedLeaderElection() bool { return false }

// campaign makes this agent lead, as soon as etcd accepts it, or resign, depending on the holder of
// the Lease.
func (l *Leader) campaign(ctx context.Context, holder string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if holder == "" && ctx.Err() == nil {
		// Released by somebody who was late with it, perhaps by this agent; the next holder will be
		// reported.
		return
	}
	l.holder = holder
	switch mine := holder == l.o.Node && ctx.Err() == nil; {
	case mine && l.resign == nil:
		candidacy, resign := context.WithCancel(ctx)
		l.resign, l.heard = resign, time.Now()
		l.running.Go(func() { l.run(candidacy) })
	case !mine && l.resign != nil:
		l.resign()
		l.resign = nil
	}
}

// run leads again and again until ctx ends.
func (l *Leader) run(ctx context.Context) {
	_ = leadership.Run(ctx, leadership.Config{ // it says no more than that ctx has ended
		Etcd:     &l.o.Etcd,
		Identity: l.o.Identity,
		StandBy: func(other etcdstore.Identity) {
			l.hears()
			l.o.Log.Info("another agent leads yet", "leader", other.Name)
		},
		Lead: l.once,
		Log:  l.o.Log,
	})
}

// once leads for one term.
func (l *Leader) once(ctx context.Context, elected *leadership.Term) error {
	t, err := newTerm(ctx, &l.o, elected)
	if err != nil {
		return err
	}
	defer t.close()
	l.o.Log.Info("leading", "election id", fmt.Sprint(elected.Elected.ElectionID()))
	l.setTerm(nil, t)
	defer func() {
		l.hears() // until now it has
		l.setTerm(t, nil)
	}()
	l.o.Began()
	<-t.ctx.Done()
	return context.Cause(t.ctx)
}

// setTerm replaces one term by another, unless another has begun meanwhile.
func (l *Leader) setTerm(old, t *Term) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term == old || t != nil {
		l.term = t
	}
}

// Term is the present one; nil: this agent does not lead.
func (l *Leader) Term() *Term {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term
}

// Holder is the node whose agent has the Lease, as far as is known.
func (l *Leader) Holder() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holder
}
