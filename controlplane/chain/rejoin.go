package chain

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/netcraq/netcraq/controlplane/chain/rejoin"
)

// This file brings failed members back. The operator determines the chain's intended members by
// Propose and Recover, and they are on record. The chain continues without members that fail. When
// a failed member has been steady for a while (package rejoin), Rejoin brings it in as an operator
// would. A switch that an operator has left out stays out.
//
// Safety does not depend on this file, because only Recover brings a switch in.

// MissingMember is a switch that should be a member but is not.
type MissingMember struct {
	Switch string
	Why    string // what must happen before the switch can be a member again, as text
}

// missing lists the switches that should be members but are not.
func (m *Machine) missing() (out []string) {
	for _, s := range m.wanted {
		if !m.cfg.IsMember(s) {
			out = append(out, s)
		}
	}
	return out
}

// intended returns the intended members after a change is on record. They are c.wanted if an
// operator has named them. They always include the present members.
func (m *Machine) intended(c *change) []string {
	out := m.wanted
	if c.wanted != nil {
		out = c.wanted
	}
	out = slices.Clone(out)
	for _, s := range c.config.Members {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// whyMissing returns, as text, what must happen before a switch can be a member again.
func (m *Machine) whyMissing(now Time, sw string) string {
	v := m.view[sw]
	due, there := m.back.Due(now, m.candidate(sw))
	joins := m.rejoiner == sw || m.cfg.Shadow == sw
	for _, c := range []*change{m.persisting, m.change} {
		joins = joins || c != nil && c.joiner == sw
	}
	switch {
	case v == nil || !v.up:
		return "it is not connected"
	case joins:
		return "it is being taken in"
	case !m.o.Rejoin.On():
		return "it is there: chain recover takes it in"
	case m.sparing():
		return "the chain has hardly any epochs left"
	case m.cfg.Freeze != Thawed:
		return "the chain is frozen"
	case there && due > now && v.refused != "":
		return fmt.Sprintf("it is there, and could not be taken in: %s; it is tried again in %v", v.refused,
			(due - now).Round(time.Second))
	case there && due > now:
		return fmt.Sprintf("it is there, and is taken in again when it has been for %v", m.back.Wait(now, m.candidate(sw)))
	}
	return "it is there, and is taken in again when the chain is ready"
}

// unwant removes a switch that is leaving the network from the intended members.
func (m *Machine) unwant(sw string) {
	m.unsaved = m.unsaved || slices.Contains(m.wanted, sw)
	m.wanted = slices.DeleteFunc(slices.Clone(m.wanted), func(s string) bool { return s == sw })
	m.short = m.short && len(m.missing()) > 0
}

func (m *Machine) candidate(sw string) rejoin.Candidate {
	return rejoin.Candidate{Chain: m.o.Name, Switch: sw}
}

// rejoin brings in a switch that has come back, one switch at a time.
func (m *Machine) rejoin(now Time) {
	if m.rejoining != 0 || m.phase() != Ready || m.cfg.Freeze != Thawed || m.sparing() {
		return
	}
	for _, s := range m.missing() {
		v := m.view[s]
		due, ok := m.back.Due(now, m.candidate(s))
		if !ok || now < due || v == nil || !v.up || !m.Status(now).Ready {
			continue
		}
		m.seq++
		m.rejoining, m.rejoiner, m.rejoinCost = m.seq, s, false
		if v.refused == "" {
			m.event("chain.rejoining", s, "it has been there for %v: it is taken in again", m.back.Wait(now, m.candidate(s)))
		}
		m.do(Rejoin{Switch: s, Seq: m.seq})
		return
	}
}

// Rejoined reports the result of a Rejoin. err is nil if the switch is a member; otherwise it says
// why the Rejoin failed.
func (m *Machine) Rejoined(now Time, seq uint64, err error) {
	if seq != m.rejoining {
		return
	}
	sw := m.rejoiner
	m.rejoining, m.rejoiner = 0, ""
	if v := m.view[sw]; v != nil && err != nil && v.refused != err.Error() { // report each reason once
		v.refused = err.Error()
		m.event("chain.not-rejoined", sw, "%v; trying again", err)
	}
	// an attempt that was refused at once used no epochs, and does not count
	if err == nil || m.rejoinCost {
		m.back.Tried(now, m.candidate(sw))
	}
	switch {
	case err == nil:
	case m.rejoinCost || errors.Is(err, ErrSilent):
		m.back.Again(now, m.candidate(sw))
	default: // the switch is not at fault: another chain needs it, or keys are being moved
		m.back.Later(now, m.candidate(sw))
	}
	m.step(now)
}

// Rejoining returns the switch that is being brought in automatically, or "" if there is none.
func (m *Machine) Rejoining() string { return m.rejoiner }

// HoldsOld reports whether a switch holds, or may hold, outdated values, so that it must be
// emptied before it is brought in.
func (m *Machine) HoldsOld(sw string) bool {
	v := m.view[sw]
	return v != nil && !v.empty && m.holdsKeys()
}
