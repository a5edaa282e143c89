package ebpf

import (
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/clock"
)

// TestWallClock: wall-clock times are right, differ like the kernel's times, and follow a clock
// that was set.
func TestWallClock(t *testing.T) {
	var w wallClock
	for _, set := range []time.Duration{0, time.Hour, -time.Hour} {
		w.zero = w.zero.Add(set) // as if the wall clock had been set back, and forward
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
