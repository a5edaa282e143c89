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

// LeaseName is the name of the Kubernetes Lease that selects the agent that campaigns.
const LeaseName = "netcraq-leader"

// Timing of the Lease. A leader that renews it late continues to lead until another agent has it,
// because etcd's election decides.
const (
	leaseDuration = 5 * time.Second
	renewDeadline = 4 * time.Second
	retryPeriod   = time.Second
)

// If a candidate gets no answer from etcd for unheardLimit, it releases the Lease and does not take
// part in the election for restPeriod. Its member of etcd may be dead or disconnected while other
// agents' members work. No other agent can lead while this agent has the Lease.
const (
	unheardLimit = 8 * time.Second
	restPeriod   = 2 * leaseDuration
)

// Config has the options that come from the command line.
type Config struct {
	Etcd       leadership.Etcd
	Prometheus string // URL of a Prometheus that scrapes the gateways; if "", no etcd keys are placed
	// GatewayPrefix is the prefix of the keys that the gateways themselves use in etcd.
	GatewayPrefix string
	// HeatWindow is the time over which the rates of key reads are averaged.
	HeatWindow time.Duration
}

// Options configure an agent that may lead.
type Options struct {
	Config
	Node      string // name of this node; it identifies the holder of the Lease, so a restarted agent succeeds itself
	Namespace string // namespace of the Lease
	Leases    coordination.LeasesGetter
	Identity  etcdstore.Identity
	Dir       string               // folder for the program that the controller loads
	TLS       *tls.Config          // TLS for connections to switches; if nil, the topology's configuration applies
	Replica   *adminserver.Replica // admin API of this agent
	Log       *slog.Logger

	// Began is called at the beginning of a term. Follow follows a controller's events until its
	// context ends.
	Began  func()
	Follow func(context.Context, *controller.Controller)
	// Metrics is called with a controller's metrics when the controller starts. It is called with
	// nil when the controller has ended.
	Metrics func(prometheus.Gatherer)
}

// Leader campaigns for leadership, and leads, on behalf of an agent.
type Leader struct {
	o Options

	unheardLimit, restPeriod time.Duration

	mu      sync.Mutex
	heard   time.Time          // when etcd last answered the candidate or elected it
	holder  string             // holder of the Lease
	term    *Term              // current term; nil if this agent does not lead
	resign  context.CancelFunc // ends the candidacy; nil if this agent is not a candidate
	running sync.WaitGroup     // waits for the work that resign ends
}

// New makes a Leader. It does nothing until Start is called.
func New(o Options) *Leader {
	return &Leader{o: o, unheardLimit: unheardLimit, restPeriod: restPeriod}
}

// Start implements manager.Runnable. It campaigns until ctx ends.
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

// stand takes part in the election for the Lease until it has lost the Lease or ctx ends. It also
// ends if it holds the Lease but etcd does not answer. In this case it releases the Lease and
// returns unheard.
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
			// Calls of OnNewLeader may arrive out of order, so the argument may be outdated.
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

// waitUnheard returns when ctx ends. If etcd has not answered this agent for too long, it calls
// stop.
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

// silent returns the time since etcd's last answer. The bool is false if this agent is not a
// candidate.
func (l *Leader) silent() (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.heard), l.resign != nil && l.term == nil
}

// hears records that etcd has just answered.
func (l *Leader) hears() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = time.Now()
}

// withdraw ends the candidacy of this agent.
func (l *Leader) withdraw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holder = ""
	if l.resign != nil {
		l.resign()
		l.resign = nil
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable. It returns false, because the
// Leader is the election itself.
func (l *Leader) NeedLeaderElection() bool { return false }

// campaign starts or ends the candidacy of this agent, depending on the holder of the Lease. As a
// candidate, the agent leads as soon as etcd elects it.
func (l *Leader) campaign(ctx context.Context, holder string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if holder == "" && ctx.Err() == nil {
		// The last holder, perhaps this agent, has released the Lease. The next holder will be
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

// run leads in one term after the other until ctx ends.
func (l *Leader) run(ctx context.Context) {
	_ = leadership.Run(ctx, leadership.Config{ // leadership.Run returns an error only if ctx has ended
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

// once leads during one term.
func (l *Leader) once(ctx context.Context, elected *leadership.Term) error {
	t, err := newTerm(ctx, &l.o, elected)
	if err != nil {
		return err
	}
	defer t.close()
	l.o.Log.Info("leading", "election id", fmt.Sprint(elected.Elected.ElectionID()))
	l.setTerm(nil, t)
	defer func() {
		l.hears() // etcd has answered until this moment
		l.setTerm(t, nil)
	}()
	l.o.Began()
	<-t.ctx.Done()
	return context.Cause(t.ctx)
}

// setTerm replaces the term old by t. It does nothing if another term has begun meanwhile.
func (l *Leader) setTerm(old, t *Term) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term == old || t != nil {
		l.term = t
	}
}

// Term returns the current term, or nil if this agent does not lead.
func (l *Leader) Term() *Term {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term
}

// Holder returns the last known node whose agent has the Lease.
func (l *Leader) Holder() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holder
}
