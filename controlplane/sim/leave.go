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

// joins brings a switch that has left back into the network.
func (s *shell) joins(n *node) {
	if !s.alive || s.deposed || !s.left[n.name] {
		return
	}
	s.w.trace("operator", "%s joins the network", n.name)
	forgotten := s.forgotten[n.name]
	delete(s.left, n.name)
	delete(s.forgotten, n.name)
	s.setSwitches()
	s.flush()
	if d := s.device(n.name); forgotten && d.connected { // it is connected anew
		d.broken(d.number)
	}
}

// setSwitches tells the machine who is there.
func (s *shell) setSwitches() {
	var names []string
	for _, n := range s.w.nodes {
		if !s.forgotten[n.name] {
			names = append(names, n.name)
		}
	}
	s.m.SetSwitches(s.now(), names, s.left)
}

// forget forgets who has left and is not needed any more.
func (s *shell) forget() {
	for _, n := range s.w.nodes {
		if s.left[n.name] && !s.forgotten[n.name] && !s.m.Needs(n.name) {
			s.forgotten[n.name] = true
			s.w.cover.add("controller.forgot who left", 1)
			s.setSwitches()
			s.flush()
		}
	}
}
