package ebpf

import (
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/clock"
)

// TestWallClock checks that wall-clock times are right, that they differ by as much as the kernel's
// times, and that they follow a clock that somebody sets.
func TestWallClock(t *testing.T) {
	var w wallClock
	for _, set := range []time.Duration{0, time.Hour, -time.Hour} {
		// This has the same effect as setting the wall clock back or forward.
		w.zero = w.zero.Add(set)
		now := int64(clock.Now())
		first := w.at(now)
		if off := time.Since(first); off < 0 || off > time.Second {
			t.Errorf("%v: off by %v", set, off)
		}
		for range 1000 {
			if second := w.at(now + 1); second.Sub(first) != 1 {
				t.Fatalf("a nanosecond later is %v later", second.Sub(first))
			}
		}
	}
}
