package chain

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/netcraq/netcraq/controlplane/chain/rejoin"
)

// Coming back. The operator's last word determines the chain's intended members: the original ones,
// as changed by Propose and Recover since. It is recorded. The chain continues without members that
// fail, and they should come back: when one has been steady for a while (package rejoin), Rejoin
// brings it in as an operator would. One that an operator has left out stays out.
//
// Nothing here is needed for safety: it is Recover that brings a switch in.

// MissingMember is a switch that should be a member and is not.
type MissingMember struct {
	Switch string
	Why    string // what has to happen first, for people
}

// missing are the switches that are to be members and are none.
func (m *Machine) missing() (out []string) {
	for _, s := range m.wanted {
		if !m.cfg.IsMember(s) {
			out = append(out, s)
		}
	}
	return out
}

// intended is who is to be a member when a configuration is on record: c.wanted where an operator
// has said who is. Whoever is a member is to be one.
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

// whyMissing says what it takes for a switch to be a member again.
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

// unwant: a switch leaves the network, and the chain does not wait for it.
func (m *Machine) unwant(sw string) {
	m.unsaved = m.unsaved || slices.Contains(m.wanted, sw)
	m.wanted = slices.DeleteFunc(slices.Clone(m.wanted), func(s string) bool { return s == sw })
	m.short = m.short && len(m.missing()) > 0
}

func (m *Machine) candidate(sw string) rejoin.Candidate {
	return rejoin.Candidate{Chain: m.o.Name, Switch: sw}
}

// rejoin brings in a switch that has come back, one at a time.
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

// Rejoined answers Rejoin: the switch is a member, or why it failed.
func (m *Machine) Rejoined(now Time, seq uint64, err error) {
	if seq != m.rejoining {
		return
	}
	sw := m.rejoiner
	m.rejoining, m.rejoiner = 0, ""
	if v := m.view[sw]; v != nil && err != nil && v.refused != err.Error() { // said once
		v.refused = err.Error()
		m.event("chain.not-rejoined", sw, "%v; trying again", err)
	}
	if err == nil || m.rejoinCost { // what was refused at once costs nothing
		m.back.Tried(now, m.candidate(sw))
	}
	switch {
	case err == nil:
	case m.rejoinCost || errors.Is(err, ErrSilent):
		m.back.Again(now, m.candidate(sw))
	default: // another chain needs it, keys are being moved: nothing against the switch
		m.back.Later(now, m.candidate(sw))
	}
	m.step(now)
}

// Rejoining is the switch that is being brought in automatically; "": none.
func (m *Machine) Rejoining() string { return m.rejoiner }

// HoldsOld says whether a switch holds, or may hold, values of before, so that it is emptied to be
// brought in.
func (m *Machine) HoldsOld(sw string) bool {
	v := m.view[sw]
	return v != nil && !v.empty && m.holdsKeys()
}
