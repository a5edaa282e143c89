package server

import (
	"context"
	"io"
	"math"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/netcraq/netcraq/api/node"
	"github.com/netcraq/netcraq/nodeapi/authority"
	"github.com/netcraq/netcraq/nodeapi/coordination"
)

// ownBuffer is what each connection may hold without asking the server's budget.
const ownBuffer = 4 << 10

// conn is one connection.
type conn struct {
	s   *Server
	nc  net.Conn
	raw syscall.RawConn // nil: it has no file

	// Set when the connection is admitted, before anything is read.
	peer    authority.Caller
	account *authority.Account

	ctx    context.Context // ends with the connection
	cancel context.CancelFunc

	// The reader's.
	framing   framing // nil: not chosen yet
	admitted  bool    // who has connected is known, and may
	first     bool    // no message was understood yet
	buf       []byte
	start     int         // of buf: where the next message begins
	client    *onceClient // of hello; nil: it named none
	namespace string      // of requests that name none
	slots     chan struct{}
	since     atomic.Int64 // when the message that is under way began, in ns; 0: there is none

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
	req       request
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
			c.framing = jsonLines{}
			c.farewell(refused)
			return nil
		}
		c.admitted = true
	}
	for {
		if c.framing == nil && !c.choose() {
			return nil
		}
		message, size, failed := c.framing.next(c.buf[c.start:])
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

// admit finds out who has connected, and whether he may.
func (c *conn) admit() *node.Error {
	peer := c.s.config.Identify.Identify(c.nc)
	c.mu.Lock()
	c.peer = peer
	c.mu.Unlock()
	var err error
	if c.namespace, err = c.s.config.Authority.Namespace(c.ctx, peer); err == nil {
		c.account, err = c.s.config.Quotas.Connect(c.s.config.Authority.Subject(peer))
	}
	if err != nil {
		return toAnswer(err, false)
	}
	return nil
}

// choose finds out the framing from the first bytes.
func (c *conn) choose() bool {
	for len(c.buf) == 0 {
		if !c.read() {
			return false
		}
	}
	if c.buf[0] != node.Preface[0] {
		c.framing = jsonLines{}
		return true
	}
	for len(c.buf) < len(node.Preface) {
		if !c.read() {
			return false
		}
	}
	if string(c.buf[:len(node.Preface)]) != node.Preface {
		c.framing = jsonLines{}
		c.farewell(invalid("the first bytes are neither JSON nor the preface of the compact framing"))
		return false
	}
	c.framing = compact{}
	c.consume(len(node.Preface))
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
		c.s.budget.take(int64(ownBuffer-cap(c.buf)), 0)
		c.buf = make([]byte, 0, 1<<10)
	case len(c.buf) == cap(c.buf):
		grown := min(max(4*cap(c.buf), ownBuffer), node.MaxMessage)
		if extra := int64(grown - max(cap(c.buf), ownBuffer)); !c.s.budget.take(extra, c.s.limits.Buffered) {
			c.farewell(node.Errorf(node.CodeQuotaExceeded, "connect again later",
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
	return n > 0 || err == nil
}

// consume takes a message off the buffer.
func (c *conn) consume(n int) {
	c.start += n
	c.since.Store(0)
}

// message understands a message. It gives the request that is to be done, if there is one, and says
// whether the connection goes on.
func (c *conn) message(message []byte) (k *call, more bool) {
	if blank(message) {
		return nil, true
	}
	r, err := c.framing.request(message)
	if err != nil {
		c.s.metrics.garbage.Inc()
		failed := invalid("%v", err)
		if c.first && r.ID == 0 {
			// Another protocol, of a browser for example that a page has talked into it: its next
			// lines may be requests, but they are not its own.
			c.farewell(failed)
			return nil, false
		}
		c.send(&response{id: r.ID, err: failed})
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

// begin prepares a request for run, or refuses it, or does it at once. It waits while too much is
// under way or unsent.
func (c *conn) begin(r request, size int) *call {
	if r.ID < 1 || r.ID > maxID {
		c.send(&response{err: invalid("id %d: an id is 1 to 2^53-1", r.ID)})
		return nil
	}
	k := &call{c: c, client: c.client, namespace: c.namespace}
	data, err := k.understand(r)
	if err != nil {
		c.s.metrics.count(r.Func, err.Code)
		c.send(&response{id: r.ID, err: err})
		return nil
	}
	if k.f.inline != nil {
		answer, err := k.f.inline(k, data)
		c.finished(k, answer, err)
		return nil
	}
	if !c.waitForRoom() {
		return nil
	}
	requests := 1
	if k.f.requests != nil {
		requests = max(k.f.requests(data), 1)
	}
	if err := c.account.Request(requests); err != nil {
		refused := toAnswer(err, false)
		c.s.metrics.count(r.Func, refused.Code)
		c.send(&response{id: r.ID, err: refused})
		return nil
	}
	if k.f.watches != nil {
		k.watches = k.f.watches(data)
	} else {
		select {
		case c.slots <- struct{}{}:
		case <-c.ctx.Done():
			return nil
		}
		k.cost = max(int64(size)-ownBuffer/4, 0)
	}
	ctx := context.Context(&k.term)
	if k.f.watches != nil {
		ctx, k.cancel = context.WithCancel(c.ctx)
	} else {
		k.term.parent, k.term.deadline = c.ctx, time.Now().Add(r.timeout())
		if r.Once != 0 && k.f.writes {
			k.term.parent = c.s.ctx // its answer is kept, so it goes on when the connection has ended
		}
		k.term.waits, k.cancel = k.handOver, k.term.end
	}
	if refused := c.enter(k); refused != nil {
		k.cancel()
		k.release()
		c.s.metrics.count(r.Func, refused.Code)
		c.send(&response{id: r.ID, err: refused})
		return nil
	}
	k.ctx, k.data = ctx, data
	return k
}

// release gives back the place among those in flight.
func (k *call) release() {
	if k.f.watches == nil {
		<-k.c.slots
	}
}

// enter puts a request among those under way, unless a bound is in the way.
func (c *conn) enter(k *call) *node.Error {
	if !c.s.budget.take(k.cost, c.s.limits.Buffered) {
		return node.Errorf(node.CodeQuotaExceeded, "send it again later",
			"too many bytes of requests are under way at this server")
	}
	if err := c.account.Watch(k.watches); err != nil {
		c.s.budget.take(-k.cost, 0)
		return toAnswer(err, false)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var refused *node.Error
	switch {
	case c.calls[k.req.ID] != nil:
		refused = invalid("id %d: a request of this id is under way on this connection", k.req.ID)
	case c.watched+k.watches > c.s.limits.watches:
		refused = node.Errorf(node.CodeQuotaExceeded, "cancel watches that are not used, or watch a prefix",
			"a connection watches at most %d keys and prefixes; it watches %d, and would %d more",
			c.s.limits.watches, c.watched, k.watches)
	case c.last:
		refused = errDraining()
	default:
		c.calls[k.req.ID] = k
		c.watched += k.watches
		c.s.metrics.watches.Add(float64(k.watches))
		return nil
	}
	c.s.budget.take(-k.cost, 0)
	c.account.Unwatch(k.watches)
	return refused
}

// run does a request and answers it.
func (k *call) run() {
	ctx, data := k.ctx, k.data
	var answer any
	var err error
	if k.req.Once != 0 && k.f.writes {
		answer, err = k.client.do(ctx, k, data)
	} else {
		answer, err = k.f.run(ctx, k, data)
	}
	k.cancel()
	k.c.finished(k, answer, err)
}

// finished answers a request. Its id is free from then on.
func (c *conn) finished(k *call, answer any, err error) {
	r := response{id: k.req.ID, data: answer}
	if err != nil {
		r.err, r.data = toAnswer(err, k.f.writes), nil
	}
	text := c.encode(&r)
	c.mu.Lock()
	if k.f.watches != nil && c.last && !c.dead {
		r = response{id: k.req.ID, err: errDraining()}
		text = c.encode(&r)
	}
	if k.f.inline == nil {
		delete(c.calls, k.req.ID)
		c.watched -= k.watches
		c.room.Broadcast()
	}
	if len(k.descriptors) > 0 {
		c.sendBeside(k.descriptors)
	}
	c.push(text)
	c.mu.Unlock()
	if k.f.inline == nil {
		k.release()
		c.s.budget.take(-k.cost, 0)
		c.s.metrics.watches.Sub(float64(k.watches))
		c.account.Unwatch(k.watches)
	}
	code := node.Code("")
	if r.err != nil {
		code = r.err.Code
	}
	c.s.metrics.count(k.req.Func, code)
	if c.flushNow() {
		k.handOver()
		c.flush()
	}
}

// handOver has another goroutine read on, if the one that does the request was to do so.
func (k *call) handOver() {
	if k.reading.CompareAndSwap(true, false) {
		k.c.s.readBy(k.c)
	}
}

// more sends a watch's next answer. It waits while the client does not read, and says whether the
// connection goes on.
func (k *call) more(ctx context.Context, answer any) bool { return k.moreWith(ctx, answer, nil) }

// moreWith is more with descriptors that go beside the answer. They are closed, whatever becomes of
// it.
func (k *call) moreWith(ctx context.Context, answer any, files []*os.File) bool {
	c := k.c
	text := c.encode(&response{id: k.req.ID, data: answer, more: true})
	c.mu.Lock()
	full := func() bool { return c.unsent > c.s.limits.backpressure() && !c.dead && ctx.Err() == nil }
	if full() { // else nothing is kept for it: there are many watches
		defer context.AfterFunc(ctx, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.room.Broadcast()
		})()
		for full() {
			c.room.Wait()
		}
	}
	if !c.dead && ctx.Err() == nil {
		if len(files) > 0 {
			c.passing, files = append(c.passing, passing{c.gone + uint64(c.unsent), files}), nil
		}
		c.push(text)
	}
	c.mu.Unlock()
	closeAll(files)
	c.flush()
	return ctx.Err() == nil
}

// lastAnswers is for a client that sends nothing more, but may still read: what is under way is
// waited for a little. It may as well have gone, so nothing waits for its turn, or watches, for it.
func (c *conn) lastAnswers() {
	late := false
	timer := time.AfterFunc(c.s.limits.Farewell, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		late = true
		c.room.Broadcast()
	})
	defer timer.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.calls {
		if k.f.watches != nil || k.f.waits {
			k.cancel()
		}
	}
	for len(c.calls)+c.unsent > 0 && !c.dead && !late {
		c.room.Wait()
	}
}

// waitForRoom waits while the client does not read what it was sent.
func (c *conn) waitForRoom() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.unsent > c.s.limits.backpressure() && !c.dead {
		c.room.Wait()
	}
	return !c.dead
}

// encode makes a message of a response. One that is too long, or cannot be written, becomes an
// error.
func (c *conn) encode(r *response) []byte {
	text, err := c.framing.append(nil, r)
	switch {
	case err != nil:
		r.err = node.Errorf(node.CodeInternal, "", "the answer cannot be written: %v", err)
	case len(text) > node.MaxMessage:
		r.err = node.Errorf(node.CodeTooLarge, "ask for fewer keys at once",
			"the answer would have %d bytes; a message has at most %d", len(text), node.MaxMessage)
	default:
		return text
	}
	r.data, r.more = nil, false
	text, _ = c.framing.append(nil, r)
	return text
}

// send answers what never became a call.
func (c *conn) send(r *response) {
	text := c.encode(r)
	c.mu.Lock()
	c.push(text)
	c.mu.Unlock()
	c.flush()
	c.waitForRoom()
}

// push puts a message among what is unsent. A client that has too much of that is cut off. c.mu is
// held.
func (c *conn) push(text []byte) {
	if c.dead {
		return
	}
	if len(c.out) == 0 && !c.writing {
		c.wrote = time.Now()
	}
	n := int64(len(text))
	if c.unsent+len(text) > c.s.limits.unsent ||
		!c.s.budget.take(n, c.s.limits.Buffered) && (c.unsent > ownBuffer || !c.s.budget.take(n, math.MaxInt64)) {
		c.die("unread")
		return
	}
	c.out = append(c.out, text...)
	c.unsent += len(text)
}

// flushNow writes what is unsent as far as the socket takes it at once, unless somebody is at it,
// and says whether there is more to write.
func (c *conn) flushNow() (more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writing || c.dead {
		return false
	}
	c.writing = true
	defer func() { c.writing = false }()
	for len(c.out) > 0 {
		if c.raw == nil || len(c.passing) > 0 { // descriptors go with a write of their own
			return true
		}
		b := c.out
		c.out, c.spare = c.spare[:0], nil
		c.mu.Unlock()
		n, err := c.tryWrite(b)
		c.mu.Lock()
		if c.dead {
			return false
		}
		if err != nil {
			c.die("")
			return false
		}
		if n > 0 {
			c.wrote = time.Now()
			c.gone += uint64(n)
			c.unsent -= n
			c.s.budget.take(-int64(n), 0)
		}
		if n < len(b) {
			c.out = append(b[n:], c.out...)
			return true
		}
		if cap(b) <= ownBuffer {
			c.spare = b[:0]
		}
		c.room.Broadcast()
	}
	return false
}

// flush writes what is unsent, unless somebody is at it.
func (c *conn) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writing {
		return
	}
	c.writing = true
	for len(c.out) > 0 && !c.dead {
		b := c.out
		c.out = c.spare[:0]
		for len(b) > 0 && !c.dead {
			// In parts, so that a slow reader is seen to read.
			part := b[:min(len(b), 64<<10)]
			n, err := c.writePart(part)
			if c.dead {
				break
			}
			if err != nil {
				c.die("")
				break
			}
			c.wrote = time.Now()
			c.gone += uint64(n)
			c.unsent -= n
			c.s.budget.take(-int64(n), 0)
			b = b[n:]
		}
		if c.room.Broadcast(); cap(b) <= ownBuffer {
			c.spare = b[:0]
		}
	}
	c.writing = false
}

// die ends the connection. why is "" where the client went, or the server is closed. c.mu is held.
func (c *conn) die(why string) {
	if c.dead {
		return
	}
	c.dead = true
	c.s.budget.take(-int64(c.unsent), 0)
	c.unsent, c.out, c.spare = 0, nil, nil
	for _, p := range c.passing {
		closeAll(p.files)
	}
	c.passing = nil
	c.cancel()
	c.room.Broadcast()
	c.nc.Close()
	if why != "" {
		c.s.metrics.cutOff.WithLabelValues(why).Inc()
		c.s.log.Info("a connection is cut off", "peer", c.peer.String(), "reason", why)
	}
}

// cutOff ends the connection.
func (c *conn) cutOff(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.die(why)
}

// overdue says why a connection is to be cut off, if it is.
func (c *conn) overdue(now time.Time) string {
	if since := c.since.Load(); since != 0 && now.Sub(time.Unix(0, since)) > c.s.limits.MessageTime {
		return "half a message"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unsent > 0 && now.Sub(c.wrote) > c.s.limits.StallTime {
		return "unread"
	}
	return ""
}

// end is what becomes of a connection when nothing more is read from it.
func (c *conn) end() {
	c.cutOff("")
	c.s.budget.take(-int64(max(cap(c.buf)-ownBuffer, 0)), 0)
	c.buf = nil
	if c.client != nil {
		c.client.leave()
	}
	c.giveAllBack()
	if c.account != nil {
		c.account.Close()
	}
	c.s.metrics.connections.Dec()
	c.s.left(c)
}

// farewell says why the connection ends, waits a little until that is read, and ends it.
func (c *conn) farewell(failed *node.Error) {
	c.s.metrics.count("", failed.Code)
	text := c.encode(&response{err: failed})
	c.mu.Lock()
	c.push(text)
	c.mu.Unlock()
	c.flush()
	linger(c.nc)
}

// linger gives a client the time to read what was sent to it. A socket that is closed with unread
// bytes in it may take away what it has sent.
func linger(nc net.Conn) {
	if half, ok := nc.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_ = nc.SetReadDeadline(time.Now().Add(time.Second))
	_, _ = io.CopyN(io.Discard, nc, 4*node.MaxMessage)
}

// turningAway bounds how many connections are told at once why they are not served.
var turningAway = make(chan struct{}, 64)

// turnAway says, in JSON, why a connection is not served, and ends it.
func turnAway(nc net.Conn, failed *node.Error) {
	select {
	case turningAway <- struct{}{}:
	default:
		nc.Close()
		return
	}
	go func() {
		defer func() { <-turningAway }()
		defer nc.Close()
		text, _ := jsonLines{}.append(nil, &response{err: failed})
		_ = nc.SetWriteDeadline(time.Now().Add(time.Second))
		if _, err := nc.Write(text); err == nil {
			linger(nc)
		}
	}()
}

// tellDraining tells a client that wants to know that it should connect anew.
func (c *conn) tellDraining() {
	c.mu.Lock()
	if !c.notices || c.noticed || c.dead {
		c.mu.Unlock()
		return
	}
	c.noticed = true
	c.mu.Unlock()
	c.send(&response{data: node.DrainNotice{Draining: true}})
}

// finish takes no more requests, and ends watches.
func (c *conn) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = true
	for _, k := range c.calls {
		if k.f.watches != nil {
			k.cancel()
		}
	}
}
