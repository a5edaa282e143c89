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

// ownBuffer is what each connection may use without charging the server's budget.
const ownBuffer = 4 << 10

// bytesPerRequest is how many bytes of a message, beyond ownBuffer, count as one request, because
// reading and parsing them takes about as long as one request.
const bytesPerRequest = 8 << 10

// conn is one connection.
type conn struct {
	s   *Server
	nc  net.Conn
	in  net.Conn        // reads the same
	raw syscall.RawConn // nil: the connection has no file descriptor

	// Set when the connection is admitted, before anything is read.
	peer    authority.Caller
	account *authority.Account
	part    *part // this connection's part of the server's budget

	ctx    context.Context // canceled when the connection ends
	cancel context.CancelFunc

	// The following fields are used only by the goroutine that reads.
	framing   rpc.Format // nil: not chosen yet
	admitted  bool       // the caller is known and may use the API
	first     bool       // no message was parsed yet
	buf       []byte
	start     int         // offset in buf of the next message
	client    *onceClient // the client that hello named; nil: none
	namespace string      // namespace of requests that name none
	slots     chan struct{}
	pause     time.Duration // how long to wait before the next read
	charged   int           // number of requests charged for the bytes of the message under way
	crowd     crowd
	since     atomic.Int64 // start of the message under way, in ns; 0: there is none

	mu      sync.Mutex
	room    sync.Cond // signaled when unsent has decreased or the connection has ended
	calls   map[uint64]*call
	watched int    // keys and prefixes that watches follow, and files that are held
	out     []byte // unsent
	spare   []byte // spare buffer for answers
	unsent  int    // bytes in out and bytes being written
	gone    uint64 // bytes that were ever written
	passing []passing
	writing bool
	try     attempt   // state of the write under way
	wrote   time.Time // when the writer last made progress
	dead    bool
	last    bool // no more requests are accepted; the connection ends when none is under way
	notices bool // the client asked for notice when the server drains
	noticed bool
	// owner holds the connection's own leases; nil: it has needed none yet.
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
	namespace string // namespace used if the request names none
	ctx       context.Context
	data      any
	cancel    func()
	term      term // the end of ctx, for requests with repeated answers
	// reading is true while the goroutine that executes the request will itself continue reading
	// afterwards. When it has to wait, another goroutine takes over reading.
	reading atomic.Bool
	// crowded says that more requests may have arrived, or do before this one is answered.
	crowded bool
	waited  atomic.Bool // it has waited for a short time
	cost    int64       // of the budget
	watches int
	// descriptors are sent with the answer, unless it is an error.
	descriptors []*os.File
}

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{s: s, nc: nc, in: unannounced.Conn(nc), calls: map[uint64]*call{},
		slots: make(chan struct{}, s.limits.inFlight), buf: make([]byte, 0, 1<<10), first: true, wrote: time.Now()}
	c.room.L = &c.mu
	if file, ok := nc.(syscall.Conn); ok {
		c.raw, _ = file.SyscallConn()
	}
	c.part = s.budget.join("") // replaced when the caller is known
	c.try.do = c.try.write
	c.ctx, c.cancel = context.WithCancel(s.ctx)
	s.metrics.connections.Inc()
	return c
}

// next reads until there is a request that the calling goroutine must execute. nil: the connection
// has ended.
func (c *conn) next() *call {
	k := c.listen()
	if k == nil {
		c.end()
	}
	return k
}

// listen does the work of next, except for ending the connection.
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

// choose determines the framing from the first bytes.
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

// read gets more bytes. The buffer grows up to the maximum length of a message.
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

// chargeBytes counts the bytes read so far of a long message as requests, and reports whether the
// connection continues. While the caller is over its rate it waits, because no answer can be sent
// before the message is complete. This wait does not count towards MessageTime, so a low rate does
// not cut a message off. If no request is allowed within MessageTime, the connection ends with the
// refusal.
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

// consume removes a message from the buffer.
func (c *conn) consume(n int) {
	c.start += n
	c.charged = 0
	c.since.Store(0)
}

// message parses a message. It returns the request to execute, if there is one, and whether the
// connection continues.
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
			// The sender speaks another protocol; for example, a web page made a browser send this.
			// Its next lines might look like requests, but a third party chose them.
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
