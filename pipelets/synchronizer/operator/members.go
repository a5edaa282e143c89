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
	// A replica's Lease expires leaseFor after its last renewal. A replica that cannot renew its
	// Lease for renewFor ends its workers, before another replica takes them over.
	leaseFor   = 15 * time.Second
	renewFor   = 10 * time.Second
	renewRetry = 2 * time.Second
	// forget is the time for which the Lease of a dead replica is kept for inspection.
	forget = 10 * time.Minute
	// leaseLabel is the label of the replicas' Leases.
	leaseLabel = "netcraq.io/pipelets-replica"
	// leasePrefix begins the name of a replica's Lease.
	leasePrefix = "replica-"
)

// replicaName matches valid names of replicas: with the prefix, a name is a Lease's name.
var replicaName = regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]{0,200}[a-z0-9])?$`)

// members holds this replica's Lease, and knows which replicas live. It judges other Leases by the
// time of their last observed change, on this machine's clock, because other machines' clocks may
// be wrong.
type members struct {
	leases    coordinationclient.LeasesGetter
	cache     cache.Cache
	client    client.Client
	namespace string
	self      string
	end       func() // ends the workers
	log       *slog.Logger
	changed   chan event.TypedGenericEvent[*pipeletapi.Pipelet]
	holds     atomic.Bool // whether this replica holds its own Lease

	mu   sync.Mutex
	seen map[string]sighting // by the replicas' names
}

// sighting is the last observed state of a Lease.
type sighting struct {
	renewed string // its renewal time, by the holder's clock, and its holder
	at      time.Time
	lasts   time.Duration // 0: it was released
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

// tell wakes the leader's planner.
func (m *members) tell() {
	select {
	case m.changed <- event.TypedGenericEvent[*pipeletapi.Pipelet]{Object: &pipeletapi.Pipelet{}}:
	default:
	}
}

// live returns the living replicas, and those that died long ago.
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

// watch observes all Leases, also before this replica leads, so that a new leader knows which
// replicas live.
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

// NeedLeaderElection implements manager.LeaderElectionRunnable: each replica has a Lease.
func (m *members) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable: it renews this replica's Lease, and fails when the Lease is
// lost. When ctx ends it releases the Lease as soon as the workers have ended, so that other
// replicas need not wait for it to expire.
func (m *members) Start(ctx context.Context) error {
	kept, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	stop := context.AfterFunc(ctx, func() {
		m.end()
		release()
	})
	defer stop()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		// A restarted container is the same replica, and continues at once.
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
