// Package leaderlink connects the leading agent with the agents of all nodes. The leader makes two
// connections to each agent, with mutual TLS:
//
//	leader                                                agent
//	PodFollower ── GET /v1/pods ─────────────────────────▶ ServePods: the node's list of pods
//	Answerer ───── GET /v1/controller, then reversed ────▶ Link: the agent asks the controller
//
// On the second one an agent sends requests to the admin API (package adminrights decides which),
// and opens separate streams for durable keys (durable.go).
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

// The node API requests the places of keys from the controller, and creates keys there. An agent
// that may not lead does not know the leader and has no certificate for it. So the leader connects
// to each agent, as it does for the list of pods. On that connection (mutual TLS) the agent sends
// requests, and the leader answers those that a node may make (adminrights.ByNode):
//
//	leader ── TLS, "Upgrade: netcraq-controller" ──▶ agent
//	       ◀────────── HTTP/2: GET /v1/keys/... ────

// Path is the path at which an agent accepts the controller's connection.
const (
	Path     = "/v1/controller"
	protocol = "netcraq-controller"
)

// Beat and Wait are the timeouts by which each end detects that the other one has gone.
const (
	Beat = 5 * time.Second // time of silence after which an end probes the other one
	Wait = 5 * time.Second // timeout for the answer to a probe, and for making a connection
	// atOnce limits the concurrent requests of one node at the leader.
	atOnce = 64
	// othersAtOnce limits the concurrent requests other than renewals (PUT). The remaining streams
	// are reserved for renewals, which would be late if they queued after requests that the leader
	// delays (package adminrights).
	othersAtOnce = 48
	// headerLimit limits the header of an agent's answer, and of each of its requests, in bytes.
	headerLimit = 16 << 10
)

// Link is an agent's connection to the controller: an http.RoundTripper over the connection that a
// leader has made last.
type Link struct {
	mu      sync.Mutex
	now     *http.ClientConn
	changed chan struct{} // closed when there is a new connection
	others  chan struct{} // has capacity for othersAtOnce requests
}

// New makes a Link without a connection.
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
	if rw.Reader.Buffered() > 0 { // an agent sends nothing before the answer
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
	// The connection outlives this request, from which it was hijacked.
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
	if old != nil { // a previous leader's
		old.Close()
	}
}

// onlyHTTP2 enables only unencrypted HTTP/2, because TLS is already in place.
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
