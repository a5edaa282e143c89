package server

import (
	"errors"
	"syscall"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/unannounced"
	"github.com/netcraq/netcraq/nodeapi/server/rpc"
)

// lastAnswers is called when the client sends nothing more. The client may still read, so the
// server waits a little for requests under way. The client may also have disconnected. Therefore
// watches, and requests that would wait for other callers, are ended.
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

// waitForRoom waits while the client does not read what was sent. It reports whether the connection
// continues.
func (c *conn) waitForRoom() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.unsent > c.s.limits.backpressure() && !c.dead {
		c.room.Wait()
	}
	return !c.dead
}

// encode encodes a response. If a response is too long or cannot be encoded, encode returns an
// error response instead.
func (c *conn) encode(r *rpc.Response) []byte {
	text, err := c.framing.Append(nil, r)
	switch {
	case err != nil:
		r.Err = nodeapi.Errorf(nodeapi.CodeInternal, "", "the answer cannot be written: %v", err)
	case len(text) > nodeapi.MaxMessage:
		r.Err = nodeapi.Errorf(nodeapi.CodeTooLarge, "ask for fewer keys at once",
			"the answer would have %d bytes; a message has at most %d", len(text), nodeapi.MaxMessage)
	default:
		return text
	}
	r.Data, r.More = nil, false
	text, _ = c.framing.Append(nil, r)
	return text
}

// send sends the answer to a message that did not become a call.
func (c *conn) send(r *rpc.Response) {
	text := c.encode(r)
	c.mu.Lock()
	c.push(text)
	c.mu.Unlock()
	c.flush()
	c.waitForRoom()
}

// push appends a message to the unsent bytes. If there are too many unsent bytes, it ends the
// connection. The caller holds c.mu.
func (c *conn) push(text []byte) {
	if c.dead {
		return
	}
	if len(c.out) == 0 && !c.writing {
		c.wrote = time.Now()
	}
	n := int64(len(text))
	if c.unsent+len(text) > c.s.limits.unsent {
		c.die("unread")
		return
	}
	if !c.part.take(n) {
		if c.unsent > ownBuffer {
			c.die("unread")
			return
		}
		c.part.count(n)
	}
	c.out = append(c.out, text...)
	c.unsent += len(text)
}

// flushNow writes unsent bytes, as many as the socket accepts at once, unless another goroutine is
// writing. It reports whether unsent bytes are left.
func (c *conn) flushNow() (more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writing || c.dead {
		return false
	}
	c.writing = true
	defer func() { c.writing = false }()
	for len(c.out) > 0 {
		if c.raw == nil || len(c.passing) > 0 { // a message with descriptors needs a separate write
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
			c.part.count(-int64(n))
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

// flush writes unsent bytes, unless another goroutine is doing so.
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
			// Write in parts, so that the progress of a slow client is visible.
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
			c.part.count(-int64(n))
			b = b[n:]
		}
		if c.room.Broadcast(); cap(b) <= ownBuffer {
			c.spare = b[:0]
		}
	}
	c.writing = false
}

// attempt is a write that does not wait for the socket. It keeps its buffers for reuse, so that it
// does not allocate memory.
type attempt struct {
	do  func(fd uintptr) bool // the method write as a function value
	b   []byte
	n   int
	err error
}

func (t *attempt) write(fd uintptr) bool {
	for {
		t.n, t.err = unannounced.Write(fd, t.b)
		if !errors.Is(t.err, syscall.EINTR) {
			return true
		}
	}
}

// tryWrite writes as many bytes as the socket accepts without waiting. The caller must have set
// c.writing.
func (c *conn) tryWrite(b []byte) (int, error) {
	t := &c.try
	t.b = b
	err := c.raw.Write(t.do)
	t.b = nil
	switch {
	case err != nil:
		return 0, err
	case errors.Is(t.err, syscall.EAGAIN):
		return 0, nil
	}
	return max(t.n, 0), t.err
}
