package chain

import (
	"errors"
	"slices"
)

// Switches come and go while the machine runs. If a switch leaves and the chain still needs it
// (Needs), the machine does not forget it at once, but marks it as leaving. The chain gives up a
// leaving member like a failed one, but without waiting for a timeout. The member is fenced, or its
// lease runs out, before the chain without it is installed.

// Want applies a changed topology: the Options Members, FailureTimeout, Rejoin, Length, and those
// for short leases. A chain that exists already keeps its members.
func (m *Machine) Want(o Options) {
	m.o.Members, m.o.FailureTimeout = o.Members, o.FailureTimeout
	m.o.Rejoin, m.o.Length = o.Rejoin, o.Length
	m.o.ShortLease, m.o.ShortTimeout, m.o.ShortAfter = o.ShortLease, o.ShortTimeout, o.ShortAfter
	m.back.SetPolicy(o.Rejoin)
}

// SetSwitches sets the network's switches, in order, and which of them are leaving it. The machine
// forgets all other switches, which the chain must not need.
func (m *Machine) SetSwitches(now Time, switches []string, leaving map[string]bool) {
	for _, s := range switches {
		if m.view[s] == nil {
			m.view[s] = m.newView()
		}
		if m.view[s].leaving = leaving[s]; leaving[s] {
			m.unwant(s)
		}
	}
	for s := range m.view {
		if !slices.Contains(switches, s) {
			delete(m.view, s)
			m.unwant(s)
			m.back.Forget(m.candidate(s))
		}
	}
	m.o.Switches = slices.Clone(switches)
	for _, c := range []*change{m.persisting, m.change} {
		if c != nil && c.joiner != "" && leaving[c.joiner] && !m.cfg.IsMember(c.joiner) {
			m.giveUp(now, errors.New("it leaves the network"))
			break
		}
	}
	m.Tick(now)
}

// Needs reports whether the machine must know a switch even if the switch has left the network.
// That is so while the switch has a part in the chain, or may have one because it is not fenced
// yet.
func (m *Machine) Needs(sw string) bool {
	if m.fence[sw] || !m.decided && m.stale || !m.decided && slices.Contains(m.o.Members, sw) {
		return true
	}
	needs := func(c Config) bool { return m.decided && slices.Contains(c.Learners(), sw) }
	changes := []*change{m.persisting, m.change}
	if m.persisting != nil {
		changes = append(changes, m.persisting.own)
	}
	for _, c := range changes {
		if c != nil && (needs(c.config) || c.then != nil && needs(*c.then) || c.joiner == sw) {
			return true
		}
	}
	return needs(m.cfg)
}
