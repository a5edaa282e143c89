package chain

import (
	"fmt"
	"slices"
	"time"

	"github.com/netcraq/netcraq/api/clock"
)

// Leases. A member answers reads only while its lease lives, which it judges by its own clock. For
// a member that it cannot reach, the controller must know a moment by which the lease has run out.
// The two clocks may show different times. The controller's must not be slewed, and the switch's
// may run slower by the margin of package clock.
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

// margin is how long a lease of d can last on our clock, which is not slewed, while the switch's
// may be.
func margin(d time.Duration) time.Duration { return clock.Outlasts(d) }

// prior is when everything is over that was given for d, at the latest, by an earlier controller.
// It may have gone on giving for PriorLeaseBound by a clock of its own, which may be slewed.
func (m *Machine) prior(d time.Duration) Time { return m.o.Made + margin(m.o.PriorLeaseBound+d) }

// LeasesOver is when no switch can have a lease any more, if none is given from now on.
func (m *Machine) LeasesOver(now Time) Time {
	over := now
	for _, v := range m.view {
		over = max(over, v.lease.until)
	}
	return over
}

// leaseView is what is known about a switch's lease.
type leaseView struct {
	heard   bool   // clock and heardAt are valid
	clock   uint64 // microseconds, as the switch last said
	heardAt Time
	next    Time // when to renew
	probeAt Time // when to ask one that is given no lease what it has
	askedAt Time // when the first LEASE was sent that has no answer yet; 0: all have one
	countAt Time // from when on another LEASE without an answer counts
	until   Time // it has run out by then, whatever happens
	live    Time // by its last reply, it lives until about then
	// unheard is how many LEASEs were sent since the last reply, and since this controller was held
	// up: at most renewals of them in the life of a whole lease.
	unheard int
	excused int // how many times since the last reply this controller was held up

	// number is that of the newest LEASE; sent counts LEASEs in this connection, and sinceAck those
	// since the switch acknowledged its epoch.
	number         uint16
	sent, sinceAck int
	// floors has, by the numbers of the last LEASEs, the latest clock that was heard when they were
	// sent, and floor the latest of all. A switch that has run since says no earlier one.
	floors [keptLeases]uint64
	floor  uint64
}

// keptLeases is how many LEASEs are remembered, for their replies. It is more than are under way
// where a switch is not given up.
const keptLeases = 64

// connected: the clock that was heard may be that of the switch before it was restarted.
func (l *leaseView) connected(now Time) {
	l.heard, l.askedAt, l.sent, l.sinceAck = false, 0, 0, 0
	l.probeAt = now + probeEvery
	l.renew(now)
	l.answered()
}

// numbered is the number of another LEASE.
func (l *leaseView) numbered() uint16 {
	l.number++
	l.sent++
	l.sinceAck++
	l.floors[l.number%keptLeases] = l.floor
	return l.number
}

// age is how many LEASEs were sent after one of a number, and false if that was not sent in this
// connection, or so long ago that its reply says nothing.
func (l *leaseView) age(number uint16) (int, bool) {
	age := int(l.number - number)
	return age, age < min(l.sent, keptLeases)
}

// renew: the next LEASE is due, as if there had been none before.
func (l *leaseView) renew(now Time) { l.next, l.countAt = now, now }

// answered: it is not silent.
func (l *leaseView) answered() { l.unheard, l.excused = 0, 0 }

// forget: it holds no lease that it could use.
func (l *leaseView) forget() {
	l.heard, l.live, l.askedAt, l.floor = false, 0, 0, 0
	l.answered()
}

// leases says whether a switch's lease is to be renewed.
func (m *Machine) leases(sw string) bool {
	v := m.view[sw]
	return m.decided && v.up && m.cfg.IsMember(sw) && m.holds(sw) && v.acks.LeaseRequired && m.cfg.Lease > 0 &&
		!m.fence[sw] && !m.leaving(sw) && !v.lost
}

// probeEvery is how often a switch that is given no lease is asked what it has.
const probeEvery = time.Second

// probes says whether a switch is asked, by LEASEs of 0, that is given no lease: one that has a
// part in the chain without being a member (acknowledgements may pass it, and clients ask it), and
// a member of a chain without leases. It may have been emptied while it is connected, as a member
// may. That it does not answer says nothing against it. (One that goes by a lease yet would lose
// it.)
func (m *Machine) probes(sw string) bool {
	v := m.view[sw]
	return m.decided && v.up && v.acks != nil && !(v.acks.LeaseRequired && v.acks.Role.Member()) && !m.fence[sw] &&
		!m.asks(sw)
}

// leaving: the configuration that is being made durable is without it.
func (m *Machine) leaving(sw string) bool {
	return m.persisting != nil && !slices.Contains(m.persisting.config.Learners(), sw)
}

// sendLeases renews leases that are due, and asks joiners. A switch has the epoch that it last
// acknowledged until it acknowledges another.
func (m *Machine) sendLeases(now Time) {
	for _, s := range m.o.Switches {
		if l := &m.view[s].lease; m.leases(s) && now >= l.next && l.askedAt > 0 {
			m.took(now, now-l.askedAt, m.o.ShortLease)
		}
	}
	for _, s := range m.o.Switches {
		v := m.view[s]
		l := &v.lease
		if asks := m.asks(s); asks != v.tested {
			if v.tested = asks; asks { // what it did not answer before it was asked says nothing
				l.answered()
				l.renew(now)
			}
		}
		if m.probes(s) && now >= l.probeAt {
			l.probeAt = now + probeEvery
			m.do(Lease{Switch: s, Number: l.numbered(), Epoch: v.acks.Epoch})
		}
		if !v.tested && !m.leases(s) || now < l.next {
			continue
		}
		if v.tested {
			every := m.askEvery()
			l.next = now + every
			m.count(now, l, every)
			a := Lease{Switch: s, Number: l.numbered(), Every: every}
			if l.heard {
				a.Clock = l.clock
			}
			if v.acks != nil {
				a.Epoch = v.acks.Epoch
			}
			m.do(a)
			continue
		}
		from, clock := now, uint64(0) // its clock is unknown, but not below 0
		if l.heard {
			from, clock = l.heardAt, l.clock
		}
		d := m.given(now)
		l.next = now + d/renewals
		l.until = max(l.until, from+margin(d))
		m.count(now, l, m.cfg.Lease/renewals)
		if l.askedAt == 0 {
			l.askedAt = now
		}
		m.do(Lease{Switch: s, Number: l.numbered(), Epoch: v.acks.Epoch, Clock: clock, Duration: d,
			Every: d / renewals})
	}
}

// count counts a LEASE that has no answer yet.
func (m *Machine) count(now Time, l *leaseView, every time.Duration) {
	if now >= l.countAt {
		l.unheard++
		l.countAt = now + every
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
		v.lease.answered()
	}
}

// Late: this controller was itself held up (a starved machine), and only now does what was due `by`
// ago. It has not looked at messages that came meanwhile either, so a missing answer proves
// nothing: it renews, and judges members again. It does so a bounded number of times for a member
// that stays silent, because a controller that is always late must also give a dead member up. It
// returns whether the delay was long enough to count.
func (m *Machine) Late(now Time, by time.Duration) bool {
	m.took(now, by, m.o.ShortLease/renewals)
	if m.cfg.Lease == 0 || by <= m.cfg.Lease/renewals/2 {
		return false
	}
	for _, v := range m.view {
		if l := &v.lease; l.unheard > 0 && l.excused < mostExcused {
			l.unheard = 0
			l.excused++
		}
		v.workedAt = now // as far as is known
	}
	return true
}

// LeaseAnswer is a switch's reply to a LEASE.
type LeaseAnswer struct {
	Number  uint16        // of the LEASE
	Clock   uint64        // its clock, in microseconds
	Left    time.Duration // rest of its lease
	Epoch   uint16        // of its configuration; 0: none
	Granted bool          // false: the LEASE named another epoch
}

// LeaseReply: a switch has answered a LEASE.
//
// If a LEASE was sent after the switch's last report, and its reply contradicts that report, the
// switch has changed. With another epoch than the one acknowledged before, the switch was emptied,
// or another controller changes it. With an earlier clock it was restarted.
func (m *Machine) LeaseReply(now Time, sw string, r LeaseAnswer) {
	v := m.view[sw]
	if v == nil || !v.up {
		return
	}
	l := &v.lease
	age, ok := l.age(r.Number)
	if !ok {
		return
	}
	if r.Clock < l.floors[r.Number%keptLeases] {
		// A LEASE that named the clock of before may have given it a longer one than was meant.
		l.until = max(l.until, now+margin(r.Left))
		m.mistrust(now, sw, "its clock has gone back: it was restarted")
		return
	}
	if l.heard && r.Clock == l.clock { // to another LEASE, in the same microsecond
		l.answered()
	}
	if l.heard && r.Clock <= l.clock { // an older one that was overtaken
		return
	}
	l.floor = max(l.floor, r.Clock)
	counts := v.tested || m.leases(sw) // otherwise it was only asked what it has
	first := counts && !l.heard
	if counts {
		if l.askedAt > 0 {
			m.took(now, now-l.askedAt, m.o.ShortLease/4*3)
			l.askedAt = 0
		}
		l.answered()
		l.heard, l.clock, l.heardAt = true, r.Clock, now
	}
	if r.Granted {
		l.live = now + r.Left
	} else if a := v.acks; a != nil && age < l.sinceAck && r.Epoch != a.Epoch &&
		!(r.Epoch > a.Epoch && r.Epoch <= v.asked) {
		m.mistrust(now, sw, fmt.Sprintf("it has epoch %d, and not %d, which it acknowledged: it was emptied, or somebody "+
			"else changes it", r.Epoch, a.Epoch))
		return
	}
	if first { // the first LEASE could not name the clock; this one can
		l.renew(now)
	}
	m.step(now)
}

// mistrust: a switch is not what it was. It is read again, in another connection, and judged as one
// that has come back with empty registers (compare). That its tables are as they were says nothing:
// its agent may have outlived its data plane, and have filled the tables again.
func (m *Machine) mistrust(now Time, sw, why string) {
	m.view[sw].mistrusted = true
	m.event("lease.refused", sw, "%s; what it has is read again", why)
	m.do(Reconnect{Switch: sw, Why: why})
	m.SwitchDown(now, sw)
}
