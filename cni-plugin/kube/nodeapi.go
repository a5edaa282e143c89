package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authorization "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/nodeapi/authority"
	"github.com/netcraq/netcraq/nodeapi/etcdevents"
	"github.com/netcraq/netcraq/nodeapi/keys"
	"github.com/netcraq/netcraq/nodeapi/notify"
	"github.com/netcraq/netcraq/nodeapi/server"
	"github.com/netcraq/netcraq/streams/broker"
	"github.com/netcraq/netcraq/streams/source"
)

// The agent serves the node API to the pods of its node. Their ports at the switch are closed; what
// they ask for by the socket, the agent asks the chains for, by the node's own port.

// NodeAPI says where it is served, and to whom.
type NodeAPI struct {
	Socket string // "": nowhere
	// Policy is a file that says what processes may do that are in no pod, and quotas; "": nothing,
	// and the defaults.
	Policy string
	// NoPush has keys that are watched only read again and again: the switch does not tell of them.
	NoPush bool
	// StreamsMiB is the memory that streams may take, of one namespace a quarter of it; 0: there
	// are none. StreamsDir is where those are kept that survive the agent; "": nowhere.
	StreamsMiB int64
	StreamsDir string
	// StreamsEtcd is a file that names an etcd whose keys may fill streams, and which namespace may
	// have which of them (etcdevents.Open); "": there are no such streams.
	StreamsEtcd string
	// CgroupRoot is what is before "kubepods" in the names of pods' control groups, where the agent
	// cannot see it by its own.
	CgroupRoot string
}

const (
	// DefaultNodeSocket is on the node. Pods see its folder as /run/netcraq.
	DefaultNodeSocket = "/run/netcraq-node/node.sock"

	policyEvery = 2 * time.Second
	// nodeAPIDrain is how long clients have to finish before the agent ends. Those of the project's
	// libraries need as long as what they have under way.
	nodeAPIDrain = 8 * time.Second
)

// nodeAPI is the server of an agent.
type nodeAPI struct {
	server *server.Server
	link   *controllerLink
	store  *keys.Late
	keys   *durableKeys
	push   *notify.Receiver // nil: there is none
	pods   *nodePods
	etcd   func() // ends what streams are filled with
	quotas *authority.Quotas
}

// serveNodeAPI begins to serve it. Its store is there when a controller has been heard; failed is
// told if it ends before ctx.
func serveNodeAPI(ctx context.Context, o NodeAPI, node string, c client.Client, in cache.Cache, log *slog.Logger,
	metrics prometheus.Registerer, failed context.CancelCauseFunc) (*nodeAPI, error) {
	pods, err := followPods(ctx, in, node)
	if err != nil {
		return nil, fmt.Errorf("the node API: following pods: %w", err)
	}
	reviews := newKeyReviews(c)
	k := authority.KubernetesOptions{Pods: pods, Reviewer: reviews}
	quota := func(string) authority.Quota { return authority.DefaultQuota }
	var policy *authority.PolicyFile
	if o.Policy != "" {
		if policy, err = authority.OpenPolicy(o.Policy, authority.System{}, nil); err != nil {
			return nil, fmt.Errorf("the node API: %w", err)
		}
		k.Hosts, quota = policy, policy.Quota
	}
	sources, endSources, err := sourcesOfStreams(o)
	if err != nil {
		return nil, fmt.Errorf("the node API: %w", err)
	}
	prefix := o.CgroupRoot
	if prefix == "" {
		prefix = authority.OwnPrefix()
	}
	listener, err := listenNode(o.Socket)
	if err != nil {
		endSources()
		return nil, fmt.Errorf("the node API: %w", err)
	}
	var streams *broker.Options
	if all := o.StreamsMiB << 20; all > 0 {
		streams = &broker.Options{Dir: o.StreamsDir, Limits: broker.Limits{Bytes: all / 4, AllBytes: all}}
	}
	quotas := authority.NewQuotas(quota, nil)
	n := &nodeAPI{link: newControllerLink(), store: keys.NewLate(), pods: pods, etcd: endSources, quotas: quotas}
	if n.keys, err = newDurableKeys(ctx, n.link, in, quotas, policy, log, metrics); err != nil {
		listener.Close()
		endSources()
		return nil, fmt.Errorf("the node API: %w", err)
	}
	n.server = server.New(server.Config{Store: n.store, Name: "netcraq-agent", Node: node,
		Identify:  authority.Identifier{Cgroups: &authority.Cgroups{Prefix: prefix}},
		Authority: authority.NewKubernetes(k), Quotas: quotas, Durable: n.keys.durable, Streams: streams,
		Sources: sources, Log: log, Metrics: metrics})
	metrics.MustRegister(reviews.asked)
	if policy != nil {
		go policy.Follow(ctx, policyEvery, log, func() { quotas.Changed(); n.keys.changed() })
	}
	storing := keys.Options{Admin: api.NewClient("127.0.0.1", api.Through(n.link)), Node: node, Quota: quotas.Keys,
		Metrics: metrics}
	if !o.NoPush {
		n.push = notify.New(notify.Options{Admin: storing.Admin, Log: log, Metrics: metrics})
		storing.Push = n.push
	}
	go n.store.Fill(ctx, storing, n.keys.with, log)
	go func() {
		if err := n.server.Serve(listener); !errors.Is(err, server.ErrClosed) {
			failed(fmt.Errorf("serving the node API: %w", err))
		}
	}()
	log.Info("the node API is served", "socket", o.Socket, "control groups below", prefix+"/")
	return n, nil
}

// sourcesOfStreams are those that an operator wants, beside keys of the node API.
func sourcesOfStreams(o NodeAPI) (all map[string]source.Maker, end func(), err error) {
	if o.StreamsEtcd == "" {
		return nil, func() {}, nil
	}
	origin, end, err := etcdevents.Open(o.StreamsEtcd)
	if err != nil {
		return nil, nil, fmt.Errorf("an etcd for streams, %s: %w", o.StreamsEtcd, err)
	}
	return map[string]source.Maker{"etcd": origin.Make}, end, nil
}

// drain lets clients finish what is under way, while all that it takes is still there.
func (n *nodeAPI) drain(log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), nodeAPIDrain)
	defer cancel()
	if err := n.server.Shutdown(ctx); err != nil {
		log.Info("some clients of the node API were still there", "err", err)
	}
}

// end ends it. Clients that are there are cut off.
func (n *nodeAPI) end() {
	n.server.Close()
	n.etcd()
	if n.push != nil {
		n.push.Close()
	}
	n.keys.close()
	n.link.close()
	n.store.Close()
}

// listenNode makes the socket, in a folder that everybody may enter and root alone may change: who
// connects may do what his pod may.
func listenNode(path string) (net.Listener, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("the socket's folder: %w", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // whatever the umask is
		return nil, fmt.Errorf("the socket's folder: %w", err)
	}
	return server.Listen("unix://"+path, server.Access{Mode: 0o666, GID: -1})
}

// nodePods knows this node's pods: authority.Pods.
type nodePods struct {
	node string

	mu      sync.Mutex
	byUID   map[string]authority.PodInfo
	changed chan struct{}
}

// followPods begins to follow the pods of a node. They are known when the cache has begun.
func followPods(ctx context.Context, in cache.Cache, node string) (*nodePods, error) {
	p := &nodePods{node: node, byUID: map[string]authority.PodInfo{}, changed: make(chan struct{})}
	_, err := followObjects(ctx, in, &corev1.Pod{}, p.set)
	return p, err
}

// set takes a pod as it is now. One that has ended is not there, and neither is one of another
// node.
func (p *nodePods) set(o any, there bool) {
	pod, ok := o.(*corev1.Pod)
	if !ok || pod.Spec.NodeName != p.node {
		return
	}
	there = there && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
	p.mu.Lock()
	defer p.mu.Unlock()
	if there {
		p.byUID[string(pod.UID)] = authority.PodInfo{UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name,
			ServiceAccountName: pod.Spec.ServiceAccountName}
	} else {
		delete(p.byUID, string(pod.UID))
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

// Pod implements authority.Pods.
func (p *nodePods) Pod(uid string) (authority.PodInfo, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i, ok := p.byUID[uid]
	return i, ok
}

// Changed implements authority.Pods.
func (p *nodePods) Changed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

// keyReviews asks the API server: authority.Reviewer.
type keyReviews struct {
	client client.Client
	asked  *prometheus.CounterVec
}

// newKeyReviews makes one that has asked nothing yet.
func newKeyReviews(c client.Client) *keyReviews {
	return &keyReviews{client: c, asked: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "netcraq_nodeapi_reviews_total",
		Help: "Questions to the API server about a service account's right to keys, by answer."}, []string{"answer"})}
}

// Review implements authority.Reviewer.
func (r *keyReviews) Review(ctx context.Context, q authority.Review) (bool, error) {
	s := &authorization.SubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{
		User: "system:serviceaccount:" + q.AccountNamespace + ":" + q.Account,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + q.AccountNamespace,
			"system:authenticated"},
		ResourceAttributes: &authorization.ResourceAttributes{Group: authority.Group, Resource: authority.Resource,
			Verb: q.Verb, Namespace: q.Namespace}}}
	if err := r.client.Create(ctx, s); err != nil {
		r.asked.WithLabelValues("none").Inc()
		return false, err
	}
	allowed := s.Status.Allowed && !s.Status.Denied
	r.asked.WithLabelValues(map[bool]string{true: "yes", false: "no"}[allowed]).Inc()
	return allowed, nil
}
