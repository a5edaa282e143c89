package netchain

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// plan is what the switches are to do. All that changes in a switch's tables follows from it: a
// controller changes the plan, and then each switch.
type plan struct {
	topo    *topology.Topology
	groups  int
	seqBits int

	places  []*place        // of the chain, head first
	down    map[string]bool // switches that no frame can go through
	stopped map[int]bool    // groups whose head gives no numbers
	session []uint32        // by group: in which its head gives numbers
}

// place is a member's place in the chain. Clients continue writing the member's address into their
// packets, whoever has its place.
//
//	it works                          by: the member
//	it is gone                        by: nil       skipped
//	it, or another, is being filled   by: a switch  skipped  active: the groups for which it has taken the place
type place struct {
	member  *topology.Switch
	by      *topology.Switch
	active  []bool // by group; nil: all
	skipped bool   // what is for it goes on to the next
}

// serves says whether somebody does the work for a group.
func (p *place) serves(group int) bool { return p.by != nil && (p.active == nil || p.active[group]) }

// Members are the chain's addresses, head first: what clients write into their packets.
func Members(t *topology.Topology) (out []netip.Addr) {
	for _, m := range t.Chains[0].Members {
		out = append(out, t.Switch(m).Address)
	}
	return out
}

// What a switch is called by the controller: what is sent there is taken by whichever switch it is
// sent through, and answered to topology.DefaultController.
var self = topology.DefaultController.Next()

func newPlan(t *topology.Topology, groups, seqBits int) *plan {
	p := &plan{topo: t, groups: groups, seqBits: seqBits, down: map[string]bool{}, stopped: map[int]bool{},
		session: make([]uint32, groups)}
	for _, m := range t.Chains[0].Members {
		s := t.Switch(m)
		p.places = append(p.places, &place{member: s, by: s})
	}
	return p
}

// serving are the switches that do the work for a group, head first.
func (p *plan) serving(group int) (out []*topology.Switch) {
	for _, at := range p.places {
		if at.serves(group) {
			out = append(out, at.by)
		}
	}
	return out
}

// heads are the groups' heads; nil if a group has nobody left.
func (p *plan) heads() []*topology.Switch {
	out := make([]*topology.Switch, p.groups)
	for g := range out {
		if s := p.serving(g); len(s) > 0 {
			out[g] = s[0]
		}
	}
	return out
}

// beginSessions raises the session of each group that has another head than before, so that no
// number is given twice (NetChain, section 5.1). It gives the new heads.
func (p *plan) beginSessions(before []*topology.Switch) (begun []*topology.Switch) {
	for g, h := range p.heads() {
		if h == before[g] || h == nil {
			continue
		}
		if p.seqBits > 16 {
			p.session[g]++
		}
		if !slices.Contains(begun, h) {
			begun = append(begun, h)
		}
	}
	return begun
}

// placeOf is the place that a switch has, nil if it has none.
func (p *plan) placeOf(s *topology.Switch) *place {
	if i := slices.IndexFunc(p.places, func(at *place) bool { return at.by == s }); i >= 0 {
		return p.places[i]
	}
	return nil
}

// donor is who a switch that takes a place for a group is filled from: the one after it, who has
// nothing that it must not have (NetChain, section 5.2); where it is to be the tail, the one
// before.
func (p *plan) donor(at *place, group int) *topology.Switch {
	i := slices.Index(p.places, at)
	for _, after := range p.places[i+1:] {
		if after.serves(group) {
			return after.by
		}
	}
	for _, before := range slices.Backward(p.places[:i]) {
		if before.serves(group) {
			return before.by
		}
	}
	return nil
}

// common is the part of a switch's tables that is not a group's.
const common = -1

// entries are a part of what changes in a switch's tables. The common part: ways, and detours
// around places that nobody has. That of a group: whether the switch is its head, and detours where
// a place is being taken.
func (p *plan) entries(s *topology.Switch, part int) (out []p4rt.Entry) {
	if part == common {
		out = append(out, p.routes(s)...)
	} else if serving := p.serving(part); len(serving) > 0 && serving[0] == s && !p.stopped[part] {
		out = append(out, p4rt.Entry{Table: "head_session", Match: p4rt.Match{"group": p4rt.Exact(part)},
			Action: "begin_session", Params: p4rt.Params{"session": p.session[part]}})
	}
	for _, at := range p.places {
		out = append(out, p.detours(at, part)...)
	}
	if part == common { // the last: what it must not take it goes around by then
		out = append(out, localAddress(s.Address, !p.skipped(s)))
	}
	return out
}

// skipped says whether what is for a switch by its address goes on to the next, except for groups
// that have been taken over.
func (p *plan) skipped(s *topology.Switch) bool {
	return slices.ContainsFunc(p.places, func(at *place) bool { return at.member == s && at.skipped })
}

func localAddress(address netip.Addr, whole bool) p4rt.Entry {
	n := 0
	if whole {
		n = 1
	}
	return p4rt.Entry{Table: "local_address", Match: p4rt.Match{"ipv4_dst": p4rt.Exact(address)}, Action: "set_local", Params: p4rt.Params{"whole": n}}
}

func forward(to netip.Addr, mac net.HardwareAddr, port uint32) p4rt.Entry {
	return p4rt.Entry{Table: "ipv4_lpm", Match: p4rt.Match{"ipv4_dst": p4rt.LPM(to, 32)}, Action: "forward",
		Params: p4rt.Params{"dst_mac": mac, "port": port}}
}

// routes are the shortest ways to hosts and switches. What is for a switch that is gone goes to a
// neighbour: its place was taken off the list here, and perhaps the next one, which is gone as
// well, has to be taken off there. So does what is for this switch itself, and it does not take.
func (p *plan) routes(s *topology.Switch) (out []p4rt.Entry) {
	graph := p.topo.Graph(p.down)
	toward := func(to netip.Addr, at string) {
		if hop, ok := graph.NextHop(s.Name, at); ok {
			out = append(out, forward(to, hop.Peer.MAC, hop.Number))
		}
	}
	for _, other := range p.topo.Switches {
		switch {
		case other == s && !p.skipped(s):
		case other != s && !p.down[other.Name]:
			toward(other.Address, other.Name)
		default:
			if i := slices.IndexFunc(s.Ports, func(port topology.Port) bool {
				return port.Peer != nil && !p.down[port.Peer.Name]
			}); i >= 0 {
				out = append(out, forward(other.Address, s.Ports[i].Peer.MAC, s.Ports[i].Number))
			}
		}
	}
	for _, h := range p.topo.Hosts {
		if h.Switch == s {
			out = append(out, forward(h.IP, h.MAC, h.Port))
		} else {
			toward(h.IP, h.Switch.Name)
		}
	}
	return out
}

// detours are what every switch does with what is for a place: NetChain's algorithm 2 where it is
// skipped, algorithm 3 for the groups for which it has been taken.
func (p *plan) detours(at *place, part int) (out []p4rt.Entry) {
	// The program asks the tables twice: with what comes in, and with what continues from here.
	for _, when := range []string{"detour", "detour_next"} {
		e := p4rt.Entry{Table: when + ".gone", Priority: 1,
			Match: p4rt.Match{"ipv4_dst": p4rt.Ternary(at.member.Address, ^uint32(0))}, Action: when + ".redirect"}
		switch {
		case part == common && at.skipped:
			e.Action = when + ".skip"
		case part == common && at.by != at.member:
			e.Params = p4rt.Params{"addr": at.by.Address}
		case part != common && at.active != nil && at.active[part]:
			e.Table, e.Priority, e.Params = when+".taken", 0, p4rt.Params{"addr": at.by.Address}
			e.Match = p4rt.Match{"ipv4_dst": p4rt.Exact(at.member.Address), "group": p4rt.Exact(part)}
		default:
			continue
		}
		out = append(out, e)
	}
	return out
}

// addresses are how the controller talks to a switch: the address that it calls it by, and the way
// back.
func addresses() []p4rt.Entry {
	return []p4rt.Entry{localAddress(self, true), forward(topology.DefaultController, make(net.HardwareAddr, 6),
		topology.CPUPort)}
}

// keys are the slots of so many keys, the same in every switch of the chain.
func (p *plan) keys(n int) (out []p4rt.Entry) {
	for i := range n {
		out = append(out, p4rt.Entry{Table: "key_index", Match: p4rt.Match{"KEY": p4rt.Exact(Key(i, p.groups))},
			Action: "set_slot", Params: p4rt.Params{"slot": i}})
	}
	return out
}

// standIn finds who is to take the place of a member that is gone: itself (by ""), or a switch that
// is not a member.
func (p *plan) standIn(member, by string) (*place, *topology.Switch, error) {
	i := slices.IndexFunc(p.places, func(at *place) bool { return at.member.Name == member })
	if i < 0 {
		return nil, nil, fmt.Errorf("%q is no member of the chain: %v", member, p.topo.Chains[0].Members)
	}
	at := p.places[i]
	if at.by != nil {
		return nil, nil, fmt.Errorf("the place of %s is not free: %s has it", member, at.by.Name)
	}
	if by == "" {
		by = member
	}
	s := p.topo.Switch(by)
	switch {
	case s == nil:
		return nil, nil, fmt.Errorf("there is no switch %q in the topology", by)
	case p.placeOf(s) != nil:
		return nil, nil, fmt.Errorf("%s has a place in the chain already", by)
	case s != at.member && slices.ContainsFunc(p.places, func(other *place) bool { return other.member == s }):
		return nil, nil, fmt.Errorf("%s cannot take the place of %s: its address is in clients' packets for a place of its own", by, member)
	}
	return at, s, nil
}
