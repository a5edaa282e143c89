package world

import (
	"fmt"
	"strings"
	"time"

	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/sim/judge"
)

// Starvation is what a controller suffers from.
type Starvation struct {
	Until time.Duration // on the world's clock
	Tick  time.Duration // how late it does what is due
	Hears time.Duration // how late it takes in what comes
}

func (s *Shell) tickLate() time.Duration {
	if s.World.Loop.Now < s.Starved.Until {
		return s.Starved.Tick
	}
	return 0
}

func (s *Shell) hearsLate() time.Duration {
	if s.World.Loop.Now < s.Starved.Until {
		return s.Starved.Hears
	}
	return 0
}

// late tells the machine that its tick was due at a moment that is over.
func (s *Shell) late(due chain.Time) {
	now := s.Clock()
	if by := now - due; by > 0 && !s.World.Without.Late && s.Machine.Late(now, by) {
		s.World.Cover.Count("controller.was held up", 1)
	}
}

// givenUpInVain notes that a switch is given up for its silence, and has answered a LEASE a moment
// ago. Only what holds up nothing but controllers may be at work then: packets that are lost, and
// switches that are, are good reasons.
func (s *Shell) givenUpInVain(a chain.Event) {
	if a.Type != "chain.failover" || !strings.Contains(a.Message, "answers no lease") {
		return
	}
	s.World.Cover.Count("controller.gave up who is silent", 1)
	if !s.World.OnlyStarved {
		return
	}
	s.World.Contradicted = append(s.World.Contradicted, judge.Violation{Kind: judge.GivenUpInVain,
		What: fmt.Sprintf("%s gives up %s, which answers every LEASE at once", s.Name, a.Switch)})
}
