package world

import (
	"time"

	"github.com/netcraq/netcraq/controlplane/sim/clockwork"
)

// Clocks run at different rates. Those of switches, and the one by which a controller counts for
// how long it may act as the leader, may be slewed (package clock); the one by which a controller
// waits for leases is not.

// How fast slewed clocks run.
const (
	slowest = 0.8995
	fastest = 1.1005
)

// slewed is how fast a clock runs that may be slewed. Only in some runs one is.
func (w *World) slewed(d clockwork.Dice) float64 {
	if !w.slews {
		return w.ClockRate()
	}
	return clockwork.Pick(d, slowest, slowest, fastest, slowest+(fastest-slowest)*d.Float64())
}

// SlewClocks has clocks slewed, in some runs.
func (w *World) SlewClocks(seed uint64) {
	d := clockwork.NewDice(seed, clockwork.DiceClocks)
	if w.slews = d.Chance(0.5); !w.slews {
		return
	}
	w.Cover.Count("fault.clocks slewed", 1)
	for _, n := range w.Nodes {
		n.Rate = w.slewed(d)
	}
	w.leaders = d
}

// Slew changes how fast a switch's clock runs. What it shows does not jump.
func (n *Node) Slew(rate float64) {
	shown := n.clock()
	n.Rate = rate
	n.born = n.w.Loop.Now - n.Stood - time.Duration(float64(shown)/rate)
}
