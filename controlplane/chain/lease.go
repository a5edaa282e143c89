package chain

import "time"

// Leases. A member answers reads only while its lease lives, which it judges by its own clock. The
// controller must know, of a member that it can not reach, a moment by which the lease has run out;
// both clocks may be anything, they only have to run at nearly the same rate.
//
// A LEASE says: "from your clock's time c on, for d". c was in a reply that the controller received
// at its own time r, and the switch read its clock before that reply left. So at the controller's
// time r + d, at the latest, c + d has passed on the switch's clock, however late the LEASE
// arrives, and however often.
//
//	controller   ───────────────── r ───── send ─────────────────────── r + d: surely over
//	                              ↗ c          ↘ lease(c, d)
//	switch       ──────── c ─────────────────────── ... answers reads ─── c + d: over
const (
	// maxLease is the longest lease that a topology may ask for; an unknown earlier controller gave
	// none that is longer.
	maxLease = 60 * time.Second
	// renewals is how many times a lease is renewed in its life.
	renewals = 4
)

// margin is how long a lease of d can last on our clock: a hundredth more, for clocks that do not
// run at the same rate. (Crystals differ by a ten-thousandth.)
func margin(d time.Duration) time.Duration { return d + d/100 }

// leaseView is what is known of a switch's lease.
type leaseView struct {
	heard   bool   // clock and heardAt are valid
	clock   uint64 // microseconds, as the switch last said
	heardAt Time
	next    Time // when to renew
	until   Time // it has run out by then, whatever happens
	live    Time // by its last reply, it lives until about then
	unheard int  // LEASEs sent since the last reply
	refused int  // how many replies in a row said that the epoch is not its own
}

// connected: the clock that was heard may be that of the switch before it was restarted.
func (l *leaseView) connected(now Time) { l.heard, l.next, l.unheard = false, now, 0 }

// forget: it holds no lease that it could use.
func (l *leaseView) forget() { l.heard, l.live, l.unheard = false, 0, 0 }

// leases says whether a switch's lease is to be renewed.
func (m *Machine) leases(sw string) bool {
	v := m.view[sw]
	return m.decided && v.up && v.acks != nil && v.acks.LeaseRequired && v.acks.Role.Member() && m.cfg.Lease > 0 &&
		m.cfg.IsMember(sw) && !m.fence[sw] && !m.leaving(sw)
}

// leaving: the configuration that is being made durable is without it.
func (m *Machine) leaving(sw string) bool {
	return m.persisting != nil && !m.persisting.config.IsMember(sw)
}

// sendLeases renews what is due. A switch has the epoch that it last acknowledged until it
// acknowledges another.
func (m *Machine) sendLeases(now Time) {
	for _, s := range m.o.Switches {
		if !m.leases(s) {
			continue
		}
		l := &m.view[s].lease
		if now < l.next {
			continue
		}
		from, clock := now, uint64(0) // its clock is unknown, but not below 0
		if l.heard {
			from, clock = l.heardAt, l.clock
		}
		l.until = max(l.until, from+margin(m.cfg.Lease))
		l.next = now + m.cfg.Lease/renewals
		l.unheard++
		m.do(Lease{Switch: s, Epoch: m.view[s].acks.Epoch, Clock: clock, Duration: m.cfg.Lease})
	}
}

// shorten: from now on leases are shorter. What was given is not.
func (m *Machine) shorten(now Time) {
	m.longer, m.longerUntil = max(m.cfg.Lease, m.longest(now)), max(m.longerUntil, now+margin(m.cfg.Lease))
}

// longest is the longest lease that a switch can hold from before it was made shorter; 0: none.
func (m *Machine) longest(now Time) time.Duration {
	if now >= m.longerUntil {
		return 0
	}
	return m.longer
}

// Alive: a switch has answered something else a moment ago. Its answer to the last LEASE then waits
// among others, and it is not given up for that: a switch that is being filled, or a machine that
// is short of processors, is slow and not dead.
func (m *Machine) Alive(sw string) {
	if v := m.view[sw]; v != nil {
		v.lease.unheard = 0
	}
}

// LeaseReply: a switch has answered a LEASE. clock is its clock in microseconds, left what is left
// of its lease, granted is false where it has another epoch.
func (m *Machine) LeaseReply(now Time, sw string, clock uint64, left time.Duration, granted bool) {
	v := m.view[sw]
	if v == nil {
		return
	}
	l := &v.lease
	if !v.up || l.heard && clock <= l.clock { // an older one that was overtaken
		return
	}
	first := !l.heard
	l.unheard = 0
	l.heard, l.clock, l.heardAt = true, clock, now
	switch {
	case granted:
		l.live, l.refused = now+left, 0
	case v.installs == 0 && v.acks != nil:
		// One can have been on its way while the epoch changed.
		if l.refused++; l.refused == 3 {
			m.event("lease.refused", sw, "it has another epoch than the %d that it acknowledged: somebody else changes it", v.acks.Epoch)
			if m.has(sw) {
				m.install(now, sw)
			}
		}
	}
	if first { // the first LEASE could not name the clock; this one can
		l.next = now
	}
	m.step(now)
}
