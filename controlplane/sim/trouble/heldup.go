package trouble

import (
	"fmt"
	"time"

	"github.com/netcraq/netcraq/controlplane/sim/clockwork"
	"github.com/netcraq/netcraq/controlplane/sim/judge"
	"github.com/netcraq/netcraq/controlplane/sim/shapes"
	"github.com/netcraq/netcraq/controlplane/sim/world"
)

// This file checks that a chain does not wait long for a joining switch whose machine is suspended.
// Keys, sessions and the writes that pass the switch wait meanwhile.

// heldUpMost is the maximum number of lease durations that a chain may wait. Within this time it
// must decide that the switch hangs, and record the next configuration.
const heldUpMost = 3

// mayWait checks at intervals whether a chain waits too long for a switch that has just been
// suspended.
func mayWait(w *world.World, n *world.Node) {
	began, starts := w.Loop.Now, n.Starts
	most := heldUpMost * max(w.Lease, shapes.DefaultLease)
	if w.Disorder.Apart { // calls to other switches may also time out and be repeated, so the chain may wait longer
		most += 2 * w.CallTimeout
	}
	var look func()
	look = func() {
		s := w.Controller()
		if !n.Suspended || n.Starts != starts || len(w.Contradicted) > 0 {
			return
		}
		if s.Alive && !s.Deposed && s.Machine != nil && s.Status.Config.Shadow == n.Name &&
			w.Loop.Now-max(began, s.ShadowAt, s.Starved.Until) > most && w.SlowDisk+w.BadDisk == 0 {
			w.Contradicted = append(w.Contradicted, judge.Violation{Kind: judge.HeldUp, What: fmt.Sprintf(
				"%s waits for %s, whose machine has been suspended for %v", s.Name, n.Name, w.Loop.Now-began)})
			return
		}
		w.Loop.After(5*time.Millisecond, look)
	}
	w.Loop.After(most, look)
}

// suspendJoiner suspends the switch that is being brought in, if there is one. The suspension is
// long enough to reveal everything that waits for the switch.
func suspendJoiner(w *world.World, d clockwork.Dice) {
	if s := w.Controller(); s.Alive && s.Machine != nil && s.Status.Config.Shadow != "" {
		longest := 2 * heldUpMost * max(w.Lease, shapes.DefaultLease)
		Suspend(w, w.Node(s.Status.Config.Shadow), time.Minute, d.Between(0, longest))
	}
}
