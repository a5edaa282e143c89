package sim

import (
	"time"

	"github.com/netcraq/netcraq/controlplane/chain"
)

// recoveries brings switches in that are there and are no members, soon after they have come back.
func (w *world) recoveries() {
	d := w.dice.faults
	w.loop.after(d.between(2*time.Millisecond, 30*time.Millisecond), w.recoveries)
	if w.mended || !w.serving() || w.controller().status.Config.Freeze != chain.Thawed {
		return
	}
	s := w.controller()
	var candidates []string
	for _, m := range w.members {
		if !s.status.Config.IsMember(m) && s.device(m).ready {
			candidates = append(candidates, m)
		}
	}
	if len(candidates) > 0 {
		sw := pick(d, candidates...)
		w.trace("operator", "%s: %s", recoverMember, sw)
		w.cover.add("fault."+string(recoverMember), 1)
		s.recover(sw)
	}
}

// operator removes members that are out of reach for long: one operator for each controller, for
// they do not know of each other.
func (w *world) operator(p *schedule) {
	down := map[*device]time.Duration{}
	var look func()
	look = func() {
		w.loop.after(5*time.Millisecond, look)
		for _, s := range w.controllers {
			if s.alive && !s.deposed && s.status.Decided {
				s.giveUp(down, p.patience)
			}
		}
	}
	look()
}

// giveUp proposes a chain without the members that have not been reached for long.
func (s *shell) giveUp(down map[*device]time.Duration, patience time.Duration) {
	var left []string
	for _, m := range s.status.Config.Members {
		d := s.device(m)
		if d.ready {
			delete(down, d)
		} else if down[d] == 0 {
			down[d] = s.w.loop.now
		}
		if down[d] == 0 || s.w.loop.now-down[d] < patience {
			left = append(left, m)
		}
	}
	if n := len(left); n > 0 && n < len(s.status.Config.Members) && s.status.Config.Freeze == chain.Thawed {
		s.propose(chain.Change{Members: left})
	}
}
