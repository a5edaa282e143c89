package adminserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/controlplane/adminserver/page"
)

// These limits apply to all callers together. Beyond them the server answers 503, or makes
// connections wait.
const (
	maxRequests = 128 // maximum number of concurrent requests, not counting event streams
	maxStreams  = 64
	// maxOpen is the maximum number of concurrent requests that need no authentication: health,
	// metrics, and the page's files.
	maxOpen        = 16
	maxAlive       = 16  // maximum number of concurrent requests of AlivePath by other controllers
	maxConnections = 256 // maximum number of connections at each address
	// maxStrangers limits the connections of users without access at a socket, so that these users
	// cannot use up all connections.
	maxStrangers = 16

	headerTime = 5 * time.Second
	idleTime   = 2 * time.Minute
	maxHeader  = 32 << 10 // maximum size of a request's header in bytes
)

// Config says where the admin API is served, and who may use it.
type Config struct {
	// Endpoints are the addresses, in the form unix:///PATH, or HOST:PORT for TCP. A Unix socket
	// admits root, this process's own user, and the users and group named below. TCP admits holders
	// of a token.
	Endpoints []string
	Users     []string // names or numbers of additional users of the sockets
	Group     string   // name or number of the group of the sockets; "" leaves the group unchanged
	Token     string   // path of the file with the token for TCP; created with mode 0600 if missing
	ReadToken string   // path of the file with the read-only token
}

// DefaultEndpoints returns the endpoints that apply without --admin.
func DefaultEndpoints() []string { return []string{admin.DefaultSocket(), admin.DefaultAddress} }

// Flags adds the flags that fill in a Config.
func (c *Config) Flags(f *pflag.FlagSet) {
	f.StringSliceVar(&c.Endpoints, "admin", DefaultEndpoints(), "`ADDRESSES` of the admin API: unix:///PATH admits root, this process's user, --admin-users and --admin-group; HOST:PORT admits callers with the token (default: this machine's socket and "+admin.DefaultAddress+")")
	f.Lookup("admin").DefValue = "[]" // the default is too long for the help; the flag's description names it
	f.StringSliceVar(&c.Users, "admin-users", nil, "more `USERS` to admit at the Unix socket, names or numbers")
	f.StringVar(&c.Group, "admin-group", "", "`GROUP` to admit at the Unix socket, name or number")
	f.StringVar(&c.Token, "admin-token", admin.DefaultToken(), "`FILE` with the token for HOST:PORT, created if missing; the controllers of one network share it")
	f.StringVar(&c.ReadToken, "admin-read-token", admin.DefaultReadToken(), "`FILE` with the read-only token for HOST:PORT, created if missing")
}

// Server serves the admin API at its addresses to authorized callers.
type Server struct {
	log         *slog.Logger
	uids        []uint32
	gid         int // -1 means no group
	token, read string
	listeners   []net.Listener
	locks       []*os.File
	tcp         net.Addr // nil if the API is not served over TCP

	links   *passes // one-time links
	cookies *passes

	requests, streams, open, alive chan struct{}
}

// Listen opens a server's addresses. Serve starts to serve them.
func Listen(c Config, log *slog.Logger) (_ *Server, err error) {
	s := &Server{log: log, gid: -1, links: newPasses(linkLife, 16), cookies: newPasses(cookieLife, 64),
		requests: make(chan struct{}, maxRequests), streams: make(chan struct{}, maxStreams),
		open: make(chan struct{}, maxOpen), alive: make(chan struct{}, maxAlive)}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if len(c.Endpoints) == 0 {
		return nil, errors.New("the admin API would be served nowhere: --admin unix:///PATH, HOST:PORT, or both")
	}
	for _, u := range c.Users {
		id, err := number(u, func(name string) (string, error) {
			found, err := user.Lookup(name)
			if err != nil {
				return "", err
			}
			return found.Uid, nil
		})
		if err != nil {
			return nil, fmt.Errorf("--admin-users %s: %w", u, err)
		}
		s.uids = append(s.uids, id)
	}
	if c.Group != "" {
		id, err := number(c.Group, func(name string) (string, error) {
			found, err := user.LookupGroup(name)
			if err != nil {
				return "", err
			}
			return found.Gid, nil
		})
		if err != nil {
			return nil, fmt.Errorf("--admin-group %s: %w", c.Group, err)
		}
		s.gid = int(id)
	}
	for _, e := range c.Endpoints {
		if path, ok := strings.CutPrefix(e, "unix://"); ok {
			err = s.listenUnix(path)
		} else {
			err = s.listenTCP(e, c)
		}
		if err != nil {
			return nil, fmt.Errorf("the admin API: %w", err)
		}
	}
	return s, nil
}

// number returns a user's or group's number. look finds the number of a name.
func number(s string, look func(string) (string, error)) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		var found string
		if found, err = look(s); err == nil {
			n, err = strconv.ParseUint(found, 10, 32)
		}
	}
	return uint32(n), err
}

// listenUnix opens a socket. It replaces a dead process's socket. If a live process has the socket,
// listenUnix fails.
func (s *Server) listenUnix(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%q is not the path of a socket, such as %s", path, admin.SystemSocket)
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("the folder of its socket: %w (--admin chooses another place)", err)
	}
	// The lock decides whether the socket is in use. Connecting to the socket would not suffice,
	// because two servers that start at the same time could both find it unused.
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("the lock of its socket: %w (--admin chooses another place)", err)
	}
	s.locks = append(s.locks, lock)
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("%s is in use: is another controller running? --admin chooses another place", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the socket of one that has ended: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	s.listeners = append(s.listeners, netutil.LimitListener(&peers{l, s, make(chan struct{}, maxStrangers)},
		maxConnections))
	if s.gid >= 0 {
		if err := os.Chown(path, -1, s.gid); err != nil {
			return fmt.Errorf("giving its socket to the group: %w", err)
		}
	}
	mode := os.FileMode(0o660)
	if len(s.uids) > 0 {
		mode = 0o666 // any user may connect, because the kernel identifies the callers
	}
	return os.Chmod(path, mode)
}

func (s *Server) listenTCP(address string, c Config) (err error) {
	if s.token == "" {
		if c.Token == "" || c.ReadToken == "" || c.Token == c.ReadToken {
			return fmt.Errorf("%s asks for a token: give two files, --admin-token and --admin-read-token", address)
		}
		if s.token, err = loadToken(c.Token); err != nil {
			return err
		}
		if s.read, err = loadToken(c.ReadToken); err != nil {
			return err
		}
		if same(s.token, s.read) {
			return fmt.Errorf("%s and %s have the same token: who may only look could change everything", c.Token, c.ReadToken)
		}
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("%w (is another controller running? --admin chooses another address)", err)
	}
	if s.tcp == nil {
		s.tcp = l.Addr()
	}
	s.listeners = append(s.listeners, netutil.LimitListener(l, maxConnections))
	return nil
}

// Addresses returns the server's addresses, in the form for clients.
func (s *Server) Addresses() []string {
	var out []string
	for _, l := range s.listeners {
		if l.Addr().Network() == "unix" {
			out = append(out, "unix://"+l.Addr().String())
		} else {
			out = append(out, "http://"+l.Addr().String())
		}
	}
	return out
}

// TCP returns the first TCP address, or nil if there is none.
func (s *Server) TCP() net.Addr { return s.tcp }

// Tokens returns the tokens for TCP, as Authorization headers for another controller of the same
// network. A token is "" if there is none.
func (s *Server) Tokens() (all, read string) { return s.token, s.read }

// Serve serves next (see Handler) until ctx ends, and then returns nil. It returns earlier if
// serving fails.
func (s *Server) Serve(ctx context.Context, next http.Handler) error {
	server := &http.Server{Handler: s.door(next), ReadHeaderTimeout: headerTime, IdleTimeout: idleTime,
		MaxHeaderBytes: maxHeader,
		ErrorLog:       slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		BaseContext:    func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if a, ok := c.RemoteAddr().(peerAddr); ok {
				return context.WithValue(ctx, peerKey{}, a.peer)
			}
			return ctx
		}}
	var wg sync.WaitGroup
	ended := make(chan error, len(s.listeners))
	for _, l := range s.listeners {
		wg.Go(func() { ended <- server.Serve(l) })
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-ended:
		err = fmt.Errorf("the admin API: %w", err)
	}
	server.Close()
	wg.Wait()
	s.Close()
	return err
}

// Close ends a server whose Serve has returned or was not called.
func (s *Server) Close() {
	for _, l := range s.listeners {
		l.Close()
	}
	for _, f := range s.locks {
		f.Close()
	}
	s.listeners, s.locks = nil, nil
}

type peerKey struct{}

// peers is a Unix socket that identifies the process at the other end of each connection.
type peers struct {
	*net.UnixListener
	server    *Server
	strangers chan struct{}
}

// peerConn returns the peer in its remote address, because wrapping a connection preserves that
// address.
type peerConn struct {
	*net.UnixConn
	peer peer
	gone func()
}

// Close implements net.Conn.
func (c *peerConn) Close() error {
	c.gone()
	return c.UnixConn.Close()
}

type peerAddr struct {
	net.Addr
	peer peer
}

// RemoteAddr implements net.Conn.
func (c *peerConn) RemoteAddr() net.Addr { return peerAddr{c.UnixConn.RemoteAddr(), c.peer} }

// Accept implements net.Listener.
func (l *peers) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		p, err := peerOf(c)
		switch {
		case err != nil:
			l.server.log.Warn("a connection to the admin API was refused", "err", err)
			c.Close()
			continue
		case l.server.allowed(p):
			return &peerConn{c, p, func() {}}, nil
		}
		select {
		case l.strangers <- struct{}{}: // the client is accepted, and gets an answer with the reason for the refusal
			return &peerConn{c, p, sync.OnceFunc(func() { <-l.strangers })}, nil
		default:
			c.Close()
		}
	}
}

// local reports whether a request addresses this machine by an IP address or as localhost. A
// request with another host name may come from a web page (DNS rebinding).
func local(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	return host == "localhost" || net.ParseIP(strings.Trim(host, "[]")) != nil
}

// openPaths lists the paths that need no authentication. Kubelets, Prometheus and other controllers
// request them, and the page's files contain nothing secret.
var openPaths = slices.Concat(openRoutes(), []string{"/v1/alive", "/"}, page.Paths())

func refuse(w http.ResponseWriter, status int, code, format string, args ...any) {
	e := admin.Errorf(code, format, args...)
	e.Status = status
	w.Header().Set("Connection", "close") // close the connection, because the rest of the request is not read
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="netcraq"`)
	}
	fail(w, e)
}

// door authenticates and authorizes requests.
func (s *Server) door(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// this deadline is for refusals, because other answers set their own deadline
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime))
		known, byUnix := r.Context().Value(peerKey{}).(peer)
		if !byUnix && !local(r) {
			refuse(w, http.StatusForbidden, admin.CodeInvalidArgument, "this API is not served as %q: use its IP address", r.Host)
			return
		}
		if code := r.URL.Query().Get("token"); !byUnix && r.Method == http.MethodGet && r.URL.Path == "/" && code != "" {
			s.logIn(w, r, code)
			return
		}
		caller, named := known.caller, byUnix
		if byUnix && !s.allowed(known) {
			s.log.Warn("refused at the admin API's socket", "user", caller.UID, "process", caller.PID)
			refuse(w, http.StatusForbidden, admin.CodePermissionDenied, "user %d may not ask this controller: root may, and who is named by its --admin-users and --admin-group", caller.UID)
			return
		}
		if !byUnix {
			caller, named = s.byToken(r)
		}
		if !named && (r.Method != http.MethodGet || !slices.Contains(openPaths, r.URL.Path)) {
			refuse(w, http.StatusUnauthorized, admin.CodeUnauthenticated,
				"over TCP this API asks for a token: --token-file FILE (its --admin-token says which), or its Unix socket; for a browser netcraqctl page gives a link")
			return
		}
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		if named && caller.ReadOnly && !reads {
			refuse(w, http.StatusForbidden, admin.CodePermissionDenied, "this token is for looking only: %s %s changes something", r.Method, r.URL.Path)
			return
		}
		ctx, slots := r.Context(), s.requests
		if named {
			ctx = WithCaller(ctx, caller)
		} else {
			slots = s.open
		}
		switch r.URL.Path { // requests with these paths last long
		case "/v1/events":
			slots = s.streams
		case "/v1/alive":
			slots = s.alive
		}
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		default:
			w.Header().Set("Retry-After", "1")
			refuse(w, http.StatusServiceUnavailable, admin.CodeUnavailable, "too many requests are under way (%d): try again", cap(slots))
			return
		}
		if r.Method == http.MethodPost && r.URL.Path == linkPath {
			s.makeLink(w)
			return
		}
		r = r.WithContext(ctx)
		r.Header.Del("Authorization") // handlers must not see credentials
		r.Header.Del("Cookie")
		next.ServeHTTP(w, r)
	})
}

// byToken returns the caller of a request over TCP, according to its token.
func (s *Server) byToken(r *http.Request) (Caller, bool) {
	if kind, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(kind, "Bearer") {
		// both tokens are always compared, so that the time is constant
		all, read := same(token, s.token), same(token, s.read)
		switch {
		case all:
			return Caller{Token: TokenAll}, true
		case read:
			return Caller{Token: TokenRead, ReadOnly: true}, true
		}
		return Caller{}, false
	}
	if s.hasCookie(r) {
		return Caller{Token: TokenPage, ReadOnly: true}, true
	}
	return Caller{}, false
}
