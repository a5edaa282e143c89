package netchain

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// plan determines the entries of the switches' tables, except for constant entries. A controller
// first changes the plan, and then updates each switch.
type plan struct {
	topo    *topology.Topology
	groups  int
	seqBits int

	places  []*place        // the places of the chain, head first
	down    map[string]bool // switches that forward no frames
	stopped map[int]bool    // groups whose head assigns no sequence numbers
	session []uint32        // the session of the head of each group
}

// place is the place of a member in the chain. Clients write the member's address into their
// packets, even if another switch has taken the place.
//
//	the member works                  by: the member
//	the member has failed             by: nil       skipped
//	a switch is being filled for it   by: a switch  skipped  active: the groups for which it has taken the place
type place struct {
	member  *topology.Switch
	by      *topology.Switch
	active  []bool // the groups for which the switch has taken the place; nil means all groups
	skipped bool   // packets to the place are passed on to the next place
}

// serves reports whether some switch does the work of the place for a group.
func (p *place) serves(group int) bool { return p.by != nil && (p.active == nil || p.active[group]) }

// Members returns the addresses of the chain's switches, head first. Clients write these addresses
// into their packets.
func Members(t *topology.Topology) (out []netip.Addr) {
	for _, m := range t.Chains[0].Members {
		out = append(out, t.Switch(m).Address)
	}
	return out
}

// self is an address for the controller that every switch has. Any switch accepts packets to it,
// and answers to topology.DefaultController.
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

// serving returns the switches that do the work of the chain for a group, head first.
func (p *plan) serving(group int) (out []*topology.Switch) {
	for _, at := range p.places {
		if at.serves(group) {
			out = append(out, at.by)
		}
	}
	return out
}

// heads returns the head of each group, or nil for a group without switches.
func (p *plan) heads() []*topology.Switch {
	out := make([]*topology.Switch, p.groups)
	for g := range out {
		if s := p.serving(g); len(s) > 0 {
			out[g] = s[0]
		}
	}
	return out
}

// beginSessions begins a new session for each group whose head is not the same as in before. So no
// sequence number is assigned twice (NetChain, section 5.1). It returns the new heads.
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

// placeOf returns the place that a switch has in the chain, or nil if it has none.
func (p *plan) placeOf(s *topology.Switch) *place {
	if i := slices.IndexFunc(p.places, func(at *place) bool { return at.by == s }); i >= 0 {
		return p.places[i]
	}
	return nil
}

// donor returns the switch from which another switch is filled when it takes a place for a group.
// It is the switch at the next place, because a switch may hold every write that its successor
// holds (NetChain, section 5.2). For the tail, it is the switch at the previous place.
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

// common is the part of a switch's tables that does not belong to any group.
const common = -1

// entries returns the entries of one part of a switch's tables, without constant entries. The
// common part has routes, and detours around failed places. A group's part makes the switch the
// head of the group, if it is the head. It also has detours to places that another switch has
// taken.
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
	if part == common { // update this entry last, because the detours for skipped packets must exist before it
		out = append(out, localAddress(s.Address, !p.skipped(s)))
	}
	return out
}

// skipped reports whether packets to a switch's address are passed on to the next place. This does
// not apply to groups for which a switch has taken the place.
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

// routes returns the entries for the shortest paths to hosts and switches. Packets to a failed
// switch go to a neighbour of this switch. This switch has already removed the failed place from
// the packet's list. If the next place has failed, too, the neighbour removes that place. Packets
// to this switch also go to a neighbour while its place is skipped.
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

// detours returns the entries that every switch has for packets to a place. They follow NetChain's
// algorithm 2 if the place is skipped. They follow algorithm 3 for groups for which a switch has
// taken the place.
func (p *plan) detours(at *place, part int) (out []p4rt.Entry) {
	// The program applies these tables twice: to packets that arrive at this switch, and to packets
	// that continue from this switch.
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

// addresses returns the entries for the controller's packets. These are the address to which the
// controller sends them, and the route back.
func addresses() []p4rt.Entry {
	return []p4rt.Entry{localAddress(self, true), forward(topology.DefaultController, make(net.HardwareAddr, 6),
		topology.CPUPort)}
}

// keys returns the entries for the slots of n keys. They are the same in every switch of the chain.
func (p *plan) keys(n int) (out []p4rt.Entry) {
	for i := range n {
		out = append(out, p4rt.Entry{Table: "key_index", Match: p4rt.Match{"KEY": p4rt.Exact(Key(i, p.groups))},
			Action: "set_slot", Params: p4rt.Params{"slot": i}})
	}
	return out
}

// standIn returns the place of a failed member, and the switch that will take the place. If `by` is
// empty, the switch is the member itself. Otherwise it must be a switch that is not a member.
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
