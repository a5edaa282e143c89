package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/netcraq/netcraq/controlplane/chain"
)

// starvation is what a controller suffers from.
type starvation struct {
	until time.Duration // on the world's clock
	tick  time.Duration // how late it does what is due
	hears time.Duration // how late it takes in what comes
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
