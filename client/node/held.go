package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
)

// Wait bounds how long a call waits for a lock, leadership or permit. With 0, the call does not
// wait. Without Wait, the call waits until its context ends. If another caller still holds the
// lock, leadership or permit at the end, the error has CodeNotHeld.
func Wait(d time.Duration) Option { return Option{kind: optWait, time: d} }

// giver has something that it releases when the client is closed.
type giver interface {
	giveBack(ctx context.Context) error
}

// Held is a lock, a leadership or a permit. The client keeps it until Release, unless it is lost.
type Held struct {
	c         *Client
	kind      holdKind
	namespace string
	name      string
	token     uint64
	leaseID   string
	lease     *lease // nil if the caller provided the lease

	mu   sync.Mutex
	lost chan struct{}
	over bool // whether lost is closed
	err  error
}

type holdKind struct{ take, back, what string }

var (
	locks       = holdKind{nodeapi.FuncLock, nodeapi.FuncUnlock, "the lock"}
	leaderships = holdKind{nodeapi.FuncCampaign, nodeapi.FuncResign, "the leadership of"}
	permits     = holdKind{nodeapi.FuncAcquire, nodeapi.FuncRelease, "a permit of"}
)

// Lock acquires a lock. It waits while another caller holds the lock. Options: Wait, TTL,
// WithLease.
func (c *Client) Lock(ctx context.Context, name string, opts ...Option) (*Held, error) {
	return c.hold(ctx, locks, nodeapi.LockData{Name: name}, opts)
}

// Campaign acquires the leadership of a name. It waits while another caller is the leader. Leader
// returns value to other programs. The options are those of Lock.
func (c *Client) Campaign(ctx context.Context, name, value string, opts ...Option) (*Held, error) {
	return c.hold(ctx, leaderships, nodeapi.LockData{Name: name, Value: value}, opts)
}

// Acquire acquires one of a semaphore's permits. It waits while all permits are taken. All callers
// must pass the same number of permits. The options are those of Lock.
func (c *Client) Acquire(ctx context.Context, name string, permitted int, opts ...Option) (*Held, error) {
	return c.hold(ctx, permits, nodeapi.LockData{Name: name, Permits: permitted}, opts)
}

// longestWait bounds how long a single request waits at the server. If that time ends, hold sends
// the request again.
const longestWait = 50 * time.Second

func (c *Client) hold(ctx context.Context, kind holdKind, d nodeapi.LockData, opts []Option) (*Held, error) {
	if err := checkKey(kind.take, d.Name); err != nil {
		return nil, err
	}
	o := gather(opts)
	var end time.Time
	if o.wait >= 0 {
		end = time.Now().Add(o.wait)
	}
	d.Namespace = o.namespace
	for tries := 0; ; tries++ {
		var l *lease
		d.Lease = o.lease
		if o.lease == "" {
			var err error
			if l, err = c.lease(ctx, &o); err != nil {
				return nil, err
			}
			d.Lease = l.id
		}
		a, err := c.take(ctx, kind, d, end)
		if err == nil && a.Held {
			return c.holds(kind, d, a, l), nil
		}
		over := ctx.Err() != nil || !end.IsZero() && !time.Now().Before(end)
		code := CodeOf(err)
		if l != nil {
			switch code {
			case "", CodeNotHeld, CodePermissionDenied, CodeInvalidArgument, CodeNoRoom, CodeQuotaExceeded,
				CodeUnavailable:
				l.free()
			default: // The request may have acquired the lock.
				l.drop()
			}
		}
		switch {
		case err == nil && over:
			return nil, &Error{Code: CodeNotHeld, Message: fmt.Sprintf("another caller holds %s %q", kind.what, d.Name)}
		case err == nil:
			continue
		case l != nil && !over && (code == CodeOutcomeUnknown || code == CodeLeaseGone || code == CodeCanceled):
			// The next try uses another lease. A lock that is bound to this lease expires with it.
			select {
			case <-time.After(min(firstPause<<min(tries, 10), maxPause)):
				continue
			case <-ctx.Done():
			}
		}
		if l != nil && code == CodeOutcomeUnknown {
			// The request may have acquired the lock, which then expires with the lease.
			err = because(err, CodeTimeout, "", "%s %q was not had in time: %v", kind.what, d.Name, err)
			if errors.Is(ctx.Err(), context.Canceled) {
				err = because(ctx.Err(), CodeCanceled, "", "%s %q: the call was canceled", kind.what, d.Name)
			}
		}
		return nil, err
	}
}

// take sends the request once. When take returns an ambiguous error, the caller must not use the
// lease again.
func (c *Client) take(ctx context.Context, kind holdKind, d nodeapi.LockData, end time.Time) (*nodeapi.LockAnswer,
	error) {
	wait := longestWait
	if !end.IsZero() {
		wait = min(wait, max(time.Until(end), 0))
	}
	if limit, ok := ctx.Deadline(); ok { // the answer must arrive before the deadline of ctx
		left := time.Until(limit)
		wait = min(wait, max(left-max(min(left/5, 3*grace), time.Millisecond), 0))
	}
	millis := int(wait / time.Millisecond)
	d.WaitMillis = &millis
	ctx, cancel := context.WithTimeout(ctx, wait+c.cfg.Timeout)
	defer cancel()
	return askFor[nodeapi.LockAnswer](ctx, c, kind.take, d, func(k *call) { k.changes, k.waits = true, true })
}

func (c *Client) holds(kind holdKind, d nodeapi.LockData, a *nodeapi.LockAnswer, l *lease) *Held {
	h := &Held{c: c, kind: kind, namespace: d.Namespace, name: d.Name, token: decimal(a.Token), leaseID: d.Lease,
		lease: l, lost: make(chan struct{})}
	c.mu.Lock()
	c.held[h] = struct{}{}
	c.mu.Unlock()
	if l != nil {
		l.whenLost(func(err error) {
			h.finish(because(err, CodeNotHeld, "take it again", "%s %q is not surely held any more: %v", kind.what, h.name,
				err))
		})
	}
	return h
}

// Name is the name of the lock, leadership or semaphore.
func (h *Held) Name() string { return h.name }

// Token is the fencing token. Each new holder of this name gets a greater token.
func (h *Held) Token() uint64 { return h.token }

// Lease is the lease to which the lock, leadership or permit is bound.
func (h *Held) Lease() string { return h.leaseID }

// Lost returns a channel that is closed when the lock, leadership or permit is released or may have
// been lost. If the caller provided the lease, the client does not notice the end of the lease, so
// it does not close the channel then.
func (h *Held) Lost() <-chan struct{} { return h.lost }

// Err returns why the lock, leadership or permit was lost. It returns nil if it was not lost, or
// was released.
func (h *Held) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// finish closes the channel `lost`, and reports whether the channel was open.
func (h *Held) finish(err error) bool {
	h.mu.Lock()
	if h.over {
		h.mu.Unlock()
		return false
	}
	h.over, h.err = true, err
	close(h.lost)
	h.mu.Unlock()
	h.c.mu.Lock()
	delete(h.c.held, h)
	h.c.mu.Unlock()
	return true
}

// Release releases the lock, leadership or permit. If Release fails, the lock expires within its
// time to live. The error has CodeNotHeld if the lock was already lost.
func (h *Held) Release(ctx context.Context) error {
	if !h.finish(nil) {
		return h.Err()
	}
	_, err := askFor[struct{}](ctx, h.c, h.kind.back,
		nodeapi.UnlockData{Namespace: h.namespace, Name: h.name, Token: fmt.Sprint(h.token)},
		func(k *call) { k.changes, k.urgent = true, true })
	switch {
	case h.lease == nil:
	case err == nil:
		h.lease.free()
	default:
		h.lease.drop()
	}
	return err
}

func (h *Held) giveBack(ctx context.Context) error { return h.Release(ctx) }

// Leader describes the leader of a name.
type Leader struct {
	Found bool
	Value string
	Token uint64
}

// Leader returns the leader of a name. The only option is In.
func (c *Client) Leader(ctx context.Context, name string, opts ...Option) (Leader, error) {
	if err := checkKey(nodeapi.FuncLeader, name); err != nil {
		return Leader{}, err
	}
	a, err := askFor[nodeapi.LeaderAnswer](ctx, c, nodeapi.FuncLeader,
		nodeapi.LeaderData{Namespace: gather(opts).namespace, Name: name}, nil)
	if err != nil {
		return Leader{}, err
	}
	return Leader{Found: a.Found, Value: a.Value, Token: decimal(a.Token)}, nil
}
