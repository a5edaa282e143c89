package node

import (
	"context"
	"time"
)

// room bounds the number and the bytes of calls under way. The client's lock guards it.
type room struct {
	limit, n, bytes int
	queue           []*guest
}

// guest is a call that waits for room.
type guest struct {
	size int
	in   chan struct{} // closed when the guest has room
}

func (r *room) fits(size int) bool {
	return r.n == 0 || r.n < r.limit && r.bytes+size <= maxWaitingBytes
}

func (r *room) leave(size int) {
	r.n--
	r.bytes -= size
	r.admit()
}

// admit lets waiting calls in, in order.
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

// enter waits for room. c.mu is held. On an error enter releases it.
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
	if g != nil { // it has just been let in
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
	first uint64 // the smallest number without an answer, or the next one
	done  []bool // whether each number from first on is answered
}

// take returns the next number. A number is not reported as done before its answer has come,
// because the server then forgets the request. These reports bound what the server stores.
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
