package guardedshell

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestDetach: what continues without its caller has ten seconds, and not more than two when the
// caller has left: another request waits behind it, and a member that does not answer now does not
// then.
func TestDetach(t *testing.T) {
	for _, c := range []struct {
		name        string
		leaves, end time.Duration // leaves: 0: never
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

// What has come to its end leaves nothing behind (synctest says so), and a caller that was gone
// before has its time all the same.
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
