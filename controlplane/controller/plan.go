package controller

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/directory"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/wire"
)

// This file says, purely, what the switches' tables should hold: plan.base is what follows from the topology alone, plan.chain what follows from a
// chain's configuration. What is in the switches is compared with that, and only differences are written.

// The entries of docs/protocol.md, "Tables that the controller fills".

func portTrust(port uint32, fabric bool) p4rt.Entry {
	action := "host_port"
	if fabric {
		action = "fabric_port"
	}
	return p4rt.Entry{Table: "port_trust", Match: p4rt.Match{"ingress_port": p4rt.Exact(port)}, Action: action}
}

func takeAddress(a netip.Addr) p4rt.Entry {
	return p4rt.Entry{Table: "local_address", Match: p4rt.Match{"ipv4_dst": p4rt.Exact(a)}, Action: "take"}
}

func forward(to netip.Addr, mac net.HardwareAddr, port uint32) p4rt.Entry {
	return p4rt.Entry{Table: "ipv4_lpm", Match: p4rt.Match{"ipv4_dst": p4rt.LPM(to, 32)}, Action: "forward",
		Params: p4rt.Params{"dst_mac": mac, "port": port}}
}

func toController(a netip.Addr) p4rt.Entry {
	return p4rt.Entry{Table: "ipv4_lpm", Match: p4rt.Match{"ipv4_dst": p4rt.LPM(a, 32)}, Action: "to_controller"}
}

func slotEntry(id wire.Key, slot int) p4rt.Entry {
	return p4rt.Entry{Table: "key_index", Match: p4rt.Match{"KEY_ID": p4rt.Exact(uint32(id))}, Action: "set_slot", Params: p4rt.Params{"slot": slot}}
}

// chainPart is what a chain_config entry says.
type chainPart struct {
	role                      chain.Role
	frozen, leaseRequired     bool
	epoch                     uint16
	head, next, tail, service netip.Addr // the zero Addr: 0.0.0.0
	ackGroup, replyGroup      uint16
}

func chainEntry(id uint8, c chainPart) p4rt.Entry {
	addr := func(a netip.Addr) any {
		if !a.IsValid() {
			return uint32(0)
		}
		return a
	}
	return p4rt.Entry{Table: "chain_config", Match: p4rt.Match{"chain": p4rt.Exact(id)}, Action: "set_chain", Params: p4rt.Params{
		"role": uint8(c.role), "frozen": c.frozen, "lease_required": c.leaseRequired, "epoch": c.epoch,
		"head_addr": addr(c.head), "next_addr": addr(c.next), "tail_addr": addr(c.tail), "service_addr": addr(c.service),
		"ack_group": c.ackGroup, "reply_group": c.replyGroup,
	}}
}

// readChainEntry is the assignment that a chain_config entry stands for. An address that no switch has becomes a name that no switch has.
func readChainEntry(t *topology.Topology, e p4rt.Entry) chain.Assignment {
	name := func(param string) string {
		v := e.Param(param)
		if v.Bits() == 0 {
			return ""
		}
		if s := t.SwitchByAddress(v.Addr()); s != nil {
			return s.Name
		}
		return "?" + v.Addr().String()
	}
	return chain.Assignment{
		Role:          chain.Role(e.Param("role").Uint64()),
		Frozen:        e.Param("frozen").Uint64() != 0,
		LeaseRequired: e.Param("lease_required").Uint64() != 0,
		Epoch:         uint16(e.Param("epoch").Uint64()),
		Head:          name("head_addr"),
		Next:          name("next_addr"),
		Tail:          name("tail_addr"),
	}
}

// Replica instances of the tail's multicast (docs/protocol.md, "Multicast at the tail").
const (
	instanceAck   = 1
	instanceReply = 2
)

// maxGroup is the highest multicast group id: simple_switch_grpc keeps those from 32768 on for itself.
const maxGroup = 1<<15 - 1

// groupIDs are the multicast groups of one chain at one switch. Configurations of even and odd epochs have groups of their own, so that those of the
// next can be made while those of the present are in use.
type groupIDs struct {
	ack   [2]uint16
	reply [2]uint16 // the group for a reply by port p is reply + p
}

// groupTable is the group ids of all chains at all switches.
type groupTable map[string]map[uint8]groupIDs

// allocateGroups gives every chain its groups at every switch: the same ones each time it is asked.
func allocateGroups(t *topology.Topology) (groupTable, error) {
	out := groupTable{}
	for _, s := range t.Switches {
		taken := make([]bool, maxGroup+1)
		taken[0] = true // no group
		ids := map[uint8]groupIDs{}
		ports := replyPorts(s)
		low := 1
		for _, c := range t.Chains {
			var g groupIDs
			for parity := range 2 {
				for low <= maxGroup && taken[low] {
					low++
				}
				ack, ok := low, low <= maxGroup
				if ok {
					taken[ack] = true
				}
				// The lowest base whose groups are all free. The base itself may be another's: there is no port 0.
				base := 0
				free := func(base int) bool {
					return !slices.ContainsFunc(ports, func(p uint32) bool { n := base + int(p); return n > maxGroup || taken[n] })
				}
				for base = 1; ok && !free(base); base++ {
					ok = base < maxGroup
				}
				if !ok {
					return nil, fmt.Errorf("switch %s has %d ports: the multicast groups of %d chains do not fit its %d group ids; use fewer chains",
						s.Name, len(s.Ports), len(t.Chains), maxGroup)
				}
				for _, p := range ports {
					taken[base+int(p)] = true
				}
				g.ack[parity], g.reply[parity] = uint16(ack), uint16(base)
			}
			ids[c.ID] = g
		}
		out[s.Name] = ids
	}
	return out, nil
}

// replyPorts are the ports by which a reply can leave a switch.
func replyPorts(s *topology.Switch) []uint32 {
	ports := []uint32{topology.CPUPort}
	for _, p := range s.Ports {
		ports = append(ports, p.Number)
	}
	return ports
}

// owns says whether a group is one of a chain's at a switch.
func (g groupIDs) owns(s *topology.Switch, id uint32) bool {
	for parity := range 2 {
		if id == uint32(g.ack[parity]) {
			return true
		}
		for _, p := range replyPorts(s) {
			if id == uint32(g.reply[parity])+p {
				return true
			}
		}
	}
	return false
}

// plan is the topology with what was allocated for it.
type plan struct {
	t      *topology.Topology
	full   *topology.Graph                // of all switches
	around atomic.Pointer[topology.Graph] // of those that are not given up
	groups groupTable
}

func newPlan(t *topology.Topology) (*plan, error) {
	groups, err := allocateGroups(t)
	if err != nil {
		return nil, err
	}
	p := &plan{t: t, full: t.Graph(nil), groups: groups}
	p.avoid(nil)
	return p, nil
}

// avoid makes the ways go around some switches from now on, where there is a way around.
func (p *plan) avoid(down map[string]bool) { p.around.Store(p.t.Graph(maps.Clone(down))) }

// graph is the network in which all of some switches can be reached from one: without those that are given up if they can, else whole.
func (p *plan) graph(from string, to ...string) *topology.Graph {
	g := p.around.Load()
	for _, s := range to {
		if _, ok := g.Distance(from, s); !ok {
			return p.full
		}
	}
	return g
}

// towards is the route at a switch to an address that is at, or behind, another switch.
func (p *plan) towards(from *topology.Switch, to netip.Addr, at string) (p4rt.Entry, bool) {
	hop, ok := p.graph(from.Name, at).NextHop(from.Name, at)
	if !ok {
		return p4rt.Entry{}, false
	}
	return forward(to, hop.Peer.MAC, hop.Number), true
}

// base is what a switch holds whatever the chains: who is trusted, its own address, and the routes to hosts, switches and the controller.
func (p *plan) base(s *topology.Switch) []p4rt.Entry {
	var out []p4rt.Entry
	for _, port := range s.Ports {
		out = append(out, portTrust(port.Number, port.Peer != nil))
	}
	out = append(out, takeAddress(s.Address), toController(p.t.Controller.Address))
	for _, other := range p.t.Switches {
		if e, ok := p.towards(s, other.Address, other.Name); ok {
			out = append(out, e)
		}
	}
	for _, h := range p.t.Hosts {
		if h.Switch == s {
			out = append(out, forward(h.IP, h.MAC, h.Port))
		} else if e, ok := p.towards(s, h.IP, h.Switch.Name); ok {
			out = append(out, e)
		}
	}
	return out
}

// isBase says whether an entry of port_trust, local_address or ipv4_lpm is among those that base decides on; the others are service addresses.
func (p *plan) isBase(e p4rt.Entry) bool {
	for _, k := range e.Match {
		if v, ok := k.Value.(p4rt.Value); ok && e.Table != "port_trust" {
			for _, c := range p.t.Chains {
				if v.Addr() == c.Address {
					return false
				}
			}
		}
	}
	return true
}

// chainPlan is what a switch holds for one chain.
type chainPlan struct {
	config p4rt.Entry
	groups []p4rt.Group
	take   *p4rt.Entry // local_address of the service address, at members
	route  *p4rt.Entry // ipv4_lpm to it, at the others
}

// chain is what a switch holds for a configuration of a chain.
func (p *plan) chain(c *topology.Chain, s *topology.Switch, conf chain.Config) chainPlan {
	a := conf.Assignment(s.Name)
	address := func(name string) netip.Addr {
		if sw := p.t.Switch(name); sw != nil {
			return sw.Address
		}
		return netip.Addr{}
	}
	part := chainPart{role: a.Role, frozen: a.Frozen, leaseRequired: a.LeaseRequired, epoch: a.Epoch,
		head: address(a.Head), next: address(a.Next), tail: address(a.Tail), service: c.Address}
	ids := p.groups[s.Name][c.ID]
	parity := conf.Epoch % 2
	var out chainPlan
	// The tail's acknowledgements go down a tree to all members and the shadow, by way of others where need be; where a reply goes the same way, it is the acknowledgement.
	// A chain of one without a shadow acknowledges to nobody.
	var acks []p4rt.Replica
	for _, port := range p.graph(a.Tail, conf.Learners()...).Tree(a.Tail, conf.Learners())[s.Name] {
		acks = append(acks, p4rt.Replica{Port: port, Instance: instanceAck})
	}
	if len(acks) > 0 {
		part.ackGroup = ids.ack[parity]
		out.groups = append(out.groups, p4rt.Group{ID: uint32(part.ackGroup), Replicas: acks})
		part.replyGroup = ids.reply[parity]
		for _, port := range replyPorts(s) {
			// The reply itself acknowledges on the way that it goes.
			replicas := slices.DeleteFunc(slices.Clone(acks), func(r p4rt.Replica) bool { return r.Port == port })
			out.groups = append(out.groups, p4rt.Group{ID: uint32(part.replyGroup) + port, Replicas: append(replicas, p4rt.Replica{Port: port, Instance: instanceReply})})
		}
	}
	out.config = chainEntry(c.ID, part)
	if a.Role.Member() {
		e := takeAddress(c.Address)
		out.take = &e
	} else if e, ok := p.towards(s, c.Address, p.graph(s.Name, conf.Members...).Nearest(s.Name, conf.Members)); ok {
		out.route = &e
	}
	return out
}

// spaces divides the program's slots among the chains: those that ask for a number get it, the others share what is left.
func (p *program) spaces(t *topology.Topology) ([]directory.Space, error) {
	left, sharing := p.slots, 0
	for _, c := range t.Chains {
		left -= c.Slots
		if c.Slots == 0 {
			sharing++
		}
	}
	if left < 0 || sharing > 0 && left < sharing {
		return nil, fmt.Errorf("the chains ask for %d slots, but the program has %d%s", p.slots-left, p.slots,
			map[bool]string{true: ", and some chains are to share the rest", false: ""}[sharing > 0])
	}
	var out []directory.Space
	first := 0
	for _, c := range t.Chains {
		n := c.Slots
		if n == 0 {
			n = left / sharing
		}
		out = append(out, directory.Space{Chain: c.ID, First: first, Count: n})
		first += n
	}
	return out, nil
}
