package faults

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// nodeContest is an object for which programs compete. It is a lock, a leadership or a semaphore.
type nodeContest struct {
	t    *testing.T
	what string // kind of the object, for error messages
	take func(ctx context.Context, p *node.Client, opts ...node.Option) (*node.Held, error)
	// lock returns the object to which a token belongs. The object has one holder at a time. For a
	// semaphore, it is one of the permits.
	lock func(token uint64) *nodeLock
}

// nodeLock is an object with one holder at a time, and the counter that it guards. The counter is
// in another storage, which refuses a token if it has seen a newer one. Each holder reads the
// counter and writes it back incremented by 1. So an increment is lost only if two holders have the
// same token.
type nodeLock struct {
	name string // name of the object, for error messages

	mu       sync.Mutex
	holds    []*nodeHold
	newest   uint64 // the newest token that the counter has seen
	count    int
	accepted int // number of increments that the counter has accepted
	refused  int
}

// nodeHold records that a program held a nodeLock.
type nodeHold struct {
	token        uint64
	begun, taken time.Time // start and end of the call that acquired the lock
	// if nothing keeps the lease alive, the earliest time at which the lease can end; otherwise
	// zero
	lapses   time.Time
	released time.Time // time after which the lock was certainly released; zero if unknown
	lost     <-chan struct{}
}

// lockTTL is the time to live of a lease that nothing keeps alive.
const lockTTL = time.Second

// contestForLock returns a contest for a lock.
func contestForLock(t *testing.T, name string) (*nodeContest, *nodeLock) {
	l := &nodeLock{name: "the lock " + name}
	return &nodeContest{t: t, what: l.name, lock: func(uint64) *nodeLock { return l },
		take: func(ctx context.Context, p *node.Client, opts ...node.Option) (*node.Held, error) {
			return p.Lock(ctx, name, opts...)
		}}, l
}

// compete acquires the object over and over, until end.
func (c *nodeContest) compete(p *node.Client, random *rand.Rand, end time.Time) {
	for time.Now().Before(end) {
		c.once(p, random)
		time.Sleep(time.Duration(random.Int64N(int64(50 * time.Millisecond))))
	}
}

func (c *nodeContest) once(p *node.Client, random *rand.Rand) {
	ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
	defer cancel()
	opts := []node.Option{node.Wait(2 * time.Second)}
	abandons := random.IntN(10) == 0 // this is like a crash of the program
	h := &nodeHold{begun: time.Now()}
	if abandons {
		h.lapses = h.begun.Add(lockTTL)
		lease, err := p.Grant(ctx, lockTTL)
		if mayFail(c.t, "granting a lease for "+c.what, err) {
			return
		}
		opts = append(opts, node.WithLease(lease.ID))
	} else {
		opts = append(opts, node.TTL(lockTTL))
	}
	h.begun = time.Now()
	held, err := c.take(ctx, p, opts...)
	if mayFail(c.t, "taking "+c.what, err) {
		return
	}
	h.taken, h.token, h.lost = time.Now(), held.Token(), held.Lost()
	l := c.lock(h.token)
	before, err := l.enter(h)
	if err != nil {
		c.t.Error(err)
	}
	if before != nil {
		// On a busy machine, the previous holder may learn late that it has lost the lock.
		select {
		case <-before.lost:
		case <-time.After(20 * time.Second):
			c.t.Errorf("%s was taken with the token %d, and who holds it with %d is not told", l.name, h.token, before.token)
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
	// Release closes the channel Lost at once.
	if !mayFail(c.t, "giving back "+c.what, held.Release(ctx)) {
		l.mu.Lock()
		h.released = time.Now()
		l.mu.Unlock()
	}
}

// last acquires the object once more. All earlier holders are gone, so it must succeed within a
// generous time limit.
func (c *nodeContest) last(p *node.Client) {
	poll.Nil(c.t, 90*time.Second, c.what+" is taken when nobody else wants it", func() error {
		ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
		defer cancel()
		held, err := c.take(ctx, p, node.TTL(lockTTL))
		if err == nil {
			mayFail(c.t, "giving back "+c.what, held.Release(ctx))
		}
		return err
	})
}

// mayFail returns whether a call failed. If the error is not of a kind that may occur, it also
// fails the test.
func mayFail(t *testing.T, what string, err error) bool {
	switch node.CodeOf(err) {
	case node.CodeNotHeld, node.CodeOutcomeUnknown, node.CodeUnavailable, node.CodeTimeout, node.CodeLeaseGone,
		node.CodeDraining:
		return true
	}
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
	return err != nil
}

// enter records a hold. If the previous holder does not know yet that its hold has ended, enter
// returns the previous hold. If the previous hold cannot have ended yet, it returns an error.
func (l *nodeLock) enter(h *nodeHold) (*nodeHold, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var before *nodeHold
	for _, x := range l.holds {
		if x.token < h.token && (before == nil || x.token > before.token) {
			before = x
		}
	}
	l.holds = append(l.holds, h)
	switch {
	case before == nil:
	case !before.lapses.IsZero():
		if early := before.lapses.Sub(h.taken); early > 0 {
			return nil, fmt.Errorf("%s was taken with the token %d, %v before the lease of who held it with %d could lapse",
				l.name, h.token, early, before.token)
		}
	default:
		select {
		case <-before.lost:
		default:
			return before, nil
		}
	}
	return nil, nil
}

// read reads the counter with a token.
func (l *nodeLock) read(token uint64) (int, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ok := token >= l.newest
	l.newest = max(l.newest, token)
	return l.count, ok
}

// write writes the counter with a token.
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

// check returns errors for everything in the lock's record that is impossible.
func (l *nodeLock) check() (errs []error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count != l.accepted {
		errs = append(errs, fmt.Errorf("the counter is %d after %d increments", l.count, l.accepted))
	}
	slices.SortFunc(l.holds, func(a, b *nodeHold) int { return cmp.Compare(a.token, b.token) })
	for i, h := range l.holds {
		if i > 0 && l.holds[i-1].token == h.token {
			errs = append(errs, fmt.Errorf("it was held twice with the token %d", h.token))
		}
		for _, later := range l.holds[i+1:] { // the holds are sorted by token
			if later.taken.Before(h.begun) {
				errs = append(errs, fmt.Errorf("the token %d was given before %d was asked for", later.token, h.token))
			}
		}
	}
	return errs
}

// TestNodeLock checks that the method check reports violations.
func TestNodeLock(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond) }
	open, over := make(chan struct{}), make(chan struct{})
	close(over)
	hold := func(token uint64, begun, taken int, lost chan struct{}) *nodeHold {
		return &nodeHold{token: token, begun: at(begun), taken: at(taken), lost: lost}
	}
	good := &nodeLock{name: "good"}
	for _, h := range []*nodeHold{hold(5, 0, 10, over), hold(7, 0, 20, over), hold(9, 15, 30, open)} {
		if before, err := good.enter(h); before != nil || err != nil {
			t.Error(before, err)
		}
		n, ok := good.read(h.token)
		if good.write(h.token, n+1); !ok {
			t.Errorf("the token %d was refused", h.token)
		}
	}
	good.write(7, 17) // this write is late, so the counter refuses it
	if errs := good.check(); len(errs) != 0 || good.refused != 1 || good.count != 3 {
		t.Error(errs, good.refused, good.count)
	}
	if before, _ := good.enter(hold(11, 40, 50, open)); before == nil || before.token != 9 {
		t.Errorf("a lock that is held was taken, and who held it is %+v", before)
	}
	lapses := hold(13, 50, 60, open)
	lapses.lapses = at(1000)
	good.enter(lapses)
	if _, err := good.enter(hold(15, 60, 999, open)); err == nil {
		t.Error("a lock was taken before it could lapse")
	}

	twice := &nodeLock{}
	for range 2 {
		twice.enter(hold(5, 0, 10, open))
		twice.read(5)
	}
	twice.write(5, 1)
	twice.write(5, 1)
	if errs := twice.check(); len(errs) != 2 {
		t.Error(errs)
	}
	backwards := &nodeLock{holds: []*nodeHold{hold(5, 30, 40, over), hold(7, 10, 20, over)}}
	if errs := backwards.check(); len(errs) != 1 {
		t.Error(errs)
	}
}
