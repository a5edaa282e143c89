package world

import (
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
)

// This file has what mutants tell the machine that is not so. The machine that ships has no switch
// that removes a rule of its own.

// pretendFenced says about a switch that a configuration leaves out that it has heard of that, when
// the configuration has just been recorded. It says whether there was one.
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

// pretendHeld makes of what an empty switch reports that it still has its part in the chain.
func (s *Shell) pretendHeld(name string, r *chain.Report) {
	st := s.Machine.Status(s.Clock())
	if a := st.Config.Assignment(name); st.Decided && a.Role.Member() && (r.Fresh || r.Assignment == nil) {
		r.Assignment, r.Fresh = &a, false
	}
}

// trustsAnyway has a member that says that it has no part in the chain get the one that it had,
// again, and says whether it did.
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
