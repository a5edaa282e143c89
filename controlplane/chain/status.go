package chain

import (
	"slices"
	"time"
)

// Status describes a chain to people.
type Status struct {
	Config  Config
	Decided bool // whether there is a configuration; if not, Members come from the topology file
	Found   bool // there was no record, so an earlier controller's configuration was found in the switches
	Doubt   bool // the record may be out of date, and the machine does not act on it yet
	Stale   bool // the record was out of date, so the configuration was found in the switches
	// Installed says that every member has the configuration, so each switch that the configuration
	// leaves out is fenced, or its lease has run out.
	Installed bool
	// Fenced says that no switch that the configuration leaves out can still serve.
	Fenced  bool
	Ready   bool
	Reason  string // why the chain is not ready
	Members []MemberStatus
	// LeaseGiven is the length of the leases that are given now: Config.Lease, or
	// Options.ShortLease while everything is prompt.
	LeaseGiven time.Duration
	// Length is how many members the chain should have. Missing lists the switches that should be
	// members but are not. It is empty if another program chooses the members.
	Length  int
	Missing []MissingMember
}

// MembersReady reports whether there is a configuration and every member has acknowledged it.
func (s *Status) MembersReady() bool {
	return s.Decided && !slices.ContainsFunc(s.Members, func(m MemberStatus) bool { return !m.Ready })
}

// MemberStatus describes a member to people.
type MemberStatus struct {
	Switch    string
	Role      Role
	Ready     bool // the member has acknowledged the configuration
	LeaseLive bool
}

// Status returns the present state.
func (m *Machine) Status(now Time) Status {
	p := m.phase()
	s := Status{Config: m.cfg, Decided: m.decided, Found: m.found, Doubt: m.doubting(now), Stale: m.stale}
	s.Installed = p.installed() && m.recorded()
	s.Fenced = m.decided && len(m.fence) == 0
	s.Ready = p == Ready && m.recorded()
	if !m.decided {
		s.Config = Config{Members: m.o.Members, Lease: m.o.Lease}
	}
	if s.LeaseGiven = s.Config.Lease; m.decided && m.prompt(now) {
		s.LeaseGiven = m.o.ShortLease
	}
	s.Length = max(m.o.Length, len(s.Config.Members))
	if m.o.Length == 0 && m.decided {
		s.Length = max(len(m.wanted), len(s.Config.Members))
		for _, sw := range m.missing() {
			s.Missing = append(s.Missing, MissingMember{sw, m.whyMissing(now, sw)})
		}
	}
	s.Reason = m.waiting
	if s.Reason != "" {
		s.Reason = "waiting " + s.Reason
	} else if !s.Ready {
		s.Reason = "a configuration is being installed"
	}
	for _, sw := range s.Config.Members {
		v := m.view[sw]
		ms := MemberStatus{Switch: sw, Role: s.Config.Assignment(sw).Role}
		ms.Ready = m.decided && m.recorded() && v.up && m.has(sw)
		ms.LeaseLive = ms.Ready && (s.Config.Lease == 0 || now < v.lease.live)
		switch {
		case !ms.Ready && s.Ready:
			s.Ready, s.Reason = false, sw+" is not connected"
		case !ms.LeaseLive && s.Ready:
			s.Ready, s.Reason = false, sw+" has no live lease"
		}
		s.Members = append(s.Members, ms)
	}
	return s
}
