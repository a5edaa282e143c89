package sim

import "time"

// Clocks run at different rates. Those of switches, and the one by which a controller counts for
// how long it may act as the leader, may be slewed (package clock); the one by which a controller
// waits for leases is not.

// How fast slewed clocks run.
const (
	slowest = 0.8995
	fastest = 1.1005
)

// slewed is how fast a clock runs that may be slewed. Only in some runs one is.
func (w *world) slewed(d dice) float64 {
	if !w.slews {
		return w.clockRate()
	}
	return pick(d, slowest, slowest, fastest, slowest+(fastest-slowest)*d.Float64())
}

// slewClocks has clocks slewed, in some runs.
func (w *world) slewClocks(seed uint64) {
	d := newDice(seed, diceClocks)
	if w.slews = d.chance(0.5); !w.slews {
		return
	}
	w.cover.add("fault.clocks slewed", 1)
	for _, n := range w.nodes {
		n.rate = w.slewed(d)
	}
	w.leaders = d
}

// slew changes how fast a switch's clock runs. What it shows does not jump.
func (n *node) slew(rate float64) {
	shown := n.clock()
	n.rate = rate
	n.born = n.w.loop.now - n.stood - time.Duration(float64(shown)/rate)
}
