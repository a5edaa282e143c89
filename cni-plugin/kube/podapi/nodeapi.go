// Package podapi serves the node API to the pods of an agent's node. It combines nodeapi/server
// with information from Kubernetes: the pod of a process and the rights of the pod's service
// account (authority.go), and the namespaces with durable keys (durable.go). The controller tells
// it, through package leaderlink, where keys are stored.
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

// The agent serves the node API to the pods of its node. The pods' own ports at the switch are
// closed. The agent sends their requests to the chains through the node's port.

// Options configure the node API.
type Options struct {
	Socket string // path of the Unix socket; if "", the node API is not served
	// Policy is the path of a file with quotas and with the rights of processes outside of pods. If
	// it is "", such processes have no rights, and the default quotas apply.
	Policy string
	// NoPush disables notifications. The server then polls watched keys instead.
	NoPush bool
	// StreamsMiB is the memory for streams, in MiB. One namespace may use a quarter of it. 0
	// disables streams. StreamsDir is the folder for streams that survive the agent. If it is "",
	// no streams do.
	StreamsMiB int64
	StreamsDir string
	// StreamsEtcd is a file that names an etcd whose keys may fill streams. It also says which of
	// these keys each namespace may use (etcdevents.Open). If it is "", there are no such streams.
	StreamsEtcd string
	// CgroupRoot is the part before "kubepods" in the names of pods' control groups. It is only
	// needed if this part differs from that in the agent's own control group.
	CgroupRoot string
}

const (
	// DefaultSocket is the default path of the socket on the node. Pods see the socket's folder as
	// /run/netcraq.
	DefaultSocket = "/run/netcraq-node/node.sock"

	policyEvery = 2 * time.Second
	// drainTime is how long clients may take to finish before the agent ends. Clients that use the
	// project's libraries end after their requests in progress.
	drainTime = 8 * time.Second
)

// Server serves the node API of an agent.
type Server struct {
	server *server.Server
	Link   *leaderlink.Link
	store  *keys.Late
	keys   *durableKeys
	push   *notify.Receiver // nil if notifications are disabled
	pods   *nodePods
	etcd   func() // ends the source that fills streams from etcd
	Quotas *authority.Quotas
}

// Serve starts the server. The server's store becomes available when a controller has answered.
// failed is called if the server ends before ctx ends.
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

// sourcesOfStreams returns the sources of streams that the operator has configured, in addition to
// keys of the node API.
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

// Drain lets clients finish their requests while everything that the requests need still works.
func (n *Server) Drain(log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	if err := n.server.Shutdown(ctx); err != nil {
		log.Info("some clients of the node API were still there", "err", err)
	}
}

// Close ends the server and its clients' connections.
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

// listen makes the socket, in a folder that everyone may enter and only root may change. Everyone
// may connect, because a process only gets the rights of its pod.
func listen(path string) (net.Listener, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("the socket's folder: %w", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // because the umask may have removed permissions
		return nil, fmt.Errorf("the socket's folder: %w", err)
	}
	return server.Listen("unix://"+path, server.Access{Mode: 0o666, GID: -1})
}

// NewKeyReviews makes a KeyReviews that uses a client of the API server.
func NewKeyReviews(c client.Client) *KeyReviews {
	return &KeyReviews{client: c, asked: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "netcraq_nodeapi_reviews_total",
		Help: "Questions to the API server about a service account's right to keys, by answer."}, []string{"answer"})}
}
