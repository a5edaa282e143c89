// Package leaderlink connects the leading agent with the agents of all nodes. The leader makes two
// connections to each agent, with TLS in which both ends present certificates:
//
//	leader                                                agent
//	PodFollower ── GET /v1/pods ─────────────────────────▶ ServePods: the node's list of pods
//	Answerer ───── GET /v1/controller, then reversed ────▶ Link: the agent asks the controller
//
// On the second one an agent sends requests to the admin API (package adminrights has its rights),
// and has streams of their own for durable keys (durable.go).
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

// The node API asks the controller where keys are, and creates them there. An agent that may not
// lead does not know the leader and has no certificate for it. So the connection is made the other
// way round: the leader connects to each agent, as it does for its pods. On that connection (mutual
// TLS) the agent sends requests and the leader answers those that a node's rights allow
// (adminrights.ByNode):
//
//	leader ── TLS, "Upgrade: netcraq-controller" ──▶ agent
//	       ◀────────── HTTP/2: GET /v1/keys/... ────

// Path is the path at which an agent accepts such a connection.
const (
	Path     = "/v1/controller"
	protocol = "netcraq-controller"
)

// Beat and Wait are how both ends of the connection find out that the other one has gone.
const (
	Beat = 5 * time.Second // of silence, after which the other end is probed
	Wait = 5 * time.Second // for that answer, and for a connection
	// atOnce bounds how many requests of one node are under way at the leader.
	atOnce = 64
	// othersAtOnce bounds those of them that are not renewals (PUT). The rest of the connection's
	// streams is left for renewals, which would come too late behind requests that the leader holds
	// up (package adminrights).
	othersAtOnce = 48
	// headerLimit bounds the header of an agent's answer, and of each of its requests, in bytes.
	headerLimit = 16 << 10
)

// Link is an agent's way to the controller: an http.RoundTripper over the connection that
// a leader has made last.
type Link struct {
	mu      sync.Mutex
	now     *http.ClientConn
	changed chan struct{} // closed when there is another
	others  chan struct{} // has room for othersAtOnce requests
}

// New makes one that no leader has connected to yet.
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
	if rw.Reader.Buffered() > 0 { // nothing comes before the answer
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
	if old != nil { // of a former leader
		old.Close()
	}
}

// onlyHTTP2 is what is spoken within a connection that TLS has made.
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
