package saved

import (
	"cmp"
	"slices"

	"github.com/netcraq/netcraq/controlplane/topology"
)

// Switch is the information that a restarted controller needs about a switch that is in a chain's
// record but no longer in the topology. Without this information, the controller could not
// recognize the chain in the other switches, or fence this switch.
type Switch struct {
	Name       string `json:"name"`
	P4Runtime  string `json:"p4runtime"`
	ServerName string `json:"serverName,omitempty"`
	DeviceID   uint64 `json:"deviceId"`
	Address    string `json:"address"`
	MAC        string `json:"mac"`
}

// Earlier returns a topology with only the switches that t lacks although chain records in the
// saved state mention them. It also returns the names of these switches.
func (s *State) Earlier(t *topology.Topology) (*topology.Topology, []string, error) {
	old := &topology.Topology{}
	var names []string
	for _, ct := range t.Chains {
		r, ok := s.Chains[ct.Name]
		if !ok {
			continue
		}
		for _, name := range append(r.Config.Learners(), r.Fence...) {
			i := slices.IndexFunc(s.Switches, func(x Switch) bool { return x.Name == name })
			if t.Switch(name) != nil || slices.Contains(names, name) || i < 0 {
				continue
			}
			sw, err := s.Switches[i].restore()
			if err != nil {
				return nil, nil, err
			}
			old.Switches = append(old.Switches, sw)
			names = append(names, name)
		}
	}
	return old, names, nil
}

// Highest returns the highest epoch that any chain of a saved state has had.
func (s *State) Highest() uint16 {
	top := s.Epoch
	for _, r := range s.Chains {
		top = max(top, r.Config.Epoch)
	}
	return top
}

// restore converts a saved switch to a topology's switch, without ports.
func (s Switch) restore() (*topology.Switch, error) {
	t, err := topology.New(topology.Spec{
		Program: topology.ProgramSpec{JSON: "-", P4Info: "-"},
		Switches: []topology.SwitchSpec{{Name: s.Name, P4Runtime: s.P4Runtime, Server: s.ServerName,
			DeviceID: &s.DeviceID, Address: s.Address, MAC: s.MAC}},
	}, "the saved state")
	if err != nil {
		return nil, err
	}
	return t.Switches[0], nil
}

// Switches returns a topology's switches in the form in which they are saved, sorted by name.
func Switches(t *topology.Topology) []Switch {
	var out []Switch
	for _, s := range t.Switches {
		out = append(out, Switch{s.Name, s.P4Runtime, s.ServerName, s.DeviceID, s.Address.String(), s.MAC.String()})
	}
	slices.SortFunc(out, func(a, b Switch) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
