package userspace

import (
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/clock"
)

// TestClockGoesOn checks that the program's clock continues while the machine is suspended. The
// test simulates an hour of suspension.
func TestClockGoesOn(t *testing.T) {
	asleep := time.Duration(0)
	now = func() clock.Time { return clock.Now().Add(asleep) }
	t.Cleanup(func() { now = clock.Now })
	d, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	if first := d.Now(); first < 0 || first > time.Minute {
		t.Errorf("a new switch's clock is %v", first)
	}
	asleep = time.Hour
	if then := d.Now(); then < time.Hour {
		t.Errorf("after an hour of sleep it is %v", then)
	}
}
