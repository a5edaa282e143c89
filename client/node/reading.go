package node

import (
	"context"
	"errors"
	"os"
	"time"
)

// A goroutine that waits for an answer reads the connection itself, unless another goroutine is
// already reading. If a background goroutine always read, it would have to wake the caller for each
// answer. That would take longer than all other parts of a call. If several callers wait, or
// streams are open, a background goroutine reads for all of them:
//
//	nobody ──a call──▶ its caller ──answered, others wait──▶ a goroutine ──nobody waits──▶ nobody
//	   └──────────────────── nothing for idleRead ──────────────▲

// idleRead is the time for which a connection may be unread while no caller waits for an answer.
// Unrequested messages, for example that the server is shutting down, are delayed by up to that
// time.
const idleRead = 20 * time.Millisecond

// reading records which goroutine reads a connection. The client's mutex guards it, except for
// until, which only the reader uses.
type reading struct {
	taken bool      // whether a goroutine reads; always true after the connection has ended
	since time.Time // when the last reading goroutine stopped
	// timer after which the client checks whether the connection was unread for long
	back  *time.Timer
	armed bool // whether the timer back is running

	until time.Time // the socket's read deadline, unless wake was called
}

// readUntil sets the socket's read deadline; 0 means no deadline.
func (n *connection) readUntil(t time.Time) {
	n.until = t
	_ = n.SetReadDeadline(t)
}

// wake makes the reader check whether it should continue.
func (n *connection) wake() { _ = n.SetReadDeadline(time.Unix(1, 0)) }

// readBehind starts a goroutine that reads the connection, if no goroutine does. The caller holds
// c.mu.
func (c *Client) readBehind(n *connection) {
	if n.taken {
		return
	}
	n.taken = true
	if c.ctx.Err() != nil {
		go c.readOn(n) // this goroutine ends soon, because the client is ending
		return
	}
	c.done.Go(func() { c.readOn(n) })
}

// stopReading ends the caller's reading. Afterwards either no goroutine reads or a background
// goroutine does. The caller holds c.mu.
func (c *Client) stopReading(n *connection) {
	n.taken = false
	switch {
	case c.ctx.Err() != nil:
		_ = n.Close()
		c.readBehind(n)
	case c.conn != n || n.leaving || len(c.calls) > 0:
		c.readBehind(n)
	default:
		r := &n.reading
		r.since = time.Now()
		switch {
		case r.armed:
		case r.back == nil:
			r.back, r.armed = time.AfterFunc(idleRead, func() { c.idle(n) }), true
		default:
			r.back.Reset(idleRead)
			r.armed = true
		}
	}
}

// idle makes a goroutine read a connection that was unread for a while.
func (c *Client) idle(n *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &n.reading
	r.armed = false
	if r.taken {
		return
	}
	if rest := idleRead - time.Since(r.since); rest > 0 {
		r.back.Reset(rest)
		r.armed = true
		return
	}
	c.readBehind(n)
}

// readOn passes answers to their callers until no caller waits for one, or the connection ends.
func (c *Client) readOn(n *connection) {
	for {
		err := n.fill(func(line []byte) error { return c.line(n, line) })
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded): // The previous reader had set this deadline.
			n.readUntil(time.Time{})
		case err != nil:
			c.ended(n, err)
			return
		}
		c.mu.Lock()
		if len(c.calls) == 0 && c.conn == n && !n.leaving && c.ctx.Err() == nil {
			c.stopReading(n)
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
	}
}

// readFor reads the connection for the caller of k. It ends when k is answered, when k is sent on
// another connection, when ctx ends, or at the time limit if that is not 0. It reports whether k is
// answered.
func (c *Client) readFor(ctx context.Context, n *connection, k *call, limit time.Time) (answered bool) {
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, n.wake)()
	}
	if !limit.IsZero() && (n.until.IsZero() || n.until.After(limit)) {
		n.readUntil(limit)
	}
	for {
		err := n.fill(func(line []byte) error { return c.line(n, line) })
		late := errors.Is(err, os.ErrDeadlineExceeded)
		if late { // this may be the deadline of the previous reader
			n.readUntil(limit)
		} else if err != nil {
			c.ended(n, err)
		}
		c.mu.Lock()
		answered = c.calls[k.id] != k
		over := late && (ctx.Err() != nil || !limit.IsZero() && !time.Now().Before(limit))
		on := err == nil || late
		if on && !answered && !over && k.connection == n.number {
			c.mu.Unlock()
			continue
		}
		if on {
			c.stopReading(n)
		}
		c.mu.Unlock()
		if answered {
			<-k.done
		}
		return answered
	}
}

// ended records that a connection has ended, and why. The goroutine that reads calls it.
func (c *Client) ended(n *connection, err error) {
	c.mu.Lock()
	if n.said != nil {
		err = n.said
	}
	n.err = err
	if n.reading.back != nil {
		n.reading.back.Stop()
	}
	c.mu.Unlock()
	c.dropped(n)
	close(n.gone)
}
