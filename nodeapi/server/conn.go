package server

import (
	"context"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/unannounced"
	"github.com/netcraq/netcraq/nodeapi/authority"
	"github.com/netcraq/netcraq/nodeapi/coordination"
	"github.com/netcraq/netcraq/nodeapi/server/rpc"
)

// ownBuffer is the number of bytes that each connection may use without charging the server's
// budget.
const ownBuffer = 4 << 10

// bytesPerRequest is the number of bytes of a message, beyond ownBuffer, that count as one request.
// Reading and parsing that many bytes takes about as long as one request.
const bytesPerRequest = 8 << 10

// conn is one connection of a client.
type conn struct {
	s   *Server
	nc  net.Conn
	in  net.Conn        // the same connection as nc, for reading
	raw syscall.RawConn // the connection for system calls; nil if the connection has no file descriptor

	// The following fields are set when the connection is admitted, before the first message is
	// read.
	peer    authority.Caller
	account *authority.Account
	part    *part // the connection's part of the server's budget

	ctx    context.Context // canceled when the connection ends
	cancel context.CancelFunc

	// The following fields are used only by the goroutine that reads.
	framing   rpc.Format // the framing of messages; nil until it is known
	admitted  bool       // whether the caller is known and may use the API
	first     bool       // whether no message was parsed yet
	buf       []byte
	start     int         // position in buf of the next message
	client    *onceClient // the client that hello has named; nil if there is none
	namespace string      // namespace of requests that do not name one
	slots     chan struct{}
	pause     time.Duration // how long to wait before the next read
	charged   int           // number of requests already counted for the bytes of the message under way
	crowd     crowd
	since     atomic.Int64 // time when the message under way began, in ns; 0 if there is none

	mu      sync.Mutex
	room    sync.Cond // signaled when unsent has decreased or the connection has ended
	calls   map[uint64]*call
	watched int    // number of keys and prefixes that watches follow, plus number of held files
	out     []byte // bytes that must be sent
	spare   []byte // spare buffer for answers
	unsent  int    // number of bytes in out, plus number of bytes that are being written
	gone    uint64 // number of bytes that were written since the beginning
	passing []passing
	writing bool
	try     attempt   // state of the write in progress
	wrote   time.Time // time when bytes were last written
	dead    bool
	last    bool // whether no more requests are accepted; the connection ends when no request is under way
	notices bool // whether the client asked for a notice when the server drains
	noticed bool
	// owner has the leases that the server made for this connection. It is nil until such a lease
	// is needed.
	owner *coordination.Owner

	held   held
	flight flight
}

// call is one request that is under way.
type call struct {
	c         *conn
	req       rpc.Request
	f         *function
	client    *onceClient
	namespace string // namespace that applies if the request names none
	ctx       context.Context
	data      any
	cancel    func()
	term      term // the context of the request, except for watches
	// reading is set if the goroutine that executes the request will then continue to read the
	// connection. If the request has to wait, another goroutine takes over reading.
	reading atomic.Bool
	// crowded is set if further requests may have arrived, or may arrive before this request is
	// answered.
	crowded bool
	waited  atomic.Bool // whether the request has waited for a short time
	cost    int64       // number of bytes charged to the budget
	watches int
	// descriptors are sent with the answer. They are not sent with an error.
	descriptors []*os.File
}

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{s: s, nc: nc, in: unannounced.Conn(nc), calls: map[uint64]*call{},
		slots: make(chan struct{}, s.limits.inFlight), buf: make([]byte, 0, 1<<10), first: true, wrote: time.Now()}
	c.room.L = &c.mu
	if file, ok := nc.(syscall.Conn); ok {
		c.raw, _ = file.SyscallConn()
	}
	c.part = s.budget.join("") // a temporary part, which is replaced when the caller is known
	c.try.do = c.try.write
	c.ctx, c.cancel = context.WithCancel(s.ctx)
	s.metrics.connections.Inc()
	return c
}

// next reads the connection until there is a request that the calling goroutine must execute. It
// returns nil if the connection has ended.
func (c *conn) next() *call {
	k := c.listen()
	if k == nil {
		c.end()
	}
	return k
}

// listen does the work of next, but does not end the connection.
func (c *conn) listen() *call {
	if !c.admitted {
		if refused := c.admit(); refused != nil {
			c.s.metrics.refused.Inc()
			c.framing = rpc.JSONLines{}
			c.farewell(refused)
			return nil
		}
		c.admitted = true
	}
	for {
		if c.pause > 0 && !c.rest() {
			return nil
		}
		if c.framing == nil && !c.choose() {
			return nil
		}
		message, size, failed := c.framing.Next(c.buf[c.start:])
		switch {
		case failed != nil:
			c.farewell(failed)
			return nil
		case size == 0:
			if !c.read() {
				c.lastAnswers()
				return nil
			}
			continue
		}
		k, more := c.message(message)
		if !more {
			return nil
		}
		c.consume(size)
		if k != nil {
			return k
		}
	}
}

// choose determines the framing from the first bytes of the connection.
func (c *conn) choose() bool {
	for len(c.buf) == 0 {
		if !c.read() {
			return false
		}
	}
	if c.buf[0] != nodeapi.Preface[0] {
		c.framing = rpc.JSONLines{}
		return true
	}
	for len(c.buf) < len(nodeapi.Preface) {
		if !c.read() {
			return false
		}
	}
	if string(c.buf[:len(nodeapi.Preface)]) != nodeapi.Preface {
		c.framing = rpc.JSONLines{}
		c.farewell(rpc.Invalid("the first bytes are neither JSON nor the preface of the compact framing"))
		return false
	}
	c.framing = rpc.Compact{}
	c.consume(len(nodeapi.Preface))
	return true
}

// read reads more bytes into the buffer. The buffer grows up to the maximum length of a message.
func (c *conn) read() bool {
	if c.start > 0 {
		c.buf = c.buf[:copy(c.buf, c.buf[c.start:])]
		c.start = 0
	}
	switch {
	case len(c.buf) == 0 && cap(c.buf) > ownBuffer:
		c.part.count(int64(ownBuffer - cap(c.buf)))
		c.buf = make([]byte, 0, 1<<10)
	case len(c.buf) == cap(c.buf):
		grown := min(max(4*cap(c.buf), ownBuffer), nodeapi.MaxMessage)
		if extra := int64(grown - max(cap(c.buf), ownBuffer)); !c.part.take(extra) {
			c.farewell(nodeapi.Errorf(nodeapi.CodeQuotaExceeded, "connect again later",
				"the server has no memory for a message that is not complete"))
			return false
		}
		c.buf = append(make([]byte, 0, grown), c.buf...)
	}
	if len(c.buf) > 0 && c.since.Load() == 0 {
		c.since.Store(time.Now().UnixNano())
	}
	n, err := c.in.Read(c.buf[len(c.buf):cap(c.buf)])
	c.buf = c.buf[:len(c.buf)+n]
	return (n > 0 || err == nil) && c.chargeBytes()
}

// chargeBytes counts the bytes of a long message as requests while the message arrives. It reports
// whether the connection continues. While the caller exceeds its rate, chargeBytes waits, because
// no answer can be sent before the message is complete. This wait does not count towards
// MessageTime, so a low rate alone does not end the connection. If no request is allowed within
// MessageTime, the connection ends with an error.
func (c *conn) chargeBytes() bool {
	for ; c.charged < (len(c.buf)-ownBuffer)/bytesPerRequest; c.charged++ {
		begin := time.Now()
		for refused := c.charge(1); refused != nil; refused = c.charge(1) {
			if time.Since(begin) > c.s.limits.MessageTime {
				c.farewell(refused)
				return false
			}
			since, rested := c.since.Swap(0), time.Now()
			if !c.rest() {
				return false
			}
			if since != 0 {
				c.since.Store(since + int64(time.Since(rested)))
			}
		}
	}
	return true
}

// consume removes a message of n bytes from the buffer.
func (c *conn) consume(n int) {
	c.start += n
	c.charged = 0
	c.since.Store(0)
}

// message parses a message. It returns the request if there is one to execute. It also returns
// whether the connection continues.
func (c *conn) message(message []byte) (k *call, more bool) {
	if blank(message) {
		c.chargeMessage(1)
		return nil, true
	}
	r, err := c.framing.Request(message)
	if err != nil {
		c.s.metrics.garbage.Inc()
		failed := rpc.Invalid("%v", err)
		if c.first && r.ID == 0 {
			// End the connection, because the sender uses another protocol. For example, a web page
			// made a browser send this message. The next lines might look like requests, but
			// another party has written them.
			c.farewell(failed)
			return nil, false
		}
		if refused := c.chargeMessage(1); refused != nil {
			failed = refused
		}
		c.send(&rpc.Response{ID: r.ID, Err: failed})
		return nil, true
	}
	c.first = false
	return c.begin(r, len(message)), true
}

func blank(b []byte) bool {
	for _, x := range b {
		if x != ' ' && x != '\t' && x != '\r' {
			return false
		}
	}
	return true
}
