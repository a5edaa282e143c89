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

// UpstreamConfig says how to reach etcd.
type UpstreamConfig struct {
	// Endpoints are URLs or HOST:PORT, as for etcd's clients. Requests go to all of them in turn,
	// skipping those that are unreachable; writes, and linearizable reads with small answers, go to
	// the leader, if that is known.
	Endpoints []string
	// SyncInterval is how often etcd is asked for its members, whose client URLs replace the
	// endpoints; 0: never.
	SyncInterval time.Duration
	// TLS is used if it is not empty, and for https endpoints. The certificate and its key are read
	// again for every connection; the CA file is read once.
	TLS transport.TLSInfo
	// KeepAliveTime is how long a connection is silent before it is probed, and KeepAliveTimeout
	// how long to wait for the answer. 0: 10 s and 3 s. etcd accepts 5 s and more.
	KeepAliveTime, KeepAliveTimeout time.Duration
	// InTurn makes writes go to the members in turn, as reads do, and not to the leader.
	InTurn bool
	// ReadsInTurn makes all linearizable reads go to the members in turn, and those with small
	// answers not to the leader. InTurn includes it.
	ReadsInTurn bool
	// User and Password are who asks which one leads, where etcd's authentication is enabled.
	// Without them writes go to the members in turn there.
	User, Password string
	// Log gets the member that writes go to; nil: no log.
	Log *slog.Logger
}

// Upstream is the connection to etcd that the gateway passes everything on to.
type Upstream struct {
	client *clientv3.Client
	config clientv3.Config // of clients for the gateway's own business
	http   *http.Transport
	// named: the certificate that was shown to etcd last has a common name.
	named atomic.Bool

	leader         *leaderFinder // nil: writes go to the members in turn
	readsInTurn    atomic.Bool
	reading        atomic.Int64 // reads that the one that leads has
	sizes          *answerSizes
	user, password string // the user that asks for it
	token          atomic.Pointer[string]
	stop           context.CancelFunc
	work           sync.WaitGroup
}

// authWait is how long to wait for etcd, without a deadline, when a user's password is checked.
const authWait = 5 * time.Second

// notTheName tells etcd not to take the common name of our certificate for the user (etcd:
// authStore.AuthInfoFromTLS).
const notTheName = "grpcgateway-accept"

// Dial prepares the connection. It does not wait for etcd: a gateway may start before etcd does,
// and its clients wait until then.
func Dial(cfg UpstreamConfig) (*Upstream, error) {
	if len(cfg.Endpoints) == 0 {
		return nil, errors.New("gateway: no endpoints of etcd are given")
	}
	u := &Upstream{http: http.DefaultTransport.(*http.Transport).Clone(), user: cfg.User, password: cfg.Password,
		sizes: newAnswerSizes()}
	u.readsInTurn.Store(cfg.ReadsInTurn)
	u.http.Proxy = nil // etcd's own client asks no HTTP proxy either
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
			// gRPC's default waits two minutes between attempts when etcd was away for long.
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
		// In place of the client's own interceptors, which retry (that is for our clients to
		// decide) and overwrite metadata.
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
			invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return invoke(ctx, method, req, reply, cc, opts...)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn,
			method string, stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return stream(ctx, desc, cc, method, opts...)
		}),
		// A call waits for a connection, as long as its client does, as those of etcd's own client
		// do: what was not sent cannot have been executed, so nothing is done twice.
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(math.MaxInt32),
			grpc.MaxCallSendMsgSize(math.MaxInt32)),
		grpc.WithDisableServiceConfig(), grpc.WithDefaultServiceConfig(memberConfig), // and not the client's
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

// watchName keeps account of whether the certificate that etcd is shown has a common name. It may
// be replaced while we run.
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
		named := true // if it cannot be read, etcd decides
		if leaf, err := x509.ParseCertificate(cert.Certificate[0]); err == nil {
			named = leaf.Subject.CommonName != ""
		}
		if named {
			u.named.Store(true) // older connections may still have the older certificate: it stays so
		}
		return cert, nil
	}
}

// disclaimer adds to each request that the name in our certificate is not the client's. gRPC asks
// for it when it has a connection for the request, that is after the certificate was shown there: a
// request that was waiting for the connection has it too.
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

// Conn is the connection. Calls on it wait until etcd can be reached, and are passed as they are:
// nothing that was sent is retried, and nothing added to their metadata but the disclaimer.
func (u *Upstream) Conn() *grpc.ClientConn { return u.client.ActiveConnection() }

// endpoints are etcd's, as they are now.
func (u *Upstream) endpoints() []string { return u.client.Endpoints() }

// secured is the TLS configuration towards etcd; nil: none. As in etcd's client, the first endpoint
// decides.
func (u *Upstream) secured() *tls.Config {
	if u.config.TLS == nil || strings.HasPrefix(u.config.Endpoints[0], "http:") ||
		strings.HasPrefix(u.config.Endpoints[0], "unix:") {
		return nil
	}
	return u.config.TLS
}

// added is the metadata that each request has on its way to etcd: see disclaimer.
func (u *Upstream) added() []hpack.HeaderField {
	if !u.named.Load() {
		return nil
	}
	return []hpack.HeaderField{{Name: notTheName, Value: "etcd-monitor"}}
}

// reachable says whether there is a connection to etcd now.
func (u *Upstream) reachable() bool { return u.Conn().GetState() == connectivity.Ready }

// NewClient makes an etcd client for the gateway's own business, with a connection of its own: with
// a user's name or without one. The caller closes it. With a name it asks etcd whether the password
// is right, if etcd's authentication is enabled, so etcd must answer within ctx's time.
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

// Close ends the connection.
func (u *Upstream) Close() error {
	u.stop()
	u.work.Wait()
	u.http.CloseIdleConnections()
	if err := u.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("gateway: closing the connection to etcd: %w", err)
	}
	return nil
}

// outgoing is the context for calls to etcd on behalf of a request: with its deadline, its end, and
// its metadata except for the connection's.
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

// hopByHop says about which metadata each connection has its own (gRPC over HTTP2, "Requests").
func hopByHop(key string) bool {
	switch key {
	case "content-type", "user-agent", "te", "connection":
		return true
	}
	return strings.HasPrefix(key, ":") || strings.HasPrefix(key, "grpc-")
}
