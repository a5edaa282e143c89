package program

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/controller/tableplan"
	"github.com/netcraq/netcraq/controlplane/keyspace"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// Program holds everything that the controller needs to know about the compiled P4 program. All
// data comes from the P4Info.
type Program struct {
	Pipeline *p4rt.Pipeline
	Profile  wire.Profile // the profile, which determines the width of values
	Slots    int          // number of cells of the register versions
	Sessions int          // number of cells of the register session_request
	routes   int          // number of entries that ipv4_lpm holds
	local    int          // number of entries that local_address holds
}

// pkg is the program's name in its sources (@pkginfo). Programs that exist only for reading or for
// measurements have other names. They lack guarantees that a controller relies on, even if they
// have the same tables.
const pkg = "netcraq"

// Read checks that the P4Info is that of a NetCRAQ program, and extracts its sizes.
func Read(pl *p4rt.Pipeline) (*Program, error) {
	p := &Program{Pipeline: pl}
	info := pl.Info
	if name := info.P4Info.GetPkgInfo().GetName(); name != pkg {
		return nil, fmt.Errorf("this is the program %q, and not %q: name the files of a compiled NetCRAQ program, such as p4src/compiled/netcraq-8192.json.gz", name, pkg)
	}
	bits := 0
	for _, name := range info.Registers() {
		// In wide profiles a value is in several registers: objects_store, objects_store_1, ...
		if name == "objects_store" || strings.HasPrefix(name, "objects_store_") {
			_, width, err := info.RegisterSize(name)
			if err != nil {
				return nil, err
			}
			bits += width
		}
	}
	if p.Profile = wire.Profile(bits); !p.Profile.Valid() {
		return nil, fmt.Errorf("this is not a NetCRAQ program: its objects_store registers hold %d bits", bits)
	}
	var err error
	if p.Slots, _, err = info.RegisterSize("versions"); err != nil {
		return nil, err
	}
	if p.Sessions, _, err = info.RegisterSize("session_request"); err != nil {
		return nil, err
	}
	if p.routes, err = info.TableSize("ipv4_lpm"); err != nil {
		return nil, err
	}
	if p.local, err = info.TableSize("local_address"); err != nil {
		return nil, err
	}
	for _, e := range tableplan.OneOfEach() {
		if _, err := info.Encode(e); err != nil {
			return nil, fmt.Errorf("this is not a NetCRAQ program, or not of this version: %w", err)
		}
	}
	return p, nil
}

// Fit checks that a topology fits the program, and returns the chains' slots. Chains that already
// have slots keep them.
func (p *Program) Fit(t *topology.Topology, keep []keyspace.Space) ([]keyspace.Space, error) {
	if want := t.Program.ValueBits; want != 0 && want != int(p.Profile) {
		return nil, fmt.Errorf("the topology asks for the profile %d, but the program %s holds values of %v bits", want, t.Program.JSON, p.Profile)
	}
	// A switch has routes to its own hosts, to hosts of other switches that no prefix covers, to
	// prefixes, to switches, to chains, and to the controller.
	routes, covered := len(t.Switches)+len(t.Chains)+1, map[*topology.Switch]int{}
	for _, sw := range t.Switches {
		routes += len(sw.Prefixes)
	}
	for _, h := range t.Hosts {
		if h.Switch.Covers(h.IP) {
			covered[h.Switch]++
		} else {
			routes++
		}
	}
	for _, sw := range t.Switches {
		if n := routes + covered[sw]; n > p.routes {
			return nil, fmt.Errorf("the network has %d addresses and prefixes for %s, but the program's table ipv4_lpm holds %d routes: compile it with a larger one, or give switches prefixes",
				n, sw.Name, p.routes)
		}
	}
	if n := len(t.Chains) + 1; n > p.local {
		return nil, fmt.Errorf("%d chains: the program's table local_address holds %d addresses: compile it with a larger one", len(t.Chains), p.local)
	}
	last := p.Sessions - 1
	if t.Sessions.Controller >= last {
		return nil, fmt.Errorf("sessions.controller is %d, but the program has only the sessions 1 to %d", t.Sessions.Controller, last)
	}
	if t.Sessions.Last > last {
		return nil, fmt.Errorf("sessions.last is %d, but the program has only the sessions 1 to %d", t.Sessions.Last, last)
	}
	if err := tableplan.CheckGroups(t); err != nil {
		return nil, err
	}
	return p.spaces(t, keep)
}

// LastSession returns the highest session id for clients.
func (p *Program) LastSession(t *topology.Topology) uint16 {
	if t.Sessions.Last != 0 {
		return uint16(t.Sessions.Last)
	}
	return uint16(min(p.Sessions-1, 0xFFFF))
}

// spaces divides the program's slots among the chains, in the order of the topology. Chains that
// have slots keep them, unless they request another number of slots. A chain that requests a number
// gets it. The chains that request no number share the remaining slots.
func (p *Program) spaces(t *topology.Topology, keep []keyspace.Space) ([]keyspace.Space, error) {
	out := make([]keyspace.Space, len(t.Chains))
	left, sharing, asked := p.Slots, 0, 0
	for i, c := range t.Chains {
		for _, k := range keep {
			if k.Chain == c.ID && (c.Slots == 0 || c.Slots == k.Count) && k.First+k.Count <= p.Slots {
				out[i] = k
			}
		}
		switch {
		case out[i].Count > 0:
			left -= out[i].Count
		case c.Slots > 0:
			left -= c.Slots
		default:
			sharing++
		}
		asked += max(c.Slots, out[i].Count)
	}
	if left < 0 || sharing > 0 && left < sharing {
		return nil, fmt.Errorf("the chains ask for %d slots, but the program has %d%s", asked, p.Slots,
			map[bool]string{true: ", and some chains are to share the rest", false: ""}[sharing > 0])
	}
	for i, c := range t.Chains {
		if out[i].Count > 0 {
			continue
		}
		n := c.Slots
		if n == 0 {
			n = left / sharing
		}
		first, ok := gap(out, n, p.Slots)
		if !ok {
			return nil, fmt.Errorf("the chain %s asks for %d slots, and there are not that many in a row between those of the other chains: ask for fewer", c.Name, n)
		}
		out[i] = keyspace.Space{Chain: c.ID, First: first, Count: n}
	}
	return out, nil
}

// gap finds the first n consecutive slots that no chain has.
func gap(taken []keyspace.Space, n, slots int) (int, bool) {
	first := 0
	for _, s := range slices.SortedFunc(slices.Values(taken), func(a, b keyspace.Space) int {
		return cmp.Compare(a.First, b.First)
	}) {
		if s.Count > 0 && s.First < first+n {
			first = max(first, s.First+s.Count)
		}
	}
	return first, first+n <= slots
}
