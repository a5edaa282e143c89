package world

import (
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
)

// Mutants report false facts to the machine, and this file makes these reports. The shipped machine
// has no options that disable its rules.

// pretendFenced reports to the machine that a switch that leaves the chain has acknowledged role
// NONE. It does so as soon as a configuration is recorded, and returns whether there was such a
// switch.
func (s *Shell) pretendFenced() bool {
	if !s.Status.Decided || s.Status.Installed {
		return false
	}
	c := s.Status.Config
	for _, d := range s.Devices {
		a := c.Assignment(d.Node.Name)
		if a.Role != chain.None || s.pretended[d.Node.Name] == c.Epoch {
			continue
		}
		s.pretended[d.Node.Name] = c.Epoch
		s.Machine.SwitchUp(s.Clock(), d.Node.Name, chain.Report{Assignment: &a})
		if !d.Ready {
			s.Machine.SwitchDown(s.Clock(), d.Node.Name)
		}
		s.Flush()
		return true
	}
	return false
}

// pretendHeld changes an empty switch's report to say that it still has its part in the chain.
func (s *Shell) pretendHeld(name string, r *chain.Report) {
	st := s.Machine.Status(s.Clock())
	if a := st.Config.Assignment(name); st.Decided && a.Role.Member() && (r.Fresh || r.Assignment == nil) {
		r.Assignment, r.Fresh = &a, false
	}
}

// trustsAnyway reinstalls the part of a member that reports that it has no part in the chain. It
// returns whether it did so.
func (s *Shell) trustsAnyway(d *Device, p *wire.Packet) bool {
	st := s.Machine.Status(s.Clock())
	a := st.Config.Assignment(d.Node.Name)
	if p.Epoch != 0 || d.part == nil || *d.part != a {
		return false
	}
	d.part = nil
	s.install(chain.Install{Switch: d.Node.Name, Config: st.Config, Assignment: a})
	return true
}
