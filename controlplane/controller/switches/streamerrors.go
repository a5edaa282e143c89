package switches

import (
	"fmt"
	"time"

	"github.com/netcraq/netcraq/controlplane/chain"
)

// streamErrorEvery is the minimum time between two events about a switch's stream errors.
const streamErrorEvery = time.Second

// streamErrors turns at most one stream error per second into an event, and counts all other
// errors. A switch that has no program yet answers every packet with an error, and a hostile switch
// can send any number of errors. The controller has room for a bounded number of events of all
// switches.
type streamErrors struct {
	heard bool
	at    chain.Time // time of the last event about a stream error
	more  int        // number of errors since the last event
}

// message returns the text of an event for an error that comes now. It returns "" if the error is
// only counted.
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
