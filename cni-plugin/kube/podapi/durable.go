package podapi

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/netcraq/netcraq/cni-plugin/kube/apiobjects"
	"github.com/netcraq/netcraq/cni-plugin/kube/leaderlink"
	"github.com/netcraq/netcraq/nodeapi/authority"
	"github.com/netcraq/netcraq/nodeapi/durable"
	"github.com/netcraq/netcraq/nodeapi/kinds"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// etcd stores the node API's durable keys. An agent that may not lead has no certificate for etcd.
// So it sends requests for durable keys over the connection that the leader has made (package
// leaderlink).

// KeysAnnotation is an annotation of a Namespace. It sets the kind of its pods' new keys to
// KeysDurable or KeysVolatile. Without the annotation, the node's policy decides. Without a policy,
// new keys are volatile.
const (
	KeysAnnotation = "netcraq.io/keys"
	KeysDurable    = "durable"
	KeysVolatile   = "volatile"
)

// namespaceKinds follows the key annotations of Namespaces.
type namespaceKinds struct {
	policy  *authority.PolicyFile // the node's policy, or nil
	log     *slog.Logger
	synced  func() bool
	changed func()

	mu   sync.Mutex
	said map[string]bool
}

func (n *namespaceKinds) set(o any, there bool) {
	ns, ok := o.(*corev1.Namespace)
	if !ok {
		return
	}
	text, says := ns.Annotations[KeysAnnotation]
	if says && text != KeysDurable && text != KeysVolatile {
		n.log.Error("a Namespace's annotation is not understood, and counts for nothing", "namespace", ns.Name,
			"annotation", KeysAnnotation, "is", text, "want", KeysDurable+" or "+KeysVolatile)
		says = false
	}
	n.mu.Lock()
	before, said := n.said[ns.Name]
	if says = says && there; says {
		n.said[ns.Name] = text == KeysDurable
	} else {
		delete(n.said, ns.Name)
	}
	n.mu.Unlock()
	if says != said || says && before != (text == KeysDurable) {
		n.changed()
	}
}

// of returns the setting of a namespace. said reports whether the namespace has a setting.
func (n *namespaceKinds) of(namespace string) (durable, said bool) {
	n.mu.Lock()
	durable, said = n.said[namespace]
	n.mu.Unlock()
	if !said && n.policy != nil {
		durable, said = n.policy.Durable(namespace)
	}
	return durable, said
}

// durableKeys is an agent's access to durable keys, through the leader.
type durableKeys struct {
	namespaces *namespaceKinds
	defaults   kinds.Defaults
	connection *durable.Connection
	store      *durable.Store

	mu   sync.Mutex
	both *kinds.Store // nil until the store of the volatile kind exists
	stop context.CancelFunc
	done chan struct{}
}

// newDurableKeys makes durableKeys that use a link to the leader.
func newDurableKeys(ctx context.Context, link *leaderlink.Link, in cache.Cache, quotas *authority.Quotas,
	policy *authority.PolicyFile, log *slog.Logger, metrics prometheus.Registerer) (*durableKeys, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"the agent that leads"}, Logger: zap.NewNop(),
		DialKeepAliveTime: leaderlink.Beat, DialKeepAliveTimeout: leaderlink.Wait, PermitWithoutStream: true,
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(link.DialDurable),
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond,
				Multiplier: 1.6, Jitter: .2, MaxDelay: 2 * time.Second}, MinConnectTimeout: leaderlink.Wait})}})
	if err != nil {
		return nil, fmt.Errorf("durable keys: %w", err)
	}
	d := &durableKeys{connection: durable.Over(client), done: make(chan struct{}),
		namespaces: &namespaceKinds{policy: policy, log: log, said: map[string]bool{}}}
	d.namespaces.changed, d.defaults.Said = d.changed, d.namespaces.of
	if d.namespaces.synced, err = apiobjects.Follow(ctx, in, &corev1.Namespace{}, d.namespaces.set); err != nil {
		client.Close()
		return nil, fmt.Errorf("following namespaces: %w", err)
	}
	d.store = durable.New(durable.Options{Etcd: d.connection, Quota: quotas.Keys, Metrics: metrics})
	ctx, d.stop = context.WithCancel(ctx)
	go func() {
		defer close(d.done)
		d.store.FollowMade(ctx, func(made map[string]bool) {
			d.defaults.Made(made)
			d.changed()
		})
	}()
	return d, nil
}

// with returns a store of both kinds of keys. It first waits until it knows which namespaces are
// durable, because a key that is created earlier could be of the wrong kind.
func (d *durableKeys) with(ctx context.Context, volatile store.Store) store.Store {
	if !toolscache.WaitForCacheSync(ctx.Done(), d.namespaces.synced) {
		return volatile // ctx has ended, so no one uses the store
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.both = kinds.New(volatile, d.store, d.defaults.Of)
	return d.both
}

// changed must be called when the kinds of namespaces may have changed.
func (d *durableKeys) changed() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.both != nil {
		d.both.Changed()
	}
}

// durable reports whether new keys of a namespace are durable.
func (d *durableKeys) durable(namespace string) bool { return d.defaults.Of(namespace).Durable }

func (d *durableKeys) close() {
	d.stop()
	<-d.done
	_ = d.store.Close()
	_ = d.connection.Close()
}
