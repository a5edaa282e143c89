package trouble

import (
	"time"

	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/sim/clockwork"
	"github.com/netcraq/netcraq/controlplane/sim/world"
)

// Recoveries brings in running switches that are not members, soon after their return.
func Recoveries(w *world.World) {
	d := w.Dice.Faults
	w.Loop.After(d.Between(2*time.Millisecond, 30*time.Millisecond), func() { Recoveries(w) })
	if w.Mended || !w.Serving() || w.Controller().Status.Config.Freeze != chain.Thawed {
		return
	}
	s := w.Controller()
	var candidates []string
	for _, m := range w.Members {
		if !s.Status.Config.IsMember(m) && s.Device(m).Ready {
			candidates = append(candidates, m)
		}
	}
	if len(candidates) > 0 {
		sw := clockwork.Pick(d, candidates...)
		w.Trace("operator", "%s: %s", RecoverMember, sw)
		w.Cover.Count("fault."+string(RecoverMember), 1)
		s.Recover(sw)
	}
}

// Operator removes members that have been unreachable for long. Each controller has its own
// operator, because the operators do not know about each other.
func Operator(w *world.World, p *Schedule) {
	down := map[*world.Device]time.Duration{}
	var look func()
	look = func() {
		w.Loop.After(5*time.Millisecond, look)
		for _, s := range w.Controllers {
			if s.Alive && !s.Deposed && s.Status.Decided {
				giveUp(s, down, p.Patience)
			}
		}
	}
	look()
}

// giveUp proposes a chain without the members that have been unreachable for long.
func giveUp(s *world.Shell, down map[*world.Device]time.Duration, patience time.Duration) {
	var left []string
	for _, m := range s.Status.Config.Members {
		d := s.Device(m)
		if d.Ready {
			delete(down, d)
		} else if down[d] == 0 {
			down[d] = s.World.Loop.Now
		}
		if down[d] == 0 || s.World.Loop.Now-down[d] < patience {
			left = append(left, m)
		}
	}
	if n := len(left); n > 0 && n < len(s.Status.Config.Members) && s.Status.Config.Freeze == chain.Thawed {
		s.Propose(chain.Change{Members: left})
	}
}
