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

// onceTable keeps the answers to requests with Once, so that a repeated request is not executed
// twice. If the answer to a request was dropped, a repetition gets CodeOutcomeUnknown, and is not
// executed as a new request.
//
// If the table is full, it drops answers of the subject that uses most of the table. So a subject
// that uses less than other subjects keeps all of its answers.
type onceTable struct {
	limits Limits
	seed   maphash.Seed

	mu      sync.Mutex
	clients map[string]*onceClient
	bytes   int64
	shares  map[string]*onceShare // the share of each subject
}

// onceShare is the part of the table that the clients of one subject use.
type onceShare struct {
	clients map[*onceClient]struct{}
	bytes   int64
	// idle has the clients that have no connection and no request under way. The client at the
	// front has been idle longest.
	idle list.List
}

// onceClient is one client with all its connections.
type onceClient struct {
	t       *onceTable
	name    string
	subject string
	share   *onceShare
	conns   int
	under   int           // number of requests under way
	idle    *list.Element // the client's element in share.idle; nil if the client is not idle
	since   time.Time     // time since which the client has been idle

	answers map[uint64]*onceAnswer
	floor   uint64 // answers with numbers up to this number were dropped
}

// onceAnswer is a request with Once. It has the answer when ready is closed.
type onceAnswer struct {
	sum    uint64
	ready  chan struct{}
	answer any
	err    error
	size   int64 // approximate size of the answer in bytes; 0 until ready is closed
}

func newOnceTable(l Limits) *onceTable {
	return &onceTable{limits: l, seed: maphash.MakeSeed(), clients: map[string]*onceClient{},
		shares: map[string]*onceShare{}}
}

// join adds a connection of a client that belongs to a subject. It reports whether the client was
// already known.
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

// leave removes a connection of a client.
func (c *onceClient) leave() {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	c.conns--
	c.settle()
}

// settle updates whether a client is in the list of idle clients. The caller holds t.mu.
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

// done drops the answers to all requests whose number is less than before.
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

// do executes a request. If the request was already executed, or is under way, do returns that
// result instead.
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

// undone reports whether the request was canceled before it had any effect. For example, it waited
// for a lock when its connection ended. Such a result is not an answer to a repetition of the
// request.
func (a *onceAnswer) undone() bool {
	return errors.Is(a.err, &nodeapi.Error{Code: nodeapi.CodeCanceled})
}

// sum returns a hash of a request. It detects that two different requests have the same number.
func (t *onceTable) sum(name string, data any) uint64 {
	var h maphash.Hash
	h.SetSeed(t.seed)
	h.WriteString(name)
	_ = json.MarshalWrite(&h, data, rpc.LegacyEmpty, json.Deterministic(true))
	return h.Sum64()
}

// sizeOf returns the approximate size of an answer in memory.
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

// drop drops the answer to request n of a client. The caller holds t.mu.
func (t *onceTable) drop(c *onceClient, n uint64) {
	size := c.answers[n].size
	t.bytes -= size
	c.share.bytes -= size
	delete(c.answers, n)
	c.floor = max(c.floor, n)
}

// dropQuarter drops the oldest quarter of a client's answers. It drops many answers at once,
// because it must search all answers to find the oldest. The caller holds t.mu.
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

// trim drops answers until the table is within its limits. It is called after an answer of c was
// added. The caller holds t.mu.
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
		default: // drop more answers than necessary, so that the next answers need no search through all clients
			for of := range s.clients {
				if t.bytes <= t.limits.OnceBytes/16*15 {
					break
				}
				t.dropQuarter(of)
			}
		}
	}
}

// largest returns the share for which the function size returns the largest number. The caller
// holds t.mu.
func (t *onceTable) largest(size func(*onceShare) int64) (most *onceShare) {
	for _, s := range t.shares {
		if most == nil || size(s) > size(most) {
			most = s
		}
	}
	return most
}

// makeRoom drops one client to make room for another. Among the subjects that have idle clients, it
// chooses the subject with the most clients. It then drops the client of this subject that has been
// idle longest. `own` is the share of the subject that needs the room. Subjects with fewer clients
// than `own` lose none. The caller holds t.mu.
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

// forget drops an idle client with its answers. The caller holds t.mu.
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

// sweep drops clients that have been idle for too long.
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
