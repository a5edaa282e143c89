package tableplan

import (
	"net/netip"

	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// A network of n switches would have n times n routes, one at each switch to each other. But at
// most switches nearly all of them lead through the same port: a leaf reaches everything through an
// uplink. Such a switch gathers its routes. It gets one route to all addresses of the network, by
// which it reaches the root, a switch that is the same for all, and routes of their own only to the
// addresses that it reaches by another port.
//
// So packets to addresses that exist take the same way as with one route for each. A packet to an
// address that does not exist comes one step nearer to the root at each switch that gathers, and is
// dropped at the first one that does not, such as the root. A switch that gathers must drop packets
// to its own address, to the rest of its prefixes, and to service addresses that it takes itself.
// Other switches send these packets to it, and the gathered route would send them back.

// gatherFrom is how many routes gathering must save. In a small network it would save little.
const gatherFrom = 64

// gathered is the route of a switch that gathers.
type gathered struct{ hop topology.Port }

// covers reports whether a route through a port is contained in the gathered one.
func (g *gathered) covers(hop topology.Port) bool { return g != nil && g.hop.Number == hop.Number }

// cover returns prefixes that together contain all addresses of a network: the longest one if there
// is one, otherwise two. P4Runtime has no prefix of length 0.
func cover(t *topology.Topology) []netip.Prefix {
	all := netip.Prefix{}
	add := func(p netip.Prefix) {
		if !all.IsValid() {
			all = p
		}
		for bits := min(all.Bits(), p.Bits()); ; bits-- {
			if all = netip.PrefixFrom(all.Addr(), bits).Masked(); all.Contains(p.Addr()) {
				return
			}
		}
	}
	for _, s := range t.Switches {
		add(only(s.Address))
		for _, p := range s.Prefixes {
			add(p)
		}
	}
	for _, h := range t.Hosts {
		add(only(h.IP))
	}
	if all.Bits() > 0 {
		return []netip.Prefix{all}
	}
	return []netip.Prefix{netip.MustParsePrefix("0.0.0.0/1"), netip.MustParsePrefix("128.0.0.0/1")}
}

// mayGather reports whether no route of its own has the same prefix as a gathered one.
func mayGather(t *topology.Topology, cover []netip.Prefix) bool {
	own := map[netip.Prefix]bool{}
	for _, s := range t.Switches {
		for _, p := range s.Prefixes {
			own[p] = true
		}
	}
	for _, p := range cover {
		if own[p] || p.IsSingleIP() {
			return false
		}
	}
	return true
}

// gather returns how a switch gathers its routes, or nil if it has a route for each address.
func (p *Plan) gather(s *topology.Switch) *gathered {
	root := p.Topology.Switches[0]
	if s == root || p.cover == nil || len(p.Topology.Switches) < gatherFrom {
		return nil
	}
	p.entrancesMu.Lock()
	defer p.entrancesMu.Unlock()
	if g, known := p.gathers[s.Name]; known {
		return g
	}
	var g *gathered
	if hop, ok := p.graph(s.Name, root.Name).NextHop(s.Name, root.Name); ok {
		saved := 0
		for _, port := range p.Routes(s) {
			if port == hop.Number {
				saved++
			}
		}
		if saved >= gatherFrom {
			g = &gathered{hop}
		}
	}
	p.gathers[s.Name] = g
	return g
}

// gatheredRoutes returns the entries that only a switch that gathers has.
func (p *Plan) gatheredRoutes(s *topology.Switch, g *gathered) (out []p4rt.Entry) {
	for _, prefix := range p.cover {
		out = append(out, forward(prefix, g.hop.Peer.MAC, g.hop.Number))
	}
	out = append(out, noRoute(only(s.Address)))
	for _, prefix := range s.Prefixes {
		out = append(out, noRoute(prefix))
	}
	return out
}
