package adminserver

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// envAsk makes this test binary a client that requests a controller's chains, at a socket or URL.
// The client prints the answer, and its network namespace.
const envAsk = "NETCRAQ_TEST_ASK"

func TestMain(m *testing.M) {
	if to := os.Getenv(envAsk); to != "" {
		ask(to)
		return
	}
	os.Exit(m.Run())
}

func ask(to string) {
	_, err := admin.NewClient(to, admin.TokenFile(os.Getenv("NETCRAQ_TEST_TOKEN"))).Chains(context.Background())
	said := "ok"
	if err != nil {
		said = err.Error()
	}
	var space syscall.Stat_t
	_ = syscall.Stat("/proc/self/ns/net", &space) // if Stat fails, the test sees 0
	fmt.Printf("%d %s\n", space.Ino, said)
}

// asking runs this binary as a client (envAsk).
func asking(t *testing.T, to string, attributes *syscall.SysProcAttr, env ...string) (space uint64, said string) {
	t.Helper()
	// Copy this binary to a folder where the client's user can read and start it.
	exe := filepath.Join(t.TempDir(), "ask")
	b, err := os.ReadFile(os.Args[0])
	must(t, err)
	must(t, os.WriteFile(exe, b, 0o755))
	for dir := filepath.Dir(exe); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		must(t, os.Chmod(dir, 0o755))
	}
	cmd := exec.Command(exe)
	cmd.Env = append(append(os.Environ(), envAsk+"="+to), env...)
	cmd.SysProcAttr = attributes
	cmd.Stderr = os.Stderr
	cmd.Dir = "/"
	out, err := cmd.Output()
	must(t, err)
	number, said, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	space, err = strconv.ParseUint(number, 10, 64)
	must(t, err)
	return space, said
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root, to be somebody else")
	}
}

// callers is a backend for tests that records the callers.
type callers struct {
	*backend
	who chan Caller
}

func (c callers) Chains(ctx context.Context) ([]admin.Chain, error) {
	who, ok := CallerFrom(ctx)
	if !ok {
		return nil, admin.Errorf(admin.CodeInternal, "nobody has asked who this is")
	}
	c.who <- who
	return c.backend.Chains(ctx)
}

// served serves a backend at a socket and over TCP, in a folder that all users may enter.
type served struct {
	*Server
	dir, socket, url string
	who              chan Caller
	backend          *backend
}

func open(t *testing.T, change func(*Config)) *served {
	t.Helper()
	dir, err := os.MkdirTemp("", "netcraq-admin-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	c := Config{Endpoints: []string{"unix://" + filepath.Join(dir, "c.sock"), "127.0.0.1:0"},
		Token: filepath.Join(dir, "token"), ReadToken: filepath.Join(dir, "read")}
	if change != nil {
		change(&c)
	}
	s, err := Listen(c, slog.New(slog.DiscardHandler))
	must(t, err)
	out := &served{Server: s, dir: dir, socket: c.Endpoints[0], url: "http://" + s.TCP().String(),
		who: make(chan Caller, 100), backend: &backend{more: make(chan struct{})}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	bounds := newBodies()
	bounds.time, bounds.wait = 2*time.Second, 500*time.Millisecond // these limits are shorter than in production
	go func() { done <- s.Serve(ctx, handler(callers{out.backend, out.who}, nil, bounds)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return out
}

// TestSocket: the socket admits root, this process's user, and the named users and group. It
// refuses all other users, whatever the file's mode. The backend learns the caller and its network
// namespace.
func TestSocket(t *testing.T) {
	needsRoot(t)
	const nobody, other = 65534, 65533
	as := func(uid, gid uint32, groups ...uint32) *syscall.SysProcAttr {
		return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid, Groups: groups}}
	}
	for _, c := range []struct {
		what   string
		users  []string
		group  string
		mode   os.FileMode // 0 leaves the mode unchanged
		as     *syscall.SysProcAttr
		refuse string // "" if the caller is admitted
	}{
		{"root", nil, "", 0, nil, ""},
		{"a local user", nil, "", 0, as(nobody, nobody), "permission denied"},
		{"a local user, and the socket's mode was opened", nil, "", 0o666, as(nobody, nobody), "user 65534 may not ask this controller"},
		{"a user of root's group, and the socket's mode lets him connect", nil, "", 0, as(nobody, 0), "user 65534 may not ask this controller"},
		{"a user who is named", []string{"65534"}, "", 0, as(nobody, nobody), ""},
		{"another than the one who is named", []string{"65534"}, "", 0, as(other, other), "user 65533 may not ask this controller"},
		{"a member of the group", nil, "65533", 0, as(nobody, other), ""},
		{"a member of the group beside others", nil, "65533", 0, as(nobody, nobody, 12, other), ""},
		{"no member of the group", nil, "65533", 0, as(nobody, nobody, 12), "permission denied"},
		{"no member of the group, and the socket's mode was opened", nil, "65533", 0o666, as(nobody, nobody, 12), "user 65534 may not ask this controller"},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := open(t, func(conf *Config) { conf.Users, conf.Group = c.users, c.group })
			path := strings.TrimPrefix(s.socket, "unix://")
			if c.mode != 0 {
				must(t, os.Chmod(path, c.mode))
			}
			space, said := asking(t, s.socket, c.as)
			if c.refuse != "" {
				if !strings.Contains(said, c.refuse) || len(s.backend.asked) != 0 {
					t.Fatalf("heard %q, want %q; the backend was asked %q", said, c.refuse, s.backend.asked)
				}
				return
			}
			if said != "ok" {
				t.Fatal(said)
			}
			want := Caller{Unix: true, NetNS: space}
			if c.as != nil {
				want.UID, want.GID = c.as.Credential.Uid, c.as.Credential.Gid
			}
			got := <-s.who
			if got.PID <= 0 || space == 0 {
				t.Errorf("%+v", got)
			}
			got.PID = 0
			if got != want {
				t.Errorf("the backend saw %+v, want %+v", got, want)
			}
		})
	}
}

// TestStrangers: users without access cannot use up the connections, however many they open.
func TestStrangers(t *testing.T) {
	needsRoot(t)
	s := open(t, func(c *Config) { c.Users = []string{"65533"} }) // this option gives the socket mode 0666
	path := strings.TrimPrefix(s.socket, "unix://")
	done := make(chan struct{})
	go func() {
		defer close(done)
		// the thread is never unlocked, so it ends with the goroutine, because its user is changed
		runtime.LockOSThread()
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 {
			t.Error(errno)
			return
		}
		for range 2 * maxConnections {
			c, err := net.Dial("unix", path)
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { c.Close() })
		}
	}()
	<-done
	quick, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := admin.NewClient(s.socket).Chains(quick); err != nil {
		t.Error(err)
	}
}

// TestNetNS: the backend learns the network namespace of a caller, and nothing about a caller whose
// process has ended.
func TestNetNS(t *testing.T) {
	needsRoot(t)
	s := open(t, nil)
	space, said := asking(t, s.socket, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET})
	var own syscall.Stat_t
	must(t, syscall.Stat("/proc/self/ns/net", &own))
	if got := <-s.who; said != "ok" || got.NetNS != space || space == own.Ino || space == 0 {
		t.Errorf("heard %q; the caller is in %d, the backend saw %+v", said, space, got)
	}
	// A process connects to this socket, and ends before the server identifies it.
	path := filepath.Join(s.dir, "late.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	must(t, err)
	defer l.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envAsk+"=unix://"+path)
	must(t, cmd.Start())
	time.Sleep(300 * time.Millisecond)
	must(t, cmd.Process.Kill())
	_ = cmd.Wait() // returns an error, because the process was killed
	conn, err := l.AcceptUnix()
	must(t, err)
	defer conn.Close()
	if p, err := peerOf(conn); err != nil || p.caller.NetNS != 0 || p.caller.PID != int32(cmd.Process.Pid) {
		t.Errorf("%+v, %v", p, err)
	}
}

// request sends a request over TCP.
func (s *served) request(t *testing.T, method, path, body string, headers ...string) (int, string, *http.Response) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	must(t, err)
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	must(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, string(b), resp
}

// TestTCP: over TCP, a client without a token can neither change nor read anything, whatever
// address it uses.
func TestTCP(t *testing.T) {
	s := open(t, nil)
	token := func(name string) string {
		b, err := os.ReadFile(filepath.Join(s.dir, name))
		must(t, err)
		return "Bearer " + strings.TrimSpace(string(b))
	}
	all, read := token("token"), token("read")
	const add, keys = `{"name":"/a"}`, "/v1/chains/main/keys"
	const page = "http://evil.example"
	for _, c := range []struct {
		what, method, path, body string
		headers                  []string
		status                   int
		want                     string
	}{
		{"without a token", "GET", "/v1/chains", "", nil, 401, "asks for a token"},
		{"without a token, a change", "POST", keys, add, nil, 401, "asks for a token"},
		{"without a token, keys' names", "GET", "/v1/keys", "", nil, 401, ""},
		{"without a token, events", "GET", "/v1/events?follow=0", "", nil, 401, ""},
		{"without a token, a link", "POST", "/v1/page", "", nil, 401, ""},
		{"without a token, what there is not", "GET", "/v1/nothing", "", nil, 401, ""},
		{"without a token, a change of what is open", "POST", "/healthz", "", nil, 401, ""},
		{"health", "GET", "/healthz", "", nil, 200, "ok"},
		{"readiness", "GET", "/readyz", "", nil, 200, "ready"},
		{"metrics", "GET", "/metrics", "", nil, 404, ""}, // the request was admitted, but this backend has no metrics
		{"the page's files", "GET", "/page.js", "", nil, 200, "netcraqctl page"},
		{"a wrong token", "GET", "/v1/chains", "", []string{"Authorization", "Bearer " + strings.Repeat("0", 64)}, 401, "asks for a token"},
		{"half a token", "GET", "/v1/chains", "", []string{"Authorization", all[:30]}, 401, ""},
		{"an empty token", "GET", "/v1/chains", "", []string{"Authorization", "Bearer "}, 401, ""},
		{"a token that is none", "GET", "/v1/chains", "", []string{"Authorization", "Basic " + all[7:]}, 401, ""},
		{"the token in the URL", "GET", "/v1/chains?token=" + all[7:], "", nil, 401, ""},
		{"the token as a link", "GET", "/?token=" + all[7:], "", nil, 403, "netcraq page prints another one"},
		{"the token as a cookie", "GET", "/v1/chains", "", []string{"Cookie", s.cookie() + "=" + all[7:]}, 401, ""},
		{"the token", "GET", "/v1/chains", "", []string{"Authorization", all}, 200, "main"},
		{"the token, a change", "POST", keys, add, []string{"Authorization", all}, 200, `"keyId":1`},
		{"the read token", "GET", "/v1/chains", "", []string{"Authorization", read}, 200, "main"},
		{"the read token, a change", "POST", keys, add, []string{"Authorization", read}, 403, "for looking only"},
		{"the read token, a session", "POST", "/v1/sessions", "{}", []string{"Authorization", read}, 403, "for looking only"},
		{"DNS rebinding", "GET", "/v1/chains", "", []string{"Host", "evil.example"}, 403, "not served as"},
		{"DNS rebinding, with the token", "GET", "/v1/chains", "", []string{"Host", "evil.example", "Authorization", all}, 403, "not served as"},
		{"another site's page, with the token", "POST", keys, add, []string{"Authorization", all, "Origin", page, "Sec-Fetch-Site", "cross-site"}, 403, "page of another site"},
		{"another port's page, with the token", "POST", keys, add, []string{"Authorization", all, "Origin", "http://127.0.0.1:1", "Sec-Fetch-Site", "same-site"}, 403, "page of another site"},
	} {
		s.backend.asked = nil
		status, body, _ := s.request(t, c.method, c.path, c.body, c.headers...)
		if status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d %s; want %d %q", c.what, status, body, c.status, c.want)
		}
		if c.status >= 400 && len(s.backend.asked) != 0 {
			t.Errorf("%s: the backend was asked %q", c.what, s.backend.asked)
		}
	}
	if c := <-s.who; c != (Caller{Token: TokenAll}) {
		t.Errorf("%+v", c)
	}
	if c := <-s.who; c != (Caller{Token: TokenRead, ReadOnly: true}) {
		t.Errorf("%+v", c)
	}
	// The API's own client gets the same results.
	if _, err := admin.NewClient(s.url, admin.TokenFile(filepath.Join(s.dir, "token"))).Chains(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := admin.NewClient(s.url).Chains(t.Context()); err == nil || !strings.Contains(err.Error(), "--token-file") {
		t.Errorf("without a token: %v", err)
	}
}

// TestPageLink: a link admits one browser, once, for reading. The cookie allows no changes, and is
// valid only for this port.
func TestPageLink(t *testing.T) {
	s := open(t, nil)
	link, err := admin.NewClient(s.socket).PageLink(t.Context())
	must(t, err)
	if !strings.HasPrefix(link.URL, s.url+"/?token=") || link.Seconds != 300 {
		t.Fatalf("%+v", link)
	}
	query := strings.TrimPrefix(link.URL, s.url)
	status, _, resp := s.request(t, "GET", query, "")
	cookies := resp.Cookies()
	if status != 303 || resp.Header.Get("Location") != "/" || resp.Header.Get("Cache-Control") != "no-store" || len(cookies) != 1 {
		t.Fatalf("%d %v", status, resp.Header)
	}
	c := cookies[0]
	u, err := url.Parse(s.url)
	must(t, err)
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || !strings.HasSuffix(c.Name, u.Port()) || c.MaxAge <= 0 {
		t.Errorf("%+v", c)
	}
	cookie := []string{"Cookie", c.Name + "=" + c.Value}
	if status, body, _ := s.request(t, "GET", "/v1/chains", "", cookie...); status != 200 || !strings.Contains(body, "main") {
		t.Errorf("with the cookie: %d %s", status, body)
	}
	if got := <-s.who; got != (Caller{Token: TokenPage, ReadOnly: true}) {
		t.Errorf("%+v", got)
	}
	for _, change := range []string{"/v1/chains/main/keys", "/v1/page", "/v1/sessions"} {
		if status, body, _ := s.request(t, "POST", change, "{}", cookie...); status != 403 {
			t.Errorf("a change with the cookie: %s: %d %s", change, status, body)
		}
	}
	if status, _, resp := s.request(t, "GET", query, ""); status != 403 || len(resp.Cookies()) != 0 {
		t.Errorf("the link, once more: %d %v", status, resp.Cookies())
	}
	if status, _, resp := s.request(t, "GET", query, "", cookie...); status != 303 || len(resp.Cookies()) != 0 {
		t.Errorf("the link, once more, in the browser that has used it: %d %v", status, resp.Cookies())
	}
	s.links.life = -time.Second
	link, err = admin.NewClient(s.socket).PageLink(t.Context())
	must(t, err)
	if status, _, _ := s.request(t, "GET", strings.TrimPrefix(link.URL, s.url), ""); status != 403 {
		t.Errorf("a link that is too old: %d", status)
	}
	// The number of secrets is bounded, so the oldest secret is dropped.
	p := newPasses(time.Hour, 3)
	first := p.issue()
	for range 3 {
		p.issue()
	}
	if p.holds(first, false) || len(p.until) != 3 {
		t.Errorf("%d are kept", len(p.until))
	}
}

// TestTokenFile: a new token file is accessible only to its owner, and is reused. A token file that
// others can read is refused.
func TestTokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "token")
	token, err := loadToken(path)
	must(t, err)
	st, err := os.Stat(path)
	must(t, err)
	if st.Mode().Perm() != 0o600 || len(token) != 64 {
		t.Errorf("%v %q", st.Mode(), token)
	}
	if again, err := loadToken(path); err != nil || again != token {
		t.Errorf("%q, %v: it was %q", again, err, token)
	}
	for want, spoil := range map[string]func() error{
		"can be read":                func() error { return os.Chmod(path, 0o640) },
		"not one line of 32 or more": func() error { return os.WriteFile(path, []byte("short\n"), 0o600) },
		"is not one line of 32 or more char": func() error {
			return os.WriteFile(path, []byte(strings.Repeat("a", 40)+"\n"+strings.Repeat("b", 40)), 0o600)
		},
	} {
		must(t, os.Remove(path))
		must(t, os.WriteFile(path, []byte(token), 0o600))
		must(t, spoil())
		if _, err := loadToken(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	conf := Config{Endpoints: []string{"127.0.0.1:0"}, Token: path, ReadToken: path}
	if _, err := Listen(conf, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "give two files") {
		t.Error(err)
	}
}

// TestListen: Listen refuses bad addresses and sockets of live processes, and replaces sockets of
// dead processes.
func TestListen(t *testing.T) {
	dir := t.TempDir()
	socket := "unix://" + filepath.Join(dir, "c.sock")
	log := slog.New(slog.DiscardHandler)
	first, err := Listen(Config{Endpoints: []string{socket}}, log)
	must(t, err)
	if _, err := Listen(Config{Endpoints: []string{socket}}, log); err == nil || !strings.Contains(err.Error(), "is another controller running?") {
		t.Error(err)
	}
	if st, err := os.Stat(strings.TrimPrefix(socket, "unix://")); err != nil || st.Mode().Perm() != 0o660 {
		t.Errorf("%v %v", st, err)
	}
	if !slices.Equal(first.Addresses(), []string{socket}) || first.TCP() != nil {
		t.Errorf("%q", first.Addresses())
	}
	first.Close()
	// Leave a socket like the one that a killed process leaves.
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: strings.TrimPrefix(socket, "unix://"), Net: "unix"})
	must(t, err)
	left.SetUnlinkOnClose(false)
	left.Close()
	again, err := Listen(Config{Endpoints: []string{socket}}, log)
	must(t, err)
	again.Close()
	for want, c := range map[string]Config{
		"served nowhere":            {},
		"not the path of a socket":  {Endpoints: []string{"unix://c.sock"}},
		"asks for a token":          {Endpoints: []string{"127.0.0.1:0"}},
		"--admin-users nosuchuser_": {Endpoints: []string{socket}, Users: []string{"nosuchuser_"}},
		"--admin-group nosuchgroup": {Endpoints: []string{socket}, Group: "nosuchgroup_"},
		"missing port":              {Endpoints: []string{"nowhere"}, Token: filepath.Join(dir, "a"), ReadToken: filepath.Join(dir, "b")},
	} {
		if _, err := Listen(c, log); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
}

// unfinished begins n requests over TCP with large bodies, and does not end the bodies.
func (s *served) unfinished(t *testing.T, n int, head string, size int) []net.Conn {
	t.Helper()
	var out []net.Conn
	for range n {
		c, err := net.Dial("tcp", s.TCP().String())
		must(t, err)
		t.Cleanup(func() { c.Close() })
		out = append(out, c)
		go func() {
			_, _ = io.WriteString(c, head) // fails if the server has closed it
			piece := make([]byte, 1<<20)
			for left := size; left > 0; left -= len(piece) {
				if _, err := c.Write(piece); err != nil {
					return
				}
			}
		}()
	}
	return out
}

// TestUnfinishedBodies: twelve unfinished bodies of 64 MB use no memory without a token, and little
// with one. The server answers other requests meanwhile.
func TestUnfinishedBodies(t *testing.T) {
	s := open(t, nil)
	b, err := os.ReadFile(filepath.Join(s.dir, "token"))
	must(t, err)
	used := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := used()
	for _, c := range []struct {
		what, authorization string
		length              string
		size                int
	}{
		{"without a token", "", "Content-Length: 67108864", 64 << 20},
		{"with a token, larger than any body may be", "Authorization: Bearer " + strings.TrimSpace(string(b)) + "\r\n", "Content-Length: 67108864", 64 << 20},
		{"with a token, as large as it may be", "Authorization: Bearer " + strings.TrimSpace(string(b)) + "\r\n", "Content-Length: 16777216", 16<<20 - 1<<20},
		{"with a token, of no length", "Authorization: Bearer " + strings.TrimSpace(string(b)) + "\r\n", "Transfer-Encoding: chunked", 0},
	} {
		t.Run(c.what, func(t *testing.T) {
			conns := s.unfinished(t, 12, "POST /v1/chains/main/keys HTTP/1.1\r\nHost: 127.0.0.1\r\n"+c.authorization+c.length+"\r\n\r\n", c.size)
			time.Sleep(time.Second)
			grown := used() - before
			t.Logf("12 of them: %d MB more on the heap", grown>>20)
			if grown > allBodies+20<<20 {
				t.Errorf("%d MB", grown>>20)
			}
			quick, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			if _, err := admin.NewClient(s.socket).Chains(quick); err != nil {
				t.Errorf("nobody else is answered: %v", err)
			}
			if _, err := admin.NewClient(s.socket).AddKey(quick, "main", admin.KeySpec{Name: "/a"}); err != nil &&
				c.length != "Content-Length: 16777216" && c.length != "Transfer-Encoding: chunked" {
				t.Errorf("nobody else's bodies are read: %v", err)
			}
			for _, conn := range conns {
				_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
				if _, err := io.Copy(io.Discard, conn); err != nil && os.IsTimeout(err) {
					t.Error("the server waits for it for longer than it says")
				}
				conn.Close()
			}
		})
	}
	if _, err := admin.NewClient(s.socket).AddKey(t.Context(), "main", admin.KeySpec{Name: "/a"}); err != nil {
		t.Errorf("when they have ended: %v", err)
	}
}

// slow is a backend for tests that does not answer until the test lets it.
type slow struct {
	*backend
	go_ chan struct{}
}

func (s slow) Switches(context.Context) ([]admin.Switch, error) {
	<-s.go_
	return []admin.Switch{}, nil
}

// TestInFlight: requests beyond the limit are refused at once. The health check still works.
func TestInFlight(t *testing.T) {
	dir := t.TempDir()
	socket := "unix://" + filepath.Join(dir, "c.sock")
	s, err := Listen(Config{Endpoints: []string{socket}}, slog.New(slog.DiscardHandler))
	must(t, err)
	s.requests = make(chan struct{}, 3)
	b := slow{&backend{}, make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, Handler(b, nil)) }()
	defer func() { cancel(); must(t, <-done) }()
	answers := make(chan error, 3)
	for range 3 {
		go func() { _, err := admin.NewClient(socket).Switches(ctx); answers <- err }()
	}
	poll.Until(t, 5*time.Second, "three requests are under way", func() bool { return len(s.requests) == 3 })
	if _, err := admin.NewClient(socket).Chains(ctx); err == nil || !strings.Contains(err.Error(), "too many requests are under way (3)") {
		t.Error(err)
	}
	close(b.go_)
	for range 3 {
		must(t, <-answers)
	}
	if _, err := admin.NewClient(socket).Chains(ctx); err != nil {
		t.Error(err)
	}
}

// TestBodies: bodies that are too large, unexpected or too slow are refused.
func TestBodies(t *testing.T) {
	b := newBodies()
	b.time = 100 * time.Millisecond
	var got []int
	s := http.Server{Handler: b.limit(10, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, len(body))
	}))}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	go func() { _ = s.Serve(l) }() // returns when the test ends
	defer s.Close()
	for _, c := range []struct{ request, want string }{
		{"Content-Length: 10\r\n\r\n0123456789", "200"},
		{"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", "200"},
		{"Content-Length: 11\r\n\r\n0123456789a", "413"},
		{"Transfer-Encoding: chunked\r\n\r\nf\r\n0123456789abcde\r\n0\r\n\r\n", "413"},
		{"Content-Length: 10\r\n\r\n01234", "408"},
	} {
		conn, err := net.Dial("tcp", l.Addr().String())
		must(t, err)
		_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: localhost\r\n"+c.request)
		must(t, err)
		_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		answer := make([]byte, 12)
		_, err = io.ReadFull(conn, answer)
		if err != nil || string(answer[9:]) != c.want {
			t.Errorf("%q: %q %v, want %s", c.request, answer, err, c.want)
		}
		conn.Close()
	}
	if !slices.Equal(got, []int{10, 3}) {
		t.Errorf("%v were given on", got)
	}
}

// TestPassedOn: a standby controller shows the leader the token for the caller's rights. Callers
// without a token are refused.
func TestPassedOn(t *testing.T) {
	leader := open(t, nil)
	all, read := leader.Tokens()
	dir := t.TempDir()
	s, err := Listen(Config{Endpoints: []string{"unix://" + filepath.Join(dir, "c.sock"), "127.0.0.1:0"},
		Token: filepath.Join(leader.dir, "token"), ReadToken: filepath.Join(leader.dir, "read")},
		slog.New(slog.DiscardHandler))
	must(t, err)
	standing := &Replica{Token: all, ReadToken: read}
	standing.StandBy(leader.TCP().String())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, standing) }()
	defer func() { cancel(); must(t, <-done) }()
	if _, err := admin.NewClient("unix://" + filepath.Join(dir, "c.sock")).Chains(ctx); err != nil {
		t.Error(err)
	}
	if got := <-leader.who; got.Token != TokenAll {
		t.Errorf("%+v", got)
	}
	url := "http://" + s.TCP().String()
	if _, err := admin.NewClient(url, admin.TokenFile(filepath.Join(leader.dir, "read"))).Chains(ctx); err != nil {
		t.Error(err)
	}
	if got := <-leader.who; got.Token != TokenRead {
		t.Errorf("%+v", got)
	}
	if _, err := admin.NewClient(url).Chains(ctx); err == nil || !strings.Contains(err.Error(), "asks for a token") {
		t.Error(err)
	}
	// Two controllers may each consider the other one the leader. They must not forward requests
	// for ever.
	standing.StandBy(s.TCP().String())
	if _, err := admin.NewClient("unix://" + filepath.Join(dir, "c.sock")).Chains(ctx); err == nil ||
		!strings.Contains(err.Error(), "this controller stands by") {
		t.Error(err)
	}
}
