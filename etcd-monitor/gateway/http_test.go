package gateway

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/client/pkg/v3/transport"

	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/etcd-monitor/heat"
	"github.com/netcraq/netcraq/internal/testcerts"
	"github.com/netcraq/netcraq/internal/testport"
)

// get asks for a page, by HTTP/1.1 or HTTP/2 as the server prefers.
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

// etcd's pages, on the port of gRPC, in plain text and with TLS, are etcd's own.
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
		"TLS":   {etcdtest.Options{TLS: etcdCerts}, "https", transport.TLSInfo{CertFile: serverCerts.CertFile, KeyFile: serverCerts.KeyFile}, etcdCerts, secured},
	} {
		t.Run(name, func(t *testing.T) {
			c := etcdtest.New(t, 1, up.etcd)
			newest := new(Newest)
			metrics := heat.NewMetrics(heat.Bounds{}, newest.Revision)
			registry := prometheus.NewRegistry()
			registry.MustRegister(metrics)
			g := beginAt(t, Config{Metrics: metrics, Newest: newest, Registry: registry}, UpstreamConfig{Endpoints: c.Endpoints(), TLS: up.towards}, up.scheme, up.certs)
			for path, want := range map[string]string{
				"/health":                   `{"health":"true","reason":""}`,
				"/health?serializable=true": `{"health":"true","reason":""}`,
				"/livez":                    "ok",
				"/readyz/data_corruption":   "ok",
				"/version":                  `"etcdserver":"3.6.`,
				"/metrics":                  "etcd_server_has_leader 1",
				OwnMetrics:                  "etcd_monitor_revision ",
			} {
				if code, body := get(t, up.client, g.Endpoint+path); code != http.StatusOK || !strings.Contains(body, want) {
					t.Errorf("%s: %d, %.200q; want %q", path, code, body, want)
				}
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
			if code, body := get(t, up.client, g.Endpoint+"/health"); code != http.StatusServiceUnavailable || !json.Valid([]byte(body)) || !strings.Contains(body, `"health":"false"`) {
				t.Errorf("without etcd: %d, %q", code, body)
			}
		})
	}
}

// A member that is down does not make the pages fail while another answers.
func TestPagesOfTheLiving(t *testing.T) {
	c := etcdtest.New(t, 1, etcdtest.Options{})
	g := begin(t, Config{}, "http://"+testport.Free(t), c.Endpoints()[0])
	if code, body := get(t, http.DefaultClient, g.Endpoint+"/health"); code != http.StatusOK {
		t.Errorf("%d, %s", code, body)
	}
}

// etcd's JSON form of its services goes the way that gRPC goes.
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

// A Unix socket serves as etcd's does, also where the socket of a process that was killed is left.
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
