package kube

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	api "github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/controlplane/adminserver"
	"github.com/netcraq/netcraq/internal/oneconn"
	"github.com/netcraq/netcraq/nodeapi/authority"
	"github.com/netcraq/netcraq/nodeapi/durable/door"
)

// The node API asks the controller where keys are, and makes them there. An agent that may not lead
// knows neither who leads nor has a certificate for it. So it is asked the other way round: whoever
// leads connects to each agent, as it does for its pods, and on that connection (TLS, both ways)
// the agent asks and the leader answers, what the rights of a node allow (byNode):
//
//	leader ── TLS, "Upgrade: netcraq-controller" ──▶ agent
//	       ◀────────── HTTP/2: GET /v1/keys/... ────

// linkPath is where an agent takes such a connection.
const (
	linkPath     = "/v1/controller"
	linkProtocol = "netcraq-controller"
)

const (
	linkBeat = 5 * time.Second // of silence, after which the other end is asked whether it is there
	linkWait = 5 * time.Second // for that answer, and for a connection
	// linkAtOnce bounds how many requests of one node are under way at the leader.
	linkAtOnce = 64
	// linkOthers bounds those of them that are no renewals (PUT). The rest of the connection's
	// streams is left for renewals, which would come too late behind requests that the leader holds
	// up (share.go).
	linkOthers = 48
	// linkBody bounds a request's body, in bytes.
	linkBody = 64 << 10
	// linkHeader bounds the header of an agent's answer, and of each of its requests, in bytes.
	linkHeader = 16 << 10
)

// controllerLink is an agent's way to the controller: an http.RoundTripper over the connection that
// a leader has made last.
type controllerLink struct {
	mu      sync.Mutex
	now     *http.ClientConn
	changed chan struct{} // closed when there is another
	others  chan struct{} // has room for linkOthers requests
}

func newControllerLink() *controllerLink {
	return &controllerLink{changed: make(chan struct{}), others: make(chan struct{}, linkOthers)}
}

var errNoLeader = errors.New("no agent that leads has connected to this one")

// RoundTrip implements http.RoundTripper.
func (l *controllerLink) RoundTrip(r *http.Request) (*http.Response, error) {
	l.mu.Lock()
	c := l.now
	l.mu.Unlock()
	if c == nil || c.Err() != nil {
		return nil, errNoLeader
	}
	if r.Method != http.MethodPut {
		select {
		case l.others <- struct{}{}:
			defer func() { <-l.others }()
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	return c.RoundTrip(r)
}

// ServeHTTP takes a leader's connection. Who may make one, TLS has seen to: it has a controller's
// certificate.
func (l *controllerLink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != linkProtocol {
		http.Error(w, "this is for the agent that leads", http.StatusUpgradeRequired)
		return
	}
	nc, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if rw.Reader.Buffered() > 0 { // nothing comes before the answer
		nc.Close()
		return
	}
	_ = nc.SetDeadline(time.Now().Add(linkWait))
	if _, err := fmt.Fprintf(nc, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", linkProtocol); err != nil {
		nc.Close()
		return
	}
	_ = nc.SetDeadline(time.Time{})
	t := &http.Transport{DisableCompression: true, Protocols: onlyHTTP2(),
		HTTP2: &http.HTTP2Config{SendPingTimeout: linkBeat, PingTimeout: linkWait},
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return nc, nil
		}}
	// It does not end with this request, whose connection it has taken.
	c, err := t.NewClientConn(context.WithoutCancel(r.Context()), "http", "controller:80")
	if err != nil {
		nc.Close()
		return
	}
	l.mu.Lock()
	old := l.now
	l.now = c
	close(l.changed)
	l.changed = make(chan struct{})
	l.mu.Unlock()
	if old != nil { // of a leader that is none any more
		old.Close()
	}
}

// onlyHTTP2 is what is spoken within a connection that TLS has made.
func onlyHTTP2() *http.Protocols {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return p
}

// close ends the connection.
func (l *controllerLink) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now != nil {
		l.now.Close()
	}
}

// answerer is a leader's side: it has a connection to each node's agent, and answers.
type answerer struct {
	tls   *tls.Config
	serve http.Handler // the controller's admin API
	door  *door.Door   // to durable keys; nil: there are none
	log   *slog.Logger

	// quota is how many keys a namespace may have, whatever a node says.
	quota func(namespace string) int

	mu     sync.Mutex
	tasks  map[string]*task      // by the node's name and addresses
	shares map[string]*nodeShare // by the node's name
}

func newAnswerer(conf *tls.Config, serve http.Handler, d *door.Door, log *slog.Logger) *answerer {
	return &answerer{tls: conf, serve: serve, door: d, log: log, quota: defaultKeys, tasks: map[string]*task{},
		shares: map[string]*nodeShare{}}
}

// defaultKeys is how many keys a namespace may have where the leader has no policy of its own.
func defaultKeys(string) int { return authority.DefaultQuota.Keys }

// follow answers exactly these nodes from now on, until ctx ends.
//
// hostOf is a node's address as a host of the network; without one it is not answered.
func (a *answerer) follow(ctx context.Context, nodes []node, hostOf func(node) (netip.Addr, error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	wanted, there := map[string]bool{}, map[string]bool{}
	for _, n := range nodes {
		there[n.Name] = true
		if a.shares[n.Name] == nil {
			a.shares[n.Name] = newNodeShare()
		}
		if !n.there || n.status.Agent == "" {
			continue
		}
		host, err := hostOf(n)
		if err != nil { // the network leaves the node's own host out, which says why
			continue
		}
		key := n.Name + " " + n.status.Agent + " " + host.String()
		wanted[key] = true
		if !a.tasks[key].running() {
			t := newTask(ctx)
			a.tasks[key] = t
			go a.one(t.ctx, n.Name, n.status.Agent, host, a.shares[n.Name])
		}
	}
	endOthers(a.tasks, wanted)
	maps.DeleteFunc(a.shares, func(name string, _ *nodeShare) bool { return !there[name] })
}

func (a *answerer) one(ctx context.Context, name, address string, host netip.Addr, share *nodeShare) {
	var failed logOnce
	retry := workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, 5*time.Second)
	for ctx.Err() == nil {
		began := time.Now()
		err := a.answer(ctx, name, address, host, share)
		if time.Since(began) > linkBeat {
			retry.Forget(name)
			failed = logOnce{}
		}
		if ctx.Err() == nil && failed.isNew(err) {
			a.log.Warn("a node's agent cannot ask this controller", "node", name, "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retry.When(name)):
		}
	}
}

// answer connects to an agent and answers until the connection ends.
func (a *answerer) answer(ctx context.Context, name, address string, host netip.Addr, share *nodeShare) error {
	conf := a.tls.Clone()
	conf.ServerName = name
	dialing, cancel := context.WithTimeout(ctx, linkWait)
	defer cancel()
	nc, err := (&tls.Dialer{Config: conf}).DialContext(dialing, "tcp", address)
	if err != nil {
		return err
	}
	defer nc.Close()
	defer context.AfterFunc(ctx, func() { nc.Close() })()
	_ = nc.SetDeadline(time.Now().Add(linkWait))
	if _, err := fmt.Fprintf(nc, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", linkPath, address, linkProtocol); err != nil {
		return err
	}
	answer := &io.LimitedReader{R: nc, N: linkHeader}
	in := bufio.NewReader(answer)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return fmt.Errorf("the agent says %.100s", resp.Status)
	}
	answer.N = math.MaxInt64 // the server bounds what comes from here on
	_ = nc.SetDeadline(time.Time{})
	server := &http.Server{Handler: serveDurable(a.door, name, byNode(name, host, share, a.quota, a.serve)),
		Protocols:         onlyHTTP2(),
		ReadHeaderTimeout: linkWait, MaxHeaderBytes: linkHeader,
		BaseContext: func(net.Listener) context.Context { return ctx },
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: linkAtOnce, SendPingTimeout: linkBeat, PingTimeout: linkWait,
			MaxReceiveBufferPerConnection: 1 << 20, MaxReceiveBufferPerStream: linkBody}}
	if err := server.Serve(oneconn.Listen(&readAhead{nc, in})); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return errLinkEnded
}

// readAhead is a connection of which some bytes were read already.
type readAhead struct {
	net.Conn
	r *bufio.Reader
}

func (c *readAhead) Read(p []byte) (int, error) { return c.r.Read(p) }

var errLinkEnded = errors.New("the connection has ended")

// byNode is what a node's agent may ask of the controller, whatever has become of the node: to see
// chains, to see and make the node API's keys, to give those back that nobody uses, to lease
// sessions for its own address, and to have a server there told of commits. quota is how many keys
// a namespace may have.
func byNode(name string, host netip.Addr, share *nodeShare, quota func(namespace string) int,
	next http.Handler) http.Handler {
	mux := http.NewServeMux()
	pass := func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(adminserver.WithCaller(r.Context(), adminserver.Caller{Node: name})))
	}
	deny := func(w http.ResponseWriter, format string, args ...any) {
		e := api.Errorf(api.CodePermissionDenied, format, args...)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write(api.MarshalError(e))
	}
	denyKey := func(w http.ResponseWriter, name string) {
		deny(w, "a node may ask for keys whose names begin with %s, not for %.80q", nodeapi.KeyPrefix, name)
	}
	mux.HandleFunc("GET /v1/chains", pass)
	mux.HandleFunc("GET /v1/chains/{chain}", pass)
	list := share.lists.limit(pass)
	mux.HandleFunc("GET /v1/keys", func(w http.ResponseWriter, r *http.Request) {
		prefix := r.URL.Query()["prefix"]
		if len(prefix) != 1 || !strings.HasPrefix(prefix[0], nodeapi.KeyPrefix) {
			denyKey(w, strings.Join(prefix, " "))
			return
		}
		if r.URL.Query().Has("state") {
			deny(w, "a node reads what keys hold at its own switch")
			return
		}
		list(w, r)
	})
	named := func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.PathValue("name"), nodeapi.KeyPrefix) {
			denyKey(w, r.PathValue("name"))
			return
		}
		if r.URL.Query().Has("state") {
			deny(w, "a node reads what keys hold at its own switch")
			return
		}
		pass(w, r)
	}
	mux.HandleFunc("GET /v1/keys/{name}", named)
	mux.HandleFunc("DELETE /v1/keys/{name}", named) // the controller removes it only if it has no value
	mux.HandleFunc("POST /v1/keys", changed(func(k *api.KeyRequest) error {
		namespace, key, ok := nodeapi.ParseKeyName(k.Name)
		if !ok || authority.CheckNamespace(namespace) != nil || key == "" {
			return fmt.Errorf("a node may make keys whose names are %sNAMESPACE/KEY, not %.80q", nodeapi.KeyPrefix,
				k.Name)
		}
		if k.Quota == nil || k.Quota.Prefix != nodeapi.NamespacePrefix(namespace) {
			return errors.New("a node makes keys within the quota of their namespace")
		}
		k.Node, k.Quota.Keys = name, min(k.Quota.Keys, quota(namespace))
		return nil
	}, deny, pass))
	mux.HandleFunc("POST /v1/sessions", changed(func(s *api.SessionsRequest) error {
		s.Address = host.String()
		return nil
	}, deny, pass))
	mux.HandleFunc("PUT /v1/watches", changed(func(w *api.WatchRequest) error {
		w.Address = host.String()
		return nil
	}, deny, share.watches.limit(pass)))
	mux.HandleFunc("PUT /v1/sessions/{lease}", pass) // whose names cannot be guessed
	mux.HandleFunc("DELETE /v1/sessions/{lease}", pass)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		deny(w, "a node may not %s %.80s", r.Method, r.URL.Path)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del(readOnlyHeader)
		r.Body = http.MaxBytesReader(w, r.Body, linkBody)
		if share.wait(r) != nil {
			return // whoever asked has gone
		}
		mux.ServeHTTP(w, r)
	})
}

// changed passes a request on as it was understood, and not as it was written.
func changed[T any](check func(*T) error, deny func(http.ResponseWriter, string, ...any),
	pass http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		what := new(T)
		d := json.NewDecoder(r.Body)
		d.DisallowUnknownFields()
		if err := d.Decode(what); err != nil || d.More() {
			deny(w, "the request's body is not understood: %v", err)
			return
		}
		if err := check(what); err != nil {
			deny(w, "%v", err)
			return
		}
		b, err := json.Marshal(what)
		if err != nil {
			deny(w, "%v", err)
			return
		}
		out := r.Clone(r.Context())
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
		pass(w, out)
	}
}
