package p4rtserver

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// Limits of one connection, and of connections that only receive a refusal.
const (
	// number of simultaneous calls on one connection; further calls wait in the client
	maxStreamsOfOne = 256
	// Largest number of refused connections at a time that receive the reason. Further connections
	// are closed at once.
	maxRefusals   = 16
	refusalTime   = time.Second      // how long a refused connection stays open
	handshakeTime = 10 * time.Second // time limit for the handshake
	// the server probes a connection that has been silent for this time
	deadAfter   = 30 * time.Second
	logInterval = 10 * time.Second // minimum time between two log messages about refusals
)

// Connections bounds the connections to a server, so that they cannot use up resources that the
// switch needs for its ports. At the limit, a new connection replaces one without a running call:
// the oldest such connection of the address that has the most of them. If there is no such
// connection, the new connection is refused, with the reason. A controller's connection always has
// a running call, its stream.
type Connections struct {
	most int
	log  *slog.Logger

	mu      sync.Mutex
	open    map[string]*connection // connections by the address of their other end
	logged  time.Time
	refused int // number of connections refused or replaced since the last log message

	refuser  *grpc.Server
	refusals *handedOver
}

// NewConnections returns Connections that admit at most the given number of connections, but at
// least 1.
func NewConnections(most int, log *slog.Logger) *Connections {
	return &Connections{most: most, log: log, open: map[string]*connection{}}
}

// ServerOptions returns opts, followed by the options with which a gRPC server must be created to
// serve the listener of Listen.
func (c *Connections) ServerOptions(opts ...grpc.ServerOption) []grpc.ServerOption {
	opts = append(opts, grpc.MaxConcurrentStreams(maxStreamsOfOne),
		grpc.ConnectionTimeout(handshakeTime),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: deadAfter}))
	c.refuser = grpc.NewServer(append(opts, grpc.UnknownServiceHandler(func(any,
		grpc.ServerStream) error {
		return status.Errorf(codes.ResourceExhausted,
			"this switch has %d P4Runtime connections, as many as it may (--max-connections), and all are in use", c.most)
	}))...)
	return append(opts, grpc.StatsHandler(c))
}

// Listen returns a listener that limits the connections. ServerOptions must be called first.
func (c *Connections) Listen(l net.Listener) net.Listener {
	c.refusals = &handedOver{Listener: l, conns: make(chan net.Conn), ended: make(chan struct{})}
	go func() { _ = c.refuser.Serve(c.refusals) }()
	return &bounded{l, c}
}

// bounded is the listener that Listen returns.
type bounded struct {
	net.Listener
	c *Connections
}

// Accept implements net.Listener.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
				b.c.tell("no file descriptor is left for P4Runtime's connections", "err", err, "do",
					"start the switch with more (ulimit -n, LimitNOFILE= of systemd), or allow fewer connections (--max-connections)")
			}
			return nil, err // gRPC calls Accept again after this error
		}
		if in := b.c.admit(closedFirst(conn)); in != nil {
			return in, nil
		}
	}
}

// Close implements net.Listener.
func (b *bounded) Close() error {
	b.c.refusals.end()
	b.c.refuser.Stop()
	return b.Listener.Close()
}

// connection is an admitted connection.
type connection struct {
	net.Conn
	c     *Connections
	name  string // address of the other end, including the port
	host  string
	since time.Time
	calls int // number of running calls; guarded by c.mu
	once  sync.Once
}

// Close implements net.Conn.
func (k *connection) Close() error {
	k.once.Do(func() {
		k.c.mu.Lock()
		defer k.c.mu.Unlock()
		if k.c.open[k.name] == k {
			delete(k.c.open, k.name)
		}
	})
	return k.Conn.Close()
}

// admit admits a connection, or returns nil if it refuses the connection.
func (c *Connections) admit(conn net.Conn) net.Conn {
	name := conn.RemoteAddr().String()
	host, _, err := net.SplitHostPort(name)
	if err != nil {
		host = name
	}
	k := &connection{Conn: conn, c: c, name: name, host: host, since: time.Now()}
	c.mu.Lock()
	var out *connection
	full := len(c.open) >= c.most
	if full {
		if out = c.idle(); out != nil {
			delete(c.open, out.name)
		}
	}
	in := !full || out != nil
	if in {
		c.open[name] = k
	}
	c.mu.Unlock()
	if full {
		c.tell(
			"P4Runtime connection limit reached: a new connection replaces an idle one, or is refused",
			"connections", c.most, "from", host, "do",
			"keep others away from the port, or allow more (--max-connections)")
	}
	if out != nil {
		_ = out.Close()
	}
	if !in {
		c.refusals.take(conn)
		return nil
	}
	return k
}

// idle returns the connection that a new connection may replace. The caller holds mu.
func (c *Connections) idle() (out *connection) {
	from := map[string]int{}
	for _, k := range c.open {
		if k.calls == 0 {
			from[k.host]++
		}
	}
	for _, k := range c.open {
		if k.calls == 0 && (out == nil || from[k.host] > from[out.host] ||
			from[k.host] == from[out.host] && k.since.Before(out.since)) {
			out = k
		}
	}
	return out
}

// tell logs refusals, at most once per logInterval.
func (c *Connections) tell(what string, args ...any) {
	c.mu.Lock()
	c.refused++
	n := c.refused
	now := time.Now()
	quiet := now.Sub(c.logged) < logInterval
	if !quiet {
		c.logged, c.refused = now, 0
	}
	c.mu.Unlock()
	if !quiet {
		c.log.Warn(what, append(args, "times", n)...)
	}
}

// TagConn implements stats.Handler.
func (c *Connections) TagConn(ctx context.Context, info *stats.ConnTagInfo) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	return context.WithValue(ctx, connectionKey{}, c.open[info.RemoteAddr.String()])
}

type connectionKey struct{}

// HandleRPC implements stats.Handler. It counts the running calls.
func (c *Connections) HandleRPC(ctx context.Context, s stats.RPCStats) {
	change := 0
	switch s.(type) {
	case *stats.Begin:
		change = 1
	case *stats.End:
		change = -1
	default:
		return
	}
	if k, _ := ctx.Value(connectionKey{}).(*connection); k != nil {
		c.mu.Lock()
		k.calls += change
		c.mu.Unlock()
	}
}

// TagRPC implements stats.Handler.
func (c *Connections) TagRPC(ctx context.Context,
	_ *stats.RPCTagInfo) context.Context {
	return ctx
}

// HandleConn implements stats.Handler.
func (c *Connections) HandleConn(context.Context, stats.ConnStats) {}

// handedOver is a listener for connections that another listener has already accepted.
type handedOver struct {
	net.Listener // only for the listener's address
	conns        chan net.Conn
	ended        chan struct{}
	once         sync.Once

	mu sync.Mutex
	n  int
}

// take makes Accept return a connection, which it closes after refusalTime. If there are too many
// connections, take closes the connection at once.
func (h *handedOver) take(conn net.Conn) {
	h.mu.Lock()
	many := h.n >= maxRefusals
	if !many {
		h.n++
	}
	h.mu.Unlock()
	if many {
		_ = conn.Close()
		return
	}
	time.AfterFunc(refusalTime, func() {
		_ = conn.Close()
		h.mu.Lock()
		h.n--
		h.mu.Unlock()
	})
	select {
	case h.conns <- conn:
	case <-h.ended:
		_ = conn.Close()
	}
}

// Accept implements net.Listener.
func (h *handedOver) Accept() (net.Conn, error) {
	select {
	case conn := <-h.conns:
		return conn, nil
	case <-h.ended:
		return nil, net.ErrClosed
	}
}

func (h *handedOver) end() { h.once.Do(func() { close(h.ended) }) }

// Close implements net.Listener.
func (h *handedOver) Close() error {
	h.end()
	return nil
}
