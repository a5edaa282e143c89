package bmthrift

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/apache/thrift/lib/go/thrift"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// Limits for a client's requests.
const (
	// maxMessage is the largest message that the server accepts, in bytes. The largest legitimate
	// message contains the JSON of a program.
	maxMessage = 16 << 20
	// maxElements is the largest number of elements of a list in a message. decodeList allocates
	// room for all elements once it knows their number.
	maxElements = 1 << 14
	// The server reads at most bigMessages messages of more than smallMessage bytes at the same
	// time.
	smallMessage = 1 << 20
	bigMessages  = 2
	// messageTime is how long a message may take from its first byte to its last, and how long a
	// client may take to read an answer.
	messageTime = 20 * time.Second
	// maxConnections is the largest number of connections. A further connection replaces the one
	// that has been silent for the longest.
	maxConnections = 64
)

// State is the switch state that a Server serves. p4rtserver.Local implements it.
type State interface {
	// Read calls f with the pipeline that calls refer to. No write runs meanwhile. Write calls f in
	// the same way and then commits the changes.
	Read(f func(target.Pipeline) error) error
	Write(f func(target.Pipeline) error) error
	// Load prepares a program from its JSON while another program is running. Swap makes the loaded
	// program the running one. Reset restarts the running program with empty state.
	Load(json []byte) error
	Swap() error
	Reset() error
	// Source returns the JSON of the program to which calls refer.
	Source() []byte
	// OnReplication sets a function that is called when another protocol has changed multicast
	// groups or clone sessions.
	OnReplication(f func(target.Pipeline))
	// OnDigest sets a function that receives the digests of the running program. P4Runtime clients
	// receive them, too. f must not block.
	OnDigest(f func(*bmv2json.Program, target.Digest))
	// SetIdleTimeout and IdleTimeout access an entry of the pipeline that Read or Write passed to
	// f. OnIdle sets a function that receives idle entries of the running pipeline.
	SetIdleTimeout(p target.Pipeline, table string, e *target.TableEntry,
		timeout time.Duration) error
	IdleTimeout(p target.Pipeline, table string,
		e *target.TableEntry) (timeout, since time.Duration, err error)
	OnIdle(f func(target.Pipeline, []target.IdleEntry))
}

// Options configure a Server.
type Options struct {
	DeviceID uint64
	// If SwapDisabled is set, the server refuses calls that load a new program.
	SwapDisabled bool
	// Publisher sends notifications of digests, and Notifications is its address for clients.
	// Without a publisher they are nil and "".
	Publisher     Publisher
	Notifications string
	// Log receives messages for the switch's operator. If Log is nil, the server uses
	// slog.Default().
	Log *slog.Logger
}

// Server is a Thrift server for one device.
type Server struct {
	opts    Options
	log     *slog.Logger
	handler *handler
	conf    *thrift.TConfiguration
	big     chan struct{} // holds one token for each large message that the server is reading

	mu    sync.Mutex
	open  map[*conn]struct{}
	ended bool
	wg    sync.WaitGroup
}

// New creates a server for a device and the device's state.
func New(dev target.Device, state State, opts Options) *Server {
	s := &Server{opts: opts, log: opts.Log, open: map[*conn]struct{}{},
		big: make(chan struct{}, bigMessages),
		conf: &thrift.TConfiguration{MaxMessageSize: maxMessage, MaxFrameSize: maxMessage,
			MaxContainerSize: maxElements}}
	if s.log == nil {
		s.log = slog.Default()
	}
	s.handler = newHandler(dev, state, opts, s.log)
	return s
}

// Serve serves the connections of l until Close. The server reports l's port to clients.
func (s *Server) Serve(l net.Listener) error {
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		s.handler.port = a.Port
	}
	for {
		c, err := l.Accept()
		if err != nil {
			s.mu.Lock()
			ended := s.ended
			s.mu.Unlock()
			if ended || errors.Is(err, net.ErrClosed) {
				return nil
			}
			s.log.Warn("Thrift: no connection could be taken", "err", err)
			// Accept fails temporarily, for example, if no file descriptor is left.
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if k := s.admit(c); k != nil {
			go s.serve(k)
		}
	}
}

// Close closes all connections. The caller closes the listener.
func (s *Server) Close() {
	s.mu.Lock()
	s.ended = true
	for k := range s.open {
		_ = k.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// admit registers a new connection, or closes it if the server cannot take another.
func (s *Server) admit(c net.Conn) *conn {
	k := &conn{Conn: c, s: s, since: time.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		_ = c.Close()
		return nil
	}
	if len(s.open) >= maxConnections {
		var oldest *conn
		for o := range s.open {
			if !o.busy && (oldest == nil || o.since.Before(oldest.since)) {
				oldest = o
			}
		}
		if oldest == nil {
			s.log.Warn("Thrift: refused a connection because all are in use", "of", c.RemoteAddr(),
				"limit", maxConnections)
			_ = c.Close()
			return nil
		}
		s.log.Warn("Thrift: closed the idlest connection to accept a new one", "of", oldest.RemoteAddr(),
			"limit", maxConnections)
		delete(s.open, oldest)
		_ = oldest.Close()
	}
	s.open[k] = struct{}{}
	s.wg.Add(1)
	return k
}

func (s *Server) serve(k *conn) {
	defer s.wg.Done()
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("Thrift: a call failed in the server", "panic", fmt.Sprint(p))
		}
		k.release()
		_ = k.Close()
		s.mu.Lock()
		delete(s.open, k)
		s.mu.Unlock()
	}()
	socket := thrift.NewTSocketFromConnConf(k, s.conf)
	protocol := thrift.NewTBinaryProtocolConf(thrift.NewTBufferedTransport(socket, 8192), s.conf)
	for {
		k.release()
		if err := s.handler.answer(context.Background(), protocol, k.whole); err != nil {
			return
		}
	}
}

// conn is a client's connection. It bounds the size of messages and the time that reads and writes
// may take.
type conn struct {
	net.Conn
	s *Server

	busy  bool      // true while a call is executing; guarded by s.mu
	since time.Time // the time at which busy last changed

	// bytes counts the bytes of the message that is being read. token tells whether the message
	// holds a token of Server.big.
	bytes int
	token bool
}

var errTooLarge = fmt.Errorf("a message of more than %d bytes", maxMessage)

// Read implements net.Conn.
func (k *conn) Read(b []byte) (int, error) {
	if k.bytes == 0 { // Between two messages, a client may stay silent for any time.
		if err := k.SetReadDeadline(time.Time{}); err != nil {
			return 0, err
		}
	}
	n, err := k.Conn.Read(b)
	if n == 0 {
		return n, err
	}
	if k.bytes == 0 {
		if err := k.SetReadDeadline(time.Now().Add(messageTime)); err != nil {
			return 0, err
		}
	}
	if k.bytes += n; k.bytes > maxMessage {
		k.s.log.Warn("Thrift: a connection is ended", "of", k.RemoteAddr(), "err", errTooLarge)
		return 0, errTooLarge
	}
	if k.bytes > smallMessage && !k.token {
		t := time.NewTimer(messageTime)
		defer t.Stop()
		select {
		case k.s.big <- struct{}{}:
			k.token = true
		case <-t.C:
			return 0, errors.New("too many large messages at a time")
		}
	}
	return n, err
}

// Write implements net.Conn.
func (k *conn) Write(b []byte) (int, error) {
	if err := k.SetWriteDeadline(time.Now().Add(messageTime)); err != nil {
		return 0, err
	}
	return k.Conn.Write(b)
}

// whole records that the message has been read completely. The time that the call itself needs then
// does not count against the client.
func (k *conn) whole() { k.mark(true) }

// release prepares the connection for the next message.
func (k *conn) release() {
	k.mark(false)
	k.bytes = 0
	if k.token {
		k.token = false
		<-k.s.big
	}
}

func (k *conn) mark(busy bool) {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	k.busy, k.since = busy, time.Now()
}
