package trouble

import (
	"time"

	"github.com/netcraq/netcraq/controlplane/sim/clockwork"
	"github.com/netcraq/netcraq/controlplane/sim/world"
)

// This file makes switches leave the network, and come back. Only the controller's machine sees
// that, because the switches continue to run. These events have a stream of random numbers of their
// own, so a run's other faults do not depend on them.

// In some runs, Leaves makes switches leave from time to time.
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
