package faults

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/netcraq/netcraq/client/node"
)

// nodeLock is a lock that programs compete for, and what it guards: a counter that lives somewhere
// else, which refuses those who come with an older token than somebody before them. Who holds the
// lock reads the counter and writes it one higher. So an increment is lost only if two of them have
// the same token.
type nodeLock struct {
	t    *testing.T
	name string

	mu       sync.Mutex
	holds    []*nodeHold
	newest   uint64 // token
	count    int
	accepted int // increments
	refused  int
}

// nodeHold is one time that it was held.
type nodeHold struct {
	token        uint64
	begun, taken time.Time // of the call
	lapses       time.Time // for one that nobody keeps alive: not before this. Else zero
	lost         <-chan struct{}
}

// lockTTL is how long a lease lasts that nobody keeps alive.
const lockTTL = time.Second

// compete takes the lock over and over, until end.
func (l *nodeLock) compete(p *node.Client, random *rand.Rand, end time.Time) {
	for time.Now().Before(end) {
		l.once(p, random)
		time.Sleep(time.Duration(random.Int64N(int64(50 * time.Millisecond))))
	}
}

func (l *nodeLock) once(p *node.Client, random *rand.Rand) {
	ctx, cancel := context.WithTimeout(l.t.Context(), 10*time.Second)
	defer cancel()
	opts := []node.Option{node.Wait(2 * time.Second)}
	abandons := random.IntN(10) == 0 // as a program does that dies
	h := &nodeHold{begun: time.Now()}
	if abandons {
		h.lapses = h.begun.Add(lockTTL)
		lease, err := p.Grant(ctx, lockTTL)
		if l.failed("granting a lease", err) {
			return
		}
		opts = append(opts, node.WithLease(lease.ID))
	} else {
		opts = append(opts, node.TTL(lockTTL))
	}
	h.begun = time.Now()
	held, err := p.Lock(ctx, l.name, opts...)
	if l.failed("taking the lock", err) {
		return
	}
	h.taken, h.token, h.lost = time.Now(), held.Token(), held.Lost()
	before := l.enter(h)
	if before != nil { // a busy machine may tell its holder late
		select {
		case <-before.lost:
		case <-time.After(20 * time.Second):
			l.t.Errorf("the lock %s was taken with the token %d, and who holds it with %d is not told", l.name, h.token,
				before.token)
		}
	}
	n, ok := l.read(h.token)
	time.Sleep(time.Duration(random.Int64N(int64(20 * time.Millisecond))))
	if ok {
		l.write(h.token, n+1)
	}
	if abandons {
		return
	}
	l.failed("giving the lock back", held.Release(ctx)) // Lost is closed at once
}

// failed says whether a call failed, and whether it may.
func (l *nodeLock) failed(what string, err error) bool {
	switch node.CodeOf(err) {
	case node.CodeNotHeld, node.CodeOutcomeUnknown, node.CodeUnavailable, node.CodeTimeout, node.CodeLeaseGone,
		node.CodeDraining:
		return true
	}
	if err != nil {
		l.t.Errorf("%s %s: %v", what, l.name, err)
	}
	return err != nil
}

// enter notes a hold. It gives the one before it, if that was not over by then as far as its holder
// knows.
func (l *nodeLock) enter(h *nodeHold) *nodeHold {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds = append(l.holds, h)
	var before *nodeHold
	for _, x := range l.holds {
		if x.token < h.token && (before == nil || x.token > before.token) {
			before = x
		}
	}
	switch {
	case before == nil:
	case !before.lapses.IsZero():
		if h.taken.Before(before.lapses) {
			l.t.Errorf("the lock %s was taken with the token %d, %v before the lease of who held it with %d could lapse",
				l.name, h.token, before.lapses.Sub(h.taken), before.token)
		}
	default:
		select {
		case <-before.lost:
		default:
			return before
		}
	}
	return nil
}

// read is a read of the counter.
func (l *nodeLock) read(token uint64) (int, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ok := token >= l.newest
	l.newest = max(l.newest, token)
	return l.count, ok
}

// write is a write of the counter.
func (l *nodeLock) write(token uint64, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if token < l.newest {
		l.refused++
		return
	}
	l.count = n
	l.accepted++
}

// check says how often the lock was held.
func (l *nodeLock) check() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count != l.accepted {
		l.t.Errorf("%s: the counter is %d after %d increments", l.name, l.count, l.accepted)
	}
	slices.SortFunc(l.holds, func(a, b *nodeHold) int { return cmp.Compare(a.token, b.token) })
	for i, h := range l.holds {
		if i > 0 && l.holds[i-1].token == h.token {
			l.t.Errorf("%s: held twice with the token %d", l.name, h.token)
		}
		for _, later := range l.holds[i+1:] { // by their tokens
			if later.taken.Before(h.begun) {
				l.t.Errorf("%s: the token %d was given before the token %d was asked for", l.name, later.token, h.token)
			}
		}
	}
	return len(l.holds)
}
