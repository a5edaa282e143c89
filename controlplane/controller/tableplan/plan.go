package tableplan

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// Plan is a topology with the resources that were allocated for it.
type Plan struct {
	Topology *topology.Topology
	full     *topology.Graph                // the graph with all switches
	around   atomic.Pointer[topology.Graph] // the graph without the switches to avoid
	groups   groupTable
	Chains   []uint8 // ids of the chains
	// numbers holds the numbers of the principals and realms, by name.
	numbers map[string]uint16

	// entrances caches the result of ports for each switch. avoid empties it.
	entrancesMu sync.Mutex
	entrances   map[string]map[string][]uint32
}

// New makes the plan of a topology. It fails if the multicast groups of the chains do not fit, or
// if there are too many principals and realms.
func New(t *topology.Topology, given *Numbering) (*Plan, error) {
	groups, err := allocateGroups(t)
	if err != nil {
		return nil, err
	}
	p := &Plan{Topology: t, full: t.Graph(nil), groups: groups, Chains: []uint8{}}
	if p.numbers, err = given.of(t); err != nil {
		return nil, err
	}
	for _, c := range t.Chains {
		p.Chains = append(p.Chains, c.ID)
	}
	p.Avoid(nil)
	return p, nil
}

// ChainOf returns the chain with the given id, or nil if there is none.
func (p *Plan) ChainOf(id uint8) *topology.Chain {
	i := slices.IndexFunc(p.Topology.Chains, func(c *topology.Chain) bool { return c.ID == id })
	if i < 0 {
		return nil
	}
	return p.Topology.Chains[i]
}

// Avoid makes the routes bypass some switches from now on, where another path exists.
func (p *Plan) Avoid(down map[string]bool) {
	p.entrancesMu.Lock()
	defer p.entrancesMu.Unlock()
	p.around.Store(p.Topology.Graph(maps.Clone(down)))
	p.entrances = map[string]map[string][]uint32{}
}

// walk follows the routes from one switch to another. It calls enter for each later switch on the
// way, including the last, with the port by which a packet enters that switch.
func (p *Plan) walk(from, to string, enter func(at string, port uint32)) {
	for at := from; at != to; {
		hop, ok := p.graph(at, to).NextHop(at, to)
		if !ok {
			return
		}
		at = hop.Peer.Name
		enter(at, hop.PeerPort)
	}
}

// ports returns, for each switch, its ingress ports on the routes from one switch to all others.
// The result is cached until the routes change, because computing it walks to every switch.
func (p *Plan) ports(from string) map[string][]uint32 {
	p.entrancesMu.Lock()
	defer p.entrancesMu.Unlock()
	if known := p.entrances[from]; known != nil {
		return known
	}
	out := map[string][]uint32{}
	for _, to := range p.Topology.Switches {
		p.walk(from, to.Name, func(at string, port uint32) {
			if !slices.Contains(out[at], port) {
				out[at] = append(out[at], port)
			}
		})
	}
	p.entrances[from] = out
	return out
}

// peers returns which messages of a chain arrive at which port of a switch. These messages are
// stamped writes on the way from a member to the next, acknowledgements from the tail's side of the
// tree, and answers from any member.
func (p *Plan) peers(s *topology.Switch, conf chain.Config) map[uint32]Peer {
	out := map[uint32]Peer{}
	add := func(port uint32, part Peer) { out[port] = out[port].Or(part) }
	learners := conf.Learners()
	for _, name := range learners {
		if next := conf.Assignment(name).Next; next != "" {
			p.walk(name, next, func(at string, port uint32) {
				if at == s.Name {
					add(port, Peer{predecessor: true})
				}
			})
		}
		for _, port := range p.ports(name)[s.Name] {
			add(port, Peer{member: true})
		}
	}
	tail := conf.Assignment(s.Name).Tail
	if up, ok := p.graph(tail, learners...).NextHop(s.Name, tail); ok {
		add(up.Number, Peer{tail: true})
	}
	return out
}

// graph returns a network graph in which one switch can reach all of some others. If possible, this
// is the graph without the switches to avoid, otherwise the full graph.
func (p *Plan) graph(from string, to ...string) *topology.Graph {
	g := p.around.Load()
	for _, s := range to {
		if _, ok := g.Distance(from, s); !ok {
			return p.full
		}
	}
	return g
}

// towards returns the route at a switch to an address that belongs to another switch or to one of
// that switch's hosts.
func (p *Plan) towards(from *topology.Switch, to netip.Prefix, at string) (p4rt.Entry, bool) {
	hop, ok := p.graph(from.Name, at).NextHop(from.Name, at)
	if !ok {
		return p4rt.Entry{}, false
	}
	return forward(to, hop.Peer.MAC, hop.Number), true
}

// Grant returns the access entry that says whether a principal may read and write in a realm.
func (p *Plan) Grant(principal, realm string, read, write bool) p4rt.Entry {
	return grantEntry(p.numbers[principal], p.numbers[realm], read, write)
}

// realm returns the number of a key's realm, by the key's name.
func (p *Plan) realm(name string) uint16 { return p.numbers[p.Topology.RealmOf(name)] }

// Base returns the part of a switch's content that does not depend on chains. It holds the rights
// of ports, the switch's own address, and the routes to hosts, switches and the controller.
func (p *Plan) Base(s *topology.Switch) []p4rt.Entry {
	var out []p4rt.Entry
	for _, port := range s.Ports {
		switch h := port.Host; {
		case port.Peer != nil:
			out = append(out, fabricPort(port.Number))
		case h != nil && h.Principal != "":
			out = append(out, hostPort(port.Number, p.numbers[h.Principal], h.IP, h.Open))
		}
	}
	for _, g := range p.Topology.Grants {
		if g.Principal != g.Realm {
			out = append(out, p.Grant(g.Principal, g.Realm, g.Read, g.Write))
		}
	}
	out = append(out, localAddress(s.Address), toController(p.Topology.Controller.Address))
	for _, other := range p.Topology.Switches {
		if e, ok := p.towards(s, only(other.Address), other.Name); ok {
			out = append(out, e)
		}
		for _, prefix := range other.Prefixes {
			if e, ok := p.towards(s, prefix, other.Name); ok {
				out = append(out, e)
			}
		}
	}
	for _, h := range p.Topology.Hosts {
		if h.Switch == s {
			out = append(out, forward(only(h.IP), h.MAC, h.Port))
		} else if h.Switch.Covers(h.IP) {
			continue
		} else if e, ok := p.towards(s, only(h.IP), h.Switch.Name); ok {
			out = append(out, e)
		}
	}
	return out
}

// IsBase reports whether Base decides on an entry of a table in BaseTables. All other entries of
// these tables are for service addresses.
func (p *Plan) IsBase(e p4rt.Entry) bool {
	for _, k := range e.Match {
		if v, ok := k.Value.(p4rt.Value); ok && (e.Table == "local_address" || e.Table == "ipv4_lpm") {
			for _, c := range p.Topology.Chains {
				if v.Addr() == c.Address {
					return false
				}
			}
		}
	}
	return true
}

// Part is a switch's content for one chain.
type Part struct {
	Config p4rt.Entry
	Peers  map[uint32]Peer // chain_peer entries, by port
	Groups []p4rt.Group
	Take   *p4rt.Entry // local_address entry of the service address, at members that may answer
	Route  *p4rt.Entry // ipv4_lpm entry of the service address, at the other switches
}

// Chain returns a switch's content for a configuration of a chain.
func (p *Plan) Chain(c *topology.Chain, s *topology.Switch, conf chain.Config) Part {
	a := conf.Assignment(s.Name)
	address := func(name string) netip.Addr {
		if sw := p.Topology.Switch(name); sw != nil {
			return sw.Address
		}
		return netip.Addr{}
	}
	part := chainPart{role: a.Role, frozen: a.Frozen, leaseRequired: a.LeaseRequired, epoch: a.Epoch,
		head: address(a.Head), next: address(a.Next), tail: address(a.Tail), service: c.Address}
	ids := p.groups[s.Name][c.ID]
	parity := conf.Epoch % 2
	var out Part
	// The tail's acknowledgements go down a tree to all members and the shadow, through other
	// switches if necessary. Where a reply takes the same path, the reply itself is the
	// acknowledgement. A chain of one member without a shadow sends no acknowledgements.
	var acks []p4rt.Replica
	for _, port := range p.graph(a.Tail, conf.Learners()...).Tree(a.Tail, conf.Learners())[s.Name] {
		acks = append(acks, p4rt.Replica{Port: port, Instance: instanceAck})
	}
	if len(acks) > 0 {
		part.ackGroup = ids.ack[parity]
		out.Groups = append(out.Groups, p4rt.Group{ID: uint32(part.ackGroup), Replicas: acks})
		part.replyGroup = ids.reply[parity]
		for _, port := range replyPorts(s) {
			// On this port, the reply itself is the acknowledgement, so no other copy is needed.
			replicas := slices.DeleteFunc(slices.Clone(acks), func(r p4rt.Replica) bool { return r.Port == port })
			out.Groups = append(out.Groups, p4rt.Group{ID: uint32(part.replyGroup) + port,
				Replicas: append(replicas, p4rt.Replica{Port: port, Instance: instanceReply})})
		}
	}
	out.Config = chainEntry(c.ID, part)
	out.Peers = p.peers(s, conf)
	if a.Holds() {
		e := localAddress(c.Address)
		out.Take = &e
	} else if e, ok := p.towards(s, only(c.Address), p.graph(s.Name, conf.Members...).Nearest(s.Name,
		conf.Members)); ok {
		out.Route = &e
	}
	return out
}
