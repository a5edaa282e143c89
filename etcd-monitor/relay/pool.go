package relay

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/netcraq/netcraq/internal/grpcconn"
)

// Pauses between attempts to connect to etcd. The gateway's own client uses the same values.
const (
	firstPause  = 100 * time.Millisecond
	mostPause   = 2 * time.Second
	connectWait = 5 * time.Second
	lookEvery   = time.Second // interval at which the list of endpoints is read
)

// pool has the connections to etcd's members, one to each member. Requests go to the members in
// turn, except for requests with a preferred member. If there is no connection, requests wait.
type pool struct {
	r    *Relay
	ctx  context.Context
	stop context.CancelFunc
	work sync.WaitGroup

	mu      sync.Mutex
	links   map[string]*link
	up      []member // the live connections; a change replaces the slice and never modifies it
	next    int
	waiting []*call      // calls that wait for a connection, or for room on a connection
	waits   atomic.Int64 // number of waiting calls
	drained bool
}

// link is an endpoint of etcd, which the pool keeps connected.
type link struct {
	grpcconn.Endpoint
	stop context.CancelFunc
}

// member is an endpoint with its live connection. It is immutable, because requests read it without
// a lock. Meanwhile the endpoint may already have its next connection.
type member struct {
	*link
	conn *conn
}

func (p *pool) begin(r *Relay) {
	p.r, p.links = r, map[string]*link{}
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.look()
	p.work.Go(func() {
		for p.ctx.Err() == nil {
			select {
			case <-p.ctx.Done():
			case <-time.After(lookEvery):
				p.look()
			}
		}
	})
}

// look starts connecting to new endpoints, and ends connections to endpoints that are no longer
// listed.
func (p *pool) look() {
	now := p.r.Endpoints()
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, l := range p.links {
		if !slices.Contains(now, at) {
			delete(p.links, at)
			l.stop()
		}
	}
	for _, at := range now {
		if p.links[at] != nil || p.ctx.Err() != nil {
			continue
		}
		l := &link{Endpoint: grpcconn.Parse(at, p.r.TLS)}
		var ctx context.Context
		ctx, l.stop = context.WithCancel(p.ctx)
		p.links[at] = l
		p.work.Go(func() { p.run(ctx, l) })
	}
}

// run maintains the connection to one endpoint until ctx ends.
func (p *pool) run(ctx context.Context, l *link) {
	for pause := firstPause; ctx.Err() == nil; {
		c, err := p.connect(ctx, l)
		if err == nil {
			pause = firstPause
			p.ready(l, c)
			select {
			case <-c.done:
			case <-ctx.Done():
			}
			p.gone(c)
			if ctx.Err() != nil {
				c.nc.Close()
				c.fail(ctx.Err())
				return
			}
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(pause*8/5, mostPause)
	}
}

var errNotReady = errors.New("relay: etcd does not say its settings")

func (p *pool) connect(ctx context.Context, l *link) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectWait)
	defer cancel()
	nc, err := l.Dial(ctx)
	if err != nil {
		return nil, err
	}
	c := newConn(nc, false, limits{idle: p.r.UpstreamPing, idleTimeout: p.r.UpstreamPingTimeout, idleStreams: true},
		p.r.Panicked)
	c.onDead = func() { p.gone(c) }
	c.onFrame = p.retry // a waiting request may now have room, because the frame may have ended a stream
	c.start()
	p.work.Go(c.serve)
	select {
	case <-c.ready:
		return c, nil
	case <-c.done:
		return nil, c.err
	case <-ctx.Done():
		nc.Close()
		c.fail(errNotReady)
		return nil, errNotReady
	}
}

// ready adds a connection that is ready for requests.
func (p *pool) ready(l *link, c *conn) {
	p.mu.Lock()
	p.up = append(slices.Clone(p.up), member{l, c})
	p.mu.Unlock()
	p.retry()
}

// retry sends waiting requests while connections have room. The caller must hold no locks.
func (p *pool) retry() {
	if p.waits.Load() == 0 {
		return
	}
	p.mu.Lock()
	waiting := p.waiting
	p.waiting = nil
	p.waits.Store(0)
	p.mu.Unlock()
	for _, x := range waiting {
		x.resend()
	}
}

// gone removes a connection that has ended or accepts no more streams.
func (p *pool) gone(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.up = slices.DeleteFunc(slices.Clone(p.up), func(m member) bool { return m.conn == c })
}

func (p *pool) any() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.up) > 0
}

// send sends a request to its preferred member, or else to the next member with room. If no member
// has room, the request waits. The caller holds the call's mu.
func (p *pool) send(x *call) {
	sent := func(at member, first bool) bool {
		if !x.sendTo(at) {
			return false
		}
		if x.plan.Sent != nil {
			x.plan.Sent(first)
		}
		return true
	}
	for {
		p.mu.Lock()
		up := p.up
		wanted := p.links[x.plan.First]
		first := slices.IndexFunc(up, func(m member) bool { return m.link == wanted })
		if first < 0 {
			p.next++
		}
		next := p.next
		p.mu.Unlock()
		if first >= 0 && sent(up[first], true) {
			return
		}
		for i := range up {
			if sent(up[(next+i)%len(up)], false) {
				return
			}
		}
		p.mu.Lock()
		if p.drained {
			p.mu.Unlock()
			x.finish(codes.Unavailable, p.r.Stopped)
			return
		}
		changed := !slices.Equal(up, p.up)
		if !changed {
			p.waiting = append(p.waiting, x)
			p.waits.Store(int64(len(p.waiting)))
		}
		p.mu.Unlock()
		// If a connection became free before the request was queued, no one wakes the request. So
		// check again.
		if !changed && (!slices.ContainsFunc(up, func(m member) bool { return m.conn.room() }) || !p.forget(x)) {
			return
		}
	}
}

// forget removes a request from the waiting ones. It reports whether the request was waiting.
func (p *pool) forget(x *call) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.waiting)
	p.waiting = slices.DeleteFunc(p.waiting, func(o *call) bool { return o == x })
	p.waits.Store(int64(len(p.waiting)))
	return len(p.waiting) < n
}

// drain ends all waiting requests.
func (p *pool) drain() {
	p.mu.Lock()
	p.drained = true
	waiting := p.waiting
	p.waiting = nil
	p.waits.Store(0)
	p.mu.Unlock()
	for _, x := range waiting {
		x.stopped()
	}
}

func (p *pool) close() {
	p.stop()
	p.work.Wait()
}
