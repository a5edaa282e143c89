package guardedshell

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// detached bounds how long work continues without its caller. etcd's own limit for a request is 7
// s.
const detached = 10 * time.Second

// abandoned is how long work may take after its caller has left. If the outcome of a write is not
// known by then, the gateway gives up the write and its session. That forces all other writes of
// the session to retry, so it must be rare, and the limit must not be too short. It must not be too
// long either, because writes of the same key wait for this write.
const abandoned = 2 * time.Second

// Goroutines implements guarded.Runtime for a gateway.
type Goroutines struct {
	ctx  context.Context
	stop context.CancelFunc
	work sync.WaitGroup

	mu     sync.Mutex
	closed bool // set by Close; no new work is accepted then
}

// NewGoroutines makes a Goroutines.
func NewGoroutines() *Goroutines {
	g := &Goroutines{}
	g.ctx, g.stop = context.WithCancel(context.Background())
	return g
}

// Close ends all work and waits for its end. Guards that this gateway holds stay in their slots.
// Other gateways break them when this gateway's session is gone.
func (g *Goroutines) Close() {
	g.stop()
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.work.Wait()
}

// Go implements guarded.Runtime. Work that begins after Close was called gets contexts that have
// ended, and Close does not wait for it.
func (g *Goroutines) Go(work func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		go work()
		return
	}
	g.work.Go(work)
}

// Wait implements guarded.Runtime.
func (g *Goroutines) Wait(ctx context.Context, ch <-chan struct{}, d time.Duration) bool {
	var after <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		after = t.C
	}
	select {
	case <-ch:
		return true
	case <-after:
	case <-ctx.Done():
	case <-g.ctx.Done():
	}
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// Within implements guarded.Runtime.
func (g *Goroutines) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(g.ctx, func() { cancel(rpctypes.ErrStopped) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// Detach implements guarded.Runtime.
func (g *Goroutines) Detach(caller context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(caller), detached)
	stop := context.AfterFunc(g.ctx, cancel)
	stay := context.AfterFunc(caller, func() {
		select {
		case <-time.After(abandoned):
			cancel()
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		stay()
		stop()
		cancel()
	}
}

// Limit implements guarded.Runtime.
func (g *Goroutines) Limit(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}

// Last implements guarded.Runtime.
func (g *Goroutines) Last(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(g.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// Jitter implements guarded.Runtime.
func (g *Goroutines) Jitter() float64 { return rand.Float64() }
