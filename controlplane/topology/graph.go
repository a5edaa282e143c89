package topology

import (
	"slices"
	"sync/atomic"
)

// Graph is the graph of the switches that are up, with a shortest path between any two. Among
// equally short paths it uses the path whose first port has the lowest number. A packet that
// follows these paths from switch to switch always arrives, because each step is on a shortest
// path.
//
// The way to a switch is searched for when it is first asked for, so a graph costs little to make,
// and a change of the routes to a few switches does not search for the others. A graph is safe for
// concurrent use.
type Graph struct {
	index    map[string]int // of the switches that are up
	switches []*Switch      // by index
	links    [][]link       // by index, in the order of ports
	// distances holds, by index, the number of links from each switch to that one: noPath if there
	// is no path. nil: not searched for yet.
	distances []atomic.Pointer[[]int32]
}

// link is a cable to another switch that is up.
type link struct {
	to   int // index
	port int // in Switch.Ports
}

const noPath = -1

// Graph makes the graph of all switches except those in down.
func (t *Topology) Graph(down map[string]bool) *Graph {
	g := &Graph{index: map[string]int{}}
	for _, s := range t.Switches {
		if !down[s.Name] {
			g.index[s.Name] = len(g.switches)
			g.switches = append(g.switches, s)
		}
	}
	g.links, g.distances = make([][]link, len(g.switches)), make([]atomic.Pointer[[]int32], len(g.switches))
	for i, s := range g.switches {
		for n, p := range s.Ports {
			if p.Peer == nil {
				continue
			}
			if to, up := g.index[p.Peer.Name]; up {
				g.links[i] = append(g.links[i], link{to, n})
			}
		}
	}
	return g
}

// to returns the number of links from each switch to one of them, by a breadth-first search.
func (g *Graph) to(end int) []int32 {
	if known := g.distances[end].Load(); known != nil {
		return *known
	}
	dist := make([]int32, len(g.switches))
	for i := range dist {
		dist[i] = noPath
	}
	dist[end] = 0
	for queue := []int{end}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		for _, l := range g.links[at] {
			if dist[l.to] == noPath {
				dist[l.to] = dist[at] + 1
				queue = append(queue, l.to)
			}
		}
	}
	g.distances[end].Store(&dist)
	return dist
}

// Distance returns the number of links between two switches. It returns false if there is no path,
// or if a switch is down.
func (g *Graph) Distance(from, to string) (links int, ok bool) {
	a, upA := g.index[from]
	b, upB := g.index[to]
	if !upA || !upB {
		return 0, false
	}
	n := g.to(b)[a]
	return int(max(n, 0)), n != noPath
}

// NextHop returns the port through which from sends packets for another switch.
func (g *Graph) NextHop(from, to string) (Port, bool) {
	a, upA := g.index[from]
	b, upB := g.index[to]
	if !upA || !upB {
		return Port{}, false
	}
	dist := g.to(b)
	for _, l := range g.links[a] {
		if dist[a] > 0 && dist[l.to] == dist[a]-1 {
			return g.switches[a].Ports[l.port], true
		}
	}
	return Port{}, false // it is there already, or there is no path
}

// Nearest returns the member with the shortest path from a switch. If several members are equally
// near, it returns the first of them. It returns "" if no member can be reached.
func (g *Graph) Nearest(from string, members []string) string {
	best, bestDistance := "", 0
	for _, m := range members {
		if d, ok := g.Distance(from, m); ok && (best == "" || d < bestDistance) {
			best, bestDistance = m, d
		}
	}
	return best
}

// Tree returns a tree rooted at root, along shortest paths, that covers all reachable members. For
// each switch with children it lists the ports that lead to them. A copy that is sent down the
// tree crosses each link once and reaches each switch on it once.
func (g *Graph) Tree(root string, members []string) map[string][]uint32 {
	tree := map[string][]uint32{}
	for _, m := range members {
		// Go up from the member to the root. A switch's parent does not depend on the member, so
		// paths join and do not cross.
		for at := m; at != root; {
			up, ok := g.NextHop(at, root)
			if !ok {
				break
			}
			parent := up.Peer.Name
			if !slices.Contains(tree[parent], up.PeerPort) {
				tree[parent] = append(tree[parent], up.PeerPort)
			}
			at = parent
		}
	}
	for _, ports := range tree {
		slices.Sort(ports)
	}
	return tree
}
