package trouble

import (
	"fmt"
	"time"

	"github.com/netcraq/netcraq/controlplane/sim/clockwork"
	"github.com/netcraq/netcraq/controlplane/sim/judge"
	"github.com/netcraq/netcraq/controlplane/sim/shapes"
	"github.com/netcraq/netcraq/controlplane/sim/world"
)

// No chain waits long for a switch that is to become a member and whose machine is suspended: keys
// and sessions wait meanwhile, and writes that pass it.

// heldUpMost is how many leases a chain may wait: until the switch is taken to hang, and for what
// is decided then to be on record.
const heldUpMost = 3

// mayWait looks at intervals whether a chain waits too long for a switch that has just been
// suspended.
func mayWait(w *world.World, n *world.Node) {
	began, starts := w.Loop.Now, n.Starts
	most := heldUpMost * max(w.Lease, shapes.DefaultLease)
	if w.Disorder.Apart { // a call to another switch may be given up and made again meanwhile
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

// suspendJoiner suspends the switch that is being brought in, if there is one, for so long that
// somebody would notice who waits for it.
func suspendJoiner(w *world.World, d clockwork.Dice) {
	if s := w.Controller(); s.Alive && s.Machine != nil && s.Status.Config.Shadow != "" {
		longest := 2 * heldUpMost * max(w.Lease, shapes.DefaultLease)
		Suspend(w, w.Node(s.Status.Config.Shadow), time.Minute, d.Between(0, longest))
	}
}
