package coordination

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
)

// Owner holds the leases that the Service created for one connection. There is one lease for each
// namespace and time to live. If a request of the connection names no lease, its lock or instance
// is bound to one of these leases. Owner keeps the leases alive until Close.
type Owner struct {
	s    *Service
	ctx  context.Context
	stop context.CancelFunc
	lost chan struct{}

	mu     sync.Mutex
	closed bool
	leases map[ownedKey]*owned
	// the granted leases, each with a channel that triggers an immediate renewal
	mine map[leaseKey]chan struct{}
}

type ownedKey struct {
	namespace string
	millis    int
}

// owned is one lease of an Owner. Only the goroutine that has turn may grant the lease and read its
// key.
type owned struct {
	turn    chan struct{}
	granted bool
	key     leaseKey
}

// NewOwner makes an Owner.
func (s *Service) NewOwner() *Owner {
	o := &Owner{s: s, leases: map[ownedKey]*owned{}, mine: map[leaseKey]chan struct{}{},
		lost: make(chan struct{})}
	o.ctx, o.stop = context.WithCancel(s.ctx)
	return o
}

// Lost returns a channel that is closed when a lease of the Owner has expired unexpectedly. For
// example, the store was unreachable for the time to live. Locks and other keys that were bound to
// the lease are gone, and the client must be informed.
func (o *Owner) Lost() <-chan struct{} { return o.lost }

// Close starts to end the leases. It does not wait until they have ended.
func (o *Owner) Close() {
	o.stop()
	o.mu.Lock()
	ends := o.leases
	o.closed, o.leases = true, nil
	o.mu.Unlock()
	for _, l := range ends {
		o.s.behind(func(ctx context.Context) { o.end(ctx, l) })
	}
}

// end revokes a lease after Close was called.
func (o *Owner) end(ctx context.Context, l *owned) {
	select {
	case l.turn <- struct{}{}: // wait for a grant that is in progress
	case <-ctx.Done():
		return
	}
	if !l.granted {
		return
	}
	for end, pause := o.s.clock.Now().Add(tryFor), (pauses{s: o.s}); ; {
		err := o.s.revoke(ctx, l.key)
		if err == nil || !passing(err) || o.s.clock.Now().After(end) || !pause.wait(ctx) {
			return
		}
	}
}

// lease returns the Owner's lease for a namespace and a time to live. It creates the lease if
// necessary.
func (o *Owner) lease(ctx context.Context, ns string, millis int) (leaseKey, error) {
	if millis == 0 {
		millis = DefaultTTLMillis
	}
	ttl, err := checkTTL(millis)
	if err != nil {
		return leaseKey{}, err
	}
	at := ownedKey{ns, millis}
	o.mu.Lock()
	l := o.leases[at]
	if l == nil && !o.closed {
		l = &owned{turn: make(chan struct{}, 1)}
		o.leases[at] = l
	}
	o.mu.Unlock()
	if l == nil {
		return leaseKey{}, nodeapi.Errorf(nodeapi.CodeDraining, "connect again", "the connection is ending")
	}
	select { // first without ctx.Done, because a call of Done counts as the beginning of a wait
	case l.turn <- struct{}{}:
	default:
		select {
		case l.turn <- struct{}{}:
		case <-ctx.Done():
			return leaseKey{}, ended(ctx, "making a lease")
		}
	}
	defer func() { <-l.turn }()
	if l.granted {
		return l.key, nil
	}
	begin := o.s.clock.Now()
	if l.key, err = o.s.grant(ctx, ns, millis); err != nil {
		return leaseKey{}, err
	}
	l.granted = true
	now := make(chan struct{}, 1)
	o.mu.Lock()
	o.mine[l.key] = now
	o.mu.Unlock()
	o.s.loop(func() { o.keep(at, l, ttl, begin, now) })
	return l.key, nil
}

// keep keeps a lease alive until Close, or until the lease is lost. The argument `last` is the time
// when the last successful renewal began. An element in the channel `now` triggers an immediate
// renewal.
func (o *Owner) keep(at ownedKey, l *owned, ttl time.Duration, last time.Time, now <-chan struct{}) {
	for pause := ttl / 3; o.s.sleepUntil(o.ctx, pause, now); {
		begin := o.s.clock.Now()
		ctx, cancel := context.WithCancel(o.ctx)
		stop := o.s.clock.AfterFunc(min(ttl/3, last.Add(ttl).Sub(begin)), cancel)
		_, err := o.s.keepAlive(ctx, l.key)
		stop()
		cancel()
		switch {
		case err == nil:
			last, pause = begin, ttl/3
		case errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeLeaseGone}) || o.s.clock.Now().Sub(last) >= ttl:
			o.lose(at, l)
			return
		default:
			pause = min(ttl/12, last.Add(ttl).Sub(o.s.clock.Now()))
		}
	}
}

// has reports whether the Owner keeps a lease alive.
func (o *Owner) has(k leaseKey) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, ok := o.mine[k]
	return ok
}

// nudge triggers an immediate renewal of a lease, if the Owner keeps it alive.
func (o *Owner) nudge(k leaseKey) {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case o.mine[k] <- struct{}{}:
	default:
	}
}

// lose removes a lease that was lost, so that the next caller gets a new lease.
func (o *Owner) lose(at ownedKey, l *owned) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	if o.leases[at] == l {
		delete(o.leases, at)
	}
	delete(o.mine, l.key)
	select {
	case <-o.lost:
	default:
		close(o.lost)
	}
}
