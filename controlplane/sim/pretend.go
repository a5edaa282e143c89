package sim

import (
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
)

// This file has what mutants tell the machine that is not so. The machine that ships has no switch
// that removes a rule of its own.

// pretendFenced says of a switch that a configuration leaves out that it has heard of that, when
// the configuration has just been recorded. It says whether there was one.
func (s *shell) pretendFenced() bool {
	if !s.status.Decided || s.status.Installed {
		return false
	}
	c := s.status.Config
	for _, d := range s.devices {
		a := c.Assignment(d.n.name)
		if a.Role != chain.None || s.pretended[d.n.name] == c.Epoch {
			continue
		}
		s.pretended[d.n.name] = c.Epoch
		s.m.SwitchUp(s.now(), d.n.name, chain.Report{Assignment: &a})
		if !d.ready {
			s.m.SwitchDown(s.now(), d.n.name)
		}
		s.flush()
		return true
	}
	return false
}

// pretendHeld makes of what an empty switch reports that it still has its part in the chain.
func (s *shell) pretendHeld(name string, r *chain.Report) {
	st := s.m.Status(s.now())
	if a := st.Config.Assignment(name); st.Decided && a.Role.Member() && (r.Fresh || r.Assignment == nil) {
		r.Assignment, r.Fresh = &a, false
	}
}

// trustsAnyway has a member that says that it has no part in the chain get the one that it had,
// again, and says whether it did.
func (s *shell) trustsAnyway(d *device, p *wire.Packet) bool {
	st := s.m.Status(s.now())
	a := st.Config.Assignment(d.n.name)
	if p.Epoch != 0 || d.part == nil || *d.part != a {
		return false
	}
	d.part = nil
	s.install(chain.Install{Switch: d.n.name, Config: st.Config, Assignment: a})
	return true
}
