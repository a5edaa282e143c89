package chain

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Change is an operator's change of a chain. Settings whose fields are nil stay as they are.
type Change struct {
	Lease   *time.Duration
	Frozen  *bool
	Members []string
	// Rest says that switches that are missing in Members leave only for a while. They stay
	// intended members of the chain, and come back by Recover or automatically (rejoin.go).
	Rest bool
}

// Propose changes a running chain. Done reports either that all members have the new configuration
// or why the change failed.
func (m *Machine) Propose(now Time, op OpID, ch Change) {
	interrupts := m.Phase(now) != Ready && m.interrupts()
	next, reorder, err := m.plan(now, ch)
	if err != nil {
		m.do(Done{op, err})
		return
	}
	var wanted []string
	if ch.Members != nil && !ch.Rest {
		wanted = slices.Clone(next.Members)
	}
	same := slices.Equal(next.Members, m.cfg.Members) && next.Freeze == m.cfg.Freeze
	switch {
	case interrupts:
		m.begin(now, next, &change{op: op, wanted: wanted})
	case same && next.Lease == m.cfg.Lease:
		m.settleFor(now, op, wanted)
	case reorder:
		// Drain under the old order with the head frozen. After that, all members hold the same
		// data, and any order is as good as any other.
		drain := m.next(m.cfg.Epoch, m.cfg.Members)
		drain.Freeze = FreezeHead
		// A switch that the new order leaves out stays an intended member until the new order is
		// installed.
		m.begin(now, drain, &change{op: op, then: &next, after: wanted})
	case same && next.Lease > 0 && next.Lease < m.cfg.Lease:
		// The switches need no new configuration, because each LEASE says how long it lasts.
		// Shorter leases take effect as the longer leases run out. (If leases become longer, that
		// must be on record before the first longer lease is given, so that the next controller
		// knows about it.)
		m.shorten(now)
		m.cfg.Lease = next.Lease
		if wanted != nil {
			m.wanted = wanted
		}
		m.saveFor(now, op)
		for _, v := range m.view {
			v.lease.renew(now)
		}
	default:
		m.begin(now, next, &change{op: op, wanted: wanted})
	}
	m.step(now)
}

// settleFor ends an operation that leaves the chain's configuration as it is. If members are
// missing and wanted is not nil, wanted becomes the list of intended members, so the chain no
// longer waits for the missing members.
func (m *Machine) settleFor(now Time, op OpID, wanted []string) {
	if wanted != nil && len(m.missing()) > 0 {
		m.wanted, m.short, m.unsaved = wanted, false, true
	}
	if m.unsaved {
		m.saveFor(now, op)
	} else {
		m.do(Done{op, nil})
	}
}

// saveFor makes an operation's changes durable, and ends the operation when the record is saved.
func (m *Machine) saveFor(now Time, op OpID) {
	m.save(now)
	m.saving[m.seq] = op
}

// saved ends the operation that waits for a record.
func (m *Machine) saved(seq uint64, err error) {
	op, ok := m.saving[seq]
	if !ok {
		return
	}
	delete(m.saving, seq)
	if err != nil {
		err = fmt.Errorf("%w: it is so now, and could not be recorded, so a controller that starts does not know it (try again): %w",
			ErrUnavailable, err)
	}
	m.do(Done{op, err})
}

// plan returns the configuration that a change leads to, and whether the chain must drain first.
func (m *Machine) plan(now Time, ch Change) (next Config, reorder bool, err error) {
	fail := func(kind error, format string, args ...any) (Config, bool, error) {
		return Config{}, false, fmt.Errorf("%w: "+format, append([]any{kind}, args...)...)
	}
	members := m.cfg.Members
	if ch.Members != nil {
		members = ch.Members
	}
	switch coming := m.joiners(); {
	case m.Phase(now) == Ready:
	case m.Phase(now) == Discovering || !m.interrupts():
		return fail(ErrUnavailable, "the chain is being set up or changed (%s): try again when it is ready", m.Status(0).Reason)
	case ch.Members == nil || m.holdsData() && !inOrder(members, m.cfg.Members) ||
		slices.ContainsFunc(members, func(s string) bool { return slices.Contains(coming, s) }):
		return fail(ErrUnavailable, "%s is being brought in: wait for the end of that, or end it by a change of the "+
			"members to some of the others, in their order", strings.Join(coming, ", "))
	}
	next = m.next(m.cfg.Epoch, members)
	if ch.Lease != nil {
		next.Lease = *ch.Lease
		if next.Lease < 0 || next.Lease > maxLease || next.Lease > 0 && next.Lease < 20*time.Millisecond {
			return fail(ErrInvalid, "a lease of %v: give 20 ms to %v, or 0 for none", next.Lease, maxLease)
		}
	}
	if ch.Frozen != nil {
		next.Freeze = Thawed
		if *ch.Frozen {
			next.Freeze = FreezeAll
		}
	}
	if len(members) == 0 {
		return fail(ErrInvalid, "a chain needs at least one member")
	}
	var joining, away []string
	for i, s := range members {
		switch {
		case m.view[s] == nil:
			return fail(ErrInvalid, "there is no switch %q: the switches are %s", s, strings.Join(m.o.Switches, ", "))
		case m.view[s].leaving:
			return fail(ErrInvalid, "the switch %q leaves the network", s)
		case slices.Contains(members[:i], s):
			return fail(ErrInvalid, "the switch %s is there twice", s)
		case !m.cfg.IsMember(s) || m.view[s].lost:
			joining = append(joining, s)
		}
		if !m.view[s].up {
			away = append(away, s)
		}
	}
	if len(joining) > 0 && m.holdsData() {
		return fail(ErrRefused, "%s would start empty: a chain that holds keys grows by recovery, one switch at a time, and behind its tail", strings.Join(joining, ", "))
	}
	// the switches in old may hold outdated values, and all others have lost the values
	if _, old := m.empty(joining); len(old) > 0 && m.holdsKeys() {
		return fail(ErrRefused, "%s may hold values of before: when the chain is ready it can be brought in, empty (recover)", strings.Join(old, ", "))
	}
	if len(away) > 0 {
		return fail(ErrUnavailable, "%s must have the new configuration and is not connected: try again, or leave it out", strings.Join(away, ", "))
	}
	// Even when only reserved epochs are left, members may leave and the chain may be thawed.
	if m.sparing() && (len(joining) > 0 || !inOrder(members, m.cfg.Members) || next.Lease != m.cfg.Lease ||
		next.Freeze != m.cfg.Freeze && next.Freeze != Thawed) {
		return fail(ErrRefused, "the chain has used %d of its %d epochs: %s", m.cfg.Epoch, MaxEpoch, usedUp)
	}
	reorder = m.holdsData() && !inOrder(members, m.cfg.Members)
	if reorder && next.Freeze != Thawed || reorder && m.cfg.Freeze != Thawed {
		return fail(ErrRefused, "a frozen chain cannot change its order: what is on its way could not be finished first")
	}
	return next, reorder, nil
}

// inOrder reports whether some equals all after zero or more members are removed from all.
func inOrder(some, all []string) bool {
	for _, s := range all {
		if len(some) > 0 && some[0] == s {
			some = some[1:]
		}
	}
	return len(some) == 0
}
