package chain

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Failover decides which members are considered failed, and makes the chain without them. Safety
// does not depend on these decisions. Even if a live member is given up, it is fenced, or its lease
// runs out, before the shorter chain is installed (advance). The same happens if an operator
// removes a member.

// unheardLeases is how many LEASEs in a row may stay unanswered. It counts LEASEs instead of time,
// so a controller that was itself stopped for a while gives up no member. If the controller is
// held up again and again, the count restarts at most mostExcused times (Machine.Late).
const (
	unheardLeases = renewals + 1
	mostExcused   = 3 * unheardLeases
)

// stranger is a factor. A controller that has just started waits stranger times FailureTimeout for
// a member that has not connected to it yet.
const stranger = 10

// givenUpAt returns the time from which a member that is not connected counts as failed.
func (m *Machine) givenUpAt(sw string) (Time, bool) {
	v := m.view[sw]
	if v.up || !m.cfg.IsMember(sw) {
		return 0, false
	}
	if m.o.FailureTimeout == 0 && !v.leaving {
		return v.downAt + stepMost, m.joins(sw) && v.met
	}
	// This wait also applies to a leaving member, because fencing it when it connects is better
	// than waiting for its lease.
	if !v.met {
		return stranger * max(m.o.FailureTimeout, 200*time.Millisecond), true
	}
	if v.leaving {
		return v.downAt, true
	}
	if v.quick && m.o.ShortTimeout < m.o.FailureTimeout {
		return v.downAt + m.o.ShortTimeout, true
	}
	return v.downAt + m.o.FailureTimeout, true
}

// suspect returns why a member is considered failed, or "" if it is not.
func (m *Machine) suspect(now Time, sw string) string {
	v := m.view[sw]
	at, ok := m.givenUpAt(sw)
	switch {
	case v.leaving && (v.up || ok && now >= at):
		return "it leaves the network"
	case m.blank:
		return ""
	case ok && now >= at:
		return "it is out of reach"
	case m.joins(sw):
		return m.hangs(now, sw)
	}
	if m.o.FailureTimeout > 0 && v.up && m.leases(sw) && v.lease.unheard >= unheardLeases && now >= v.lease.countAt {
		return "it is connected, and answers no lease"
	}
	return ""
}

// givenUp reports whether the configuration that the machine is making durable leaves out a member
// that has failed. Such a member gets no more leases, so the controller hears nothing from it. It
// stays given up until that is done. Otherwise two silent members would be given up in turn
// whenever persisting takes long, and would use up the epochs.
func (m *Machine) givenUp(sw string) bool {
	return m.persisting != nil && m.persisting.op == 0 && m.cfg.IsMember(sw) && !m.persisting.config.IsMember(sw)
}

// failover continues without the members that have failed or are leaving, as long as a member is
// left.
func (m *Machine) failover(now Time) {
	if !m.decided {
		return
	}
	switch s, at := m.joiner(); {
	case s == "":
	case at == erasing && now >= m.change.by:
		m.giveUp(now, fmt.Errorf("it was not emptied in %v", eraseMost))
	case at != erasing:
		if why := m.suspect(now, s); why != "" {
			m.giveUp(now, errors.New(why))
		}
	}
	m.freezeEnds(now)
	goal := m.cfg
	if m.persisting != nil {
		goal = m.persisting.config
	}
	var left, gone []string
	why := ""
	for _, s := range m.cfg.Members {
		reason := m.suspect(now, s)
		switch {
		case reason != "":
			why = reason
			if goal.IsMember(s) {
				gone = append(gone, s)
			}
			m.view[s].stopped = m.joins(s) && m.cfg.Lease == 0
		case !m.view[s].lost && !m.givenUp(s):
			left = append(left, s)
		}
	}
	if len(gone) == 0 || !slices.ContainsFunc(left, func(s string) bool { return m.view[s].up }) {
		return
	}
	m.event("chain.failover", strings.Join(gone, ", "), "%s: the chain goes on without it", why)
	n := m.next(m.cfg.Epoch, left)
	// the chain was draining because its order was to change, and that change must be requested
	// again
	if n.Freeze == FreezeHead {
		n.Freeze = Thawed
	}
	m.begin(now, n, nil)
}
