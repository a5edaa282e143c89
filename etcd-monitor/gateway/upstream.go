package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
)

// UpstreamConfig configures the connection to etcd.
type UpstreamConfig struct {
	// Endpoints are URLs or HOST:PORT, as for etcd's clients. Requests go to the reachable ones in
	// turn. Writes, and linearizable reads with small answers, go to the leader if it is known.
	Endpoints []string
	// SyncInterval is the interval of querying etcd's members, whose client URLs replace the
	// endpoints; 0: never.
	SyncInterval time.Duration
	// TLS is used if it is not empty, and for https endpoints. The certificate and its key are read
	// for every connection; the CA file is read once.
	TLS transport.TLSInfo
	// KeepAliveTime is the silence after which a connection is probed, and KeepAliveTimeout the
	// timeout for the answer. 0: 10 s and 3 s. etcd accepts 5 s and more.
	KeepAliveTime, KeepAliveTimeout time.Duration
	// InTurn makes writes go to the members in turn, as reads do, instead of to the leader.
	InTurn bool
	// ReadsInTurn makes all linearizable reads go to the members in turn; otherwise those with
	// small answers go to the leader. InTurn implies it.
	ReadsInTurn bool
	// User and Password are for the query of the leader if etcd's authentication is enabled. If
	// authentication is enabled and they are missing, writes go to the members in turn.
	User, Password string
	// Log reports the member that writes go to; nil: no log.
	Log *slog.Logger
}

// Upstream is the connection to etcd for everything that the gateway passes on.
type Upstream struct {
	client *clientv3.Client
	config clientv3.Config // configuration for the gateway's own clients of etcd
	http   *http.Transport
	// named means that the last certificate shown to etcd has a common name.
	named atomic.Bool

	leader         *leaderFinder // nil: writes go to the members in turn
	readsInTurn    atomic.Bool
	reading        atomic.Int64 // reads in progress at the leader
	sizes          *answerSizes
	user, password string // the user for querying the leader
	token          atomic.Pointer[string]
	stop           context.CancelFunc
	work           sync.WaitGroup
}

// authWait is the timeout for checking a user's password at etcd, if ctx has no deadline.
const authWait = 5 * time.Second

// notTheName tells etcd not to use the common name of our certificate as the user (etcd:
// authStore.AuthInfoFromTLS).
const notTheName = "grpcgateway-accept"

// Dial prepares the connection. It does not wait for etcd: a gateway may start before etcd, and its
// clients then wait.
func Dial(cfg UpstreamConfig) (*Upstream, error) {
	if len(cfg.Endpoints) == 0 {
		return nil, errors.New("gateway: no endpoints of etcd are given")
	}
	u := &Upstream{http: http.DefaultTransport.(*http.Transport).Clone(), user: cfg.User, password: cfg.Password,
		sizes: newAnswerSizes()}
	u.readsInTurn.Store(cfg.ReadsInTurn)
	u.http.Proxy = nil // like etcd's own client, it uses no HTTP proxy
	if cfg.KeepAliveTime == 0 {
		cfg.KeepAliveTime, cfg.KeepAliveTimeout = 10*time.Second, 3*time.Second
	}
	c := clientv3.Config{
		Endpoints:            cfg.Endpoints,
		AutoSyncInterval:     cfg.SyncInterval,
		DialKeepAliveTime:    cfg.KeepAliveTime,
		DialKeepAliveTimeout: cfg.KeepAliveTimeout,
		Logger:               zap.NewNop(),
		DialOptions: []grpc.DialOption{
			// After a long outage, gRPC's default waits two minutes between attempts.
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond,
				Multiplier: 1.6, Jitter: .2, MaxDelay: 2 * time.Second}, MinConnectTimeout: 5 * time.Second}),
		},
	}
	secure := strings.HasPrefix(cfg.Endpoints[0], "https://") || strings.HasPrefix(cfg.Endpoints[0], "unixs:")
	if !cfg.TLS.Empty() || cfg.TLS.TrustedCAFile != "" || secure {
		t, err := cfg.TLS.ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("gateway: the certificates towards etcd: %w", err)
		}
		u.watchName(t)
		c.DialOptions = append(c.DialOptions, grpc.WithPerRPCCredentials(disclaimer{u}))
		c.TLS, u.http.TLSClientConfig = t, t.Clone()
		u.http.ForceAttemptHTTP2 = true
	}
	u.config = c
	c.DialOptions = append(slices.Clone(c.DialOptions),
		// Replaces the client's own interceptors, which retry (our clients decide on that) and
		// overwrite metadata.
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
			invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return invoke(ctx, method, req, reply, cc, opts...)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn,
			method string, stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return stream(ctx, desc, cc, method, opts...)
		}),
		// Like a call of etcd's own client, a call waits for a connection as long as its caller
		// does. A call that was not sent cannot have been executed, so nothing is executed twice.
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(math.MaxInt32),
			grpc.MaxCallSendMsgSize(math.MaxInt32)),
		grpc.WithDisableServiceConfig(), grpc.WithDefaultServiceConfig(memberConfig), // not that of etcd's client
	)
	var err error
	if u.client, err = connect(c); err != nil {
		return nil, err
	}
	var ctx context.Context
	ctx, u.stop = context.WithCancel(context.Background())
	if !cfg.InTurn {
		u.leader = newLeaderFinder(cfg.Log, u.endpoints, u.leads)
		u.work.Go(func() { u.leader.run(ctx) })
	}
	return u, nil
}

func connect(c clientv3.Config) (*clientv3.Client, error) {
	client, err := clientv3.New(c)
	if err != nil {
		return nil, fmt.Errorf("gateway: connecting to etcd at %s: %w", strings.Join(c.Endpoints, ","), err)
	}
	return client, nil
}

// watchName tracks whether the certificate shown to etcd has a common name. The certificate's file
// may be replaced at any time.
func (u *Upstream) watchName(t *tls.Config) {
	get := t.GetClientCertificate
	if get == nil {
		return
	}
	t.GetClientCertificate = func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		cert, err := get(r)
		if err != nil {
			return cert, err
		}
		named := true // if the file is unreadable, let etcd decide
		if leaf, err := x509.ParseCertificate(cert.Certificate[0]); err == nil {
			named = leaf.Subject.CommonName != ""
		}
		if named {
			u.named.Store(true) // never reset, because older connections may still use an older certificate
		}
		return cert, nil
	}
}

// disclaimer adds to each request that our certificate's name is not the client's. gRPC calls it
// when it has a connection for the request, which is after the certificate was shown there. So it
// also covers a request that waited for the connection.
type disclaimer struct{ u *Upstream }

// GetRequestMetadata implements [credentials.PerRPCCredentials].
func (d disclaimer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	if !d.u.named.Load() {
		return nil, nil
	}
	return map[string]string{notTheName: "etcd-monitor"}, nil
}

// RequireTransportSecurity implements [credentials.PerRPCCredentials].
func (disclaimer) RequireTransportSecurity() bool { return true }

// Conn is the connection. Calls on it wait until etcd is reachable, and are passed unchanged: no
// retries, and no additional metadata except for the disclaimer.
func (u *Upstream) Conn() *grpc.ClientConn { return u.client.ActiveConnection() }

// endpoints are etcd's current endpoints.
func (u *Upstream) endpoints() []string { return u.client.Endpoints() }

// secured is the TLS configuration for etcd; nil: none. As in etcd's client, the first endpoint
// decides.
func (u *Upstream) secured() *tls.Config {
	if u.config.TLS == nil || strings.HasPrefix(u.config.Endpoints[0], "http:") ||
		strings.HasPrefix(u.config.Endpoints[0], "unix:") {
		return nil
	}
	return u.config.TLS
}

// added is the additional metadata of each request to etcd (disclaimer explains it).
func (u *Upstream) added() []hpack.HeaderField {
	if !u.named.Load() {
		return nil
	}
	return []hpack.HeaderField{{Name: notTheName, Value: "etcd-monitor"}}
}

// reachable reports whether there is a connection to etcd.
func (u *Upstream) reachable() bool { return u.Conn().GetState() == connectivity.Ready }

// NewClient makes an etcd client for the gateway's own requests, on a separate connection, with or
// without a user. The caller closes it. With a user it checks the password at etcd, if etcd's
// authentication is enabled, so etcd must answer before ctx ends.
func (u *Upstream) NewClient(ctx context.Context, user, password string) (*clientv3.Client, error) {
	c := u.config
	c.Endpoints = u.client.Endpoints()
	c.Username, c.Password = user, password
	if user != "" {
		c.DialTimeout = authWait
		if end, ok := ctx.Deadline(); ok {
			c.DialTimeout = time.Until(end)
		}
	}
	return connect(c)
}

// Close closes the connection.
func (u *Upstream) Close() error {
	u.stop()
	u.work.Wait()
	u.http.CloseIdleConnections()
	if err := u.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("gateway: closing the connection to etcd: %w", err)
	}
	return nil
}

// outgoing is the context for calls to etcd on behalf of a request. It has the request's deadline,
// cancellation, and metadata except for the connection's own.
func outgoing(ctx context.Context) context.Context {
	in, _ := metadata.FromIncomingContext(ctx)
	out := make(metadata.MD, len(in))
	for k, v := range in {
		if !hopByHop(k) {
			out[k] = v
		}
	}
	return metadata.NewOutgoingContext(ctx, out)
}

// hopByHop reports whether metadata belongs to a single connection (gRPC over HTTP2, "Requests").
func hopByHop(key string) bool {
	switch key {
	case "content-type", "user-agent", "te", "connection":
		return true
	}
	return strings.HasPrefix(key, ":") || strings.HasPrefix(key, "grpc-")
}
