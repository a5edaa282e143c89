package node

import (
	"context"
	"time"
)

// room bounds the number and the bytes of calls under way. The client's mutex guards it.
type room struct {
	limit, n, bytes int
	queue           []*guest
}

// guest is a call that waits for room.
type guest struct {
	size int
	in   chan struct{} // closed when the call has got room
}

func (r *room) fits(size int) bool {
	return r.n == 0 || r.n < r.limit && r.bytes+size <= maxWaitingBytes
}

func (r *room) leave(size int) {
	r.n--
	r.bytes -= size
	r.admit()
}

// admit lets waiting calls in, in their order.
func (r *room) admit() {
	for len(r.queue) > 0 && r.fits(r.queue[0].size) {
		g := r.queue[0]
		r.queue = r.queue[1:]
		r.n++
		r.bytes += g.size
		close(g.in)
	}
}

func (c *Client) roomOf(k *call) *room {
	if k.waits {
		return &c.waiting
	}
	return &c.ordinary
}

// enter waits until there is room for a call. The caller holds c.mu. If enter fails, it releases
// c.mu.
func (c *Client) enter(ctx context.Context, k *call, limit time.Time) error {
	if k.urgent || k.stream != nil {
		return nil
	}
	r, size := c.roomOf(k), len(k.data)
	if len(r.queue) == 0 && r.fits(size) {
		r.n++
		r.bytes += size
		return nil
	}
	g := &guest{size: size, in: make(chan struct{})}
	r.queue = append(r.queue, g)
	c.mu.Unlock()
	expired, stop := k.after(limit)
	defer stop()
	var cause error
	select {
	case <-g.in:
	case <-ctx.Done():
		cause = ctx.Err()
	case <-expired:
		cause = context.DeadlineExceeded
	}
	c.mu.Lock()
	if cause == nil && c.ctx.Err() == nil {
		return nil
	}
	for i := range r.queue {
		if r.queue[i] == g {
			r.queue = append(r.queue[:i], r.queue[i+1:]...)
			g = nil
			break
		}
	}
	if g != nil { // the call has got room in this moment
		r.leave(size)
	}
	r.admit()
	c.mu.Unlock()
	if cause == nil {
		return errClosed
	}
	return gaveUp(cause, k.fn, false, true, ": there was no room, too many calls are under way")
}

// numbers assigns numbers to requests, and knows the number below which all requests are answered.
type numbers struct {
	first uint64 // the smallest number without an answer, or the next number to assign
	done  []bool // whether each number, beginning with first, is answered
}

// take returns the next number. The client tells the server below which number all requests are
// answered, and the server then forgets those requests. This bounds what the server stores. So a
// number must not count as answered before its answer has come.
func (n *numbers) take() uint64 {
	n.done = append(n.done, false)
	return n.first + uint64(len(n.done)) - 1
}

func (n *numbers) finish(number uint64) {
	if number < n.first {
		return
	}
	n.done[number-n.first] = true
	for len(n.done) > 0 && n.done[0] {
		n.first++
		n.done = n.done[1:]
	}
}
