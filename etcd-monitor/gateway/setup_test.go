package gateway

import (
	"context"
	"net/url"
	"os"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"

	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	etcdtest.RemoveTools()
	os.Exit(code)
}

// envRelay is an environment variable. Its value "no" disables the relay in the gateways of these
// tests, like --relay=false.
const envRelay = "NETCRAQ_RELAY"

// started is a running gateway with its address.
type started struct {
	*Gateway
	Endpoint string
}

// begin starts a gateway in front of endpoints, without TLS. The gateway runs until the test ends.
func begin(t testing.TB, cfg Config, endpoints ...string) started {
	t.Helper()
	return beginAt(t, cfg, UpstreamConfig{Endpoints: endpoints}, "http", transport.TLSInfo{})
}

// beginAt starts a gateway with a scheme and certificates for its clients. It uses the relay, as
// the command does.
func beginAt(t testing.TB, cfg Config, up UpstreamConfig, scheme string, certs transport.TLSInfo) started {
	t.Helper()
	cfg.Relay = os.Getenv(envRelay) != "no"
	return beginAs(t, cfg, up, scheme, certs)
}

// beginAs starts a gateway. It uses the relay only if its configuration says so.
func beginAs(t testing.TB, cfg Config, up UpstreamConfig, scheme string, certs transport.TLSInfo) started {
	t.Helper()
	if cfg.Upstream == nil {
		u, err := Dial(up)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { u.Close() })
		cfg.Upstream = u
	}
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := Listen(url.URL{Scheme: scheme, Host: "127.0.0.1:0"}, certs)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		g.Shutdown(ctx)
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return started{g, scheme + "://" + l.Addr().String()}
}
