package guardedshell

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestDetach checks that detached work may take ten seconds, but at most two seconds after its
// caller has left. Another request may wait for the work, and an etcd member that does not answer
// now will probably not answer later.
func TestDetach(t *testing.T) {
	for _, c := range []struct {
		name        string
		leaves, end time.Duration // leaves is when the caller leaves; 0 means never.
	}{
		{"the caller waits", 0, 10 * time.Second},
		{"the caller leaves", time.Second, 3 * time.Second},
		{"the caller leaves late", 9500 * time.Millisecond, 10 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := NewGoroutines()
			defer g.Close()
			caller, leave := context.WithCancel(t.Context())
			defer leave()
			began := time.Now()
			ctx, cancel := g.Detach(caller)
			defer cancel()
			if c.leaves > 0 {
				time.AfterFunc(c.leaves, leave)
			}
			<-ctx.Done()
			if got := time.Since(began); got != c.end {
				t.Errorf("%s: ended after %v, want %v", c.name, got, c.end)
			}
		})
	}
}

// Completed work leaves no goroutine behind (synctest checks this). If the caller left before the
// work began, the work gets its full time.
func TestDetachEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGoroutines()
		defer g.Close()
		gone, leave := context.WithCancel(t.Context())
		leave()
		began := time.Now()
		ctx, cancel := g.Detach(gone)
		if ctx.Err() != nil {
			t.Error("it has no time")
		}
		<-ctx.Done()
		cancel()
		if got := time.Since(began); got != abandoned {
			t.Errorf("ended after %v", got)
		}
		ctx, cancel = g.Detach(gone)
		cancel()
		if ctx.Err() == nil {
			t.Error("it goes on")
		}
	})
}
