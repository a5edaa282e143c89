package gateway

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/client/pkg/v3/transport"

	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/etcd-monitor/hotkeys"
	"github.com/netcraq/netcraq/internal/testutil/testcerts"
	"github.com/netcraq/netcraq/internal/testutil/testport"
)

// get requests a page. It uses HTTP/1.1 or HTTP/2, as the server prefers.
func get(t testing.TB, c *http.Client, url string) (int, string) {
	t.Helper()
	r, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

// TestPages checks that the gRPC port also serves etcd's own pages, in plain text and with TLS.
func TestPages(t *testing.T) {
	a := testcerts.NewAuthority(t)
	etcdCerts, _ := a.Issue("etcd", "")
	serverCerts, _ := a.Issue("server", "")
	tlsClient, err := transport.TLSInfo{TrustedCAFile: a.File}.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	secured := &http.Client{Transport: &http.Transport{TLSClientConfig: tlsClient, ForceAttemptHTTP2: true}}
	defer secured.CloseIdleConnections()
	for name, up := range map[string]struct {
		etcd    etcdtest.Options
		scheme  string
		certs   transport.TLSInfo
		towards transport.TLSInfo
		client  *http.Client
	}{
		"plain": {etcdtest.Options{}, "http", transport.TLSInfo{}, transport.TLSInfo{}, http.DefaultClient},
		"TLS": {etcdtest.Options{TLS: etcdCerts}, "https", transport.TLSInfo{CertFile: serverCerts.CertFile,
			KeyFile: serverCerts.KeyFile}, etcdCerts, secured},
	} {
		t.Run(name, func(t *testing.T) {
			c := etcdtest.New(t, 1, up.etcd)
			newest := new(Newest)
			metrics := hotkeys.NewMetrics(hotkeys.Bounds{}, newest.Revision)
			registry := prometheus.NewRegistry()
			registry.MustRegister(metrics)
			metrics.Keys.Read([]byte("secret"))
			g := beginAt(t, Config{Metrics: metrics, Newest: newest, Registry: registry},
				UpstreamConfig{Endpoints: c.Endpoints(), TLS: up.towards}, up.scheme, up.certs)
			for path, want := range map[string]string{
				"/health":                   `{"health":"true","reason":""}`,
				"/health?serializable=true": `{"health":"true","reason":""}`,
				"/livez":                    "ok",
				"/readyz/data_corruption":   "ok",
				"/version":                  `"etcdserver":"3.6.`,
				"/metrics":                  "etcd_server_has_leader 1",
				OwnMetrics:                  "etcd_monitor_revision ",
			} {
				if code, body := get(t, up.client, g.Endpoint+path); code != http.StatusOK ||
					!strings.Contains(body, want) {
					t.Errorf("%s: %d, %.200q; want %q", path, code, body, want)
				}
			}
			// The key has a counter. A client URL must not show the counter, because anyone can
			// read that URL without permissions.
			if all, err := registry.Gather(); err != nil || !strings.Contains(fmt.Sprint(all), "secret") {
				t.Errorf("the registry does not name the key: %v, %v", all, err)
			}
			if _, body := get(t, up.client, g.Endpoint+OwnMetrics); strings.Contains(body, "secret") {
				t.Errorf("%s names a key: %s", OwnMetrics, body)
			}
			if code, _ := get(t, up.client, g.Endpoint+"/no/such/page"); code != http.StatusNotFound {
				t.Errorf("another page: %d", code)
			}
			r, err := up.client.Post(g.Endpoint+"/health", "text/plain", strings.NewReader("x"))
			if err != nil {
				t.Fatal(err)
			}
			if r.Body.Close(); r.StatusCode != http.StatusMethodNotAllowed {
				t.Errorf("POST: %d", r.StatusCode)
			}
			c.Stop(0)
			if code, body := get(t, up.client, g.Endpoint+"/health"); code != http.StatusServiceUnavailable ||
				!json.Valid([]byte(body)) || !strings.Contains(body, `"health":"false"`) {
				t.Errorf("without etcd: %d, %q", code, body)
			}
		})
	}
}

// TestPagesOfTheLiving checks that the pages work while at least one member answers.
func TestPagesOfTheLiving(t *testing.T) {
	c := etcdtest.New(t, 1, etcdtest.Options{})
	g := begin(t, Config{}, "http://"+testport.Free(t), c.Endpoints()[0])
	if code, body := get(t, http.DefaultClient, g.Endpoint+"/health"); code != http.StatusOK {
		t.Errorf("%d, %s", code, body)
	}
}

// TestAccessToPages checks that CORS answers and variables are like etcd's. The gateway refuses
// pages under other host names. Profiles can be enabled.
func TestAccessToPages(t *testing.T) {
	t.Parallel()
	c := etcdtest.New(t, 1, etcdtest.Options{})
	open, closed := begin(t, Config{}, c.Endpoints()...), begin(t, Config{CORS: []string{"https://ui.example"},
		Hosts: []string{"127.0.0.1", "etcd.example"}, Profiles: true}, c.Endpoints()...)
	ask := func(endpoint, method, path, host, origin string) (int, http.Header, string) {
		q, err := http.NewRequestWithContext(t.Context(), method, endpoint+path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		if q.Host = host; origin != "" {
			q.Header.Set("Origin", origin)
		}
		r, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		b, _ := io.ReadAll(r.Body)
		return r.StatusCode, r.Header, string(b)
	}
	const allowed = "Access-Control-Allow-Origin"
	for _, at := range []struct{ endpoint, host, origin, allowed string }{
		{open.Endpoint, "", "https://any.example", "*"},
		{closed.Endpoint, "", "https://ui.example", "https://ui.example"},
		{closed.Endpoint, "", "https://any.example", ""},
		{closed.Endpoint, "etcd.example:2379", "", ""},
	} {
		for _, method := range []string{http.MethodPost, http.MethodOptions} {
			if code, header, body := ask(at.endpoint, method, "/v3/maintenance/status", at.host,
				at.origin); code != http.StatusOK || header.Get(allowed) != at.allowed {
				t.Errorf("%s %+v: %d, allowed to %q; %s", method, at, code, header.Get(allowed), body)
			}
		}
	}
	if code, _, body := ask(closed.Endpoint, http.MethodGet, "/version", "rebound.example",
		""); code != http.StatusMisdirectedRequest || !strings.Contains(body, "--host-whitelist") {
		t.Errorf("another host: %d, %s", code, body)
	}
	if code, _, _ := ask(open.Endpoint, http.MethodGet, "/version", "rebound.example", ""); code != http.StatusOK {
		t.Errorf("another host where all are allowed: %d", code)
	}
	if _, err := etcdtest.Client(t, closed.Endpoint).Put(t.Context(), "k", "v"); err != nil {
		t.Errorf("gRPC: %v", err)
	}
	for endpoint, want := range map[string]int{open.Endpoint: http.StatusNotFound, closed.Endpoint: http.StatusOK} {
		if code, _, _ := ask(endpoint, http.MethodGet, "/debug/pprof/goroutine?debug=1", "", ""); code != want {
			t.Errorf("profiles: %d, want %d", code, want)
		}
		if code, _, body := ask(endpoint, http.MethodGet, "/debug/vars", "", ""); code != http.StatusOK ||
			!json.Valid([]byte(body)) || !strings.Contains(body, "raft.status") {
			t.Errorf("variables: %d, %.100s; want etcd's", code, body)
		}
	}
}

// TestJSON checks that the gateway handles etcd's JSON form of its services like gRPC.
func TestJSON(t *testing.T) {
	for name, served := range ways {
		t.Run(name, func(t *testing.T) {
			c := etcdtest.New(t, 1, etcdtest.Options{})
			g := beginWay(t, served, c.Endpoints()...)
			post := func(path, body string) (string, int) {
				r, err := http.Post(g.Endpoint+path, "application/json", strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				defer r.Body.Close()
				var b bytes.Buffer
				if strings.Contains(path, "watch") {
					line := make([]byte, 1000)
					n, _ := r.Body.Read(line)
					return string(line[:n]), r.StatusCode
				}
				b.ReadFrom(r.Body)
				return b.String(), r.StatusCode
			}
			b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
			if out, code := post("/v3/kv/put", `{"key":"`+b64("k")+`","value":"`+b64("v")+`"}`); code != http.StatusOK || !strings.Contains(out, `"revision":"2"`) {
				t.Errorf("put: %d, %s", code, out)
			}
			if out, code := post("/v3/kv/range", `{"key":"`+b64("k")+`"}`); code != http.StatusOK || !strings.Contains(out, `"value":"`+b64("v")+`"`) {
				t.Errorf("range: %d, %s", code, out)
			}
			if out, code := post("/v3/lease/revoke", `{"ID":"5"}`); code != http.StatusNotFound || !strings.Contains(out, "requested lease not found") {
				t.Errorf("a lease that is not there: %d, %s", code, out)
			}
			if out, code := post("/v3/watch", `{"create_request":{"key":"`+b64("k")+`","start_revision":1}}`); code != http.StatusOK || !strings.Contains(out, `"created":true`) {
				t.Errorf("watch: %d, %s", code, out)
			}
			if out, code := post("/v3/lock/lock", `{"name":"`+b64("mutex")+`"}`); code != http.StatusOK || !strings.Contains(out, `"key":"`) {
				t.Errorf("lock: %d, %s", code, out)
			}
		})
	}
}

func TestListen(t *testing.T) {
	for _, bad := range []string{"ftp://127.0.0.1:0", "https://127.0.0.1:0", "http://192.0.2.1:1"} {
		u, err := url.Parse(bad)
		if err != nil {
			t.Fatal(err)
		}
		if l, err := Listen(*u, transport.TLSInfo{}); err == nil {
			l.Close()
			t.Errorf("%s: no error", bad)
		}
	}
}

// TestUnix checks that a Unix socket works as with etcd, even if a killed process has left its
// socket.
func TestUnix(t *testing.T) {
	c := etcdtest.New(t, 1, etcdtest.Options{})
	path := filepath.Join(t.TempDir(), "socket")
	for range 2 {
		l, err := Listen(url.URL{Scheme: "unix", Path: path}, transport.TLSInfo{})
		if err != nil {
			t.Fatal(err)
		}
		u, err := Dial(UpstreamConfig{Endpoints: c.Endpoints()})
		if err != nil {
			t.Fatal(err)
		}
		defer u.Close()
		g, err := New(Config{Upstream: u})
		if err != nil {
			t.Fatal(err)
		}
		go g.Serve(l)
		defer g.Shutdown(t.Context())
		if _, err := etcdtest.Client(t, "unix://"+path).Put(t.Context(), "k", "v"); err != nil {
			t.Error(err)
		}
	}
}
