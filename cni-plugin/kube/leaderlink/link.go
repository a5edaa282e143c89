// Package leaderlink connects the leading agent with the agents of all nodes. The leader makes two
// connections to each agent, with mutual TLS:
//
//	leader                                                agent
//	PodFollower ── GET /v1/pods ─────────────────────────▶ ServePods: the node's list of pods
//	Answerer ───── GET /v1/controller, then reversed ────▶ Link: the agent asks the controller
//
// On the second connection, an agent sends requests to the admin API. Package adminrights decides
// which requests are permitted. The agent also opens separate streams for durable keys there
// (durable.go).
package leaderlink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// The node API asks the controller where keys are stored, and creates keys. An agent that may not
// lead does not know the leader, and has no certificate for connecting to it. So the leader
// connects to each agent, as it does for the list of pods. On that connection (mutual TLS) the
// agent sends requests, and the leader answers those that a node may make (adminrights.ByNode):
//
//	leader ── TLS, "Upgrade: netcraq-controller" ──▶ agent
//	       ◀────────── HTTP/2: GET /v1/keys/... ────

// Path is the path at which an agent accepts the controller's connection.
const (
	Path     = "/v1/controller"
	protocol = "netcraq-controller"
)

// Beat and Wait are the timeouts with which each end detects that the other end has gone.
const (
	Beat = 5 * time.Second // silence after which an end probes the other end
	Wait = 5 * time.Second // timeout for the answer to a probe, and for making a connection
	// atOnce limits the concurrent requests of one node at the leader.
	atOnce = 64
	// othersAtOnce limits the concurrent requests that are not renewals of sessions (PUT). The
	// remaining streams are reserved for renewals. Otherwise renewals would be late, because they
	// would queue behind requests that the leader delays (package adminrights).
	othersAtOnce = 48
	// headerLimit limits the header of an agent's answer, and of each of its requests, in bytes.
	headerLimit = 16 << 10
)

// Link is an agent's connection to the controller. It is an http.RoundTripper that uses the newest
// connection from a leader.
type Link struct {
	mu      sync.Mutex
	now     *http.ClientConn
	changed chan struct{} // closed when there is a new connection
	others  chan struct{} // has capacity for othersAtOnce requests
}

// New makes a Link that has no connection yet.
func New() *Link {
	return &Link{changed: make(chan struct{}), others: make(chan struct{}, othersAtOnce)}
}

var errNoLeader = errors.New("no agent that leads has connected to this one")

// RoundTrip implements http.RoundTripper.
func (l *Link) RoundTrip(r *http.Request) (*http.Response, error) {
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

// ServeHTTP accepts a leader's connection. TLS has checked that the caller has a controller's
// certificate.
func (l *Link) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != protocol {
		http.Error(w, "this is for the agent that leads", http.StatusUpgradeRequired)
		return
	}
	nc, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if rw.Reader.Buffered() > 0 { // an agent must not send anything before the answer
		nc.Close()
		return
	}
	_ = nc.SetDeadline(time.Now().Add(Wait))
	if _, err := fmt.Fprintf(nc, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", protocol); err != nil {
		nc.Close()
		return
	}
	_ = nc.SetDeadline(time.Time{})
	t := &http.Transport{DisableCompression: true, Protocols: onlyHTTP2(),
		HTTP2: &http.HTTP2Config{SendPingTimeout: Beat, PingTimeout: Wait},
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return nc, nil
		}}
	// The connection is hijacked from this request and outlives it.
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
	if old != nil { // an earlier leader made this connection
		old.Close()
	}
}

// onlyHTTP2 returns a setting that enables only unencrypted HTTP/2. Encryption is not needed,
// because the connection already uses TLS.
func onlyHTTP2() *http.Protocols {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return p
}

// Close ends the connection.
func (l *Link) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now != nil {
		l.now.Close()
	}
}
