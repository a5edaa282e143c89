package switches

import (
	"context"
	"testing"
)

// TestThrottle: each late request halves the number of those that may be under way, down to one.
// Each one in time raises it by one, up to the most.
func TestThrottle(t *testing.T) {
	throttle := newThrottle(8)
	begin := func(n int) {
		t.Helper()
		for range n {
			if err := throttle.begin(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	check := func(want int) {
		t.Helper()
		if n := len(throttle.places); n != want {
			t.Fatalf("%d may begin, want %d", n, want)
		}
	}
	begin(8)
	throttle.end(true) // 4 may be under way, and 7 are
	check(0)
	for range 7 {
		throttle.end(true)
	}
	check(1)
	for n := range 10 {
		begin(1)
		throttle.end(false)
		check(min(n+2, 8))
	}
	begin(8)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := throttle.begin(over); err == nil {
		t.Error("a ninth began")
	}
}
