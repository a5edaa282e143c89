package trouble

import (
	"time"

	"github.com/netcraq/netcraq/controlplane/sim/clockwork"
	"github.com/netcraq/netcraq/controlplane/sim/world"
)

// Machines that are suspended (to memory, or to disk) and continue later: the switch does nothing
// meanwhile, keeps all that it has, and does not know about it. What came for it waits. Its clock
// must have gone on, or it continues answering by a lease that is long over. As with switches that
// leave, this has dice of its own.

// Suspensions has switches suspended from time to time, in some runs.
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

// Suspend stops a switch's machine for a while, if others have the data. Controllers notice after
// some time.
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
		w.Reconnect(n) // it may have been killed and started meanwhile
	})
}

// Resume lets it continue.
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
