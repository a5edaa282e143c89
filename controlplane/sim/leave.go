package sim

import "time"

// Switches that leave the network, and come back: in the machine's eyes alone, for they go on
// running. The faults of a run and when they happen do not depend on whether there are any, since
// they have dice of their own.

// leaves has switches leave from time to time, in some runs.
func (w *world) leaves(p *schedule, seed uint64, end time.Duration) {
	d := newDice(seed, diceLeave)
	if !d.chance(0.3) {
		return
	}
	w.fromTimeToTime(d, 2*p.every, end, func() {
		w.leave(pick(d, w.nodes...), d.between(5*time.Millisecond, 150*time.Millisecond))
	})
}

// leave takes a switch out of the network for a while, if others have the data.
func (w *world) leave(n *node, length time.Duration) {
	s := w.controller()
	if s.m == nil || !s.alive || s.deposed || s.left[n.name] || !w.spare(n) {
		return
	}
	w.trace("operator", "%s leaves the network", n.name)
	w.cover.add("fault.left at "+w.position(n), 1)
	s.left[n.name] = true
	s.setSwitches()
	s.flush()
	s.later(length, func() { s.joins(n) })
}
