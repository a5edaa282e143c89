package switches

import (
	"context"
	"sync"
	"time"

	"github.com/netcraq/netcraq/controlplane/chain"
)

// Goroutines is an ops.Runtime of goroutines and the system's clock. Its zero value suffices for
// callers that do not use Now.
type Goroutines struct{ now func() chain.Time }

// NewGoroutines returns a runtime that reads the time from a given clock.
func NewGoroutines(now func() chain.Time) Goroutines { return Goroutines{now} }

// Now implements ops.Runtime.
func (g Goroutines) Now() time.Duration { return g.now() }

// Sleep implements ops.Runtime.
func (g Goroutines) Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// WithTimeout implements ops.Runtime.
func (g Goroutines) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}

// ForEach implements ops.Runtime.
func (g Goroutines) ForEach(ctx context.Context, n, window int, do func(context.Context, int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	free := make(chan struct{}, window)
	var wg sync.WaitGroup
	for i := range n {
		select {
		case free <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-free }()
			if err := do(ctx, i); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
