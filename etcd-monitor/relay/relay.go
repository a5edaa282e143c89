package relay

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
)

// Plan is the request to etcd for a client's request.
type Plan struct {
	// Message is sent, as one message, in pieces that are no longer changed.
	Message [][]byte
	// Method is etcd's ("": the client's).
	Method string
	// First is the endpoint of the preferred member. "": any, by turns.
	First string
	// Sent is called, each time that the request is sent, with whether First has it. nil: not
	// called.
	Sent func(first bool)
	// See is called with the beginning of the answer, before the client has any of it: 64 bytes, or
	// the whole if it has fewer; and with its length. nil: not called.
	See func(head []byte, size int)
	// Answer makes the client's answer of etcd's; nil: it is the same. If ok is false nothing was
	// executed, and the request goes to this process's own server.
	Answer func(message []byte) (answer [][]byte, ok bool)
	// Refused says whether an error of etcd's is not for the client: nothing was executed, and the
	// request goes to this process's own server. nil: it never is.
	Refused func(code codes.Code, message string) bool
	// Done is called with the result, and etcd's time. It is not called if the request goes to this
	// process's own server. nil: not called.
	Done func(code codes.Code, took time.Duration)
	// Serve, if not nil, answers in this process: nothing is sent to etcd, and the fields above are
	// ignored. ctx has the client's metadata as in a gRPC server's handlers, and ends with the
	// client's stream. It runs on a goroutine of its own.
	Serve func(ctx context.Context) (Message, error)
	// Now, if not nil, is called before Serve, by the goroutine that reads the client's connection:
	// it answers if that takes no waiting. Otherwise ok is false.
	Now func() (answer Message, ok bool)
}

// Router says what is passed on.
type Router interface {
	// May says whether a method's requests are examined. They are single messages, with a single
	// answer.
	May(method string) bool
	// Plan looks at a request. nil: it goes to this process's own server. metadata gives the values
	// of the client's metadata.
	Plan(method string, metadata func(name string) string, message []byte) *Plan
}

// Config configures a Relay.
type Config struct {
	Router Router
	// Local connects to this process's own gRPC server.
	Local func() (net.Conn, error)
	// Endpoints returns etcd's endpoints, in the form for its clients; called now and then.
	Endpoints func() []string
	// TLS is for connections to etcd, if it is not nil and an endpoint does not say http.
	TLS *tls.Config
	// Added gives the metadata that each request to etcd has besides the client's.
	Added func() []hpack.HeaderField
	// UserAgent is sent to etcd.
	UserAgent string
	// Stopped is the error of clients whose request waited for a connection to etcd when the relay
	// was drained.
	Stopped string
	// Panicked is called for faults of this package and of the Router. Each ended one connection.
	Panicked func(fault any, stack []byte)

	// MaxMessage is how long a message is collected; this process's own server refuses a longer
	// one. MaxStreams bounds the streams of a client's connection.
	MaxMessage int
	MaxStreams uint32
	// PingMin is the minimum interval of a client's pings; PingAfter is when a silent client is
	// pinged, and PingTimeout how long to wait for its answer.
	PingMin, PingAfter, PingTimeout time.Duration
	// UpstreamPing and UpstreamPingTimeout are the same of etcd, while it is asked something.
	UpstreamPing, UpstreamPingTimeout time.Duration
}

// Relay is a server of clients' connections.
type Relay struct {
	Config
	pool pool

	mu      sync.Mutex
	clients map[*conn]bool
	drained bool
	running sync.WaitGroup // connections
	serving sync.WaitGroup // requests that this process answers; those of running begin them
}

// New makes a relay. It connects to etcd at once, and again when it has to, until Close.
func New(cfg Config) *Relay {
	r := &Relay{Config: cfg, clients: map[*conn]bool{}}
	r.pool.begin(r)
	return r
}

// Serve accepts connections until the listener is closed.
func (r *Relay) Serve(l net.Listener) error {
	for {
		nc, err := l.Accept()
		if err != nil {
			return err
		}
		r.serve(nc)
	}
}

func (r *Relay) serve(nc net.Conn) {
	c := newConn(nc, true, limits{streams: r.MaxStreams, pingMin: r.PingMin, idle: r.PingAfter,
		idleTimeout: r.PingTimeout}, r.Panicked)
	own := &client{r: r}
	c.accept = own.accept
	c.start() // before Drain finds it: the settings are a connection's first frame
	r.mu.Lock()
	if r.drained {
		r.mu.Unlock()
		nc.Close()
		return
	}
	r.clients[c] = true
	r.running.Add(1)
	r.mu.Unlock()
	go func() {
		defer r.running.Done()
		c.serve()
		own.close()
		r.mu.Lock()
		delete(r.clients, c)
		r.mu.Unlock()
	}()
}

// Drain makes clients go elsewhere: the relay accepts no new connections and streams, requests that
// wait for a connection to etcd end, and connections end with their last streams. It waits until
// all have, or ctx is done.
func (r *Relay) Drain(ctx context.Context) {
	r.mu.Lock()
	r.drained = true
	var all []*conn
	for c := range r.clients {
		all = append(all, c)
	}
	r.mu.Unlock()
	r.pool.drain()
	for _, c := range all {
		c.goAway(http2.ErrCodeNo, "")
		c.endIfIdle()
	}
	done := make(chan struct{})
	go func() {
		r.running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// Close ends all connections.
func (r *Relay) Close() {
	r.mu.Lock()
	r.drained = true
	for c := range r.clients {
		c.nc.Close()
	}
	r.mu.Unlock()
	r.pool.close()
	r.running.Wait()
	r.serving.Wait()
}

// Reachable says whether there is a connection to etcd.
func (r *Relay) Reachable() bool { return r.pool.any() }

// client is a client's connection, with the one to this process's own server that it has when it
// needs it.
type client struct {
	r     *Relay
	mu    sync.Mutex
	local *conn
	over  bool
}

// accept makes the call of a stream of the client's.
func (k *client) accept(h *half, fields []hpack.HeaderField) beginner {
	return &call{client: k, down: h, fields: fields}
}

// collects says whether a request is one that may be passed on.
func (k *client) collects(x *call) bool {
	for _, f := range x.fields {
		switch f.Name {
		case ":method":
			if f.Value != "POST" {
				return false
			}
		case ":path":
			x.method = f.Value
		case "content-type":
			if f.Value != "application/grpc" && f.Value != "application/grpc+proto" {
				return false
			}
		case "connection":
			return false // HTTP/2 has none, and a gRPC server refuses it
		case "grpc-encoding":
			if f.Value != "identity" {
				return false
			}
		}
	}
	return k.r.Router.May(x.method)
}

// server gives the connection to this process's own server.
func (k *client) server() (*conn, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over {
		return nil, net.ErrClosed
	}
	if k.local != nil {
		k.local.mu.Lock()
		usable := k.local.err == nil && !k.local.away
		k.local.mu.Unlock()
		if usable {
			return k.local, nil
		}
	}
	nc, err := k.r.Local()
	if err != nil {
		return nil, err
	}
	k.local = newConn(nc, false, limits{}, k.r.Panicked)
	k.local.start()
	go k.local.serve()
	return k.local, nil
}

func (k *client) close() {
	k.mu.Lock()
	k.over = true
	local := k.local
	k.mu.Unlock()
	if local != nil { // without the lock: its streams' calls may be about to ask for it
		local.fail(net.ErrClosed)
		local.nc.Close()
	}
}

// hopByHop says about which headers each connection has its own (gRPC over HTTP2, "Requests").
func hopByHop(name string) bool {
	switch name {
	case "content-type", "user-agent", "te", "connection":
		return true
	case "grpc-timeout":
		return false
	}
	return strings.HasPrefix(name, ":") || strings.HasPrefix(name, "grpc-")
}

// request appends the headers of a request to etcd.
func (r *Relay) request(fields []hpack.HeaderField, at *link, method string,
	client []hpack.HeaderField) []hpack.HeaderField {
	fields = append(fields,
		hpack.HeaderField{Name: ":method", Value: "POST"},
		hpack.HeaderField{Name: ":scheme", Value: at.scheme},
		hpack.HeaderField{Name: ":path", Value: method},
		hpack.HeaderField{Name: ":authority", Value: at.authority},
		hpack.HeaderField{Name: "content-type", Value: "application/grpc"},
		hpack.HeaderField{Name: "user-agent", Value: r.UserAgent},
		hpack.HeaderField{Name: "te", Value: "trailers"})
	for _, f := range client {
		if !hopByHop(f.Name) {
			fields = append(fields, f)
		}
	}
	if r.Added != nil {
		fields = append(fields, r.Added()...)
	}
	return fields
}
