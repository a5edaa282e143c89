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
	"github.com/netcraq/netcraq/nodeapi/authority"
	"github.com/netcraq/netcraq/nodeapi/coordination"
	"github.com/netcraq/netcraq/nodeapi/server/rpc"
)

// ownBuffer is what each connection may hold without asking the server's budget.
const ownBuffer = 4 << 10

// bytesPerRequest is how many bytes of a message, beyond ownBuffer, count as one request: to read
// and to understand them takes about as long.
const bytesPerRequest = 8 << 10

// conn is one connection.
type conn struct {
	s   *Server
	nc  net.Conn
	raw syscall.RawConn // nil: it has no file

	// Set when the connection is admitted, before anything is read.
	peer    authority.Caller
	account *authority.Account
	part    *part // of the server's budget

	ctx    context.Context // ends with the connection
	cancel context.CancelFunc

	// The reader's.
	framing   rpc.Format // nil: not chosen yet
	admitted  bool       // who has connected is known, and may
	first     bool       // no message was understood yet
	buf       []byte
	start     int         // of buf: where the next message begins
	client    *onceClient // of hello; nil: it named none
	namespace string      // of requests that name none
	slots     chan struct{}
	pause     time.Duration // nothing more is read for so long
	charged   int           // requests that the bytes of the message under way counted as
	since     atomic.Int64  // when the message that is under way began, in ns; 0: there is none

	mu      sync.Mutex
	room    sync.Cond // unsent has become less, or the connection has ended
	calls   map[uint64]*call
	watched int    // what watches count for
	out     []byte // unsent
	spare   []byte // the other buffer of answers
	unsent  int    // len(out) and what is being written
	gone    uint64 // bytes that were ever written
	passing []passing
	writing bool
	try     attempt   // of who is writing
	wrote   time.Time // when the writer got on last
	dead    bool
	last    bool // no more requests are taken; it ends when none is under way
	notices bool // the client wants to be told that the server drains
	noticed bool
	// owner is of the leases that the connection has; nil: it needed none yet.
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
	namespace string // where the request names none
	ctx       context.Context
	data      any
	cancel    func()
	term      term // ctx, but of what is answered again and again
	// reading is true while the goroutine that does it is to read on when it has: others do so from
	// the moment that it waits for something.
	reading atomic.Bool
	cost    int64 // of the budget
	watches int
	// descriptors go with the answer, if that is no error.
	descriptors []*os.File
}

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{s: s, nc: nc, calls: map[uint64]*call{}, slots: make(chan struct{}, s.limits.inFlight),
		buf: make([]byte, 0, 1<<10), first: true, wrote: time.Now()}
	c.room.L = &c.mu
	if file, ok := nc.(syscall.Conn); ok {
		c.raw, _ = file.SyscallConn()
	}
	c.part = s.budget.join("") // until it is known who has connected
	c.try.do = c.try.write
	c.ctx, c.cancel = context.WithCancel(s.ctx)
	s.metrics.connections.Inc()
	return c
}

// next reads until there is a request to be done by the caller. nil: the connection has ended.
func (c *conn) next() *call {
	k := c.listen()
	if k == nil {
		c.end()
	}
	return k
}

// listen does what next does, but for the end.
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

// choose finds out the framing from the first bytes.
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

// read gets more bytes. The buffer grows up to a message's length.
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
	n, err := c.nc.Read(c.buf[len(c.buf):cap(c.buf)])
	c.buf = c.buf[:len(c.buf)+n]
	return (n > 0 || err == nil) && c.chargeBytes()
}

// chargeBytes counts what was read of a long message as requests, and says whether the connection
// goes on. It waits while the caller has too many, since nothing can be answered yet. This time is
// not the message's, so a low rate does not make it half a message. If no request is allowed within
// MessageTime, the connection ends with the refusal.
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

// consume takes a message off the buffer.
func (c *conn) consume(n int) {
	c.start += n
	c.charged = 0
	c.since.Store(0)
}

// message understands a message. It gives the request that is to be done, if there is one, and says
// whether the connection goes on.
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
			// Another protocol, of a browser for example that a page has talked into it: its next
			// lines may be requests, but they are not its own.
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
