package calls

import (
	"time"

	"github.com/netcraq/netcraq/api/wire"
)

// roundTrip estimates how long an answer takes (RFC 6298, section 2). It measures from a call's
// first packet to its answer, no matter which copy was answered. That is longer than a round trip
// if a packet was sent again, and never shorter. Karn's rule leaves such calls out. With it, the
// client of a chain that has become slow would retransmit too early forever, because every call is
// sent twice and none is measured.
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

// patience returns the time to wait for an answer before a call's packet is sent again for the
// first time.
func (m *Machine) patience(c *call) time.Duration {
	fast, most := m.cfg.FastRetransmit, m.cfg.Retransmit
	if fast == 0 || m.trip.smoothed == 0 || c.req.Op != wire.Read && c.session == nil {
		return most
	}
	return min(most, max(fast, m.trip.smoothed+4*m.trip.variation))
}
