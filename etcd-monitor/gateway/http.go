package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	reverse "net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	jsongw "github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	etcdservergw "go.etcd.io/etcd/api/v3/etcdserverpb/gw"
	"go.etcd.io/etcd/pkg/v3/debugutil"
	"go.etcd.io/etcd/pkg/v3/httputil"
	v3electiongw "go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb/gw"
	v3lockgw "go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb/gw"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/netcraq/netcraq/etcd-monitor/hotkeys"
)

// etcdPaths are etcd's own pages for clients. The gateway forwards requests for them to one member,
// because the answers describe one member.
var etcdPaths = []string{"/health", "/livez", "/livez/", "/readyz", "/readyz/", "/version", "/metrics", "/debug/vars"}

// OwnMetrics is the path of the gateway's own metrics, except for those that name keys. The path
// /metrics shows etcd's metrics.
const OwnMetrics = "/proxy/metrics"

func (g *Gateway) httpHandler(metrics http.Handler, cfg Config) (http.Handler, error) {
	mux := http.NewServeMux()
	proxy := &reverse.ReverseProxy{
		Rewrite: func(*reverse.ProxyRequest) {}, // the transport, which is members, chooses the target
		Transport: &members{transport: g.upstream.http, bases: func() []*url.URL {
			return httpBases(g.upstream.client.Endpoints())
		}},
		ErrorHandler: unreachable,
	}
	for _, path := range etcdPaths {
		mux.Handle("GET "+path, proxy)
	}
	if metrics != nil {
		mux.Handle("GET "+OwnMetrics, metrics)
	}
	json, err := g.json()
	if err != nil {
		return nil, err
	}
	mux.Handle("/v3/", json)
	if cfg.Profiles {
		for path, handler := range debugutil.PProfHandlers() {
			mux.Handle("GET "+path, handler)
		}
	}
	return onlyHosts(cfg.Hosts, withCORS(cfg.CORS, mux)), nil
}

// keyless returns g without the metrics that name keys. Every user of a client URL can read g's
// metrics, even without etcd's permission for the keys.
func keyless(g prometheus.Gatherer) prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		all, err := g.Gather()
		return slices.DeleteFunc(all, func(f *dto.MetricFamily) bool {
			return strings.HasPrefix(f.GetName(), hotkeys.KeyMetrics)
		}), err
	})
}

// allows reports whether a list permits a value. An empty list, and one with "*", permit all.
func allows(list []string, one string) bool {
	return len(list) == 0 || slices.Contains(list, "*") || slices.Contains(list, one)
}

// withCORS tells browsers which origins' pages may use the handler, as etcd does.
func withCORS(origins []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origin := r.Header.Get("Origin")
		if allows(origins, "*") {
			origin = "*"
		}
		if allows(origins, origin) {
			w.Header().Add("Access-Control-Allow-Methods", "POST, GET, OPTIONS, PUT, DELETE")
			w.Header().Add("Access-Control-Allow-Origin", origin)
			w.Header().Add("Access-Control-Allow-Headers", "accept, content-type, authorization")
		}
		if r.Method != http.MethodOptions {
			next.ServeHTTP(w, r)
		}
	})
}

// onlyHosts refuses plain-text requests that name an unknown host, as etcd does. This stops web
// pages that redirect their own name to this address (DNS rebinding): the browser would treat the
// gateway as part of the page's site.
func onlyHosts(hosts []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if host := httputil.GetHostname(r); r.TLS == nil && !allows(hosts, host) {
			http.Error(w, fmt.Sprintf("etcd-monitor: the host %q is none of --host-whitelist; add it there, or use https", host), http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// json returns the handler for the JSON form of the gRPC services. It is etcd's generated code, on
// a connection to this gateway.
func (g *Gateway) json() (http.Handler, error) {
	mux := jsongw.NewServeMux(jsongw.WithMarshalerOption(jsongw.MIMEWildcard,
		&jsongw.HTTPBodyMarshaler{Marshaler: &jsongw.JSONPb{
			MarshalOptions:   protojson.MarshalOptions{UseProtoNames: true},
			UnmarshalOptions: protojson.UnmarshalOptions{DiscardUnknown: true},
		}}))
	for _, register := range []func(context.Context, *jsongw.ServeMux, *grpc.ClientConn) error{
		etcdservergw.RegisterKVHandler, etcdservergw.RegisterWatchHandler, etcdservergw.RegisterLeaseHandler,
		etcdservergw.RegisterClusterHandler,
		etcdservergw.RegisterMaintenanceHandler, etcdservergw.RegisterAuthHandler, v3lockgw.RegisterLockHandler,
		v3electiongw.RegisterElectionHandler,
	} {
		if err := register(g.stopping, mux, g.self); err != nil {
			return nil, fmt.Errorf("gateway: the JSON form of etcd's services: %w", err)
		}
	}
	return mux, nil
}

// httpBases returns the endpoints as HTTP URLs. It omits endpoints on Unix sockets, which have no
// such URL.
func httpBases(endpoints []string) (out []*url.URL) {
	for _, e := range endpoints {
		if !strings.Contains(e, "://") {
			e = "http://" + e
		}
		if u, err := url.Parse(e); err == nil && (u.Scheme == "http" || u.Scheme == "https") {
			out = append(out, &url.URL{Scheme: u.Scheme, Host: u.Host})
		}
	}
	return out
}

// members sends a request to the member that answered last. If that member fails, it tries the
// others.
type members struct {
	transport http.RoundTripper
	bases     func() []*url.URL
	last      atomic.Uint32
}

// attempt is the timeout for one member. It is longer than 7 s, for which etcd's /health may wait
// for its cluster.
const attempt = 10 * time.Second

// RoundTrip implements [http.RoundTripper]. Its requests have no bodies.
func (m *members) RoundTrip(r *http.Request) (*http.Response, error) {
	err := errors.New("no endpoint of etcd has HTTP")
	bases := m.bases()
	for i := range bases {
		at := (int(m.last.Load()) + i) % len(bases)
		ctx, cancel := context.WithTimeout(r.Context(), attempt)
		try := r.Clone(ctx)
		try.URL.Scheme, try.URL.Host, try.Host = bases[at].Scheme, bases[at].Host, ""
		var answer *http.Response
		if answer, err = m.transport.RoundTrip(try); err == nil {
			m.last.Store(uint32(at))
			answer.Body = endWith{answer.Body, cancel}
			return answer, nil
		}
		cancel()
	}
	return nil, err
}

// unreachable answers a request if no member answers. The answer has the form of etcd's /health.
func unreachable(w http.ResponseWriter, _ *http.Request, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusServiceUnavailable)
	fmt.Fprintf(w, "{\"health\":\"false\",\"reason\":%q}\n", "etcd-monitor: no member of etcd answers: "+err.Error())
}
