package controller

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/keyspace"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// This file says, purely, what the switches' tables should hold: plan.base is what follows from the
// topology alone, plan.chain what follows from a chain's configuration. What is in the switches is
// compared with that, and only differences are written.

// The entries of docs/protocol.md, "Tables that the controller fills".

func fabricPort(port uint32) p4rt.Entry {
	return p4rt.Entry{Table: "port_trust", Match: p4rt.Match{"ingress_port": p4rt.Exact(port)}, Action: "fabric_port"}
}

// hostPort lets in a principal's requests; open: with any client's session, leased or not.
func hostPort(port uint32, principal uint16, address netip.Addr, open bool) p4rt.Entry {
	action := "host_port"
	if open {
		action = "open_host_port"
	}
	return p4rt.Entry{Table: "port_trust", Match: p4rt.Match{"ingress_port": p4rt.Exact(port)}, Action: action,
		Params: p4rt.Params{"principal": principal, "address": address}}
}

func leaseEntry(session uint16, port uint32) p4rt.Entry {
	return p4rt.Entry{Table: "session_lease", Match: p4rt.Match{"session": p4rt.Exact(session)}, Action: "leased_to", Params: p4rt.Params{"port": port}}
}

func grantEntry(principal, realm uint16, read, write bool) p4rt.Entry {
	return p4rt.Entry{Table: "access", Match: p4rt.Match{"principal": p4rt.Exact(principal), "realm": p4rt.Exact(realm)}, Action: "grant",
		Params: p4rt.Params{"read": read, "write": write}}
}

func localAddress(a netip.Addr) p4rt.Entry {
	return p4rt.Entry{Table: "local_address", Match: p4rt.Match{"ipv4_dst": p4rt.Exact(a)}, Action: "set_local"}
}

func forward(to netip.Prefix, mac net.HardwareAddr, port uint32) p4rt.Entry {
	return p4rt.Entry{Table: "ipv4_lpm", Match: p4rt.Match{"ipv4_dst": p4rt.LPM(to.Addr(), to.Bits())}, Action: "forward",
		Params: p4rt.Params{"dst_mac": mac, "port": port}}
}

// only is the prefix of one address.
func only(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func toController(a netip.Addr) p4rt.Entry {
	return p4rt.Entry{Table: "ipv4_lpm", Match: p4rt.Match{"ipv4_dst": p4rt.LPM(a, 32)}, Action: "to_controller"}
}

func slotEntry(e ops.Entry) p4rt.Entry {
	if e.Hidden {
		e.Realm = hiddenKey
	}
	return p4rt.Entry{Table: "key_index", Match: p4rt.Match{"KEY_ID": p4rt.Exact(uint32(e.ID))},
		Action: "set_slot", Params: p4rt.Params{"slot": e.Slot, "realm": e.Realm}}
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

// peerPart says which messages of a chain a port may bring.
type peerPart struct{ predecessor, tail, member bool }

func (a peerPart) or(b peerPart) peerPart {
	return peerPart{a.predecessor || b.predecessor, a.tail || b.tail, a.member || b.member}
}

func peerEntry(id uint8, port uint32, p peerPart) p4rt.Entry {
	return p4rt.Entry{Table: "chain_peer", Match: p4rt.Match{"chain": p4rt.Exact(id), "ingress_port": p4rt.Exact(port)},
		Action: "peer", Params: p4rt.Params{"predecessor": p.predecessor, "tail": p.tail, "member": p.member}}
}

// peerEntries returns the chain_peer entries of a chain, by port.
func peerEntries(id uint8, parts map[uint32]peerPart) (out []p4rt.Entry) {
	for _, port := range slices.Sorted(maps.Keys(parts)) {
		out = append(out, peerEntry(id, port, parts[port]))
	}
	return out
}

// peerDefault is what a switch takes by ports that chain_peer has no entry of: everything or
// nothing.
func peerDefault(open bool) p4rt.Entry {
	return p4rt.Entry{Table: "chain_peer", Default: true, Action: "peer",
		Params: p4rt.Params{"predecessor": open, "tail": open, "member": open}}
}

// readPeerEntry returns the port and the part of a chain_peer entry.
func readPeerEntry(e p4rt.Entry) (port uint32, p peerPart) {
	is := func(param string) bool { return e.Param(param).Uint64() == 1 }
	return uint32(e.Exact("ingress_port").Uint64()), peerPart{is("predecessor"), is("tail"), is("member")}
}

// readChainEntry is the assignment that a chain_config entry stands for. An address that no switch
// has becomes a name that no switch has.
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
	instanceAck    = 1
	instanceReply  = 2
	instanceNotify = 3
)

// maxGroup is the highest multicast group id: simple_switch_grpc keeps those from 32768 on for
// itself.
const maxGroup = 1<<15 - 1

// groupIDs are the multicast groups of one chain at one switch. Configurations of even and odd
// epochs have groups of their own, so that those of the next can be made while those of the present
// are in use.
type groupIDs struct {
	ack   [2]uint16
	reply [2]uint16 // the group for a reply by port p is reply + p
	// Those of what is watched are changed while they are not in use: no others are needed.
	watchAck, watchReply uint16
}

// groupTable is the group ids of all chains at all switches.
type groupTable map[string]map[uint8]groupIDs

// A block is the group ids for all ports that a switch can have: the first is that of the
// acknowledgements, and the one for a reply by port p is p further.
const (
	blockSize = int(topology.CPUPort) + 1
	maxBlocks = maxGroup / blockSize / 3 // chains that there are three blocks for
)

// allocateGroups gives every chain its groups at every switch. It should give the same ones again
// when ports, hosts and chains come and go, because a chain's entry has to be changed with them: so
// a chain has blocks that follow from its id, as long as there are no more chains than blocks. More
// chains get what they need for the ports that there are.
func allocateGroups(t *topology.Topology) (groupTable, error) {
	if len(t.Chains) <= maxBlocks {
		return allocateBlocks(t), nil
	}
	return allocateDensely(t)
}

func allocateBlocks(t *topology.Topology) groupTable {
	ids := map[uint8]groupIDs{}
	taken := [maxBlocks]bool{}
	chains := slices.SortedFunc(slices.Values(t.Chains), func(a, b *topology.Chain) int {
		return cmp.Compare(a.ID, b.ID)
	})
	for _, c := range chains {
		n := int(c.ID) % maxBlocks
		for taken[n] {
			n = (n + 1) % maxBlocks
		}
		taken[n] = true
		first := uint16(1 + 2*n*blockSize)
		second := first + uint16(blockSize)
		watch := uint16(1 + (2*maxBlocks+n)*blockSize) // behind all others, which keep their ids
		ids[c.ID] = groupIDs{ack: [2]uint16{first, second}, reply: [2]uint16{first, second},
			watchAck: watch, watchReply: watch}
	}
	out := groupTable{}
	for _, s := range t.Switches {
		out[s.Name] = ids
	}
	return out
}

func allocateDensely(t *topology.Topology) (groupTable, error) {
	out := groupTable{}
	for _, s := range t.Switches {
		taken := make([]bool, maxGroup+1)
		taken[0] = true // no group
		ids := map[uint8]groupIDs{}
		ports := replyPorts(s)
		low := 1
		for _, c := range t.Chains {
			var g groupIDs
			for kind := range 3 { // of even and of odd epochs, and of what is watched
				for low <= maxGroup && taken[low] {
					low++
				}
				ack, ok := low, low <= maxGroup
				if ok {
					taken[ack] = true
				}
				// The lowest base whose groups are all free. The base itself may be another's:
				// there is no port 0.
				base := 0
				free := func(base int) bool {
					return !slices.ContainsFunc(ports, func(p uint32) bool {
						n := base + int(p)
						return n > maxGroup || taken[n]
					})
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
				if kind == 2 {
					g.watchAck, g.watchReply = uint16(ack), uint16(base)
				} else {
					g.ack[kind], g.reply[kind] = uint16(ack), uint16(base)
				}
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

// ownsWatch says whether a group is one of a chain's for what is watched.
func (g groupIDs) ownsWatch(ports []uint32, id uint32) bool {
	base := uint32(g.watchReply)
	return id == uint32(g.watchAck) || id > base && slices.Contains(ports, id-base)
}

// owns says whether a group is one of a chain's at a switch with these ports for replies, but for
// those of what is watched.
func (g groupIDs) owns(ports []uint32, id uint32) bool {
	for parity := range 2 {
		if id == uint32(g.ack[parity]) {
			return true
		}
		if base := uint32(g.reply[parity]); id > base && slices.Contains(ports, id-base) {
			return true
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
	chains []uint8 // their ids
	// numbers are those of the principals and realms, by name.
	numbers map[string]uint16

	// entrances holds the result of ports for each switch that it was called for. avoid empties it.
	entrancesMu sync.Mutex
	entrances   map[string]map[string][]uint32
}

func newPlan(t *topology.Topology, given *numbering) (*plan, error) {
	groups, err := allocateGroups(t)
	if err != nil {
		return nil, err
	}
	p := &plan{t: t, full: t.Graph(nil), groups: groups, chains: []uint8{}}
	if p.numbers, err = given.of(t); err != nil {
		return nil, err
	}
	for _, c := range t.Chains {
		p.chains = append(p.chains, c.ID)
	}
	p.avoid(nil)
	return p, nil
}

// avoid makes the ways go around some switches from now on, where there is a way around.
func (p *plan) avoid(down map[string]bool) {
	p.entrancesMu.Lock()
	defer p.entrancesMu.Unlock()
	p.around.Store(p.t.Graph(maps.Clone(down)))
	p.entrances = map[string]map[string][]uint32{}
}

// walk follows the routes from one switch to another and calls enter with each switch on the way,
// the last included, and the port by which a packet comes in there.
func (p *plan) walk(from, to string, enter func(at string, port uint32)) {
	for at := from; at != to; {
		hop, ok := p.graph(at, to).NextHop(at, to)
		if !ok {
			return
		}
		at = hop.Peer.Name
		enter(at, hop.PeerPort)
	}
}

// ports returns, for each switch, its ingress ports on the routes from one switch to all others. It
// walks to every switch, so the result is kept until the ways change.
func (p *plan) ports(from string) map[string][]uint32 {
	p.entrancesMu.Lock()
	defer p.entrancesMu.Unlock()
	if known := p.entrances[from]; known != nil {
		return known
	}
	out := map[string][]uint32{}
	for _, to := range p.t.Switches {
		p.walk(from, to.Name, func(at string, port uint32) {
			if !slices.Contains(out[at], port) {
				out[at] = append(out[at], port)
			}
		})
	}
	p.entrances[from] = out
	return out
}

// peers returns what of a chain comes by which port of a switch: stamped writes on the way from a
// member to the next, acknowledgements from the tail's side of the tree, answers from any member.
func (p *plan) peers(s *topology.Switch, conf chain.Config) map[uint32]peerPart {
	out := map[uint32]peerPart{}
	add := func(port uint32, part peerPart) { out[port] = out[port].or(part) }
	learners := conf.Learners()
	for _, name := range learners {
		if next := conf.Assignment(name).Next; next != "" {
			p.walk(name, next, func(at string, port uint32) {
				if at == s.Name {
					add(port, peerPart{predecessor: true})
				}
			})
		}
		for _, port := range p.ports(name)[s.Name] {
			add(port, peerPart{member: true})
		}
	}
	tail := conf.Assignment(s.Name).Tail
	if up, ok := p.graph(tail, learners...).NextHop(s.Name, tail); ok {
		add(up.Number, peerPart{tail: true})
	}
	return out
}

// graph is the network in which all of some switches can be reached from one: without those that
// are given up if they can, else whole.
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
func (p *plan) towards(from *topology.Switch, to netip.Prefix, at string) (p4rt.Entry, bool) {
	hop, ok := p.graph(from.Name, at).NextHop(from.Name, at)
	if !ok {
		return p4rt.Entry{}, false
	}
	return forward(to, hop.Peer.MAC, hop.Number), true
}

// realm is the number of a key's realm, by the key's name.
func (p *plan) realm(name string) uint16 { return p.numbers[p.t.RealmOf(name)] }

// base is what a switch holds whatever the chains: who may come in by its ports and do what, its
// own address, and the routes to hosts, switches and the controller.
func (p *plan) base(s *topology.Switch) []p4rt.Entry {
	var out []p4rt.Entry
	for _, port := range s.Ports {
		switch h := port.Host; {
		case port.Peer != nil:
			out = append(out, fabricPort(port.Number))
		case h != nil && h.Principal != "":
			out = append(out, hostPort(port.Number, p.numbers[h.Principal], h.IP, h.Open))
		}
	}
	for _, g := range p.t.Grants {
		if g.Principal != g.Realm {
			out = append(out, grantEntry(p.numbers[g.Principal], p.numbers[g.Realm], g.Read, g.Write))
		}
	}
	out = append(out, localAddress(s.Address), toController(p.t.Controller.Address))
	for _, other := range p.t.Switches {
		if e, ok := p.towards(s, only(other.Address), other.Name); ok {
			out = append(out, e)
		}
		for _, prefix := range other.Prefixes {
			if e, ok := p.towards(s, prefix, other.Name); ok {
				out = append(out, e)
			}
		}
	}
	for _, h := range p.t.Hosts {
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

// isBase says whether an entry of a table in baseTables is among those that base decides on; the
// others are service addresses.
func (p *plan) isBase(e p4rt.Entry) bool {
	for _, k := range e.Match {
		if v, ok := k.Value.(p4rt.Value); ok && (e.Table == "local_address" || e.Table == "ipv4_lpm") {
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
	peers  map[uint32]peerPart // chain_peer, by port
	groups []p4rt.Group
	take   *p4rt.Entry // local_address of the service address, at members that may answer
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
	// The tail's acknowledgements go down a tree to all members and the shadow, by way of others
	// where need be; where a reply goes the same way, it is the acknowledgement. A chain of one
	// without a shadow acknowledges to nobody.
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
			out.groups = append(out.groups, p4rt.Group{ID: uint32(part.replyGroup) + port,
				Replicas: append(replicas, p4rt.Replica{Port: port, Instance: instanceReply})})
		}
	}
	out.config = chainEntry(c.ID, part)
	out.peers = p.peers(s, conf)
	if a.Holds() {
		e := localAddress(c.Address)
		out.take = &e
	} else if e, ok := p.towards(s, only(c.Address), p.graph(s.Name, conf.Members...).Nearest(s.Name,
		conf.Members)); ok {
		out.route = &e
	}
	return out
}

// spaces divides the program's slots among the chains, in the order of the topology: those that
// have slots keep them, unless they ask for another number now; those that ask for a number get it,
// and the others share what is left.
func (p *program) spaces(t *topology.Topology, keep []keyspace.Space) ([]keyspace.Space, error) {
	out := make([]keyspace.Space, len(t.Chains))
	left, sharing, asked := p.slots, 0, 0
	for i, c := range t.Chains {
		for _, k := range keep {
			if k.Chain == c.ID && (c.Slots == 0 || c.Slots == k.Count) && k.First+k.Count <= p.slots {
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
		return nil, fmt.Errorf("the chains ask for %d slots, but the program has %d%s", asked, p.slots,
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
		first, ok := gap(out, n, p.slots)
		if !ok {
			return nil, fmt.Errorf("the chain %s asks for %d slots, and there are not that many in a row between those of the other chains: ask for fewer", c.Name, n)
		}
		out[i] = keyspace.Space{Chain: c.ID, First: first, Count: n}
	}
	return out, nil
}

// gap finds the first n slots in a row that are nobody's.
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
