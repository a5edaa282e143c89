package node

import (
	"context"
	"sync"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
)

// defaultTTL is the default time to live of locks and registrations.
const defaultTTL = 10 * time.Second

// TTL sets the time to live of a lock or registration: 0.5 s to an hour, by default 10 s. If the
// program dies, another program can acquire the lock after at most that time.
func TTL(d time.Duration) Option { return Option{kind: optTTL, time: d} }

// Lease is a lease. Keys, locks and registrations that are bound to it expire when it is revoked,
// or when nobody keeps it alive for TTL.
type Lease struct {
	ID  string
	TTL time.Duration
}

func leaseOf(a *nodeapi.LeaseAnswer) Lease {
	return Lease{ID: a.Lease, TTL: time.Duration(a.TTLMillis) * time.Millisecond}
}

// Grant creates a lease with a time to live of 0.5 s to an hour. The caller keeps the lease alive.
func (c *Client) Grant(ctx context.Context, ttl time.Duration, opts ...Option) (Lease, error) {
	a, err := askFor[nodeapi.LeaseAnswer](ctx, c, nodeapi.FuncGrant,
		nodeapi.GrantData{Namespace: gather(opts).namespace, TTLMillis: int(ttl / time.Millisecond)},
		func(k *call) { k.changes = true })
	if err != nil {
		return Lease{}, err
	}
	return leaseOf(a), nil
}

// KeepAlive renews a lease for its full time to live. If the lease has expired, the error has
// CodeLeaseGone.
func (c *Client) KeepAlive(ctx context.Context, id string, opts ...Option) (Lease, error) {
	a, err := askFor[nodeapi.LeaseAnswer](ctx, c, nodeapi.FuncKeepAlive,
		nodeapi.LeaseData{Namespace: gather(opts).namespace, Lease: id}, nil)
	if err != nil {
		return Lease{}, err
	}
	return leaseOf(a), nil
}

// Revoke ends a lease, and deletes everything that is bound to it.
func (c *Client) Revoke(ctx context.Context, id string, opts ...Option) error {
	_, err := askFor[struct{}](ctx, c, nodeapi.FuncRevoke, nodeapi.LeaseData{Namespace: gather(opts).namespace,
		Lease: id},
		func(k *call) { k.changes = true })
	return err
}

// lease is a lease that the client made for a single lock or registration, and keeps alive.
type lease struct {
	c    *Client
	kind leaseKind
	id   string
	stop context.CancelFunc
	mu   sync.Mutex
	gone error           // not nil if the lease has expired or may have expired
	lose func(err error) // called with the reason when the field `gone` is set
}

type leaseKind struct {
	namespace string
	ttl       time.Duration
}

// leases is the set of the client's leases. The client's mutex guards it.
type leases struct {
	all map[*lease]struct{}
	// leases to which nothing is bound, kept alive for a while for later use
	idle map[leaseKind][]*lease
}

// maxIdle bounds the idle leases of a kind.
const maxIdle = 4

// lease returns a lease to which nothing is bound.
func (c *Client) lease(ctx context.Context, o *options) (*lease, error) {
	kind := leaseKind{o.namespace, o.ttl}
	if kind.ttl == 0 {
		kind.ttl = defaultTTL
	}
	c.mu.Lock()
	for idle := c.leases.idle[kind]; len(idle) > 0; idle = c.leases.idle[kind] {
		l := idle[len(idle)-1]
		c.leases.idle[kind] = idle[:len(idle)-1]
		if l.isGone() == nil {
			c.mu.Unlock()
			return l, nil
		}
	}
	c.mu.Unlock()
	began := time.Now()
	granted, err := c.Grant(ctx, kind.ttl, In(kind.namespace))
	if err != nil {
		return nil, err
	}
	l := &lease{c: c, kind: kind, id: granted.ID}
	keep, stop := context.WithCancel(c.ctx)
	l.stop = stop
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		stop()
		return nil, errClosed // The new lease expires, because nobody keeps it alive.
	}
	c.leases.all[l] = struct{}{}
	c.done.Go(func() { l.keep(keep, began, granted.TTL) })
	c.mu.Unlock()
	return l, nil
}

// keep keeps the lease alive. The lease certainly exists for ttl after the last request that was
// answered was sent.
func (l *lease) keep(ctx context.Context, began time.Time, ttl time.Duration) {
	defer l.stop()
	until := began.Add(ttl)
	next := began.Add(ttl / 3)
	for {
		select {
		case <-time.After(time.Until(next)):
		case <-ctx.Done():
			return
		}
		began = time.Now()
		try, cancel := context.WithDeadline(ctx, until)
		a, err := askFor[nodeapi.LeaseAnswer](try, l.c, nodeapi.FuncKeepAlive,
			nodeapi.LeaseData{Namespace: l.kind.namespace, Lease: l.id}, func(k *call) { k.urgent = true })
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			ttl = leaseOf(a).TTL
			until, next = began.Add(ttl), began.Add(ttl/3)
			continue
		case CodeOf(err) == CodeLeaseGone || !time.Now().Before(until):
			l.lost(because(err, CodeLeaseGone, "", "the lease %s is gone: %v", l.id, err))
			return
		}
		next = time.Now().Add(min(ttl/10, time.Until(until)))
	}
}

func (l *lease) isGone() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gone
}

func (l *lease) lost(err error) {
	l.mu.Lock()
	l.gone = err
	lose := l.lose
	l.mu.Unlock()
	l.c.mu.Lock()
	delete(l.c.leases.all, l)
	l.c.mu.Unlock()
	if lose != nil {
		lose(err)
	}
}

// whenLost registers a function that is called when the lease is lost. If the lease is already
// lost, the function is called at once.
func (l *lease) whenLost(lose func(error)) {
	l.mu.Lock()
	l.lose = lose
	gone := l.gone
	l.mu.Unlock()
	if gone != nil && lose != nil {
		lose(gone)
	}
}

// free gives back a lease to which nothing is bound.
func (l *lease) free() {
	c := l.c
	l.whenLost(nil)
	c.mu.Lock()
	if idle := c.leases.idle[l.kind]; len(idle) < maxIdle && !c.closing && l.isGone() == nil {
		c.leases.idle[l.kind] = append(idle, l)
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	l.drop()
}

// drop ends a lease to which something may be bound without the client's knowledge.
func (l *lease) drop() {
	l.whenLost(nil)
	l.stop()
	c := l.c
	c.mu.Lock()
	_, known := c.leases.all[l]
	delete(c.leases.all, l)
	c.mu.Unlock()
	if known && l.isGone() == nil {
		c.background(func() {
			// the lease has expired when this context ends
			ctx, cancel := context.WithTimeout(c.ctx, l.kind.ttl)
			defer cancel()
			_ = l.revoke(ctx)
		})
	}
}

func (l *lease) revoke(ctx context.Context) error {
	_, err := askFor[struct{}](ctx, l.c, nodeapi.FuncRevoke, nodeapi.LeaseData{Namespace: l.kind.namespace,
		Lease: l.id},
		func(k *call) { k.changes, k.urgent = true, true })
	return err
}

// revokeAll ends all of the client's leases.
func (c *Client) revokeAll(ctx context.Context) {
	c.mu.Lock()
	var wg sync.WaitGroup
	for l := range c.leases.all {
		wg.Go(func() {
			l.stop()
			_ = l.revoke(ctx) // if this fails, the lease expires
		})
	}
	c.leases.all, c.leases.idle = map[*lease]struct{}{}, map[leaseKind][]*lease{}
	c.mu.Unlock()
	wg.Wait()
}
