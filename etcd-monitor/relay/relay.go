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

// Plan says what the relay sends to etcd for a client's request.
type Plan struct {
	// Message is the message to send, in pieces. The pieces must not change any more.
	Message [][]byte
	// Method is the method to call at etcd. If it is "", this is the client's method.
	Method string
	// First is the endpoint of the preferred member. If it is "", the members get requests in turn.
	First string
	// Sent, if not nil, is called each time the request is sent. first reports whether the request
	// went to First.
	Sent func(first bool)
	// See, if not nil, is called before the client gets any of the answer. head has the first 64
	// bytes of the answer, or the whole answer if it is shorter. size is the answer's length.
	See func(head []byte, size int)
	// Answer converts etcd's answer to the client's answer. If Answer is nil, both are equal. If ok
	// is false, nothing was executed, and the request goes to this process's gRPC server.
	Answer func(message []byte) (answer [][]byte, ok bool)
	// Refused reports whether an error of etcd must not reach the client. This means that nothing
	// was executed, and the request goes to this process's gRPC server. If Refused is nil, the
	// client gets all errors.
	Refused func(code codes.Code, message string) bool
	// Done, if not nil, is called with the result and etcd's time. It is not called if the request
	// goes to this process's gRPC server.
	Done func(code codes.Code, took time.Duration)
	// Serve, if not nil, makes the answer in this process. Nothing is then sent to etcd, and the
	// fields above are ignored. ctx has the client's metadata, as in the handlers of a gRPC server,
	// and ends with the client's stream. Serve runs in a separate goroutine.
	Serve func(ctx context.Context) (Message, error)
	// Now, if not nil, is called before Serve, by the goroutine that reads the client's connection.
	// It returns an answer if that needs no waiting. Otherwise ok is false, and Serve is called.
	Now func() (answer Message, ok bool)
}

// Router decides which requests the relay forwards.
type Router interface {
	// May reports whether Plan examines the requests of a method. Such a method must have one
	// request message and one answer message.
	May(method string) bool
	// Plan examines a request. If it returns nil, the request goes to this process's gRPC server.
	// metadata returns values of the client's metadata.
	Plan(method string, metadata func(name string) string, message []byte) *Plan
}

// Config configures a Relay.
type Config struct {
	Router Router
	// Local connects to the gRPC server of this process.
	Local func() (net.Conn, error)
	// Endpoints returns etcd's endpoints, in the form that etcd's clients use. The relay calls it
	// regularly.
	Endpoints func() []string
	// TLS, if not nil, configures connections to etcd. Endpoints with http do not use it.
	TLS *tls.Config
	// Added returns metadata to add to each request to etcd.
	Added func() []hpack.HeaderField
	// UserAgent is the user agent that the relay sends to etcd.
	UserAgent string
	// Stopped is the error message for clients whose request was still waiting for a connection to
	// etcd when the relay was drained.
	Stopped string
	// Panicked is called after a panic of this package or of the Router. Such a panic ends one
	// connection.
	Panicked func(fault any, stack []byte)

	// MaxMessage is the maximum size of a message that the relay collects, in bytes. Longer
	// messages go to this process's gRPC server, which refuses them. MaxStreams limits the streams
	// of a client's connection.
	MaxMessage int
	MaxStreams uint32
	// PingMin is the minimum interval of a client's pings. PingAfter is the silence after which the
	// relay pings a client, and PingTimeout the timeout for its answer.
	PingMin, PingAfter, PingTimeout time.Duration
	// UpstreamPing is the silence after which the relay pings etcd while requests are open, and
	// UpstreamPingTimeout the timeout for etcd's answer.
	UpstreamPing, UpstreamPingTimeout time.Duration
}

// Relay is a server that accepts clients' connections and forwards their requests.
type Relay struct {
	Config
	pool pool

	mu      sync.Mutex
	clients map[*conn]bool
	drained bool
	running sync.WaitGroup // counts the connections
	serving sync.WaitGroup // counts the requests that this process answers; only goroutines of running add to it
}

// New makes a relay. The relay connects to etcd at once, and reconnects when necessary, until Close
// is called.
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
	c.start() // comes before Drain can find the connection, because the first frame must be the settings
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

// Drain makes clients use another server. The relay accepts no new connections and streams, and
// ends requests that wait for a connection to etcd. Each connection ends with its last stream.
// Drain returns when all have ended or ctx is done.
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

// Reachable reports whether there is a connection to etcd.
func (r *Relay) Reachable() bool { return r.pool.any() }

// client is a client's connection. It also has the client's connection to this process's gRPC
// server, which is made on first use.
type client struct {
	r     *Relay
	mu    sync.Mutex
	local *conn
	over  bool
}

// accept makes the call object for a stream that the client opens.
func (k *client) accept(h *half, fields []hpack.HeaderField) beginner {
	return &call{client: k, down: h, fields: fields}
}

// collects reports whether the relay should collect a request, because it may be able to forward
// it.
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
			return false // HTTP/2 forbids this header, and a gRPC server refuses the request
		case "grpc-encoding":
			if f.Value != "identity" {
				return false
			}
		}
	}
	return k.r.Router.May(x.method)
}

// server returns the connection to this process's gRPC server.
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
	if local != nil { // mu is not held here, because calls of local's streams may be waiting for it
		local.fail(net.ErrClosed)
		local.nc.Close()
	}
}

// hopByHop reports whether a header concerns only a single connection (gRPC over HTTP2,
// "Requests").
func hopByHop(name string) bool {
	switch name {
	case "content-type", "user-agent", "te", "connection":
		return true
	case "grpc-timeout":
		return false
	}
	return strings.HasPrefix(name, ":") || strings.HasPrefix(name, "grpc-")
}

// request appends the headers of a request to etcd to fields.
func (r *Relay) request(fields []hpack.HeaderField, at *link, method string,
	client []hpack.HeaderField) []hpack.HeaderField {
	fields = append(fields,
		hpack.HeaderField{Name: ":method", Value: "POST"},
		hpack.HeaderField{Name: ":scheme", Value: at.Scheme},
		hpack.HeaderField{Name: ":path", Value: method},
		hpack.HeaderField{Name: ":authority", Value: at.Authority},
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
