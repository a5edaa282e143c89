package chain

import (
	"fmt"
	"slices"
	"time"

	"github.com/netcraq/netcraq/api/clock"
)

// These constants concern leases. A member answers reads only while its lease lasts by its own
// clock. For a member that it cannot reach, the controller must know a moment by which the lease
// has surely run out. The two clocks may show different times. The controller's clock must not be
// slewed, and the switch's may run slower by the margin of package clock.
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
	// maxLease is the longest lease that a topology may request. No earlier controller can have
	// given a longer lease.
	maxLease = 60 * time.Second
	// renewals is how many times a lease is renewed in its life.
	renewals = 4
)

// margin returns how long a lease of d can last by the controller's clock. The switch's clock may
// be slewed, so it may run slower. The controller's clock is not slewed.
func margin(d time.Duration) time.Duration { return clock.Outlasts(d) }

// prior returns the time at which every lease of length d that an earlier controller gave has run
// out. After m.o.Made, that controller may have continued for PriorLeaseBound by its own clock,
// which may be slewed.
func (m *Machine) prior(d time.Duration) Time { return m.o.Made + margin(m.o.PriorLeaseBound+d) }

// LeasesOver returns the time at which no switch can have a lease any more, if no lease is given
// from now on.
func (m *Machine) LeasesOver(now Time) Time {
	over := now
	for _, v := range m.view {
		over = max(over, v.lease.until)
	}
	return over
}

// leaseView is what the machine knows about a switch's lease.
type leaseView struct {
	heard   bool   // clock and heardAt are valid
	clock   uint64 // the switch's last reported clock, in microseconds
	heardAt Time
	next    Time // when to renew the lease
	probeAt Time // when to probe a switch that gets no lease
	askedAt Time // when the first unanswered LEASE was sent; 0: all are answered
	countAt Time // when another LEASE without an answer counts at the earliest
	until   Time // time when every lease of the switch has run out
	live    Time // when the lease ends, estimated from the switch's last reply
	// unheard counts the LEASEs that were sent since the last reply, or since this controller was
	// last held up if that was later. It counts at most `renewals` LEASEs per length of a full
	// lease.
	unheard int
	excused int // how many times this controller was held up since the last reply

	// number is the number of the newest LEASE. sent counts the LEASEs in this connection. sinceAck
	// counts the LEASEs since the switch acknowledged its epoch.
	number         uint16
	sent, sinceAck int
	// floors holds, by the number of each recent LEASE, the latest clock that the switch had
	// reported before that LEASE was sent. floor is the latest clock that the switch ever reported.
	// A switch that has run without a restart never reports an earlier clock.
	floors [keptLeases]uint64
	floor  uint64
}

// keptLeases is how many LEASEs are remembered for matching replies. It is more than can be under
// way before a switch is given up.
const keptLeases = 64

// connected resets the view for a new connection, because the last reported clock may be from
// before a restart.
func (l *leaseView) connected(now Time) {
	l.heard, l.askedAt, l.sent, l.sinceAck = false, 0, 0, 0
	l.probeAt = now + probeEvery
	l.renew(now)
	l.answered()
}

// numbered counts another LEASE, and returns its number.
func (l *leaseView) numbered() uint16 {
	l.number++
	l.sent++
	l.sinceAck++
	l.floors[l.number%keptLeases] = l.floor
	return l.number
}

// age returns how many LEASEs were sent after the LEASE with this number. It returns false if that
// LEASE was not sent in this connection, or so long ago that its reply proves nothing.
func (l *leaseView) age(number uint16) (int, bool) {
	age := int(l.number - number)
	return age, age < min(l.sent, keptLeases)
}

// renew makes the next LEASE due, as if none had been sent.
func (l *leaseView) renew(now Time) { l.next, l.countAt = now, now }

// answered notes that the switch is not silent.
func (l *leaseView) answered() { l.unheard, l.excused = 0, 0 }

// forget notes that the switch holds no usable lease.
func (l *leaseView) forget() {
	l.heard, l.live, l.askedAt, l.floor = false, 0, 0, 0
	l.answered()
}

// leases reports whether a switch's lease must be renewed.
func (m *Machine) leases(sw string) bool {
	v := m.view[sw]
	return m.decided && v.up && m.cfg.IsMember(sw) && m.holds(sw) && v.acks.LeaseRequired && m.cfg.Lease > 0 &&
		!m.fence[sw] && !m.leaving(sw) && !v.lost
}

// probeEvery is how often a switch that gets no lease is asked for its state.
const probeEvery = time.Second

// probes reports whether the machine sends LEASEs of duration 0 to a switch that gets no lease. It
// does so for a switch that has a part in the chain without being a member, because
// acknowledgements may pass it, and clients may send requests to it. It also does so for a member
// of a chain without leases. Such a switch may lose its content while it is connected, as a member
// may. A missing answer does not count against the switch. (A switch that still has a lease would
// lose it by such a LEASE.)
func (m *Machine) probes(sw string) bool {
	v := m.view[sw]
	return m.decided && v.up && v.acks != nil && !(v.acks.LeaseRequired && v.acks.Role.Member()) && !m.fence[sw] &&
		!m.asks(sw)
}

// leaving reports whether the configuration that is being made durable leaves a switch out.
func (m *Machine) leaving(sw string) bool {
	return m.persisting != nil && !slices.Contains(m.persisting.config.Learners(), sw)
}

// sendLeases renews leases that are due, and probes joiners. A LEASE names the epoch that the
// switch last acknowledged.
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
			if v.tested = asks; asks { // LEASEs that were sent before the test prove nothing
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
		from, clock := now, uint64(0) // the switch's clock is unknown, but at least 0
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

// count counts one more LEASE without an answer.
func (m *Machine) count(now Time, l *leaseView, every time.Duration) {
	if now >= l.countAt {
		l.unheard++
		l.countAt = now + every
	}
}

// shorten makes leases shorter from now on. Leases already given stay as they are.
func (m *Machine) shorten(now Time) {
	m.longer, m.longerUntil = max(m.cfg.Lease, m.longest(now)), max(m.longerUntil, now+margin(m.cfg.Lease))
}

// longest returns the longest lease that a switch can still hold. It may be a lease that was given
// before leases were shortened. It returns 0 if there is none.
func (m *Machine) longest(now Time) time.Duration {
	if now >= m.longerUntil {
		return 0
	}
	return m.longer
}

// Alive reports that a switch answered something other than a LEASE a moment ago. Its answer to the
// last LEASE then waits behind other answers, so the switch is not given up. A switch that is being
// filled, or that runs on an overloaded machine, is slow but not dead.
func (m *Machine) Alive(sw string) {
	if v := m.view[sw]; v != nil {
		v.lease.answered()
	}
}

// Late reports that this controller was itself held up (for example, by an overloaded machine), and
// acts only now although it should have acted `by` earlier. It has not read messages that came
// meanwhile either, so a missing answer proves nothing. So the machine counts unanswered LEASEs
// from zero again. It does so a bounded number of times for a silent member, because even a
// controller that is always late must give up a dead member. Late returns whether the delay was
// long enough to count.
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
		v.workedAt = now // a switch may have answered while this controller was held up
	}
	return true
}

// LeaseAnswer is a switch's reply to a LEASE.
type LeaseAnswer struct {
	Number  uint16        // number of the LEASE that is answered
	Clock   uint64        // the switch's clock, in microseconds
	Left    time.Duration // remaining time of the switch's lease
	Epoch   uint16        // epoch of the switch's configuration; 0: it has none
	Granted bool          // whether the LEASE named the switch's epoch
}

// LeaseReply handles a switch's answer to a LEASE.
//
// If a LEASE was sent after the switch's last report, and its reply contradicts that report, the
// switch has changed. If the reply has another epoch than the switch last acknowledged, the switch
// was emptied, or another controller is changing it. If it has an earlier clock, the switch was
// restarted.
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
		// A LEASE that named the clock from before the restart may have given the switch a longer
		// lease than intended.
		l.until = max(l.until, now+margin(r.Left))
		m.mistrust(now, sw, "its clock has gone back: it was restarted")
		return
	}
	if l.heard && r.Clock == l.clock { // the switch answered another LEASE in the same microsecond
		l.answered()
	}
	if l.heard && r.Clock <= l.clock { // an older reply that arrived late
		return
	}
	l.floor = max(l.floor, r.Clock)
	counts := v.tested || m.leases(sw) // other LEASEs only ask for the switch's state, and need no answer
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
	if first { // the first LEASE could not name the switch's clock, but the next LEASE can
		l.renew(now)
	}
	m.step(now)
}

// mistrust handles a switch that contradicts its known state. The controller reads it again in
// another connection, and treats it as if it had come back with empty registers (compare).
// Unchanged tables prove nothing, because the switch's agent may have outlived its data plane and
// filled the tables again.
func (m *Machine) mistrust(now Time, sw, why string) {
	m.view[sw].mistrusted = true
	m.event("lease.refused", sw, "%s; what it has is read again", why)
	m.do(Reconnect{Switch: sw, Why: why})
	m.SwitchDown(now, sw)
}
