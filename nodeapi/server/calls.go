package server

import (
	"context"
	"os"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/nodeapi/server/rpc"
)

// begin prepares a request for run, refuses it, or executes it at once. It waits while too much is
// under way or unsent.
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
		// cancel frees resources, so it is never refused
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
			// the answer is kept for a retry, so it continues when the connection has ended
			k.term.parent = c.s.ctx
		}
		k.term.waits, k.term.soon, k.cancel = k.handOver, k.answeredSoon, k.term.end
	}
	k.ctx, k.data = ctx, data // before others find it in calls
	if refused := c.enter(k); refused != nil {
		k.cancel()
		k.release()
		c.s.metrics.count(r.Func, refused.Code)
		c.send(&rpc.Response{ID: r.ID, Err: refused})
		return nil
	}
	return k
}

// release frees a request's place among those in flight.
func (k *call) release() {
	if k.f.watches == nil {
		<-k.c.slots
	}
}

// run executes a request and answers it.
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

// finished answers a request. Its id is free from then on.
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

// answeredSoon is called when the request begins to wait for a few milliseconds at most.
func (k *call) answeredSoon() {
	if k.waited.Store(true); k.crowded {
		k.handOver()
	}
}

// handOver lets another goroutine continue reading, if the one that executes the request was to do
// so.
func (k *call) handOver() {
	if k.reading.CompareAndSwap(true, false) {
		k.c.s.readBy(k.c)
	}
}

// more sends a watch's next answer. It waits while the client does not read, and says whether the
// connection continues.
func (k *call) more(ctx context.Context, answer any) bool { return k.moreWith(ctx, answer, nil) }

// moreWith is more with descriptors that are sent with the answer. They are closed in any case.
func (k *call) moreWith(ctx context.Context, answer any, files []*os.File) bool {
	c := k.c
	text := c.encode(&rpc.Response{ID: k.req.ID, Data: answer, More: true})
	c.mu.Lock()
	full := func() bool { return c.unsent > c.s.limits.backpressure() && !c.dead && ctx.Err() == nil }
	if full() { // otherwise no goroutine is kept for it, because there are many watches
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
