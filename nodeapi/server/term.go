package server

import (
	"context"
	"sync"
	"time"

	"github.com/netcraq/netcraq/nodeapi/store"
)

// term is the context of a request. It makes neither a timer nor an entry in the connection's
// context until someone calls Done, so a request that is answered without waiting never pays for
// them.
//
// A goroutine that asks for Done is about to wait. The first time, waits is called before Done
// returns. If it expects the answer soon, it calls soon, and Done only if it was mistaken.
type term struct {
	parent   context.Context
	deadline time.Time
	waits    func()
	soon     func() // see store.SoonAnswered

	mu     sync.Mutex
	over   bool            // canceled before inner was made
	inner  context.Context // nil: no one has waited yet
	cancel context.CancelFunc
}

// Deadline implements [context.Context].
func (t *term) Deadline() (time.Time, bool) { return t.deadline, true }

// Done implements [context.Context].
func (t *term) Done() <-chan struct{} {
	t.mu.Lock()
	first := t.inner == nil
	if first {
		t.inner, t.cancel = context.WithDeadline(t.parent, t.deadline)
		if t.over {
			t.cancel()
		}
	}
	t.mu.Unlock()
	if first {
		t.waits()
	}
	return t.inner.Done()
}

// Err implements [context.Context].
func (t *term) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.inner != nil:
		return t.inner.Err()
	case t.over:
		return context.Canceled
	case t.parent.Err() != nil:
		return t.parent.Err()
	case !time.Now().Before(t.deadline):
		return context.DeadlineExceeded
	}
	return nil
}

// Value implements [context.Context]. It passes on values of the inner context, so that package
// context can register child contexts there directly.
func (t *term) Value(key any) any {
	if key == store.SoonKey {
		return t.soon
	}
	t.mu.Lock()
	from := t.inner
	t.mu.Unlock()
	if from == nil {
		from = t.parent
	}
	return from.Value(key)
}

// end cancels the context. The first call releases its resources.
func (t *term) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	if t.cancel != nil {
		t.cancel()
	}
}
