// Package podapi serves the node API to the pods of an agent's node. It joins nodeapi/server with
// Kubernetes' information: which pod a process is in and what its service account may do
// (authority.go), and which namespaces' keys are durable (durable.go). It asks the controller for
// the place of keys by package leaderlink.
package podapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/buildinfo"
	"github.com/netcraq/netcraq/cni-plugin/kube/leaderlink"
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

// Options say where it is served, and to whom.
type Options struct {
	Socket string // "": nowhere
	// Policy is a file with the rights of processes that are in no pod, and quotas; "": no rights,
	// and the default quotas.
	Policy string
	// NoPush disables notifications: watched keys are only read again and again.
	NoPush bool
	// StreamsMiB is the memory for streams; one namespace may use a quarter of it. 0: no streams.
	// StreamsDir is for those that survive the agent; "": none do.
	StreamsMiB int64
	StreamsDir string
	// StreamsEtcd is a file that names an etcd whose keys may fill streams, and which namespace may
	// have which of them (etcdevents.Open); "": there are no such streams.
	StreamsEtcd string
	// CgroupRoot is the path before "kubepods" in the names of pods' control groups, if the agent
	// cannot see it by its own.
	CgroupRoot string
}

const (
	// DefaultNodeSocket is on the node. Pods see its folder as /run/netcraq.
	DefaultSocket = "/run/netcraq-node/node.sock"

	policyEvery = 2 * time.Second
	// drainTime is how long clients have to finish before the agent ends. Those of the project's
	// libraries need as long as what they have under way.
	drainTime = 8 * time.Second
)

// Server is the server of an agent.
type Server struct {
	server *server.Server
	Link   *leaderlink.Link
	store  *keys.Late
	keys   *durableKeys
	push   *notify.Receiver // nil: there is none
	pods   *nodePods
	etcd   func() // ends what streams are filled with
	Quotas *authority.Quotas
}

// Serve begins to serve it. Its store is available when a controller has answered; failed is called
// if it ends before ctx.
func Serve(ctx context.Context, o Options, node string, c client.Client, in cache.Cache, log *slog.Logger,
	metrics prometheus.Registerer, failed context.CancelCauseFunc) (*Server, error) {
	pods, err := followPods(ctx, in, node)
	if err != nil {
		return nil, fmt.Errorf("the node API: following pods: %w", err)
	}
	reviews := NewKeyReviews(c)
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
	listener, err := listen(o.Socket)
	if err != nil {
		endSources()
		return nil, fmt.Errorf("the node API: %w", err)
	}
	var streams *broker.Options
	if all := o.StreamsMiB << 20; all > 0 {
		streams = &broker.Options{Dir: o.StreamsDir, Limits: broker.Limits{Bytes: all / 4, AllBytes: all}}
	}
	quotas := authority.NewQuotas(quota, nil)
	n := &Server{Link: leaderlink.New(), store: keys.NewLate(), pods: pods, etcd: endSources, Quotas: quotas}
	if n.keys, err = newDurableKeys(ctx, n.Link, in, quotas, policy, log, metrics); err != nil {
		listener.Close()
		endSources()
		return nil, fmt.Errorf("the node API: %w", err)
	}
	n.server = server.New(server.Config{Store: n.store, Name: "netcraq-agent " + buildinfo.Version(), Node: node,
		Identify:  authority.Identifier{Cgroups: &authority.Cgroups{Prefix: prefix}},
		Authority: authority.NewKubernetes(k), Quotas: quotas, Durable: n.keys.durable, Streams: streams,
		Sources: sources, Log: log, Metrics: metrics})
	metrics.MustRegister(reviews.asked)
	if policy != nil {
		go policy.Follow(ctx, policyEvery, log, func() { quotas.Changed(); n.keys.changed() })
	}
	storing := keys.Options{Admin: admin.NewClient("127.0.0.1", admin.Through(n.Link)), Node: node, Quota: quotas.Keys,
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

// sourcesOfStreams are those that an operator wants, alongside keys of the node API.
func sourcesOfStreams(o Options) (all map[string]source.Maker, end func(), err error) {
	if o.StreamsEtcd == "" {
		return nil, func() {}, nil
	}
	origin, end, err := etcdevents.Open(o.StreamsEtcd)
	if err != nil {
		return nil, nil, fmt.Errorf("an etcd for streams, %s: %w", o.StreamsEtcd, err)
	}
	return map[string]source.Maker{"etcd": origin.Make}, end, nil
}

// Drain lets clients finish their requests while everything that those need still works.
func (n *Server) Drain(log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	if err := n.server.Shutdown(ctx); err != nil {
		log.Info("some clients of the node API were still there", "err", err)
	}
}

// Close ends it. Clients that are there are cut off.
func (n *Server) Close() {
	n.server.Close()
	n.etcd()
	if n.push != nil {
		n.push.Close()
	}
	n.keys.close()
	n.Link.Close()
	n.store.Close()
}

// listen makes the socket, in a folder that everybody may enter and only root may change: a process
// that connects may do what its pod may.
func listen(path string) (net.Listener, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("the socket's folder: %w", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // whatever the umask is
		return nil, fmt.Errorf("the socket's folder: %w", err)
	}
	return server.Listen("unix://"+path, server.Access{Mode: 0o666, GID: -1})
}

// NewKeyReviews makes one that has asked nothing yet.
func NewKeyReviews(c client.Client) *KeyReviews {
	return &KeyReviews{client: c, asked: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "netcraq_nodeapi_reviews_total",
		Help: "Questions to the API server about a service account's right to keys, by answer."}, []string{"answer"})}
}
