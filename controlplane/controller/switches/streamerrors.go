package switches

import (
	"fmt"
	"time"

	"github.com/netcraq/netcraq/controlplane/chain"
)

// streamErrorEvery is the least time between two events about a switch's stream errors.
const streamErrorEvery = time.Second

// streamErrors lets one stream error a second become an event, and counts the others. A switch that
// has no program yet answers every packet with one, and a hostile switch can send any number; the
// controller keeps a bounded number of events of all switches.
type streamErrors struct {
	heard bool
	at    chain.Time // of the last event
	more  int        // that have not become events since then
}

// message is the text of an event for an error that comes now; "": it is only counted.
func (s *streamErrors) message(now chain.Time, err error) string {
	if s.heard && now-s.at < streamErrorEvery {
		s.more++
		return ""
	}
	text := err.Error()
	if s.more > 0 {
		text += fmt.Sprintf(" (and %d stream errors before it that are not shown)", s.more)
	}
	s.heard, s.at, s.more = true, now, 0
	return text
}
