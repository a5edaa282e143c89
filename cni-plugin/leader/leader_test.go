package leader

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/netcraq/netcraq/controlplane/controller"
	"github.com/netcraq/netcraq/controlplane/etcdstore"
	"github.com/netcraq/netcraq/controlplane/leadership"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
)

// leases is a fake API server with one Lease.
type leases struct {
	coordination.LeaseInterface
	mu  sync.Mutex
	one *coordinationv1.Lease
}

func (l *leases) Leases(string) coordination.LeaseInterface { return l }

func (l *leases) Get(context.Context, string, metav1.GetOptions) (*coordinationv1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.one == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, LeaseName)
	}
	return l.one.DeepCopy(), nil
}

func (l *leases) Create(_ context.Context, one *coordinationv1.Lease,
	_ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return l.put(one)
}

func (l *leases) Update(_ context.Context, one *coordinationv1.Lease,
	_ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return l.put(one)
}

func (l *leases) put(one *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.one = one.DeepCopy()
	return l.one.DeepCopy(), nil
}

func (l *leases) holder() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.one == nil || l.one.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.one.Spec.HolderIdentity
}

// TestUnheard checks that an agent whose etcd does not answer releases the Lease, and that another
// agent then leads. The first agent must also stop when its context ends.
func TestUnheard(t *testing.T) {
	dead, err := net.Listen("tcp", "127.0.0.1:0") // this listener accepts connections and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	api := &leases{}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	start := func(node, etcd string) chan struct{} {
		began := make(chan struct{}, 10)
		l := New(Options{Config: Config{Etcd: leadership.Etcd{Endpoints: []string{etcd}, Prefix: "/n"},
			GatewayPrefix: "/g/"}, Node: node, Namespace: "agents", Leases: api, Dir: t.TempDir(),
			Identity: etcdstore.Identity{Name: node}, Log: slog.New(slog.DiscardHandler),
			Began:   func() { began <- struct{}{} },
			Follow:  func(ctx context.Context, _ *controller.Controller) { <-ctx.Done() },
			Metrics: func(prometheus.Gatherer) {}})
		l.unheardLimit, l.restPeriod = time.Second, 2*leaseDuration
		running.Go(func() { _ = l.Start(ctx) })
		return began
	}
	lone := start("lone", dead.Addr().String())
	for api.holder() != "lone" {
		if t.Context().Err() != nil {
			t.Fatal("the first agent does not get the Lease")
		}
		time.Sleep(10 * time.Millisecond)
	}
	well := start("well", etcdtest.Start(t))
	select {
	case <-well:
	case <-lone:
		t.Fatal("an agent leads without etcd")
	case <-time.After(time.Minute):
		t.Fatalf("nobody leads: %q has the Lease, and its etcd does not answer", api.holder())
	}
	if holder := api.holder(); holder != "well" {
		t.Errorf("%q has the Lease, and the other leads", holder)
	}
}
