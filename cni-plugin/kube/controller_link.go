package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
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
