package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	pipeletapi "github.com/netcraq/netcraq/pipelets/api"
)

const (
	// leaseFor is the time from the last renewal of a replica's Lease until it expires. A replica
	// that cannot renew its Lease for renewFor ends its workers, before another replica takes over
	// their Pipelets.
	leaseFor   = 15 * time.Second
	renewFor   = 10 * time.Second
	renewRetry = 2 * time.Second
	// forget is how long the Lease of a dead replica is kept for inspection.
	forget = 10 * time.Minute
	// leaseLabel is the label of the replicas' Leases.
	leaseLabel = "netcraq.io/pipelets-replica"
	// leasePrefix is the prefix of the name of a replica's Lease.
	leasePrefix = "replica-"
)

// replicaName matches valid names of replicas. Together with leasePrefix, the name must be a valid
// name of a Lease.
var replicaName = regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]{0,200}[a-z0-9])?$`)

// members holds the Lease of this replica, and knows which replicas are alive. It judges other
// Leases by the time when it last saw them change, on this machine's clock. It does not use the
// times in the Leases, because the clocks of other machines may be wrong.
type members struct {
	leases    coordinationclient.LeasesGetter
	cache     cache.Cache
	client    client.Client
	namespace string
	self      string
	end       func() // ends the workers of this replica
	log       *slog.Logger
	changed   chan event.TypedGenericEvent[*pipeletapi.Pipelet]
	holds     atomic.Bool // whether this replica holds its own Lease

	mu   sync.Mutex
	seen map[string]sighting // the last observed Lease of each replica, by the replica's name
}

// sighting is the state of a Lease when it was last observed.
type sighting struct {
	renewed string // the renewal time, by the clock of the holder, and the holder of the Lease
	at      time.Time
	lasts   time.Duration // the Lease's duration; 0 if the Lease was released
}

// observe records the state of a Lease.
func (m *members) observe(l *coordination.Lease, now time.Time) {
	name, is := strings.CutPrefix(l.Name, leasePrefix)
	if !is || l.Namespace != m.namespace {
		return
	}
	s := sighting{at: now}
	if l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != "" && l.Spec.LeaseDurationSeconds != nil {
		s.lasts = time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
	}
	if l.Spec.RenewTime != nil {
		s.renewed = fmt.Sprint(l.Spec.RenewTime.UnixMicro(), s.lasts)
	}
	m.mu.Lock()
	old, known := m.seen[name]
	if !known || old.renewed != s.renewed {
		m.seen[name] = s
	}
	m.mu.Unlock()
	if !known || old.lasts != s.lasts {
		m.tell()
	}
}

// gone records that a Lease was deleted.
func (m *members) gone(lease string) {
	m.mu.Lock()
	delete(m.seen, strings.TrimPrefix(lease, leasePrefix))
	m.mu.Unlock()
	m.tell()
}

// tell wakes the leader's planner, because a Lease has changed.
func (m *members) tell() {
	select {
	case m.changed <- event.TypedGenericEvent[*pipeletapi.Pipelet]{Object: &pipeletapi.Pipelet{}}:
	default:
	}
}

// live returns the replicas that are alive, and the replicas that died long ago.
func (m *members) live(now time.Time) (live, old []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, s := range m.seen {
		switch since := now.Sub(s.at); {
		case since < s.lasts:
			live = append(live, name)
		case since > forget:
			old = append(old, name)
		}
	}
	return live, old
}

// clean deletes the Leases of replicas that died long ago.
func (m *members) clean(ctx context.Context, old []string) {
	for _, name := range old {
		l := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: leasePrefix + name}}
		if err := m.client.Delete(ctx, l); err != nil && !apierrors.IsNotFound(err) {
			m.log.Warn("the Lease of a replica that died is not deleted", "replica", name, "error", err)
			continue
		}
		m.gone(l.Name)
	}
}

// watch observes all Leases. It does so even while this replica is not the leader, so that a new
// leader knows which replicas are alive.
func (m *members) watch(ctx context.Context) error {
	informer, err := m.cache.GetInformer(ctx, &coordination.Lease{})
	if err != nil {
		return err
	}
	see := func(obj any) {
		if l, ok := obj.(*coordination.Lease); ok {
			m.observe(l, time.Now())
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    see,
		UpdateFunc: func(_, obj any) { see(obj) },
		DeleteFunc: func(obj any) {
			if d, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = d.Obj
			}
			if l, ok := obj.(*coordination.Lease); ok {
				m.gone(l.Name)
			}
		},
	})
	return err
}

// NeedLeaderElection implements manager.LeaderElectionRunnable. It returns false, because each
// replica has a Lease.
func (m *members) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable. It renews this replica's Lease, and fails when the Lease is
// lost. When ctx ends, it releases the Lease as soon as the workers have ended. So other replicas
// need not wait until the Lease expires.
func (m *members) Start(ctx context.Context) error {
	kept, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	stop := context.AfterFunc(ctx, func() {
		m.end()
		release()
	})
	defer stop()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		// The identity is the replica's name. So a restarted container counts as the same replica,
		// and continues at once.
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: m.namespace, Name: leasePrefix + m.self},
			Client:     m.leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: m.self},
			Labels:     map[string]string{leaseLabel: "true"},
		},
		Name:          leasePrefix + m.self,
		LeaseDuration: leaseFor, RenewDeadline: renewFor, RetryPeriod: renewRetry,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { m.holds.Store(true) },
			OnStoppedLeading: func() { m.holds.Store(false) },
		},
	})
	if err != nil {
		return fmt.Errorf("the replica's Lease: %w", err)
	}
	elector.Run(kept)
	if kept.Err() == nil {
		m.end()
		return errors.New("the replica's Lease could not be renewed: others take over what it had")
	}
	return nil
}
