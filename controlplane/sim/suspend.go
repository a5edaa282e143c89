package sim

import "time"

// Machines that are suspended (to memory, or to disk) and go on later: the switch does nothing
// meanwhile, keeps all that it has, and does not know of it. What came for it waits. Its clock must
// have gone on, or it goes on answering by a lease that is long over. As with switches that leave,
// this has dice of its own.

// suspensions has switches suspended from time to time, in some runs.
func (w *world) suspensions(p *schedule, seed uint64, end time.Duration) {
	d := newDice(seed, diceSuspend)
	if !d.chance(0.3) {
		return
	}
	w.fromTimeToTime(d, 3*p.every, end, func() {
		w.suspend(pick(d, w.nodes...), d.between(5*time.Millisecond, 40*time.Millisecond),
			d.between(time.Millisecond, 200*time.Millisecond))
	})
	w.fromTimeToTime(d, p.every, end, func() { w.suspendJoiner(d) })
}

// suspend stops a switch's machine for a while, if others have the data. Controllers notice after
// some time.
func (w *world) suspend(n *node, notice, length time.Duration) {
	if !n.alive || n.isolated || n.suspended || !w.spare(n) {
		return
	}
	w.cover.add("fault.suspended at "+w.position(n), 1)
	w.isolate(n, notice)
	w.trace("fault", "the machine of %s is suspended", n.name)
	n.suspended = true
	w.mayWait(n)
	starts := n.starts
	w.loop.after(length, func() {
		if n.starts == starts && n.suspended && w.removed.suspendedClock {
			n.stood += length
		}
		w.resume(n)
		w.reconnect(n) // it may have been killed and started meanwhile
	})
}

// resume lets it go on.
func (w *world) resume(n *node) {
	if !n.suspended {
		return
	}
	w.trace("fault", "the machine of %s goes on", n.name)
	n.suspended = false
	asleep := n.asleep
	n.asleep = nil
	for _, f := range asleep {
		n.process(f.port, f.frame)
	}
	w.reconnect(n)
}
