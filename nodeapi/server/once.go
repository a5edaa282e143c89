package server

import (
	"context"
	"errors"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/netcraq/netcraq/api/node"
)

// onceTable keeps the answers of requests that have an identity, so that one that comes again is
// not done again. What it has forgotten it does not take for new: its outcome is unknown.
type onceTable struct {
	limits Limits
	seed   maphash.Seed

	mu      sync.Mutex
	clients map[string]*onceClient
	bytes   int64
}

// onceClient is one client, of all its connections.
type onceClient struct {
	t     *onceTable
	name  string
	conns int
	ended time.Time // of the last connection

	answers map[uint64]*onceAnswer
	floor   uint64 // numbers up to it are forgotten
}

// onceAnswer is a request with an identity, and its answer when ready is closed.
type onceAnswer struct {
	sum    uint64
	ready  chan struct{}
	answer any
	err    error
	size   int64 // 0 until it is ready
}

func newOnceTable(l Limits) *onceTable {
	return &onceTable{limits: l, seed: maphash.MakeSeed(), clients: map[string]*onceClient{}}
}

// join begins a connection of a client, and says whether the client was known.
func (t *onceTable) join(name string) (*onceClient, bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.clients[name]; c != nil {
		c.conns++
		return c, true, nil
	}
	if len(t.clients) >= t.limits.OnceClients && !t.forgetOne() {
		return nil, false, node.Errorf(node.CodeQuotaExceeded, "close connections that are not used",
			"the server knows its %d clients", t.limits.OnceClients)
	}
	c := &onceClient{t: t, name: name, conns: 1, answers: map[uint64]*onceAnswer{}}
	t.clients[name] = c
	return c, false, nil
}

// leave ends a connection of a client.
func (c *onceClient) leave() {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	c.conns--
	c.ended = time.Now()
}

// done frees the answers of all requests with smaller numbers.
func (c *onceClient) done(before uint64) {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	if before == 0 || before-1 <= c.floor {
		return
	}
	for n, a := range c.answers {
		if n < before && a.size != 0 {
			c.t.drop(c, n)
		}
	}
	c.floor = max(c.floor, before-1)
}

// do does a request, unless it was done, or is under way: then it has that one's answer.
func (c *onceClient) do(ctx context.Context, k *call, data any) (any, error) {
	t, n := c.t, k.req.Once
	sum := t.sum(k.req.Func, data)
	t.mu.Lock()
	for a := c.answers[n]; a != nil; a = c.answers[n] {
		t.mu.Unlock()
		if a.sum != sum {
			return nil, invalid("once %d was another request", n)
		}
		select {
		case <-a.ready:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if !a.undone() {
			return a.answer, a.err
		}
		t.mu.Lock()
	}
	if n <= c.floor {
		t.mu.Unlock()
		return nil, node.Errorf(node.CodeOutcomeUnknown, "read the key; numbers grow by each new request",
			"once %d: the server has no answer of this number any more; it may or may not have been executed", n)
	}
	a := &onceAnswer{sum: sum, ready: make(chan struct{})}
	c.answers[n] = a
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		if a.undone() {
			delete(c.answers, n)
		} else {
			a.size = sizeOf(a.answer)
			t.bytes += a.size
			t.trim(c)
		}
		t.mu.Unlock()
		close(a.ready)
	}()
	answer, err := k.f.run(ctx, k, data)
	if err != nil {
		answer, err = nil, toAnswer(err, true)
	}
	a.answer, a.err = answer, err
	return answer, err
}

// undone says that the request was canceled before it did anything, as one is that waits for a lock
// when its connection ends. It is no answer for who sends it again.
func (a *onceAnswer) undone() bool {
	return errors.Is(a.err, &node.Error{Code: node.CodeCanceled})
}

// sum tells different requests of one number apart.
func (t *onceTable) sum(name string, data any) uint64 {
	var h maphash.Hash
	h.SetSeed(t.seed)
	h.WriteString(name)
	_ = json.MarshalWrite(&h, data, legacyEmpty, json.Deterministic(true))
	return h.Sum64()
}

// sizeOf is about what an answer takes.
func sizeOf(answer any) int64 {
	const each = 256
	value := func(i *node.Item) int64 {
		n := len(i.Key) + len(i.ValueBase64)
		if i.Value != nil {
			n += len(*i.Value)
		}
		return each + int64(n)
	}
	switch a := answer.(type) {
	case *node.CASAnswer:
		return value(&a.Item)
	case *node.DeleteAnswer:
		return value(&a.Item)
	}
	return each
}

// drop forgets an answer. t.mu is held.
func (t *onceTable) drop(c *onceClient, n uint64) {
	t.bytes -= c.answers[n].size
	delete(c.answers, n)
	c.floor = max(c.floor, n)
}

// trim keeps the table within its bounds after an answer of c was put in. t.mu is held.
func (t *onceTable) trim(c *onceClient) {
	for t.bytes > t.limits.OnceBytes && t.forgetOne() {
	}
	if len(c.answers) <= t.limits.OnceEach && t.bytes <= t.limits.OnceBytes {
		return
	}
	// A quarter at once, the oldest ones, since finding them looks at all.
	var ready []uint64
	for n, a := range c.answers {
		if a.size != 0 {
			ready = append(ready, n)
		}
	}
	slices.Sort(ready)
	for _, n := range ready[:(len(ready)+3)/4] {
		t.drop(c, n)
	}
}

// forgetOne forgets the client that has been without a connection for longest. t.mu is held.
func (t *onceTable) forgetOne() bool {
	var oldest *onceClient
	for _, c := range t.clients {
		if c.idle() && (oldest == nil || c.ended.Before(oldest.ended)) {
			oldest = c
		}
	}
	if oldest != nil {
		t.forget(oldest)
	}
	return oldest != nil
}

// idle says that a client has neither connections nor requests under way. t.mu is held.
func (c *onceClient) idle() bool {
	if c.conns > 0 {
		return false
	}
	for _, a := range c.answers {
		if a.size == 0 {
			return false
		}
	}
	return true
}

// forget forgets a client. t.mu is held.
func (t *onceTable) forget(c *onceClient) {
	for _, a := range c.answers {
		t.bytes -= a.size
	}
	delete(t.clients, c.name)
}

// sweep forgets clients whose time is over.
func (t *onceTable) sweep(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.clients {
		if c.conns == 0 && now.Sub(c.ended) > t.limits.onceKept && c.idle() {
			t.forget(c)
		}
	}
}
