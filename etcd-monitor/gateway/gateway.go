package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/soheilhy/cmux"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/netcraq/netcraq/client/etcd/reserved"
	"github.com/netcraq/netcraq/etcd-monitor/hotkeys"
	"github.com/netcraq/netcraq/etcd-monitor/relay"
)

// Limits and defaults of etcd (package embed and its grpcOverheadBytes).
const (
	DefaultMaxRequestBytes      = 1536 << 10
	DefaultMaxConcurrentStreams = math.MaxUint32
	DefaultKeepAliveMinTime     = 5 * time.Second
	DefaultKeepAliveInterval    = 2 * time.Hour
	DefaultKeepAliveTimeout     = 20 * time.Second
	overheadBytes               = 512 << 10
)

// Config configures a gateway. Only Upstream is required.
type Config struct {
	// Upstream is the connection to etcd. The caller closes it.
	Upstream *Upstream
	// KV serves the key-value service, and uses [Forward] to contact etcd. If KV is nil, the
	// gateway forwards that service like all others.
	KV pb.KVServer
	// Newest records the revisions in all answers, and Metrics counts requests. If one of them is
	// nil, the gateway makes its own.
	Newest  *Newest
	Metrics *hotkeys.Metrics
	// Log gets an error if clients cannot connect. If it is nil, the gateway does not log.
	Log *slog.Logger
	// Registry has the metrics that /proxy/metrics shows. If it is nil, that page is empty.
	Registry prometheus.Gatherer
	// Reserved are the keys that clients must not use, by their names at etcd. KV itself hides
	// these keys. The gateway hides them from watches. It refuses snapshots, because they would
	// contain these keys.
	Reserved reserved.Keys
	// AsSelf is a client of etcd with the gateway's own user. The gateway asks etcd which leases
	// have reserved keys, and hides these leases from clients. If AsSelf is nil, the gateway hides
	// no leases.
	AsSelf *clientv3.Client
	// AuthEnable handles each request to enable etcd's authentication. It calls pass to forward the
	// request, with the necessary steps before and after. If it is nil, the gateway only forwards
	// the request.
	AuthEnable func(ctx context.Context, pass func() error) error
	// Namespace is a prefix that the gateway adds to clients' keys at etcd. Clients do not see it.
	Namespace string
	// CORS lists the origins of web pages that may use the HTTP pages. Hosts lists the host names
	// that are permitted in plain HTTP, against DNS rebinding. An empty list, or "*", permits all.
	CORS, Hosts []string
	// Profiles enables /debug/pprof/.
	Profiles bool
	// Relay enables the relay (package relay). It forwards requests of the key-value service as
	// frames if the gateway need not understand them. These requests bypass this process's gRPC
	// server.
	Relay bool
	// AdvertiseClientURLs, if set, replaces every member's client URLs in the answers to
	// MemberList.
	AdvertiseClientURLs []string

	// MaxRequestBytes limits a client's request. The gateway adds 512 KiB to it, as etcd does, so
	// that clients get etcd's own error. 0 means etcd's default.
	MaxRequestBytes uint
	// MaxConcurrentStreams limits the streams of a client's connection. 0 means etcd's default.
	MaxConcurrentStreams uint32
	// KeepAliveMinTime is the minimum interval at which a client may ping. KeepAliveInterval is the
	// silence after which the gateway pings, and KeepAliveTimeout is the timeout for the answer to
	// its ping. 0 means etcd's defaults.
	KeepAliveMinTime, KeepAliveInterval, KeepAliveTimeout time.Duration
}

// Gateway serves etcd's API.
type Gateway struct {
	upstream *Upstream
	newest   *Newest
	metrics  *hotkeys.Metrics
	log      *slog.Logger
	codec    codec
	hub      *watchHub
	keeper   *keeper
	reserved reserved.Keys
	asSelf   *clientv3.Client
	enabling func(context.Context, func() error) error
	names    namespace
	changed  map[string]func(context.Context, []byte) ([]byte, error) // functions that change etcd's answers, by method

	keys  pb.KVServer // key-value service that the gRPC server serves; nil if etcd serves keys
	grpc  *grpc.Server
	relay *relay.Relay // relay in front of the gRPC server, or nil
	http  *http.Server
	inner *bufconn.Listener // listener for requests of this process to its own gateway
	self  *grpc.ClientConn
	own   *clientv3.Client

	stopping context.Context // context that ends when streams must end
	stop     context.CancelFunc
	serving  sync.WaitGroup
}

// New makes a gateway. Call Serve to accept clients, and Shutdown to end the gateway.
func New(cfg Config) (*Gateway, error) {
	if cfg.Upstream == nil {
		return nil, errors.New("gateway: there is no connection to etcd")
	}
	g := &Gateway{upstream: cfg.Upstream, newest: cfg.Newest, metrics: cfg.Metrics, log: cfg.Log,
		reserved: cfg.Reserved, asSelf: cfg.AsSelf, enabling: cfg.AuthEnable, names: namespace(cfg.Namespace),
		codec: newCodec(), inner: bufconn.Listen(256 << 10), changed: map[string]func(context.Context, []byte) (
			[]byte, error){}}
	if g.newest == nil {
		g.newest = new(Newest)
	}
	if g.metrics == nil {
		g.metrics = hotkeys.NewMetrics(hotkeys.Bounds{}, g.newest.Revision)
	}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	if len(cfg.AdvertiseClientURLs) > 0 {
		g.changed["/etcdserverpb.Cluster/MemberList"] = advertise(cfg.AdvertiseClientURLs)
	}
	if len(g.reserved.Prefixes()) > 0 {
		g.changed[leasesMethod] = g.withoutReservedLeases
	}
	if len(g.names) > 0 {
		g.changed["/etcdserverpb.Lease/LeaseTimeToLive"] = g.names.leaseOut
		if cfg.KV == nil {
			cfg.KV = forwarded{Forward(g.upstream, g.metrics)}
		}
	}
	g.stopping, g.stop = context.WithCancel(context.Background())
	g.hub, g.keeper = newWatchHub(g), newKeeper(g)
	or := func(d, otherwise time.Duration) time.Duration {
		if d == 0 {
			return otherwise
		}
		return d
	}
	if cfg.MaxRequestBytes == 0 {
		cfg.MaxRequestBytes = DefaultMaxRequestBytes
	}
	if cfg.MaxConcurrentStreams == 0 {
		cfg.MaxConcurrentStreams = DefaultMaxConcurrentStreams
	}
	g.grpc = grpc.NewServer(
		grpc.ForceServerCodecV2(g.codec),
		grpc.UnknownServiceHandler(g.pass),
		grpc.MaxRecvMsgSize(int(cfg.MaxRequestBytes)+overheadBytes),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.MaxConcurrentStreams(cfg.MaxConcurrentStreams),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: or(cfg.KeepAliveMinTime,
			DefaultKeepAliveMinTime)}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: or(cfg.KeepAliveInterval,
			DefaultKeepAliveInterval), Timeout: or(cfg.KeepAliveTimeout, DefaultKeepAliveTimeout)}),
		grpc.UnaryInterceptor(func(ctx context.Context, request any, info *grpc.UnaryServerInfo,
			handle grpc.UnaryHandler) (any, error) {
			if !strings.HasPrefix(info.FullMethod, "/etcdserverpb.KV/") { // KV makes these calls to etcd itself
				ctx = outgoing(ctx)
			}
			ctx, end := g.whileServing(ctx)
			defer end()
			answer, err := handle(ctx, request)
			return answer, g.unlessStopped(err)
		}),
		grpc.StreamInterceptor(g.streams),
	)
	if cfg.KV != nil {
		if err := g.serveKeys(cfg.KV); err != nil {
			return nil, err
		}
	}
	var err error
	if g.self, err = grpc.NewClient("passthrough:///gateway", grpc.WithTransportCredentials(
		insecure.NewCredentials()), grpc.WithContextDialer(g.dialSelf),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(
			math.MaxInt32))); err != nil {
		return nil, fmt.Errorf("gateway: connecting to itself: %w", err)
	}
	var metrics http.Handler
	if cfg.Registry != nil {
		metrics = promhttp.HandlerFor(keyless(cfg.Registry), promhttp.HandlerOpts{})
	}
	handler, err := g.httpHandler(metrics, cfg)
	if err != nil {
		return nil, err
	}
	g.http = &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard,
		"", 0), BaseContext: func(net.Listener) context.Context {
		return g.stopping
	}}
	g.serving.Go(func() { g.grpc.Serve(g.inner) })
	if cfg.Relay {
		if err := g.relays(cfg); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// relays puts a relay between clients' connections and the gRPC server.
func (g *Gateway) relays(cfg Config) error {
	passed, err := newPassing(g, cfg.KV)
	if err != nil {
		return err
	}
	g.relay = relay.New(relay.Config{
		Router:    passed,
		Local:     func() (net.Conn, error) { return g.inner.DialContext(g.stopping) },
		Endpoints: g.upstream.endpoints, TLS: g.upstream.secured(), Added: g.upstream.added,
		UserAgent: "etcd-monitor", Stopped: status.Convert(rpctypes.ErrGRPCStopped).Message(),
		MaxMessage: int(cfg.MaxRequestBytes) + overheadBytes, MaxStreams: cfg.MaxConcurrentStreams,
		PingMin:   cmp.Or(cfg.KeepAliveMinTime, DefaultKeepAliveMinTime),
		PingAfter: cmp.Or(cfg.KeepAliveInterval, DefaultKeepAliveInterval), PingTimeout: cmp.Or(cfg.KeepAliveTimeout,
			DefaultKeepAliveTimeout),
		Panicked: func(fault any, stack []byte) {
			g.log.Error("a fault of etcd-monitor ended a connection; please report it with this line",
				"fault", fault, "stack", string(stack))
		},
		UpstreamPing: g.upstream.config.DialKeepAliveTime, UpstreamPingTimeout: g.upstream.config.DialKeepAliveTimeout,
	})
	return nil
}

func (g *Gateway) dialSelf(ctx context.Context, _ string) (net.Conn, error) {
	return g.inner.DialContext(ctx)
}

// serveKeys serves the services that write keys. If etcd itself executed a lock or an election, it
// would bypass the service that guards placed keys.
func (g *Gateway) serveKeys(server pb.KVServer) error {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"gateway"}, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(g.dialSelf)}})
	if err != nil {
		return fmt.Errorf("gateway: connecting to itself: %w", err)
	}
	g.own = c
	var keys pb.KVServer = kv{g, server}
	if len(g.names) > 0 {
		keys = namespaced{g.names, keys}
	}
	g.keys = keys
	pb.RegisterKVServer(g.grpc, keys)
	v3lockpb.RegisterLockServer(g.grpc, v3lock.NewLockServer(c))
	v3electionpb.RegisterElectionServer(g.grpc, v3election.NewElectionServer(c))
	return nil
}

// streams is the interceptor for streams that this process serves itself. It adds the client's
// metadata to their contexts.
func (g *Gateway) streams(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
	handle grpc.StreamHandler) error {
	if server == nil { // the gateway forwards this stream to etcd
		return handle(server, stream)
	}
	ctx, cancel := context.WithCancel(outgoing(stream.Context()))
	defer cancel()
	defer context.AfterFunc(g.stopping, cancel)()
	return g.unlessStopped(handle(server, streamWith{stream, ctx}))
}

// streamWith replaces the context of a stream.
type streamWith struct {
	grpc.ServerStream
	ctx context.Context
}

func (s streamWith) Context() context.Context { return s.ctx }

// Newest is the newest revision seen in an answer.
func (g *Gateway) Newest() *Newest { return g.newest }

// Serve accepts connections until the listener or the gateway is closed. It recognizes gRPC and
// HTTP by a connection's first bytes. The caller may call it for several listeners.
func (g *Gateway) Serve(l net.Listener) error {
	if g.stopping.Err() != nil {
		return errors.New("gateway: it was shut down")
	}
	defer context.AfterFunc(g.stopping, func() { l.Close() })()
	// Without this wrapper, cmux would retry at once and endlessly if accepting a connection fails.
	m := cmux.New(&accepting{Listener: l, ctx: g.stopping, log: g.log, metrics: g.metrics})
	m.SetReadTimeout(time.Minute) // timeout for a connection's first bytes; it includes the TLS handshake
	g2, h1 := m.Match(cmux.HTTP2()), m.Match(cmux.Any())
	var wg sync.WaitGroup
	wg.Go(func() {
		if g.relay != nil {
			g.relay.Serve(g2)
		} else {
			g.grpc.Serve(g2)
		}
	})
	wg.Go(func() { g.http.Serve(h1) })
	err := m.Serve()
	l.Close()
	g2.Close()
	h1.Close()
	if g.stopping.Err() != nil {
		return nil // Shutdown waits for requests in progress
	}
	wg.Wait()
	return fmt.Errorf("gateway: accepting connections at %s: %w", l.Addr(), err)
}

// Shutdown ends the gateway. It accepts no new connections and requests. It ends streams in the
// same way as a stopping etcd server. Requests in progress may continue until ctx ends.
func (g *Gateway) Shutdown(ctx context.Context) {
	g.stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.http.Shutdown(ctx)
		if g.relay != nil {
			g.relay.Drain(ctx)
		}
		g.grpc.GracefulStop()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	if g.relay != nil {
		g.relay.Close()
	}
	g.grpc.Stop()
	g.http.Close()
	<-done
	g.self.Close()
	if g.own != nil {
		g.own.Close()
	}
	g.inner.Close()
	g.serving.Wait()
}
