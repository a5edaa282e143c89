package server

import (
	"context"
	"os"
	"sync/atomic"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/unannounced"
	"github.com/netcraq/netcraq/nodeapi/server/rpc"
)

// begin prepares a request for run. It may instead refuse the request, or execute it at once. It
// waits while the connection has too many requests under way or too many unsent bytes.
func (c *conn) begin(r rpc.Request, size int) *call {
	if r.ID < 1 || r.ID > maxID {
		failed := rpc.Invalid("id %d: an id is 1 to 2^53-1", r.ID)
		if refused := c.chargeMessage(1); refused != nil {
			failed = refused
		}
		c.send(&rpc.Response{Err: failed})
		return nil
	}
	k := &call{c: c, client: c.client, namespace: c.namespace}
	data, err := k.understand(r)
	if err != nil || k.f.inline != nil {
		refused := c.chargeMessage(1)
		// cancel is never refused, because it frees resources
		if refused != nil && r.Func != nodeapi.FuncCancel {
			err = refused
		}
	}
	if err != nil {
		c.s.metrics.count(r.Func, err.Code)
		c.send(&rpc.Response{ID: r.ID, Err: err})
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
	if refused := c.chargeMessage(requests); refused != nil {
		c.s.metrics.count(r.Func, refused.Code)
		c.send(&rpc.Response{ID: r.ID, Err: refused})
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
		k.term.parent, k.term.deadline = c.ctx, time.Now().Add(r.Timeout())
		if r.Once != 0 && k.f.writes {
			// do not use the connection's context, because the request continues after the
			// connection has ended, so that its answer can be stored
			k.term.parent = c.s.ctx
		}
		k.term.waits, k.term.soon, k.cancel = k.handOver, k.answeredSoon, k.term.end
	}
	k.ctx, k.data = ctx, data // set these fields before other goroutines can find the call in c.calls
	if refused := c.enter(k); refused != nil {
		k.cancel()
		k.release()
		c.s.metrics.count(r.Func, refused.Code)
		c.send(&rpc.Response{ID: r.ID, Err: refused})
		return nil
	}
	return k
}

// release makes room for another request of the connection.
func (k *call) release() {
	if k.f.watches == nil {
		<-k.c.slots
	}
}

// run executes a request, and sends the answer.
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
	if k.waited.Load() && k.reading.Load() {
		k.c.lookForOthers()
	}
	k.c.finished(k, answer, err)
}

// finished sends the answer to a request. From then on, another request may use the same id.
func (c *conn) finished(k *call, answer any, err error) {
	r := rpc.Response{ID: k.req.ID, Data: answer}
	if err != nil {
		r.Err, r.Data = rpc.ToAnswer(err, k.f.writes), nil
	}
	text := c.encode(&r)
	c.mu.Lock()
	if k.f.watches != nil && c.last && !c.dead {
		r = rpc.Response{ID: k.req.ID, Err: rpc.ErrDraining()}
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
		c.part.count(-k.cost)
		c.s.metrics.watches.Sub(float64(k.watches))
		c.account.Unwatch(k.watches)
	}
	code := nodeapi.Code("")
	if r.Err != nil {
		code = r.Err.Code
	}
	c.s.metrics.count(k.req.Func, code)
	if c.flushNow() {
		k.handOver()
		c.flush()
	}
}

// answeredSoon is called when the request begins to wait for at most a few milliseconds.
func (k *call) answeredSoon() {
	if k.waited.Store(true); k.crowded {
		k.handOver()
	}
}

// handOver makes another goroutine read the connection, if the goroutine that executes the request
// was going to read it.
func (k *call) handOver() {
	if k.reading.CompareAndSwap(true, false) {
		k.c.s.readBy(k.c)
	}
}

// more sends the next answer of a watch. It waits while the client does not read. It reports
// whether the connection continues.
func (k *call) more(ctx context.Context, answer any) bool { return k.moreWith(ctx, answer, nil) }

// moreWith is like more, and sends descriptors with the answer. It closes the descriptors in any
// case.
func (k *call) moreWith(ctx context.Context, answer any, files []*os.File) bool {
	c := k.c
	text := c.encode(&rpc.Response{ID: k.req.ID, Data: answer, More: true})
	c.mu.Lock()
	full := func() bool { return c.unsent > c.s.limits.backpressure() && !c.dead && ctx.Err() == nil }
	if full() { // check first, because otherwise each of many watches would need a goroutine to wait
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
	if c.flushNow() {
		c.flush()
	}
	return ctx.Err() == nil
}

// crowd records whether the client sends several requests at a time on a connection. If not, no
// other goroutine needs to read the connection while a request waits for a short time, which saves
// a switch of goroutines. To find out, the goroutine that has executed a request sometimes checks
// whether the next request arrived before the answer was sent.
type crowd struct {
	left  atomic.Int32 // number of further requests for which the client counts as sending several at a time
	looks atomic.Int32
}

const (
	crowdFor  = 256 // number of requests that this remains valid after several requests were seen at a time
	lookEvery = 8   // the check is made once in this many requests
	// remainder of the request number at which the check is made, so that a new connection is
	// checked at its first request
	firstLooks = 1
)

// crowded reports whether further requests may arrive before the request that was just read is
// answered. The goroutine that reads the connection calls it.
func (c *conn) crowded() bool {
	if c.start < len(c.buf) {
		c.crowd.left.Store(crowdFor)
	}
	if c.raw == nil {
		return true
	}
	if c.crowd.left.Load() > 0 {
		c.crowd.left.Add(-1)
		return true
	}
	return false
}

// lookForOthers sometimes checks whether the next request has already arrived.
func (c *conn) lookForOthers() {
	if c.crowd.looks.Add(1)%lookEvery != firstLooks {
		return
	}
	there := false
	_ = c.raw.Control(func(fd uintptr) { there = unannounced.Arrived(fd) })
	if there {
		c.crowd.left.Store(crowdFor)
	}
}
