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
	over   bool            // canceled before there was inner
	inner  context.Context // nil: nobody has waited yet
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

// Value implements [context.Context]. That of the inner context lets package context add its own
// contexts to it directly.
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

// end cancels it. The first time, it gives back what was made for it.
func (t *term) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	if t.cancel != nil {
		t.cancel()
	}
}
