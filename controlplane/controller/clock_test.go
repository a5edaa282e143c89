package controller

import (
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/clock"
)

// TestNow: the controller measures leases by an unslewed clock.
func TestNow(t *testing.T) {
	c := &Controller{start: clock.Raw()}
	before := clock.Raw()
	now := c.start + c.now()
	if after := clock.Raw(); now < before || now > after {
		t.Errorf("%v, between %v and %v", now, before, after)
	}
}

// TestEarly: the controller's timers are slewed. They must fire neither before an action is due nor
// so late that the controller seems to be held up.
func TestEarly(t *testing.T) {
	for _, rate := range []float64{0.8995, 1, 1.1005} {
		for wait := time.Millisecond; wait < time.Hour; wait = wait * 11 / 7 {
			looks, rest := 0, wait
			for ; rest > 0; looks++ {
				rest -= time.Duration(float64(early(rest))/rate) + time.Microsecond // rest is measured in unslewed time
			}
			if late := -rest; late > 2500*time.Microsecond {
				t.Errorf("timers at %v: what is due in %v is done %v late", rate, wait, late)
			}
			if looks > 20 {
				t.Errorf("timers at %v: %d looks for what is due in %v", rate, looks, wait)
			}
		}
	}
}
