package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/syncbuffer"
	"github.com/netcraq/netcraq/internal/testutil/testcerts"
	"github.com/netcraq/netcraq/internal/testutil/testport"
)

// TestMistakes checks that mistakes on the command line are found before anything starts, and that
// the message names the remedy.
func TestMistakes(t *testing.T) {
	a := testcerts.NewAuthority(t)
	certs, _ := a.Issue("server", "")
	for line, want := range map[string]string{
		"extra":                                             `unknown command "extra"`,
		"--no-such-flag":                                    "unknown flag: --no-such-flag",
		"--log-level loud":                                  "give debug, info, warn or error",
		"--endpoints 127.0.0.1":                             "give URLs, or HOST:PORT",
		"--endpoints ftp://h:1":                             "begins with http://, https://",
		"--endpoints http://h":                              "give http://HOST:PORT",
		"--endpoints http://h:1/x":                          "give http://HOST:PORT",
		"--endpoints http://h:1,https://h:2":                "all must have the same",
		"--endpoints http://h:1 --cacert " + a.File:         "write https",
		"--endpoints h:1 --data-dir x":                      "leave out --endpoints, or them",
		"--endpoints h:1 --cert " + certs.CertFile:          "--cert and --key: give both",
		"--endpoints h:1 --cacert /no/such/file":            "no such file",
		"--cacert " + a.File:                                "name it with --endpoints",
		"--insecure-skip-tls-verify":                        "name it with --endpoints",
		"--endpoints http://h:1 --insecure-skip-tls-verify": "it is for https",
		"--endpoints https://h:1 --insecure-skip-tls-verify --cacert " + a.File:   "without --cacert",
		"--cert-file " + certs.CertFile:                                           "give both, or neither",
		"--client-cert-auth":                                                      "give --trusted-ca-file too",
		"--trusted-ca-file " + a.File:                                             "write https",
		"--client-crl-file " + a.File:                                             "give --trusted-ca-file too",
		"--trusted-ca-file " + a.File + " --client-crl-file " + a.File:            "it has to be DER",
		"--listen-client-urls https://127.0.0.1:0":                                "give --cert-file and --key-file",
		"--listen-client-urls 127.0.0.1:0":                                        "is not a URL",
		"--listen-client-urls https://127.0.0.1:0 --cert-file /no --key-file /no": "no such file",
		"--advertise-client-urls gateway":                                         "begins with http://, https://",
		"--metrics-addr 9090":                                                     "give HOST:PORT",
		"--controller unix://c.sock":                                              "give the path of the controller's socket",
		"--controller-token /x":                                                   "give the controller's address, too",
		"--controller h:1 --controller-token /no/such/file":                       "--controller-token: open /no/such/file",
		"--controller nowhere":                                                    "give the controller's admin address",
		"--controller h:1 --user u":                                               "give both, or neither",
		"--user u --password-file " + a.File:                                      "which is not given",
		"--controller h:1 --user u --password-file /no/such/file --endpoints h:1": "no such file",
		"--prefix x":                        "ends with a slash",
		"--seal-age 5s":                     "give a minute or more",
		"--seal-age -1h":                    "give a minute or more",
		"--endpoints-auto-sync-interval 5s": "name it with --endpoints",
		"--endpoints h:1 --endpoints-auto-sync-interval 5ms":                     "give a second or more",
		"--discovery-srv-name n":                                                 "give --discovery-srv, too",
		"--discovery-srv a.invalid --endpoints h:1":                              "give one of them",
		"--discovery-srv a.invalid":                                              "--discovery-srv a.invalid: gateway: asking DNS",
		"--tls-min-version SSL3":                                                 "give TLS1.2 or TLS1.3",
		"--tls-max-version 1.3":                                                  "give TLS1.2 or TLS1.3",
		"--tls-min-version TLS1.3 --tls-max-version TLS1.2":                      "is above",
		"--listen-cipher-suites ROT13":                                           "ROT13",
		"--listen-cipher-suites TLS_AES_128_GCM_SHA256 --tls-min-version TLS1.3": "cannot be chosen",
		"--cors ui.example":                                                      "give origins such as",
		"--top-keys 0":                                                           "from 1 to 10000",
		"--max-request-bytes 0":                                                  "give a number from 1",
		"--max-concurrent-streams 0":                                             "nobody could ask anything",
		"--grpc-keepalive-timeout 0s":                                            "give a time above 0",
		"--embedded-client-address 0.0.0.0:2379 --data-dir " + t.TempDir():       "not on this machine's loopback",
		"--controller h:1 --endpoints h:1 --namespace /netcraq/x/":               "NetCRAQ's own: give another one",
	} {
		var errs strings.Builder
		code := run(t.Context(), strings.Fields(line), io.Discard, &errs)
		wantCode := exitBadInput
		if strings.Contains(line, "embedded") {
			wantCode = exitFailed
		}
		if code != wantCode || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: exit code %d, %q; want %d, %q", line, code, errs.String(), wantCode, want)
		}
	}
}

// ready starts the command, and returns its first line and the function end. end stops the command
// and returns its exit code.
func ready(t *testing.T, args ...string) (line string, end func() int) {
	t.Helper()
	return readyLogging(t, new(syncbuffer.Buffer), args...)
}

// readyLogging is like ready, but it also writes the command's log to errs.
func readyLogging(t *testing.T, errs *syncbuffer.Buffer, args ...string) (line string, end func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, args, in, errs)
		in.Close()
	}()
	s := bufio.NewScanner(out)
	if !s.Scan() || !strings.HasPrefix(s.Text(), "ready: ") {
		cancel()
		t.Fatalf("printed %q; exit code %d, %s", s.Text(), <-code, errs.String())
	}
	done := false
	end = func() int {
		if done {
			return 0
		}
		done = true
		cancel()
		c := <-code
		if said := errs.String(); said != "" {
			t.Logf("on stderr: %s", said)
		}
		return c
	}
	t.Cleanup(func() { end() })
	return s.Text(), end
}

func endpoint(t *testing.T, line string) string {
	t.Helper()
	m := regexp.MustCompile(`etcd's API at (\S+),`).FindStringSubmatch(line)
	if m == nil {
		t.Fatalf("no address in %q", line)
	}
	return m[1]
}

// TestEmbedded checks that the command without arguments starts an etcd. Data survives a restart,
// and metrics count requests. A signal ends the command even if a watch is open.
func TestEmbedded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	args := []string{"--data-dir", dir, "--listen-client-urls", "http://127.0.0.1:0", "--metrics-addr", "127.0.0.1:0"}
	line, end := ready(t, args...)
	c := etcdtest.Client(t, endpoint(t, line))
	if _, err := c.Put(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	r, err := http.Get(regexp.MustCompile(`http://\S+/metrics`).FindString(line))
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(r.Body)
	r.Body.Close()
	for _, want := range []string{`etcd_monitor_key_reads_total{key="k"} 1`, `etcd_monitor_key_writes_total{key="k"} 0`, `etcd_monitor_requests_total{kind="put"} 1`, "etcd_monitor_revision 2", "go_goroutines", "process_"} {
		if !strings.Contains(string(body), want) {
			t.Errorf("metrics have no %s", want)
		}
	}
	w := c.Watch(clientv3.WithRequireLeader(t.Context()), "k", clientv3.WithCreatedNotify())
	<-w
	began := time.Now()
	if code := end(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	if d := time.Since(began); d > graceTime {
		t.Errorf("it took %v to end, with a watch under way", d)
	}
	c.Close()
	if b, err := os.ReadFile(filepath.Join(dir, "etcd.log")); err != nil || strings.Contains(string(b), "request stats") {
		t.Errorf("etcd's log: %v; it must be there, and not name each request: %s", err, b)
	}

	line, _ = ready(t, args...)
	got, err := etcdtest.Client(t, endpoint(t, line)).Get(t.Context(), "k")
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "v" {
		t.Errorf("after a restart: %v, %v", got, err)
	}
}

// TestBeforeEtcd checks that a gateway can start before its etcd. Clients then wait for etcd until
// their own deadline.
func TestBeforeEtcd(t *testing.T) {
	a := testport.Free(t)
	var log syncbuffer.Buffer
	line, _ := readyLogging(t, &log, "--endpoints", a, "--listen-client-urls", "http://127.0.0.1:0", "--metrics-addr", "")
	if !regexp.MustCompile(`it does not answer yet.* refused`).MatchString(line) {
		t.Errorf("without an etcd it says only %q", line)
	}
	logs := func(what string) {
		t.Helper()
		poll.Until(t, 10*time.Second, "the log says: "+what, func() bool { return strings.Contains(log.String(), what) })
	}
	logs("etcd does not answer")
	c := etcdtest.Client(t, endpoint(t, line))
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := c.Put(short, "k", "v"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("without an etcd: %v, want %v", err, context.DeadlineExceeded)
	}
	line, _ = ready(t, "--data-dir", t.TempDir(), "--embedded-client-address", a, "--listen-client-urls", "http://127.0.0.1:0", "--metrics-addr", "")
	if strings.Contains(line, "not answer") {
		t.Errorf("with an etcd it says %q", line)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := c.Put(ctx, "k", "v"); err != nil {
		t.Fatalf("10 s after etcd is there: %v", err)
	}
	logs("etcd answers")
}

// TestUnverified checks that the gateway uses an etcd with an untrusted certificate only if the
// flag for that is given.
func TestUnverified(t *testing.T) {
	certs, _ := testcerts.NewAuthority(t).Issue("etcd", "", "nobody.example")
	etcd := etcdtest.New(t, 1, etcdtest.Options{TLS: transport.TLSInfo{CertFile: certs.CertFile,
		KeyFile: certs.KeyFile}}).Endpoints()[0]
	for _, insecure := range []bool{true, false} {
		line, _ := ready(t, "--endpoints", etcd, fmt.Sprintf("--insecure-skip-tls-verify=%v", insecure), "--listen-client-urls", "http://127.0.0.1:0", "--metrics-addr", "")
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		if insecure {
			cancel()
			ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
		}
		if _, err := etcdtest.Client(t, endpoint(t, line)).Put(ctx, "k", "v"); (err == nil) != insecure {
			t.Errorf("--insecure-skip-tls-verify=%v: %v", insecure, err)
		}
		cancel()
	}
}

// TestController checks a gateway with a controller, which serves the key-value service itself. All
// requests go to etcd while no key is placed or the controller does not answer. Clients cannot
// write the gateways' own keys.
func TestController(t *testing.T) {
	chains := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "[]")
	}))
	defer chains.Close()
	for _, controller := range []string{chains.URL, testport.Free(t)} {
		line, end := ready(t, "--data-dir", t.TempDir(), "--listen-client-urls", "http://127.0.0.1:0", "--metrics-addr", "127.0.0.1:0", "--controller", controller)
		c := etcdtest.Client(t, endpoint(t, line))
		for _, key := range []string{"k", "other"} {
			if _, err := c.Put(t.Context(), key, "v"); err != nil {
				t.Fatal(err)
			}
		}
		if r, err := c.Get(t.Context(), "k"); err != nil || len(r.Kvs) != 1 {
			t.Errorf("%v, %v", r, err)
		}
		if _, err := c.Put(t.Context(), placement.DefaultPrefix+"placed/k", "{}"); status.Code(err) != codes.PermissionDenied {
			t.Errorf("a write of what is the gateways' own: %v", err)
		}
		s, err := concurrency.NewSession(c)
		if err != nil {
			t.Fatal(err)
		}
		m := concurrency.NewMutex(s, "/mutex")
		if err := m.Lock(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := v3lockpb.NewLockClient(c.ActiveConnection()).Lock(t.Context(),
			&v3lockpb.LockRequest{Name: []byte("/served"), Lease: int64(s.Lease())}); err != nil {
			t.Errorf("etcd's lock service: %v", err)
		}
		s.Close()
		if n, err := c.Delete(t.Context(), "", clientv3.WithPrefix()); err != nil || n.Deleted != 2 {
			t.Errorf("all were deleted: %v, %v; want the two keys", n, err)
		}
		c.Close()
		if code := end(); code != exitOK {
			t.Errorf("exit code %d", code)
		}
	}
}

// TestAuthentication checks that with etcd's authentication, clients can do what their roles
// permit. The roles must also permit reading the gateways' own keys, because writes are conditional
// on these keys.
func TestAuthentication(t *testing.T) {
	chains := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "[]")
	}))
	defer chains.Close()
	cluster := etcdtest.New(t, 1, etcdtest.Options{})
	direct := etcdtest.Client(t, cluster.Endpoints()...)
	end := clientv3.GetPrefixRangeEnd
	for _, step := range []func() error{
		func() error { _, err := direct.UserAdd(t.Context(), "root", "secret"); return err },
		func() error { _, err := direct.UserGrantRole(t.Context(), "root", "root"); return err },
		func() error { _, err := direct.RoleAdd(t.Context(), "gateways"); return err },
		func() error {
			_, err := direct.RoleGrantPermission(t.Context(), "gateways", placement.DefaultPrefix,
				end(placement.DefaultPrefix), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := direct.UserAdd(t.Context(), "gateway", "own"); return err },
		func() error { _, err := direct.UserGrantRole(t.Context(), "gateway", "gateways"); return err },
		func() error { _, err := direct.RoleAdd(t.Context(), "public"); return err },
		func() error {
			_, err := direct.RoleGrantPermission(t.Context(), "public", "pub/", end("pub/"),
				clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error {
			_, err := direct.RoleGrantPermission(t.Context(), "public", placement.DefaultPrefix,
				end(placement.DefaultPrefix), clientv3.PermissionType(clientv3.PermRead))
			return err
		},
		func() error { _, err := direct.UserAdd(t.Context(), "alice", "pw"); return err },
		func() error { _, err := direct.UserGrantRole(t.Context(), "alice", "public"); return err },
		func() error { _, err := direct.AuthEnable(t.Context()); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("own\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	line, _ := ready(t, "--endpoints", cluster.Endpoints()[0], "--listen-client-urls", "http://127.0.0.1:0", "--metrics-addr", "", "--controller", chains.URL, "--user", "gateway", "--password-file", file)
	alice := etcdtest.ClientWith(t, clientv3.Config{Endpoints: []string{endpoint(t, line)}, Username: "alice", Password: "pw"})
	if _, err := alice.Put(t.Context(), "pub/x", "1"); err != nil {
		t.Error(err)
	}
	if r, err := alice.Get(t.Context(), "pub/x"); err != nil || len(r.Kvs) != 1 {
		t.Errorf("%v, %v", r, err)
	}
	if _, err := alice.Put(t.Context(), "private", "1"); !errors.Is(err, rpctypes.ErrPermissionDenied) {
		t.Errorf("a write that alice may not make: %v", err)
	}
	if _, err := alice.Get(t.Context(), "private"); !errors.Is(err, rpctypes.ErrPermissionDenied) {
		t.Errorf("a read that alice may not make: %v", err)
	}
	if r, err := etcdtest.Client(t, endpoint(t, line)).Get(t.Context(), "pub/x"); err == nil {
		t.Errorf("nobody has read %v", r)
	}
}

func TestAddressInUse(t *testing.T) {
	line, _ := ready(t, "--endpoints", "127.0.0.1:1", "--listen-client-urls", "http://127.0.0.1:0", "--metrics-addr", "")
	var errs strings.Builder
	if code := run(t.Context(), []string{"--endpoints", "127.0.0.1:1", "--listen-client-urls", endpoint(t, line)}, io.Discard, &errs); code != exitFailed ||
		!strings.Contains(errs.String(), "--listen-client-urls chooses other addresses") {
		t.Errorf("exit code %d, %s", code, errs.String())
	}
}

// TestServing checks that clients must use the configured TLS versions and cipher suites. It also
// checks that the metrics include the gateway's own, and that clients see only their namespace.
func TestServing(t *testing.T) {
	a := testcerts.NewAuthority(t)
	certs, _ := a.Issue("server", "")
	const suite = tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
	for flags, want := range map[string]struct{ v12, v13 bool }{
		"":                         {true, true},
		"--tls-min-version TLS1.3": {false, true},
		"--tls-max-version TLS1.2 --listen-cipher-suites " + tls.CipherSuiteName(suite): {true, false},
	} {
		args := []string{"--data-dir", t.TempDir(), "--listen-client-urls", "https://127.0.0.1:0", "--cert-file", certs.CertFile, "--key-file", certs.KeyFile, "--metrics-addr", "127.0.0.1:0", "--namespace", "n/"}
		line, end := ready(t, append(args, strings.Fields(flags)...)...)
		client, err := transport.TLSInfo{TrustedCAFile: a.File}.ClientConfig()
		if err != nil {
			t.Fatal(err)
		}
		for version, ok := range map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: want.v12,
			tls.VersionTLS13: want.v13} {
			cfg := client.Clone()
			cfg.MinVersion, cfg.MaxVersion = version, version
			c, err := tls.Dial("tcp", strings.TrimPrefix(endpoint(t, line), "https://"), cfg)
			if (err == nil) != ok {
				t.Errorf("%q: %s: %v", flags, tls.VersionName(version), err)
			}
			if err == nil {
				if got := c.ConnectionState().CipherSuite; strings.Contains(flags, "cipher") && got != suite {
					t.Errorf("%q: cipher suite %s", flags, tls.CipherSuiteName(got))
				}
				c.Close()
			}
		}
		keys := etcdtest.ClientWith(t, clientv3.Config{Endpoints: []string{endpoint(t, line)}, TLS: client})
		if _, err := keys.Put(t.Context(), "k", "v"); err != nil {
			t.Errorf("%q: %v", flags, err)
		}
		metrics := regexp.MustCompile(`http://\S+/metrics`).FindString(line)
		r, err := http.Get(strings.TrimSuffix(metrics, "/metrics") + "/debug/vars")
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(r.Body); err != nil || !strings.Contains(string(b), `"memstats"`) {
			t.Errorf("variables: %.100s, %v", b, err)
		}
		r.Body.Close()
		if r, err = http.Get(metrics); err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(r.Body); err != nil ||
			!strings.Contains(string(b), `etcd_monitor_key_writes_total{key="n/k"}`) && !strings.Contains(string(b), `etcd_monitor_requests_total{kind="put"} 1`) {
			t.Errorf("metrics: %v\n%s", err, b)
		}
		r.Body.Close()
		end()
	}
}
