package ebpf

import (
	"time"

	"github.com/netcraq/netcraq/api/clock"
)

// wallClock converts times of the programs' clock to wall-clock times. It keeps its offset while
// the error is less than wallStep. Frames of several switches can therefore be ordered by their
// times, as long as nobody sets the machine's clock.
type wallClock struct {
	zero time.Time // the wall-clock time at which the programs' clock was 0
}

// wallStep is the smallest error at which wallClock determines its offset again.
const wallStep = time.Second

// at returns the wall-clock time at which the programs' clock was ns.
func (w *wallClock) at(ns int64) time.Time {
	if readZero(1).Sub(w.zero).Abs() > wallStep {
		w.zero = readZero(20)
	}
	return w.zero.Add(time.Duration(ns))
}

// readZero returns the wall-clock time at which the programs' clock was 0. It reads both clocks
// several times. It uses the reading during which the programs' clock advanced least, because that
// difference bounds the error.
func readZero(times int) (zero time.Time) {
	var wrong time.Duration
	for range times {
		before := clock.Now()
		// Round(0) removes Go's monotonic time, because Sub would use it otherwise
		wall := time.Now().Round(0)
		after := clock.Now()
		if d := time.Duration(after - before); zero.IsZero() || d < wrong {
			zero, wrong = wall.Add(-time.Duration(after)), d
		}
	}
	return zero
}
