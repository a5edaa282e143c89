package chain

import "time"

// The length of leases. The chain continues without a lost member when its lease is over: a short
// lease makes that soon. But a short lease also ends when this controller or the way to a switch is
// held up for a moment, and then reads are refused until it is renewed. So leases are short
// (Options.ShortLease) only while everything is prompt, and have the configured length from the
// first sign of a delay on: a late answer, or a late action of this controller. A missing answer is
// such a sign only after a whole short lease: a member that has died gives none, until its
// connection is seen to end, and that is when leases should be short. Then everything must have
// been prompt for a while before they are short again, for longer if that time lasts ever less
// long.
//
// Nothing is safer or less safe for it: a lease is counted by the duration that it was given, and
// wherever that is not known (a record that an earlier controller left) by the configuration's,
// which is never shorter.
//
// A machine that has just begun knows nothing about how prompt others are.

// holdMost is how long short leases are put off at most.
const holdMost = time.Minute

// pace is when leases are short.
type pace struct {
	shortAt Time          // from then on, if nothing is late until then
	hold    time.Duration // how long that was put off the last time
}

// prompt says whether everything is, so that leases are short.
func (m *Machine) prompt(now Time) bool {
	return m.o.ShortLease > 0 && m.o.ShortLease < m.cfg.Lease && now >= m.pace.shortAt
}

// given is the length of the leases that are given now.
func (m *Machine) given(now Time) time.Duration {
	if m.prompt(now) {
		return m.o.ShortLease
	}
	return m.cfg.Lease
}

// took notes the duration of something that leases wait for. More than a part of a short lease is a
// sign that short leases are not possible.
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
			v.lease.next = now // what was given is over soon
		}
	}
	m.pace.shortAt = now + m.pace.hold
}
