package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"math/big"
	"os"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/internal/testutil/testcerts"
)

// shows returns the serial number of the certificate that a server shows.
func shows(t *testing.T, endpoint string, roots transport.TLSInfo) *big.Int {
	t.Helper()
	cfg, err := roots.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	c, err := tls.Dial("tcp", strings.TrimPrefix(endpoint, "https://"), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].SerialNumber
}

func client(t *testing.T, endpoint string, certs transport.TLSInfo) *clientv3.Client {
	t.Helper()
	cfg, err := certs.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	return etcdtest.ClientWith(t, clientv3.Config{Endpoints: []string{endpoint}, TLS: cfg})
}

// TestMutualTLS checks both sides of a gateway. Clients need certificates of one CA for the
// gateway, and the gateway needs a certificate of another CA for etcd. New files must apply to new
// connections on both sides.
func TestMutualTLS(t *testing.T) {
	near, far := testcerts.NewAuthority(t), testcerts.NewAuthority(t)
	etcdCerts, _ := far.Issue("etcd", "")
	etcdCerts.ClientCertAuth = true
	upCerts, _ := far.Issue("gateway", "")
	serverCerts, first := near.Issue("server", "gateway.example")
	serverCerts.ClientCertAuth = true
	clientCerts, _ := near.Issue("client", "alice")
	stranger, _ := testcerts.NewAuthority(t).Issue("stranger", "mallory")
	stranger.TrustedCAFile = near.File

	c := etcdtest.New(t, 1, etcdtest.Options{TLS: etcdCerts})
	g := beginAt(t, Config{}, UpstreamConfig{Endpoints: c.Endpoints(), TLS: upCerts}, "https", serverCerts)
	good := client(t, g.Endpoint, clientCerts)
	if _, err := good.Put(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	if r, err := good.Get(t.Context(), "k"); err != nil || len(r.Kvs) != 1 {
		t.Fatalf("%v, %v", r, err)
	}
	for name, c := range map[string]*clientv3.Client{
		"a stranger's certificate": client(t, g.Endpoint, stranger),
		"no certificate":           client(t, g.Endpoint, transport.TLSInfo{TrustedCAFile: near.File}),
		"plain text":               etcdtest.Client(t, strings.Replace(g.Endpoint, "https", "http", 1)),
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // etcd's client retries until this timeout
		r, err := c.Get(ctx, "k")
		cancel()
		if code := status.Code(err); code != codes.Unavailable && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, %v; want no connection", name, r, err)
		}
	}

	if got := shows(t, g.Endpoint, clientCerts); got.Cmp(first) != 0 {
		t.Errorf("certificate %v, want %v", got, first)
	}
	_, second := near.Issue("server", "gateway.example")
	if got := shows(t, g.Endpoint, clientCerts); got.Cmp(second) != 0 {
		t.Errorf("after the files were replaced: certificate %v, want %v", got, second)
	}
	// The CA file is also reloaded. With the stranger's CA in it, the stranger's certificate is
	// accepted.
	strangers, err := os.ReadFile(strings.Replace(stranger.CertFile, "stranger.pem", "ca.pem", 1))
	if err != nil {
		t.Fatal(err)
	}
	nears, err := os.ReadFile(near.File)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(near.File, append(bytes.Clone(nears), strangers...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := client(t, g.Endpoint, stranger).Get(t.Context(), "k"); err != nil {
		t.Errorf("after his authority was added: %v", err)
	}
	// The gateway shows etcd its new certificate when it reconnects.
	far.Issue("gateway", "")
	c.Stop(0)
	c.Start(0)
	if _, err := good.Get(t.Context(), "k"); err != nil {
		t.Errorf("after etcd was started again: %v", err)
	}
}

// TestRevoked checks that a certificate is refused as soon as it is in the revocation list.
func TestRevoked(t *testing.T) {
	a := testcerts.NewAuthority(t)
	serverCerts, _ := a.Issue("server", "")
	serverCerts.ClientCertAuth = true
	serverCerts.CRLFile = a.Revoke()
	one, number := a.Issue("one", "")
	other, _ := a.Issue("other", "")
	c := etcdtest.New(t, 1, etcdtest.Options{})
	g := beginAt(t, Config{}, UpstreamConfig{Endpoints: c.Endpoints()}, "https", serverCerts)
	reads := func(certs transport.TLSInfo) error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := client(t, g.Endpoint, certs).Get(ctx, "k")
		return err
	}
	if err := reads(one); err != nil {
		t.Fatal(err)
	}
	a.Revoke(number)
	if err := reads(one); err == nil {
		t.Error("a revoked certificate was accepted")
	}
	if err := reads(other); err != nil {
		t.Errorf("another certificate: %v", err)
	}
}

// TestCommonName checks that etcd does not take the common name of a gateway's certificate as its
// clients' user.
func TestCommonName(t *testing.T) {
	a := testcerts.NewAuthority(t)
	etcdCerts, _ := a.Issue("etcd", "")
	etcdCerts.ClientCertAuth = true
	rootCerts, _ := a.Issue("root", "root") // a certificate of etcd's user root
	c := etcdtest.New(t, 1, etcdtest.Options{TLS: etcdCerts})
	direct := client(t, c.Endpoints()[0], rootCerts)
	if _, err := direct.Put(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	for _, step := range []func() error{
		func() error { _, err := direct.UserAdd(t.Context(), "root", "secret"); return err },
		func() error { _, err := direct.UserGrantRole(t.Context(), "root", "root"); return err },
		func() error { _, err := direct.AuthEnable(t.Context()); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := direct.Get(t.Context(), "k"); err != nil {
		t.Fatalf("the certificate alone makes nobody root at etcd (%v): this test shows nothing", err)
	}
	for way, served := range ways {
		u, err := Dial(UpstreamConfig{Endpoints: c.Endpoints(), TLS: rootCerts})
		if err != nil {
			t.Fatal(err)
		}
		defer u.Close()
		cfg := Config{Upstream: u}
		if served {
			cfg.KV = newForwarder(u)
		}
		g := beginAt(t, cfg, UpstreamConfig{}, "http", transport.TLSInfo{})
		through := etcdtest.Client(t, g.Endpoint)
		// gRPC connects on the first request. The second request uses a connection whose
		// certificate is known.
		for range 2 {
			if r, err := through.Get(t.Context(), "k"); rpctypes.ErrorDesc(err) != rpctypes.ErrorDesc(
				rpctypes.ErrGRPCUserEmpty) {
				t.Errorf("%s: a client without a name read %v, %v; want %v", way, r, err, rpctypes.ErrGRPCUserEmpty)
			}
		}
		named := etcdtest.ClientWith(t, clientv3.Config{Endpoints: []string{g.Endpoint}, Username: "root", Password: "secret"})
		if _, err := named.Get(t.Context(), "k"); err != nil {
			t.Errorf("%s: with a password: %v", way, err)
		}
	}
}

// TestDial checks which forms of endpoints are valid, and which of them need a certificate.
func TestDial(t *testing.T) {
	for _, cfg := range []UpstreamConfig{
		{},
		{Endpoints: []string{"https://127.0.0.1:1"}, TLS: transport.TLSInfo{TrustedCAFile: "/no/such/file"}},
		{Endpoints: []string{"https://127.0.0.1:1"}, TLS: transport.TLSInfo{CertFile: "/no/such/file", KeyFile: "/no/such/file"}},
	} {
		if u, err := Dial(cfg); err == nil {
			u.Close()
			t.Errorf("%v: no error", cfg)
		}
	}
}
