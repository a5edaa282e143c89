package server

import (
	"container/list"
	"context"
	"errors"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/nodeapi/server/rpc"
)

// onceTable keeps the answers of requests that have an identity, so that a repeated request is not
// done twice. If a request's answer was forgotten, the request is not taken for a new one: its
// outcome is unknown.
//
// If the table is full, it forgets answers of the subject that uses most of it. So a subject keeps
// all of its answers while it uses less than the others.
type onceTable struct {
	limits Limits
	seed   maphash.Seed

	mu      sync.Mutex
	clients map[string]*onceClient
	bytes   int64
	shares  map[string]*onceShare // by subject
}

// onceShare is the part of the table that one subject's clients use.
type onceShare struct {
	clients map[*onceClient]struct{}
	bytes   int64
	// idle are the clients without connections and requests under way, the longest idle in front.
	idle list.List
}

// onceClient is one client, of all its connections.
type onceClient struct {
	t       *onceTable
	name    string
	subject string
	share   *onceShare
	conns   int
	under   int           // requests under way
	idle    *list.Element // in share.idle; nil: it is not idle
	since   time.Time     // since when it has been idle

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
	return &onceTable{limits: l, seed: maphash.MakeSeed(), clients: map[string]*onceClient{},
		shares: map[string]*onceShare{}}
}

// join begins a connection of a subject's client, and says whether the client was known.
func (t *onceTable) join(subject, name string) (*onceClient, bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.clients[name]; c != nil {
		c.conns++
		c.settle()
		return c, true, nil
	}
	if len(t.clients) >= t.limits.OnceClients && !t.makeRoom(t.shares[subject]) {
		return nil, false, nodeapi.Errorf(nodeapi.CodeQuotaExceeded, "close connections that are not used",
			"the server knows its %d clients", t.limits.OnceClients)
	}
	share := t.shares[subject]
	if share == nil {
		share = &onceShare{clients: map[*onceClient]struct{}{}}
		t.shares[subject] = share
	}
	c := &onceClient{t: t, name: name, subject: subject, share: share, conns: 1, answers: map[uint64]*onceAnswer{}}
	t.clients[name] = c
	share.clients[c] = struct{}{}
	return c, false, nil
}

// leave ends a connection of a client.
func (c *onceClient) leave() {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	c.conns--
	c.settle()
}

// settle adds a client to the idle ones, or removes it from them. t.mu is held.
func (c *onceClient) settle() {
	switch idle := c.conns == 0 && c.under == 0; {
	case idle && c.idle == nil:
		c.since = time.Now()
		c.idle = c.share.idle.PushBack(c)
	case !idle && c.idle != nil:
		c.share.idle.Remove(c.idle)
		c.idle = nil
	}
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
			return nil, rpc.Invalid("once %d was another request", n)
		}
		select {
		case <-a.ready:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if !a.undone() {
			if a.err == nil && k.f.stays != nil {
				if err := k.f.stays(ctx, k, data, a.answer); err != nil {
					return nil, err
				}
			}
			return a.answer, a.err
		}
		t.mu.Lock()
	}
	if n <= c.floor {
		t.mu.Unlock()
		return nil, nodeapi.Errorf(nodeapi.CodeOutcomeUnknown, "read the key; numbers grow by each new request",
			"once %d: the server has no answer of this number any more; it may or may not have been executed", n)
	}
	a := &onceAnswer{sum: sum, ready: make(chan struct{})}
	c.answers[n] = a
	c.under++
	c.settle()
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		c.under--
		if a.undone() {
			delete(c.answers, n)
		} else {
			a.size = sizeOf(a.answer)
			t.bytes += a.size
			c.share.bytes += a.size
			t.trim(c)
		}
		c.settle()
		t.mu.Unlock()
		close(a.ready)
	}()
	answer, err := k.f.run(ctx, k, data)
	if err != nil {
		answer, err = nil, rpc.ToAnswer(err, true)
	}
	a.answer, a.err = answer, err
	return answer, err
}

// undone says that the request was canceled before it did anything, for example one that waits for
// a lock when its connection ends. That is not an answer to a client that sends it again.
func (a *onceAnswer) undone() bool {
	return errors.Is(a.err, &nodeapi.Error{Code: nodeapi.CodeCanceled})
}

// sum tells different requests of one number apart.
func (t *onceTable) sum(name string, data any) uint64 {
	var h maphash.Hash
	h.SetSeed(t.seed)
	h.WriteString(name)
	_ = json.MarshalWrite(&h, data, rpc.LegacyEmpty, json.Deterministic(true))
	return h.Sum64()
}

// sizeOf is roughly the size of an answer in memory.
func sizeOf(answer any) int64 {
	const each = 256
	value := func(i *nodeapi.Item) int64 {
		n := len(i.Key) + len(i.ValueBase64)
		if i.Value != nil {
			n += len(*i.Value)
		}
		return each + int64(n)
	}
	switch a := answer.(type) {
	case *nodeapi.CASAnswer:
		return value(&a.Item)
	case *nodeapi.DeleteAnswer:
		return value(&a.Item)
	case *nodeapi.TransactAnswer:
		n := each + int64(32*len(a.Versions))
		for i := range a.Failed {
			n += value(&a.Failed[i])
		}
		return n
	}
	return each
}

// drop forgets an answer. t.mu is held.
func (t *onceTable) drop(c *onceClient, n uint64) {
	size := c.answers[n].size
	t.bytes -= size
	c.share.bytes -= size
	delete(c.answers, n)
	c.floor = max(c.floor, n)
}

// dropQuarter forgets the oldest quarter of a client's answers: so many at once because finding
// them looks at all. t.mu is held.
func (t *onceTable) dropQuarter(c *onceClient) {
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

// trim keeps the table within its bounds after an answer of c was put in. t.mu is held.
func (t *onceTable) trim(c *onceClient) {
	if len(c.answers) > t.limits.OnceEach {
		t.dropQuarter(c)
	}
	for before := int64(0); t.bytes > t.limits.OnceBytes && t.bytes != before; {
		before = t.bytes
		s := t.largest(func(s *onceShare) int64 { return s.bytes })
		switch first := s.idle.Front(); {
		case first != nil:
			t.forget(first.Value.(*onceClient))
		case s == c.share:
			t.dropQuarter(c)
		default: // more than is needed, so that the next answers need not look at all its clients
			for of := range s.clients {
				if t.bytes <= t.limits.OnceBytes/16*15 {
					break
				}
				t.dropQuarter(of)
			}
		}
	}
}

// largest is the share that takes most, by size. t.mu is held.
func (t *onceTable) largest(size func(*onceShare) int64) (most *onceShare) {
	for _, s := range t.shares {
		if most == nil || size(s) > size(most) {
			most = s
		}
	}
	return most
}

// makeRoom forgets one client: of the subject that has most clients, among those with idle ones, it
// forgets the client that has been idle for longest. own is the share of the subject that needs the
// room; subjects with fewer clients are spared. t.mu is held.
func (t *onceTable) makeRoom(own *onceShare) bool {
	s := t.largest(func(s *onceShare) int64 {
		if s.idle.Len() == 0 {
			return -1
		}
		return int64(len(s.clients))
	})
	if s == nil || s.idle.Len() == 0 || own != nil && len(s.clients) < len(own.clients) {
		return false
	}
	t.forget(s.idle.Front().Value.(*onceClient))
	return true
}

// forget forgets a client that is idle. t.mu is held.
func (t *onceTable) forget(c *onceClient) {
	for _, a := range c.answers {
		t.bytes -= a.size
		c.share.bytes -= a.size
	}
	delete(t.clients, c.name)
	c.share.idle.Remove(c.idle)
	delete(c.share.clients, c)
	if len(c.share.clients) == 0 {
		delete(t.shares, c.subject)
	}
}

// sweep forgets clients whose time is over.
func (t *onceTable) sweep(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.shares {
		for first := s.idle.Front(); first != nil; first = s.idle.Front() {
			c := first.Value.(*onceClient)
			if now.Sub(c.since) <= t.limits.onceKept {
				break
			}
			t.forget(c)
		}
	}
}
