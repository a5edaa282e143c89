package calls

import (
	"time"

	"github.com/netcraq/netcraq/api/wire"
)

// roundTrip estimates how long an answer takes (RFC 6298, section 2). What is measured is the time
// from a call's first packet on, whichever copy of it was answered: longer than a round trip where
// one was sent again, never shorter, so that a chain that becomes slow is not asked ever again too
// soon because of all calls that were sent twice none was measured (Karn's rule leaves them out).
type roundTrip struct{ smoothed, variation time.Duration }

// took is told what a call has taken.
func (r *roundTrip) took(d time.Duration) {
	if r.smoothed == 0 {
		r.smoothed, r.variation = max(d, 1), d/2
		return
	}
	r.variation += (max(r.smoothed-d, d-r.smoothed) - r.variation) / 4
	r.smoothed += (d - r.smoothed) / 8
	r.smoothed = max(r.smoothed, 1)
}

// patience is how long an answer to a call is waited for before its packet is sent again the first
// time.
func (m *Machine) patience(c *call) time.Duration {
	fast, most := m.cfg.FastRetransmit, m.cfg.Retransmit
	if fast == 0 || m.trip.smoothed == 0 || c.req.Op != wire.Read && c.session == nil {
		return most
	}
	return min(most, max(fast, m.trip.smoothed+4*m.trip.variation))
}
