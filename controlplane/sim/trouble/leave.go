package trouble

import (
	"time"

	"github.com/netcraq/netcraq/controlplane/sim/clockwork"
	"github.com/netcraq/netcraq/controlplane/sim/world"
)

// Switches that leave the network, and come back. Only the machine sees this; the switches continue
// to run. This has a stream of random numbers of its own, so a run's other faults do not depend on
// it.

// Leaves makes switches leave from time to time, in some runs.
func Leaves(w *world.World, p *Schedule, seed uint64, end time.Duration) {
	d := clockwork.NewDice(seed, clockwork.DiceLeave)
	if !d.Chance(0.3) {
		return
	}
	fromTimeToTime(w, d, 2*p.every, end, func() {
		leave(w, clockwork.Pick(d, w.Nodes...), d.Between(5*time.Millisecond, 150*time.Millisecond))
	})
}

// leave takes a switch out of the network for a while, if other members have the data.
func leave(w *world.World, n *world.Node, length time.Duration) {
	s := w.Controller()
	if s.Machine == nil || !s.Alive || s.Deposed || s.Left[n.Name] || !w.Spare(n) {
		return
	}
	w.Trace("operator", "%s leaves the network", n.Name)
	w.Cover.Count("fault.left at "+position(w, n), 1)
	s.Left[n.Name] = true
	s.SetSwitches()
	s.Flush()
	s.Later(length, func() { s.Joins(n) })
}
