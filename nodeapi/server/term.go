package server

import (
	"context"
	"sync"
	"time"

	"github.com/netcraq/netcraq/nodeapi/store"
)

// term is the context of a request. It creates a timer, and registers with the connection's
// context, only when Done is called. So a request that is answered without waiting does not pay for
// either.
//
// A goroutine that calls Done is about to wait. At the first call of Done, term calls waits before
// Done returns. A goroutine that expects its answer soon calls the function soon instead. It calls
// Done only if the answer takes longer.
type term struct {
	parent   context.Context
	deadline time.Time
	waits    func()
	soon     func() // called when an answer is expected soon, see store.SoonAnswered

	mu     sync.Mutex
	over   bool            // the context was canceled before inner was made
	inner  context.Context // nil until Done is called for the first time
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

// Value implements [context.Context]. It returns values of the inner context, so that package
// context can register child contexts directly there.
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

// end cancels the context. The first call also releases its resources.
func (t *term) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	if t.cancel != nil {
		t.cancel()
	}
}
