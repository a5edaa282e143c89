package chain

import (
	"fmt"
	"time"
)

// A joiner is a switch that a chain waits for and that has never had the chain's data. Either it is
// being brought in (recover.go), or a change makes it a member of a chain without keys. Nothing is
// lost if the chain continues without a joiner. So in every stage the chain waits for a joiner no
// longer than for a failed member, whatever FailureTimeout says:
//
//   - A joiner gets LEASEs of duration 0. They do not let it serve, but it answers them. A silent
//     joiner is given up like a member (unheardLeases).
//   - A joiner installs its part of a configuration within stepMost. If it answers calls meanwhile
//     (Working), it may take up to stepsMost times stepMost.
//   - The only member of a chain is frozen for a joiner for about the length of a lease
//     (freezeFor).
//
// An operator's change may always take precedence over a joiner (interrupts).

const (
	// stepMost is how long a joiner may take for one step of an installation. All steps together
	// may take stepsMost times as long.
	stepMost  = time.Second
	stepsMost = 10
	// leastLease and mostLease bound the lease length that joinerLease returns, so that a chain
	// with long leases does not wait for a joiner for minutes.
	leastLease, mostLease = 100 * time.Millisecond, 600 * time.Millisecond
	// freezeMost is the longest time that a chain of one is frozen for a joiner that answers but is
	// slow. If a comparison does not end in time, the next comparison may take twice as long.
	freezeMost = 8 * time.Second
)

// joinerLease returns the lease length from which a joiner's time limits follow.
func (m *Machine) joinerLease() time.Duration {
	if m.cfg.Lease == 0 {
		return mostLease
	}
	return min(max(m.cfg.Lease, leastLease), mostLease)
}

// askEvery returns the time between two LEASEs that probe a joiner. The time is halved if writes
// pass the joiner, or will pass it once it has its part, because these writes wait for the joiner.
// In total, they wait at most for the length of a lease.
func (m *Machine) askEvery() time.Duration {
	if c := m.change; m.cfg.Filling || c != nil && c.joiner != "" && c.stage == joining {
		return m.joinerLease() / (2 * renewals)
	}
	return m.joinerLease() / renewals
}

// joiner returns the switch that is being brought in and is not a member yet, and its stage. It
// returns "" if there is no such switch.
func (m *Machine) joiner() (string, stage) {
	c := m.change
	if m.persisting != nil {
		c = m.persisting
	}
	if c == nil || c.joiner == "" || m.cfg.IsMember(c.joiner) {
		return "", 0
	}
	return c.joiner, c.stage
}

// joins reports whether a switch is a joiner: the chain waits for it, and it has never had the
// chain's data.
func (m *Machine) joins(sw string) bool {
	if !m.decided || m.blank { // a new chain has only joiners, and waits for all of them
		return false
	}
	if j, at := m.joiner(); j == sw {
		return at != erasing
	}
	return m.cfg.IsMember(sw) && !m.installed && !m.holds(sw)
}

// holds reports whether a member has acknowledged its part since it last became a member. A switch
// that left and came back may still have its earlier part, and answer with outdated values.
func (m *Machine) holds(sw string) bool {
	a := m.view[sw].acks
	return a != nil && a.Holds() && a.Epoch >= m.since[sw]
}

// joiners lists the joiners that the chain waits for.
func (m *Machine) joiners() (out []string) {
	if j, _ := m.joiner(); j != "" {
		out = append(out, j)
	}
	for _, s := range m.cfg.Members {
		if m.joins(s) {
			out = append(out, s)
		}
	}
	return out
}

// Joining lists the joiners that the chain waits for.
func (m *Machine) Joining() []string { return m.joiners() }

// interrupts reports whether an operator's change may take precedence over the change that is
// under way, because the latter only serves joiners.
func (m *Machine) interrupts() bool {
	return m.decided && (m.blank && !m.installed || len(m.joiners()) > 0)
}

// asks reports whether a switch gets LEASEs only to test whether it answers.
func (m *Machine) asks(sw string) bool {
	return m.joins(sw) && m.view[sw].up && !m.fence[sw] && !m.leaving(sw)
}

// Working reports that a switch answered a call a moment ago, so its requested installation is
// making progress.
func (m *Machine) Working(now Time, sw string) {
	if v := m.view[sw]; v != nil {
		v.workedAt = now
	}
}

// partBy returns the deadline for a joiner to install its part of the configuration. It returns
// false if no part was sent to the joiner.
func (m *Machine) partBy(sw string) (Time, bool) {
	v := m.view[sw]
	switch {
	case v.partAt == 0:
		return 0, false
	case v.failed: // the joiner has refused its part
		return v.partAt + stepMost, true
	}
	return min(max(v.partAt, v.workedAt)+stepMost, v.partAt+stepsMost*stepMost), true
}

// hangs returns why the chain no longer waits for a connected joiner, or "" if it still does.
func (m *Machine) hangs(now Time, sw string) string {
	v := m.view[sw]
	if !v.up || !v.tested {
		return ""
	}
	by, ok := m.partBy(sw)
	switch {
	case v.lease.unheard >= unheardLeases && now >= v.lease.countAt:
		return "it is connected, and answers no lease"
	case ok && now >= by:
		return "it is connected, and does not take its part"
	case m.freezeUntil > 0 && now >= m.freezeUntil && m.cfg.IsMember(sw):
		return "no write is taken until it has its part, and it has not taken it in time"
	}
	return ""
}

// Untold reports that a session was leased again, and that the session's new record did not reach
// the joiner. A copy that begins later brings the record. If the last copy has already begun, the
// chain gives up the joiner.
func (m *Machine) Untold(now Time, sw string, why error) {
	j, at := m.joiner()
	if j == sw && (at == joining || m.copying != 0 && at != shadowing) {
		m.giveUp(now, fmt.Errorf("it was not told of a session: %w", why))
		m.step(now)
	}
}

// freezeEnds ends a comparison if the chain has been frozen for it long enough. A joiner that
// answers is only slow. So it is compared again, with more time, after the chain has accepted
// writes for a while.
func (m *Machine) freezeEnds(now Time) {
	j, at := m.joiner()
	if m.freezeUntil == 0 || now < m.freezeUntil || j == "" || at != comparing {
		return
	}
	c := m.change
	if m.persisting != nil {
		c = m.persisting
	}
	slow := fmt.Errorf("it was not found equal in %v, in which no write was taken", m.freezeFor/2)
	if m.view[j].lease.unheard > 1 || m.freezeFor >= freezeMost {
		m.giveUp(now, slow)
		return
	}
	m.event("chain.thawed", j, "%v: it is compared again, for longer", slow)
	m.freezeFor *= 2
	n := m.next(m.cfg.Epoch, m.cfg.Members)
	n.Shadow = j
	m.begin(now, n, &change{op: c.op, joiner: j, stage: shadowing})
}

// frozenFor notes how long the chain may stay frozen, once a configuration has been decided.
func (m *Machine) frozenFor(now Time, c *change) {
	switch {
	case c.stage == comparing && c.joiner != "":
		m.frozenAt, m.freezeUntil = now, now+m.freezeFor/2
	case c.stage == joining && c.joiner != "" && m.freezeUntil > 0:
		// Removing the joiner takes another configuration, so some time is kept for that.
		m.freezeUntil = max(m.frozenAt+m.freezeFor*3/4, now+m.joinerLease()/4)
	default:
		m.freezeUntil = 0
	}
}
