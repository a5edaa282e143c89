package world

import (
	"fmt"
	"strings"
	"time"

	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/sim/judge"
)

// Starvation says how late an overloaded controller acts.
type Starvation struct {
	Until time.Duration // the end of the starvation, on the world's clock
	Tick  time.Duration // delay of the controller's timers
	Hears time.Duration // delay of the controller's incoming messages
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

// late tells the machine how late the machine's tick is.
func (s *Shell) late(due chain.Time) {
	now := s.Clock()
	if by := now - due; by > 0 && !s.World.Without.Late && s.Machine.Late(now, by) {
		s.World.Cover.Count("controller.was held up", 1)
	}
}

// givenUpInVain records that the machine gives up a switch as silent, although the switch answers
// every LEASE at once. It counts only in runs that starve controllers and have no other fault,
// because lost packets and failed switches are good reasons to give up.
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
