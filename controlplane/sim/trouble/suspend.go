package trouble

import (
	"time"

	"github.com/netcraq/netcraq/controlplane/sim/clockwork"
	"github.com/netcraq/netcraq/controlplane/sim/world"
)

// This file suspends machines of switches (to memory, or to disk) and lets them continue later. A
// suspended switch does nothing, keeps all its state, and does not notice the suspension. Frames
// for it wait. Its clock must count the suspended time, because otherwise the switch would continue
// to answer under an expired lease. These faults have a stream of random numbers of their own, like
// switches that leave.

// In some runs, Suspensions suspends switches from time to time.
func Suspensions(w *world.World, p *Schedule, seed uint64, end time.Duration) {
	d := clockwork.NewDice(seed, clockwork.DiceSuspend)
	if !d.Chance(0.3) {
		return
	}
	fromTimeToTime(w, d, 3*p.every, end, func() {
		Suspend(w, clockwork.Pick(d, w.Nodes...), d.Between(5*time.Millisecond, 40*time.Millisecond),
			d.Between(time.Millisecond, 200*time.Millisecond))
	})
	fromTimeToTime(w, d, p.every, end, func() { suspendJoiner(w, d) })
}

// Suspend stops a switch's machine for length, if other switches have the data. The controllers
// notice that after the duration notice.
func Suspend(w *world.World, n *world.Node, notice, length time.Duration) {
	if !n.Alive || n.Isolated || n.Suspended || !w.Spare(n) {
		return
	}
	w.Cover.Count("fault.suspended at "+position(w, n), 1)
	w.Isolate(n, notice)
	w.Trace("fault", "the machine of %s is suspended", n.Name)
	n.Suspended = true
	mayWait(w, n)
	starts := n.Starts
	w.Loop.After(length, func() {
		if n.Starts == starts && n.Suspended && w.Without.SuspendedClock {
			n.Stood += length
		}
		Resume(w, n)
		w.Reconnect(n) // the switch may have been killed and started meanwhile
	})
}

// Resume lets a suspended switch continue.
func Resume(w *world.World, n *world.Node) {
	if !n.Suspended {
		return
	}
	w.Trace("fault", "the machine of %s goes on", n.Name)
	n.Suspended = false
	asleep := n.Asleep
	n.Asleep = nil
	for _, f := range asleep {
		n.Process(f.Port, f.Frame)
	}
	w.Reconnect(n)
}
