package calls

import (
	"time"

	"github.com/netcraq/netcraq/api/wire"
)

// roundTrip estimates how long an answer takes (RFC 6298, section 2). It measures from a call's
// first packet to the call's answer, no matter which copy was answered. If a packet was sent again,
// that is longer than a round trip; it is never shorter. Karn's rule would leave out such calls.
// With that rule, the client of a chain that has become slow would retransmit too early forever,
// because it would send every packet twice and measure none.
type roundTrip struct{ smoothed, variation time.Duration }

// took records the duration of a call.
func (r *roundTrip) took(d time.Duration) {
	if r.smoothed == 0 {
		r.smoothed, r.variation = max(d, 1), d/2
		return
	}
	r.variation += (max(r.smoothed-d, d-r.smoothed) - r.variation) / 4
	r.smoothed += (d - r.smoothed) / 8
	r.smoothed = max(r.smoothed, 1)
}

// patience returns how long the machine waits for an answer before it sends the call's packet for
// the second time.
func (m *Machine) patience(c *call) time.Duration {
	fast, most := m.cfg.FastRetransmit, m.cfg.Retransmit
	if fast == 0 || m.trip.smoothed == 0 || c.req.Op != wire.Read && c.session == nil {
		return most
	}
	return min(most, max(fast, m.trip.smoothed+4*m.trip.variation))
}
