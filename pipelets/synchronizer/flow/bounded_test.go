package flow

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"
)

// TestBounded checks that a run ends when it has used its processor time. A run that waits for a
// processor must end later, by elapsed time.
func TestBounded(t *testing.T) {
	const most = 100 * time.Millisecond
	for name, step := range map[string]func(){
		"computes": func() {},
		"waits":    func() { time.Sleep(time.Millisecond) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := bounded(t.Context(), most)
			defer cancel()
			begin, before := time.Now(), timeOf(syscall.RUSAGE_SELF)
			for ctx.Err() == nil {
				step()
			}
			clock, processor := time.Since(begin), timeOf(syscall.RUSAGE_SELF)-before
			if early := clock < Patience*most && processor < most*9/10; early || processor > 3*most {
				t.Errorf("it ended after %v, and %v of processor time; want %v, or %v by the clock",
					clock, processor, most, Patience*most)
			}
			if err := late(ctx, context.Canceled); !errors.Is(err, errLate) {
				t.Errorf("it ended with %v", err)
			}
		})
	}
	ctx, cancel := bounded(t.Context(), most)
	cancel()
	if err := late(ctx, context.Canceled); !errors.Is(err, context.Canceled) || ctx.Err() == nil {
		t.Errorf("one that is over ended with %v", err)
	}
}
