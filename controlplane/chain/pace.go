package chain

import "time"

// This file chooses the length of leases. The chain continues without a lost member when that
// member's lease has run out, which is sooner if leases are short. But a short lease also runs out
// when this controller or the path to a switch is held up for a moment. Then reads are refused
// until the lease is renewed. So leases are short (Options.ShortLease) only while everything is
// prompt. They have the configured length from the first sign of a delay on: a late answer, or a
// late action of this controller. A missing answer counts as such a sign only after a whole short
// lease. The reason is that a dead member does not answer until its connection is seen to end, and
// leases should be short in that case. After a delay, everything must be prompt for a while before
// leases are short again. The required time grows if delays come back at ever shorter intervals.
//
// Safety does not depend on this. Each lease counts with the duration that it was given. If that is
// not known (an earlier controller gave it), the configuration's duration counts, which is never
// shorter.
//
// A machine that has just started does not know how prompt the switches are.

// holdMost is the longest time for which short leases are postponed.
const holdMost = time.Minute

// pace decides when leases are short.
type pace struct {
	shortAt Time          // leases become short at this time, unless something is late before
	hold    time.Duration // duration of the last postponement of short leases
}

// prompt reports whether everything is prompt, so that leases are short.
func (m *Machine) prompt(now Time) bool {
	return m.o.ShortLease > 0 && m.o.ShortLease < m.cfg.Lease && now >= m.pace.shortAt
}

// given returns the length of the leases that are given now.
func (m *Machine) given(now Time) time.Duration {
	if m.prompt(now) {
		return m.o.ShortLease
	}
	return m.cfg.Lease
}

// took notes that a step for which leases wait has taken the time d. If d is longer than most,
// which is a fraction of a short lease, short leases are not possible for now.
func (m *Machine) took(now Time, d, most time.Duration) {
	if m.o.ShortLease == 0 || d <= most {
		return
	}
	if m.prompt(now) {
		hold := m.o.ShortAfter
		if now-m.pace.shortAt < m.pace.hold {
			hold = min(2*m.pace.hold, holdMost)
		}
		m.pace.hold = hold
		for _, v := range m.view {
			// give a lease at once, because the switch's present lease runs out soon
			v.lease.next = now
		}
	}
	m.pace.shortAt = now + m.pace.hold
}
