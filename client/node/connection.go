package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/unannounced"
)

const (
	// pause before the second attempt to connect; each further pause is twice as long
	firstPause = 10 * time.Millisecond
	maxPause   = time.Second
	// if a connection lasted this long, the next pause is firstPause again
	steady    = time.Second
	dialTime  = 5 * time.Second // bounds one attempt to connect, including the greeting
	lookAgain = 15 * time.Second
	maxLine   = 4 << 20 // bytes; a longer answer is treated as garbage
)

// connection is a connection to the server.
type connection struct {
	net.Conn
	reader net.Conn // reads from the same connection
	number uint64
	raw    syscall.RawConn
	// received bytes that were not processed yet; only the goroutine that reads uses it
	in     []byte
	alive  *time.Timer
	gone   chan struct{} // closed when the connection has ended
	err    error         // why the connection ended; valid after gone is closed
	drains chan struct{} // closed when the server has said that it is shutting down

	reading

	// The client's mutex guards the following fields.
	out, spare []byte // lines that wait to be written
	queued     uint64 // number of bytes that were ever added to out
	written    uint64 // number of the queued bytes that the kernel has accepted
	writing    bool   // a goroutine is writing
	leaving    bool   // The connection ends when its calls under way are answered.
	heard      bool   // something was received since the last check
	asked      bool   // a ping was sent at the last check
	told       bool   // drains was closed
	said       error  // the error that the server sent before it ended the connection

	try struct { // used only by the goroutine that writes
		do  func(fd uintptr) bool
		b   []byte
		n   int
		err error
	}
}

var (
	errAgain          = errors.New("the server was started anew")
	errDraining error = &Error{Code: CodeDraining, Message: "the server is shutting down"}
)

// run keeps the client connected until the client ends.
func (c *Client) run() {
	attempt := 0
	for number := uint64(1); c.ctx.Err() == nil; number++ {
		began := time.Now()
		n, err := c.open(number)
		if err == nil {
			select {
			case <-n.gone:
				err = n.err
			case <-n.drains:
				err = errDraining
			}
		}
		if errors.Is(err, errAgain) {
			continue
		}
		c.mu.Lock()
		c.why = err
		c.mu.Unlock()
		if refused(err) {
			select {
			case c.greeted <- err:
			default:
			}
		}
		if n != nil && time.Since(began) >= steady {
			attempt = 0
			continue
		}
		pause := min(firstPause<<min(attempt, 10), maxPause)
		attempt++
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-c.ctx.Done():
		}
	}
}

// refused reports whether err means that further attempts to connect will not help.
func refused(err error) bool {
	switch CodeOf(err) {
	case CodeInvalidArgument, CodePermissionDenied, CodeTooLarge:
		return true
	}
	return false
}

// open makes a connection, and sends the calls under way on it.
func (c *Client) open(number uint64) (*connection, error) {
	ctx, cancel := context.WithTimeout(c.ctx, dialTime)
	defer cancel()
	network, address := endpoint(c.cfg.Socket)
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	n := &connection{Conn: conn, reader: unannounced.Conn(conn), number: number,
		in: make([]byte, 0, 16<<10), gone: make(chan struct{}), drains: make(chan struct{})}
	hello, err := c.greet(ctx, n)
	if err == nil {
		sc, ok := conn.(syscall.Conn)
		if !ok {
			panic("a connection without a file")
		}
		n.raw, err = sc.SyscallConn()
	}
	if err == nil {
		err = c.adopt(n, hello)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return n, nil
}

// greet sends hello, and waits for the answer.
func (c *Client) greet(ctx context.Context, n *connection) (nodeapi.HelloAnswer, error) {
	defer context.AfterFunc(ctx, func() { _ = n.SetDeadline(time.Unix(1, 0)) })()
	c.mu.Lock()
	id, identity := c.next, c.identity
	c.next++
	c.mu.Unlock()
	data, err := json.Marshal(nodeapi.Hello{Client: identity, Agent: c.cfg.Agent, Namespace: c.cfg.Namespace,
		DrainNotice: true})
	if err != nil {
		return nodeapi.HelloAnswer{}, err
	}
	if _, err := n.Write(appendRequest(nil, &call{id: id, fn: nodeapi.FuncHello, data: data},
		nodeapi.DefaultTimeoutMillis,
		0)); err != nil {
		return nodeapi.HelloAnswer{}, err
	}
	var hello nodeapi.HelloAnswer
	for found := false; !found; {
		err := n.fill(func(line []byte) error {
			var r response[nodeapi.HelloAnswer]
			if err := json.Unmarshal(line, &r); err != nil {
				return fmt.Errorf("what answers is no node server: %w", err)
			}
			switch {
			case found && r.ID == 0 && bytes.Contains(line, []byte(`"draining"`)):
				hello.Draining, n.told = true, true
			case found || r.ID != id && r.ID != 0:
				// The message is of a kind that only newer servers send.
			case r.Error != nil:
				return r.Error
			case r.ID == id && r.Data != nil:
				hello, found = *r.Data, true
			}
			return nil
		})
		if err != nil {
			return nodeapi.HelloAnswer{}, fmt.Errorf("greeting: %w", err)
		}
	}
	return hello, nil
}

// fill reads once, and passes each complete line to use.
func (n *connection) fill(use func(line []byte) error) error {
	if len(n.in) == cap(n.in) {
		if len(n.in) >= maxLine {
			return fmt.Errorf("an answer of more than %d bytes", maxLine)
		}
		n.in = slices.Grow(n.in, len(n.in))
	}
	k, err := n.reader.Read(n.in[len(n.in):cap(n.in)])
	if k == 0 && err != nil {
		if errors.Is(err, io.EOF) && len(n.in) > 0 {
			return io.ErrUnexpectedEOF
		}
		return err
	}
	from := len(n.in)
	n.in = n.in[:from+k]
	begin := 0
	for {
		end := bytes.IndexByte(n.in[from:], '\n')
		if end < 0 {
			break
		}
		end += from
		if err := use(n.in[begin:end]); err != nil {
			return err
		}
		begin, from = end+1, end+1
	}
	if begin > 0 {
		n.in = n.in[:copy(n.in, n.in[begin:])]
	}
	return nil
}

// adopt makes a connection the client's current one. It sends the calls under way on it, except for
// those that another connection will still answer.
func (c *Client) adopt(n *connection, hello nodeapi.HelloAnswer) error {
	c.mu.Lock()
	if c.ctx.Err() != nil {
		c.mu.Unlock()
		return errClosed
	}
	if !hello.Known {
		for _, k := range c.calls {
			if k.changes && k.maybe {
				c.lostTrack(k)
			}
		}
		if c.numbered {
			// The old server, which knows these calls, may come back. It would not know calls that
			// are sent to the new server under the same identity.
			c.identity, c.numbered = newIdentity(), false
			c.mu.Unlock()
			return errAgain
		}
	}
	if n.told {
		close(n.drains)
	}
	old := c.conn
	c.info = hello
	if b := hello.InFlight * 3 / 8; b > 0 { // the remaining quarter is for calls that need no room
		c.ordinary.limit, c.waiting.limit = min(c.cfg.InFlight, b), min(c.cfg.InFlight, b)
	}
	c.conn, c.why = n, nil
	n.alive = time.AfterFunc(lookAgain, func() { c.look(n) })
	now := time.Now()
	for _, id := range slices.Sorted(maps.Keys(c.calls)) {
		k := c.calls[id]
		if k.connection == 0 || k.stream != nil {
			c.queue(n, k, now)
		}
	}
	select {
	case c.greeted <- nil:
	default:
	}
	c.readBehind(n)
	if old != nil {
		c.moveFrom(old)
		c.flush(old) // flush unlocks c.mu
		c.mu.Lock()
	}
	c.flush(n) // flush unlocks c.mu
	return nil
}

// lostTrack ends a call that may have been executed, when no server can know whether it was. The
// caller holds c.mu.
func (c *Client) lostTrack(k *call) {
	c.finish(k, &Error{Code: CodeOutcomeUnknown, Message: k.fn +
		" was under way when the node's server was started anew; whether it was done is not known",
		Do: "read what it would have changed before it is done again"})
}

// moveFrom makes a connection end when the server has answered the calls that it executes. Calls
// that wait for other callers are moved to the next server. The caller holds c.mu, and flushes
// afterwards.
func (c *Client) moveFrom(n *connection) {
	n.leaving = true
	c.readBehind(n)
	for _, k := range c.calls {
		if k.connection == n.number && k.waits && !k.moving {
			k.moving = true
			n.push(c.cancelLine(k.id))
		}
	}
	c.endIfEmpty(n)
}

// endIfEmpty ends a connection that is being left, if no call is under way on it. The caller holds
// c.mu.
func (c *Client) endIfEmpty(n *connection) {
	for _, k := range c.calls {
		if k.connection == n.number {
			return
		}
	}
	_ = n.Close()
}

// queue queues a call's line for writing. The caller holds c.mu.
func (c *Client) queue(n *connection, k *call, now time.Time) {
	millis := 0
	switch {
	case k.stream != nil:
		k.data = k.stream.data(k.data[:0])
		millis = nodeapi.DefaultTimeoutMillis
	default:
		left := k.deadline.Sub(now)
		if left <= 0 {
			k.connection = 0
			return // the call's caller is about to time out
		}
		millis = int(min(max(left/time.Millisecond, 1), nodeapi.MaxTimeoutMillis))
	}
	k.connection, k.start = n.number, n.queued
	before := len(n.out)
	n.out = appendRequest(n.out, k, millis, c.numbers.first)
	n.queued += uint64(len(n.out) - before)
	if k.once > 0 {
		c.numbered, k.identity = true, c.identity
	}
}

// push queues a line. The caller holds the client's mutex.
func (n *connection) push(line []byte) {
	n.out = append(n.out, line...)
	n.queued += uint64(len(line))
}

// flush writes the queued lines, unless another goroutine is writing. The caller holds c.mu; flush
// releases it. The calling goroutine itself writes as long as it need not wait, which saves a
// switch between goroutines.
func (c *Client) flush(n *connection) {
	if n.writing || len(n.out) == 0 {
		c.mu.Unlock()
		return
	}
	n.writing = true
	for range 4 {
		b := n.out
		n.out, n.spare = n.spare[:0], nil
		c.mu.Unlock()
		k, err := n.tryWrite(b)
		c.mu.Lock()
		n.written += uint64(k)
		if err != nil {
			_ = n.Close() // The reading goroutine notices that the connection is closed.
			c.readBehind(n)
			c.mu.Unlock()
			return
		}
		if k < len(b) {
			c.writeOn(n, b[k:])
			c.mu.Unlock()
			return
		}
		if cap(b) <= 1<<16 {
			n.spare = b[:0]
		}
		if len(n.out) == 0 {
			n.writing = false
			c.mu.Unlock()
			return
		}
	}
	// Other goroutines keep adding lines, so a background goroutine continues to write.
	c.writeOn(n, nil)
	c.mu.Unlock()
}

// writeOn starts a goroutine that writes rest, and then the lines that were queued meanwhile. The
// caller holds c.mu.
func (c *Client) writeOn(n *connection, rest []byte) {
	if c.ctx.Err() != nil {
		return
	}
	c.done.Go(func() {
		for {
			k, err := 0, error(nil)
			if len(rest) > 0 {
				k, err = n.Write(rest)
			}
			c.mu.Lock()
			n.written += uint64(k)
			if err != nil {
				_ = n.Close()
				c.readBehind(n)
				c.mu.Unlock()
				return
			}
			if len(n.out) == 0 {
				n.writing = false
				c.mu.Unlock()
				return
			}
			rest, n.out = n.out, nil
			c.mu.Unlock()
		}
	})
}

// tryWrite writes as many bytes as the socket accepts without waiting.
func (n *connection) tryWrite(b []byte) (int, error) {
	t := &n.try
	if t.do == nil {
		t.do = func(fd uintptr) bool {
			for {
				t.n, t.err = unannounced.Write(fd, t.b)
				if !errors.Is(t.err, syscall.EINTR) {
					return true
				}
			}
		}
	}
	t.b = b
	if err := n.raw.Write(t.do); err != nil {
		return 0, err
	}
	if errors.Is(t.err, syscall.EAGAIN) {
		return 0, nil
	}
	return max(t.n, 0), t.err
}

// line processes a line that was received from the server.
func (c *Client) line(n *connection, line []byte) error {
	id, ok := idOf(line)
	if !ok {
		return fmt.Errorf("an answer that is none: %.80q", line)
	}
	c.mu.Lock()
	n.heard = true
	k := c.calls[id]
	if k != nil && k.connection != n.number {
		k = nil
	}
	// A message that may be about the connection is parsed here. The callers parse all other
	// answers.
	if id == 0 || bytes.Contains(line, []byte(`"error"`)) {
		if c.notice(n, id, k, line) {
			return nil
		}
	}
	if k == nil { // A newer server sent this message, or the call's caller has stopped waiting.
		c.mu.Unlock()
		return nil
	}
	switch {
	case k.stream != nil:
		c.mu.Unlock()
		return k.stream.tell(line)
	default:
		k.answer = append(k.answer[:0], line...)
		c.finish(k, nil)
	}
	if n.leaving {
		c.endIfEmpty(n)
	}
	c.mu.Unlock()
	return nil
}

// notice handles messages about the connection. Such a message says that the server is shutting
// down, why it ends the connection, or that a call may be made at another server. After such a
// message, notice unlocks c.mu, which the caller holds, and returns true.
func (c *Client) notice(n *connection, id uint64, k *call, line []byte) bool {
	var r response[nodeapi.DrainNotice]
	_ = json.Unmarshal(line, &r) // If the line is something else, r stays empty.
	code := CodeOf(asError(r.Error))
	switch {
	case id == 0 && r.Data != nil && r.Data.Draining:
	// The server refuses the call only because it is shutting down.
	case code == CodeDraining || code == CodeCanceled && k != nil && !k.moving:
		n.said = r.Error
		if k != nil {
			k.connection = 0 // The call was not executed in this attempt.
		}
		if c.conn == n { // send nothing more on this connection
			c.conn, n.leaving = nil, true
		}
	case code == CodeCanceled && k != nil:
		k.connection, k.moving = 0, false
		if c.conn != nil {
			if k.once > 0 {
				c.numbers.finish(k.once)
				k.once = c.numbers.take()
			}
			c.queue(c.conn, k, time.Now())
			c.readBehind(c.conn)
			if n.leaving {
				c.endIfEmpty(n)
			}
			c.flush(c.conn) // flush unlocks c.mu
			return true
		}
	case id == 0:
		if r.Error != nil {
			n.said = r.Error
		}
		c.mu.Unlock()
		return true
	default:
		return false
	}
	if !n.told {
		n.told = true
		close(n.drains)
	}
	if n.leaving {
		c.endIfEmpty(n)
	}
	c.mu.Unlock()
	return true
}

// dropped handles the end of a connection. It is not known which of the connection's calls reached
// the server.
func (c *Client) dropped(n *connection) {
	_ = n.Close()
	n.alive.Stop()
	c.mu.Lock()
	if c.conn == n {
		c.conn = nil
	}
	now := time.Now()
	for _, id := range slices.Sorted(maps.Keys(c.calls)) {
		k := c.calls[id]
		if k.connection != n.number {
			continue
		}
		k.maybe = k.maybe || k.start < n.written
		k.connection, k.moving = 0, false
		if k.changes && k.maybe && k.identity != c.identity {
			c.lostTrack(k)
		}
		if c.conn != nil && c.calls[id] == k {
			c.queue(c.conn, k, now)
		}
	}
	if c.conn != nil {
		if len(c.calls) > 0 {
			c.readBehind(c.conn)
		}
		c.flush(c.conn) // flush unlocks c.mu
		return
	}
	c.mu.Unlock()
}

// look pings the server if nothing was received from it since the last check. If the ping is not
// answered, look ends the connection.
func (c *Client) look(n *connection) {
	c.mu.Lock()
	if c.conn != n {
		c.mu.Unlock()
		return
	}
	if n.asked && !n.heard {
		n.said = fmt.Errorf("the server did not answer for %v", lookAgain)
		_ = n.Close()
		c.readBehind(n)
		c.mu.Unlock()
		return
	}
	n.asked = !n.heard
	n.heard = false
	n.alive.Reset(lookAgain)
	if n.asked {
		c.readBehind(n)
		n.push(appendRequest(nil, &call{id: c.next, fn: nodeapi.FuncPing}, nodeapi.DefaultTimeoutMillis, 0))
		c.next++
		c.flush(n) // flush unlocks c.mu
		return
	}
	c.mu.Unlock()
}
