package server

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/internal/shares"
	"github.com/netcraq/netcraq/nodeapi/authority"
	"github.com/netcraq/netcraq/nodeapi/coordination"
	"github.com/netcraq/netcraq/nodeapi/server/rpc"
	"github.com/netcraq/netcraq/nodeapi/store"
	"github.com/netcraq/netcraq/streams/broker"
	"github.com/netcraq/netcraq/streams/source"
)

// Config is the configuration of a Server. Only Store is required.
type Config struct {
	Store store.Store
	// Name is the name and version of the program, and Node is the node on which it runs. The
	// server sends both to clients.
	Name, Node string
	// Namespace is the namespace of callers that name no namespace, unless Authority returns
	// another namespace.
	Namespace string
	// Identify identifies callers, and Authority decides what they may do. If Authority is nil, all
	// callers may do everything.
	Identify  authority.Identifier
	Authority authority.Authorizer
	// Quotas limits the use of each namespace. If it is nil, only Limits apply.
	Quotas *authority.Quotas
	// Durable reports whether the keys of a namespace are stored in etcd. If it is nil, no keys are
	// stored in etcd.
	Durable func(namespace string) bool
	// Streams configures the broker of streams. If it is nil, the server has no streams.
	Streams *broker.Options
	// Sources has the makers of sources that fill streams, in addition to the source of the
	// namespace's own keys. The key is the name of the kind of source in a stream's configuration.
	// Each maker decides which namespaces may use it.
	Sources map[string]source.Maker
	Limits  Limits
	Log     *slog.Logger          // the server's log; nil means no log
	Metrics prometheus.Registerer // registry for metrics; nil means that no metrics are exported
}

// Server serves the node API. It is created by New.
type Server struct {
	config  Config
	limits  Limits
	log     *slog.Logger
	metrics *metrics
	once    *onceTable
	budget  budget
	turns   store.Turns
	streams *broker.Broker // the broker of streams; nil if the server has no streams
	flying  flying
	helpers *shares.Budget // divides Limits.Helpers among subjects
	lists   *shares.Budget // divides Limits.Lists among subjects
	// connects limits how often callers may connect. It is nil if there is no limit.
	connects *connects

	coordination *coordination.Service

	ctx    context.Context // canceled by Close
	cancel context.CancelFunc

	mu        sync.Mutex
	listeners map[net.Listener]struct{}
	pausing   *pausing // set while no connections are accepted; nil otherwise
	conns     map[*conn]struct{}
	stage     stage
	gone      chan struct{} // closed when the server is draining and the last connection has ended
	reads     sync.WaitGroup
	spare     chan *conn // idle goroutines receive from this channel the connection to read next
	spares    atomic.Int32
}

// stage is a stage of a server's shutdown.
type stage int

const (
	serving  stage = iota
	draining       // the server accepts no new connections
	refusing       // the server also refuses new requests
	closed
)

// New makes a server. The server serves the listeners that are passed to Serve, until Shutdown or
// Close.
func New(c Config) *Server {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Authority == nil {
		c.Authority = everybody{c.Namespace}
	}
	quotas := c.Quotas != nil
	if !quotas {
		all := authority.Quota{Connections: math.MaxInt, Watches: math.MaxInt, RequestsPerSecond: float64(rate.Inf),
			ListsPerSecond: float64(rate.Inf)}
		c.Quotas = authority.NewQuotas(func(string) authority.Quota { return all }, nil)
	}
	if c.Durable == nil {
		c.Durable = func(string) bool { return false }
	}
	limits := c.Limits.withDefaults()
	c.Store = store.NewFair(c.Store, limits.AtOnce).Apart(c.Durable, limits.AtOnce)
	s := &Server{config: c, limits: limits, helpers: shares.New(limits.Helpers),
		lists: shares.New(limits.Lists), log: c.Log,
		listeners: map[net.Listener]struct{}{}, conns: map[*conn]struct{}{},
		gone: make(chan struct{}), spare: make(chan *conn)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.metrics = newMetrics(c.Metrics)
	s.once = newOnceTable(s.limits)
	s.budget.most = s.limits.Buffered
	if quotas {
		s.connects = &connects{rate: connectRate, burst: connectBurst}
	}
	s.coordination = coordination.New(c.Store, coordination.Options{Node: c.Node, Clock: coordination.Unslewed{}})
	if c.Streams != nil {
		o := *c.Streams
		o.Sources = s.source
		if o.Log == nil {
			o.Log = c.Log
		}
		if o.Metrics == nil {
			o.Metrics = c.Metrics
		}
		s.streams = broker.New(o)
	}
	go s.patrol()
	return s
}

// everybody is an authority that permits everything to every caller.
type everybody struct{ namespace string }

func (e everybody) Namespace(context.Context, authority.Caller) (string, error) {
	return e.namespace, nil
}
func (everybody) Subject(authority.Caller) string { return "" }
func (everybody) Authorize(context.Context, authority.Caller, authority.Verb, string) error {
	return nil
}

// ErrClosed is the error that Serve returns after Shutdown or Close.
var ErrClosed = errors.New("the node API's server is closed")

// Serve accepts connections from a listener until the listener or the server is closed.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.stage != serving {
		s.mu.Unlock()
		l.Close()
		return ErrClosed
	}
	s.listeners[l] = struct{}{}
	s.mu.Unlock()
	for pause := time.Duration(0); ; {
		nc, err := l.Accept()
		if err == nil {
			pause = 0
			if s.connects != nil && !s.connects.allow(nc) {
				s.metrics.refused.Inc()
				// this write does not block, because nothing was written to the connection before
				_, _ = nc.Write(tooManyConnects)
				nc.Close()
				time.Sleep(afterRefusal)
				continue
			}
			s.take(nc)
			continue
		}
		s.mu.Lock()
		_, ours := s.listeners[l]
		ended := s.stage != serving || !ours
		pausing := s.pausing
		s.mu.Unlock()
		switch {
		case pausing != nil && errors.Is(err, os.ErrDeadlineExceeded):
			pausing.wait()
			continue
		case ended:
			return ErrClosed
		case errors.Is(err, net.ErrClosed):
			return err
		}
		// Wait and try again. For example, the process may have no free file descriptors. Existing
		// connections are still served.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		s.log.Warn("no connection is taken", "error", err, "again in", pause)
		select {
		case <-time.After(pause):
		case <-s.ctx.Done():
			return ErrClosed
		}
	}
}

// take begins to serve a connection, or refuses it.
func (s *Server) take(nc net.Conn) {
	s.mu.Lock()
	full := len(s.conns) >= s.limits.Connections
	late := s.stage >= refusing
	var c *conn
	if !full && !late {
		c = newConn(s, nc)
		s.conns[c] = struct{}{}
		s.reads.Add(1)
	}
	s.mu.Unlock()
	switch {
	case full:
		s.metrics.refused.Inc()
		turnAway(nc, nodeapi.Errorf(nodeapi.CodeQuotaExceeded, "close connections that are not used",
			"the server has its %d connections", s.limits.Connections))
	case late:
		turnAway(nc, rpc.ErrDraining())
	default:
		s.readBy(c)
	}
}

// readBy makes another goroutine read a connection. It uses an idle goroutine if there is one, and
// otherwise starts a goroutine.
func (s *Server) readBy(c *conn) {
	select {
	case s.spare <- c:
	default:
		go s.work(c)
	}
}

// maxSpare is the maximum number of idle goroutines that wait for a connection to read. keptSpare
// is the number of idle goroutines that are kept for long.
const maxSpare, keptSpare = 64, 4

// dismiss ends idle goroutines beyond keptSpare.
func (s *Server) dismiss() {
	for s.spares.Load() > keptSpare {
		select {
		case s.spare <- nil:
		default:
			return
		}
	}
}

// work reads a connection until there is a request, executes the request and continues to read. If
// the request could delay later requests of the connection, another goroutine continues to read.
// For most functions this happens at once, and for short functions when the request begins to wait.
// If the answer is expected soon, and the client sends one request at a time, no other goroutine
// reads (see crowd). So no goroutine must be woken for a request that is answered at once. A
// goroutine that does not continue to read is reused for another connection, because its stack
// already has the right size.
func (s *Server) work(c *conn) {
	for c != nil {
		switch k := c.next(); {
		case k == nil:
			s.reads.Done()
		case k.f.watches != nil: // a watch lasts long, and a new goroutine has a smaller stack while it waits
			go k.run()
			continue
		case k.f.short:
			k.crowded = c.crowded()
			k.reading.Store(true)
			k.run()
			if k.reading.CompareAndSwap(true, false) {
				continue
			}
		default:
			s.readBy(c)
			k.run()
		}
		if s.spares.Add(1) > maxSpare {
			s.spares.Add(-1)
			return
		}
		select {
		case c = <-s.spare: // nil means that this goroutine must end
		case <-s.ctx.Done():
			c = nil
		}
		s.spares.Add(-1)
	}
}

// left must be called when a connection has ended.
func (s *Server) left(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if s.stage != serving && len(s.conns) == 0 {
		s.closeGone()
	}
}

// closeGone signals that no connection is left. The caller holds s.mu.
func (s *Server) closeGone() {
	select {
	case <-s.gone:
	default:
		close(s.gone)
	}
}

// Addrs returns the addresses at which the server listens.
func (s *Server) Addrs() (out []net.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.listeners {
		out = append(out, l.Addr())
	}
	return out
}

// Shutdown stops accepting connections, and notifies the clients that asked for it. It continues to
// serve until all clients have disconnected. When ctx ends, new requests are refused with
// CodeDraining, and requests under way may take Limits.Farewell to finish. Then the remaining
// connections are closed, and Shutdown returns ctx's error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.advance(draining)
	s.mu.Lock()
	for l := range s.listeners {
		l.Close()
	}
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	if len(conns) == 0 {
		s.closeGone()
	}
	s.mu.Unlock()
	for _, c := range conns {
		c.tellDraining()
	}
	// drain the streams now, because the successor waits for them: only one server at a time can
	// have the streams
	if s.streams != nil {
		s.streams.Drain()
	}
	defer s.Close()
	select {
	case <-s.gone:
		return nil
	case <-ctx.Done():
	case <-s.ctx.Done():
		return ErrClosed
	}
	s.advance(refusing)
	end := time.NewTimer(s.limits.Farewell)
	defer end.Stop()
	for _, c := range conns {
		c.finish()
	}
	select {
	case <-s.gone:
	case <-end.C:
	}
	return ctx.Err()
}

func (s *Server) advance(to stage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stage = max(s.stage, to)
}

func (s *Server) at() stage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stage
}

// Close ends all connections and requests at once.
func (s *Server) Close() error {
	s.advance(closed)
	s.cancel()
	s.mu.Lock()
	for l := range s.listeners {
		l.Close()
	}
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	for _, c := range conns {
		c.cutOff("")
	}
	s.reads.Wait()
	if s.streams != nil {
		s.streams.Drain()
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.limits.Farewell)
	defer cancel()
	s.coordination.Close(ctx)
	s.metrics.unregister()
	return nil
}

// patrol looks for connections that have exceeded a time limit, and for stored answers that no
// client will request any more.
func (s *Server) patrol() {
	tick := time.NewTicker(s.limits.patrolEvery())
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case now := <-tick.C:
			s.mu.Lock()
			var stale []*conn
			var why []string
			for c := range s.conns {
				if w := c.overdue(now); w != "" {
					stale, why = append(stale, c), append(why, w)
				}
			}
			s.mu.Unlock()
			for i, c := range stale {
				c.cutOff(why[i])
			}
			s.once.sweep(now)
			s.budget.sweep()
			if s.connects != nil {
				s.connects.sweep(now)
			}
			s.dismiss()
		}
	}
}
