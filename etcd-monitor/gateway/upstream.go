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
	// Endpoints are URLs or HOST:PORT, as for etcd's clients. Requests go to the reachable
	// endpoints in turn. Writes, and linearizable reads with small answers, go to the leader if it
	// is known.
	Endpoints []string
	// SyncInterval is the interval of querying etcd's list of members. The members' client URLs
	// replace the endpoints. 0 disables this query.
	SyncInterval time.Duration
	// TLS is used for https endpoints, and for all endpoints if it is not empty. The gateway reads
	// the certificate and its key for every connection. It reads the CA file once.
	TLS transport.TLSInfo
	// KeepAliveTime is the silence after which the gateway pings etcd. KeepAliveTimeout is the
	// timeout for the answer. 0 means 10 s and 3 s. etcd accepts pings at intervals of 5 s and
	// more.
	KeepAliveTime, KeepAliveTimeout time.Duration
	// InTurn makes writes go to the members in turn, as reads do, instead of to the leader.
	InTurn bool
	// ReadsInTurn makes all linearizable reads go to the members in turn. Without it, those with
	// small answers go to the leader. InTurn implies it.
	ReadsInTurn bool
	// User and Password are the gateway's user for querying which member leads. They are needed if
	// etcd's authentication is enabled. Without them, writes then go to the members in turn.
	User, Password string
	// Log reports the member that gets the writes. If it is nil, the gateway does not log.
	Log *slog.Logger
}

// Upstream is the connection to etcd for all requests that the gateway forwards.
type Upstream struct {
	client *clientv3.Client
	config clientv3.Config // configuration for the gateway's own clients of etcd
	http   *http.Transport
	// named reports whether the last certificate shown to etcd has a common name.
	named atomic.Bool

	leader         *leaderFinder // if nil, writes go to the members in turn
	readsInTurn    atomic.Bool
	reading        atomic.Int64 // number of reads in progress at the leader
	sizes          *answerSizes
	user, password string // user for querying which member leads
	token          atomic.Pointer[string]
	stop           context.CancelFunc
	work           sync.WaitGroup
}

// authWait is the timeout for checking a user's password at etcd, if ctx has no deadline.
const authWait = 5 * time.Second

// notTheName is metadata that tells etcd not to use the common name of our certificate as the user
// (etcd: authStore.AuthInfoFromTLS).
const notTheName = "grpcgateway-accept"

// Dial prepares the connection, and does not wait for etcd. So a gateway may start before etcd. Its
// clients then wait for etcd.
func Dial(cfg UpstreamConfig) (*Upstream, error) {
	if len(cfg.Endpoints) == 0 {
		return nil, errors.New("gateway: no endpoints of etcd are given")
	}
	u := &Upstream{http: http.DefaultTransport.(*http.Transport).Clone(), user: cfg.User, password: cfg.Password,
		sizes: newAnswerSizes()}
	u.readsInTurn.Store(cfg.ReadsInTurn)
	u.http.Proxy = nil // etcd's own client uses no HTTP proxy either
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
			// After a long outage, gRPC would by default wait two minutes between attempts.
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
		// This interceptor replaces those of etcd's client, which retry and overwrite metadata. The
		// gateway's clients decide whether to retry.
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
			invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return invoke(ctx, method, req, reply, cc, opts...)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn,
			method string, stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return stream(ctx, desc, cc, method, opts...)
		}),
		// A call waits for a connection as long as its caller does, like a call of etcd's own
		// client. A call that was not sent cannot have been executed. So no call is executed twice.
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(math.MaxInt32),
			grpc.MaxCallSendMsgSize(math.MaxInt32)),
		grpc.WithDisableServiceConfig(), grpc.WithDefaultServiceConfig(memberConfig), // replaces that of etcd's client
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

// watchName keeps track of whether the certificate shown to etcd has a common name. The file of the
// certificate may be replaced at any time.
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
		named := true // etcd decides if the certificate is unreadable
		if leaf, err := x509.ParseCertificate(cert.Certificate[0]); err == nil {
			named = leaf.Subject.CommonName != ""
		}
		if named {
			u.named.Store(true) // never reset, because older connections may still use an older certificate
		}
		return cert, nil
	}
}

// disclaimer adds metadata to each request, which says that the name in our certificate is not the
// client's. gRPC calls it when it has a connection for the request, after the connection's
// certificate was shown to etcd. So this also works for a request that has waited for the
// connection.
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

// Conn returns the connection to etcd. Calls on it wait until etcd is reachable. They are sent
// unchanged: without retries, and without additional metadata except for the disclaimer.
func (u *Upstream) Conn() *grpc.ClientConn { return u.client.ActiveConnection() }

// endpoints returns etcd's current endpoints.
func (u *Upstream) endpoints() []string { return u.client.Endpoints() }

// secured returns the TLS configuration for etcd, or nil if TLS is not used. The first endpoint
// decides, as in etcd's client.
func (u *Upstream) secured() *tls.Config {
	if u.config.TLS == nil || strings.HasPrefix(u.config.Endpoints[0], "http:") ||
		strings.HasPrefix(u.config.Endpoints[0], "unix:") {
		return nil
	}
	return u.config.TLS
}

// added returns the metadata that is added to each request to etcd. disclaimer explains it.
func (u *Upstream) added() []hpack.HeaderField {
	if !u.named.Load() {
		return nil
	}
	return []hpack.HeaderField{{Name: notTheName, Value: "etcd-monitor"}}
}

// reachable reports whether there is a connection to etcd.
func (u *Upstream) reachable() bool { return u.Conn().GetState() == connectivity.Ready }

// NewClient makes an etcd client for the gateway's own requests, with or without a user. The client
// has a separate connection, and the caller closes it. For a user, NewClient checks the password at
// etcd if authentication is enabled. So etcd must then answer before ctx ends.
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

// outgoing returns the context for calls to etcd on behalf of a client's request. It has the
// request's deadline and cancellation. It also has the request's metadata, except for entries that
// concern only the client's connection.
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

// hopByHop reports whether a metadata entry concerns only a single connection (gRPC over HTTP2,
// "Requests").
func hopByHop(key string) bool {
	switch key {
	case "content-type", "user-agent", "te", "connection":
		return true
	}
	return strings.HasPrefix(key, ":") || strings.HasPrefix(key, "grpc-")
}
