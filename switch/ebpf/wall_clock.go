package ebpf

import (
	"time"

	"github.com/netcraq/netcraq/api/clock"
)

// wallClock gives the wall's time for times of the clock that programs read. Times that are less
// than wallStep wrong are kept so: frames of several switches can be put in order by their times as
// long as nobody sets the machine's clock.
type wallClock struct {
	zero time.Time // when that clock was zero
}

// wallStep is by how much the wall's clock must have been set to be read again.
const wallStep = time.Second

// at is the wall's time when that clock was ns.
func (w *wallClock) at(ns int64) time.Time {
	if readZero(1).Sub(w.zero).Abs() > wallStep {
		w.zero = readZero(20)
	}
	return w.zero.Add(time.Duration(ns))
}

// readZero reads both clocks some times, and believes the time when the least was between two looks
// at that one; that is how wrong it may be.
func readZero(times int) (zero time.Time) {
	var wrong time.Duration
	for range times {
		before := clock.Now()
		// without Go's own monotonic time, which would be compared instead
		wall := time.Now().Round(0)
		after := clock.Now()
		if d := time.Duration(after - before); zero.IsZero() || d < wrong {
			zero, wrong = wall.Add(-time.Duration(after)), d
		}
	}
	return zero
}
