package sim

import (
	"fmt"
	"time"
)

// No chain waits long for a switch that is to become a member and whose machine is suspended: keys
// and sessions wait meanwhile, and writes that pass it.

// heldUpMost is how many leases a chain may wait: until the switch is taken to hang, and for what
// is decided then to be on record.
const heldUpMost = 3

// mayWait looks at intervals whether a chain waits too long for a switch that has just been
// suspended.
func (w *world) mayWait(n *node) {
	began, starts := w.loop.now, n.starts
	most := heldUpMost * max(w.lease, defaultLease)
	if w.disorder.apart { // a call to another switch may be given up and made again meanwhile
		most += 2 * w.callTimeout
	}
	var look func()
	look = func() {
		s := w.controller()
		if !n.suspended || n.starts != starts || len(w.contradicted) > 0 {
			return
		}
		if s.alive && !s.deposed && s.m != nil && s.status.Config.Shadow == n.name &&
			w.loop.now-max(began, s.shadowAt, s.starved.until) > most && w.slowDisk+w.badDisk == 0 {
			w.contradicted = append(w.contradicted, Violation{Kind: HeldUp, What: fmt.Sprintf(
				"%s waits for %s, whose machine has been suspended for %v", s.name, n.name, w.loop.now-began)})
			return
		}
		w.loop.after(5*time.Millisecond, look)
	}
	w.loop.after(most, look)
}

// suspendJoiner suspends the switch that is being brought in, if there is one, for so long that
// somebody would notice who waits for it.
func (w *world) suspendJoiner(d dice) {
	if s := w.controller(); s.alive && s.m != nil && s.status.Config.Shadow != "" {
		w.suspend(w.node(s.status.Config.Shadow), time.Minute, d.between(0, 2*heldUpMost*max(w.lease, defaultLease)))
	}
}
