package world

import (
	"time"

	"github.com/netcraq/netcraq/controlplane/sim/clockwork"
)

// In a run, clocks have different rates. Slewing (package clock) may affect the clocks of switches,
// and the clock by which a controller measures how long it may act as the leader. It does not
// affect the clock by which a controller waits for leases.

// These constants are the range of rates of slewed clocks.
const (
	slowest = 0.8995
	fastest = 1.1005
)

// slewed draws the rate of a clock that may be slewed. Clocks are slewed only in some runs.
func (w *World) slewed(d clockwork.Dice) float64 {
	if !w.slews {
		return w.ClockRate()
	}
	return clockwork.Pick(d, slowest, slowest, fastest, slowest+(fastest-slowest)*d.Float64())
}

// SlewClocks decides whether clocks are slewed in this run.
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

// Slew changes the rate of a switch's clock. The time that the clock shows does not jump.
func (n *Node) Slew(rate float64) {
	shown := n.clock()
	n.Rate = rate
	n.born = n.w.Loop.Now - n.Stood - time.Duration(float64(shown)/rate)
}
