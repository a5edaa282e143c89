package chain

import (
	"fmt"
	"time"
)

// Joiners: switches that a chain waits for and that have never had its data. One is being brought
// in (recover.go), or a change of a chain without keys makes it a member. Nothing is lost if the
// chain continues without a joiner, so it waits for one no longer than for a member that has
// failed, whatever FailureTimeout says, and in every stage:
//
//   - A joiner gets LEASEs of duration 0. It can do nothing with those, but it answers them. One
//     that is silent is given up like a member (unheardLeases).
//   - A joiner takes its part of a configuration within stepMost, or its calls are answered
//     meanwhile (Working), for stepsMost times stepMost at most.
//   - The only member of a chain is frozen for a joiner for about a lease (freezeFor).
//
// An operator's change may always come before a joiner (interrupts).

const (
	// stepMost is how long a joiner may take for one step of an installation, and stepsMost the
	// multiple of that for all steps.
	stepMost  = time.Second
	stepsMost = 10
	// A joiner is judged as if leases were this long, at least and at most: nothing of a chain
	// whose leases are long waits for it for minutes.
	leastLease, mostLease = 100 * time.Millisecond, 600 * time.Millisecond
	// freezeMost is how long a chain of one is frozen at most for a joiner that answers and is
	// slow: each time that the comparison has not ended in its time the next one has twice as long.
	freezeMost = 8 * time.Second
)

// joinerLease is how long leases are taken to be where a joiner is judged.
func (m *Machine) joinerLease() time.Duration {
	if m.cfg.Lease == 0 {
		return mostLease
	}
	return min(max(m.cfg.Lease, leastLease), mostLease)
}

// askEvery is how often a joiner is asked whether it is there. Where writes pass it, or will when
// it has its part, they wait for it, and for no longer than a lease altogether.
func (m *Machine) askEvery() time.Duration {
	if c := m.change; m.cfg.Filling || c != nil && c.joiner != "" && c.stage == joining {
		return m.joinerLease() / (2 * renewals)
	}
	return m.joinerLease() / renewals
}

// joiner is the switch that is being brought in and is not a member yet, and its stage; "": there
// is none.
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

// joins says whether a switch is one that the chain waits for.
func (m *Machine) joins(sw string) bool {
	if !m.decided || m.blank { // a chain that is made has joiners alone, and waits for all of them
		return false
	}
	if j, at := m.joiner(); j == sw {
		return at != erasing
	}
	return m.cfg.IsMember(sw) && !m.installed && !m.holds(sw)
}

// holds says whether what a member has is a part that it has had as the member that it is. One that
// left and came back may have the part of before, and answer by it what was right then.
func (m *Machine) holds(sw string) bool {
	a := m.view[sw].acks
	return a != nil && a.Holds() && a.Epoch >= m.since[sw]
}

// joiners are the switches that the chain waits for.
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

// Joining is the switches that the chain waits for.
func (m *Machine) Joining() []string { return m.joiners() }

// interrupts says whether an operator's change may come before what is under way, because that is
// for joiners.
func (m *Machine) interrupts() bool {
	return m.decided && (m.blank && !m.installed || len(m.joiners()) > 0)
}

// asks says whether a switch gets LEASEs only to see whether it answers.
func (m *Machine) asks(sw string) bool {
	return m.joins(sw) && m.view[sw].up && !m.fence[sw] && !m.leaving(sw)
}

// Working: a call to a switch has been answered a moment ago, so its requested installation is
// under way.
func (m *Machine) Working(now Time, sw string) {
	if v := m.view[sw]; v != nil {
		v.workedAt = now
	}
}

// partBy is when a joiner must have taken its part of the configuration that was sent to it; false:
// nothing was.
func (m *Machine) partBy(sw string) (Time, bool) {
	v := m.view[sw]
	switch {
	case v.partAt == 0:
		return 0, false
	case v.failed: // it has refused
		return v.partAt + stepMost, true
	}
	return min(max(v.partAt, v.workedAt)+stepMost, v.partAt+stepsMost*stepMost), true
}

// hangs says why the chain no longer waits for a connected joiner; "": it does.
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

// Untold: the record of a session that is leased again did not reach the joiner. A copy that begins
// later finds the record by itself; but the last one has begun.
func (m *Machine) Untold(now Time, sw string, why error) {
	j, at := m.joiner()
	if j == sw && (at == joining || m.copying != 0 && at != shadowing) {
		m.giveUp(now, fmt.Errorf("it was not told of a session: %w", why))
		m.step(now)
	}
}

// freezeEnds ends a comparison for which the chain has been frozen for long enough. A joiner that
// answers is slow, and is compared again when writes have been taken, with more time.
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

// frozenFor notes for how long the chain may be frozen, when a configuration has been decided.
func (m *Machine) frozenFor(now Time, c *change) {
	switch {
	case c.stage == comparing && c.joiner != "":
		m.frozenAt, m.freezeUntil = now, now+m.freezeFor/2
	case c.stage == joining && c.joiner != "" && m.freezeUntil > 0:
		// To be without it takes another configuration.
		m.freezeUntil = max(m.frozenAt+m.freezeFor*3/4, now+m.joinerLease()/4)
	default:
		m.freezeUntil = 0
	}
}
