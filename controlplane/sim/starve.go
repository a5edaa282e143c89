package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/netcraq/netcraq/controlplane/chain"
)

// Controllers that are starved: their machine has too much to do, so they do late what is due, and
// take in late what switches have answered. Nothing is wrong with the switches. As with machines
// that are suspended, this has dice of its own.

// starvation is what a controller suffers from.
type starvation struct {
	until time.Duration // on the world's clock
	tick  time.Duration // how late it does what is due
	hears time.Duration // how late it takes in what comes
}

// starvations has controllers starved from time to time, in some runs.
func (w *world) starvations(p *schedule, seed uint64, end time.Duration) {
	d := newDice(seed, diceStarve)
	if !d.chance(0.3) {
		return
	}
	w.fromTimeToTime(d, 3*p.every, end, func() {
		w.starve(d.between(50*time.Millisecond, 500*time.Millisecond), starvation{
			tick: d.between(0, w.lease), hears: d.between(0, 2*w.lease)})
	})
}

// starve has the newest controller starved for a while.
func (w *world) starve(length time.Duration, how starvation) {
	s := w.controller()
	wiped := func(n *node) bool { return n.bare && w.store.record.Config.IsMember(n.name) } // and not noticed, perhaps
	if s == nil || !s.alive || slices.ContainsFunc(w.nodes, wiped) {
		return
	}
	w.cover.add("fault.controller starved", 1)
	w.trace("fault", "%s is starved: what is due it does %v late, and hears %v late", s.name, how.tick, how.hears)
	how.until = w.loop.now + length
	s.starved = how
}

func (s *shell) tickLate() time.Duration {
	if s.w.loop.now < s.starved.until {
		return s.starved.tick
	}
	return 0
}

func (s *shell) hearsLate() time.Duration {
	if s.w.loop.now < s.starved.until {
		return s.starved.hears
	}
	return 0
}

// late tells the machine that its tick was due at a moment that is over.
func (s *shell) late(due chain.Time) {
	now := s.now()
	if by := now - due; by > 0 && !s.w.removed.late && s.m.Late(now, by) {
		s.w.cover.add("controller.was held up", 1)
	}
}

// givenUpInVain notes that a switch is given up for its silence, and has answered a LEASE a moment
// ago. Only what holds up nothing but controllers may be at work then: packets that are lost, and
// switches that are, are good reasons.
func (s *shell) givenUpInVain(a chain.Event) {
	if a.Type != "chain.failover" || !strings.Contains(a.Message, "answers no lease") {
		return
	}
	s.w.cover.add("controller.gave up who is silent", 1)
	if !s.w.onlyStarved {
		return
	}
	s.w.contradicted = append(s.w.contradicted, Violation{Kind: GivenUpInVain,
		What: fmt.Sprintf("%s gives up %s, which answers every LEASE at once", s.name, a.Switch)})
}
