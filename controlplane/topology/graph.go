package topology

import (
	"slices"
)

// Graph is the graph of the switches that are up, with a shortest path between any two. Among
// equally short paths it uses the path whose first port has the lowest number. A packet that
// follows these paths from switch to switch always arrives, because each step is on a shortest
// path.
type Graph struct {
	t    *Topology
	down map[string]bool
	// distance[a][b] is the number of links from a to b. It is missing if there is no path.
	distance map[string]map[string]int
}

// Graph makes the graph of all switches except those in down.
func (t *Topology) Graph(down map[string]bool) *Graph {
	g := &Graph{t: t, down: down, distance: map[string]map[string]int{}}
	for _, s := range t.Switches {
		if !down[s.Name] {
			g.distance[s.Name] = g.distances(s)
		}
	}
	return g
}

// distances computes the distances from a switch by a breadth-first search.
func (g *Graph) distances(from *Switch) map[string]int {
	dist := map[string]int{from.Name: 0}
	for queue := []*Switch{from}; len(queue) > 0; queue = queue[1:] {
		for _, p := range queue[0].Ports {
			if p.Peer == nil || g.down[p.Peer.Name] {
				continue
			}
			if _, seen := dist[p.Peer.Name]; !seen {
				dist[p.Peer.Name] = dist[queue[0].Name] + 1
				queue = append(queue, p.Peer)
			}
		}
	}
	return dist
}

// Distance returns the number of links between two switches. It returns false if there is no path,
// or if a switch is down.
func (g *Graph) Distance(from, to string) (links int, ok bool) {
	links, ok = g.distance[from][to]
	return links, ok
}

// NextHop returns the port through which from sends packets for another switch.
func (g *Graph) NextHop(from, to string) (Port, bool) {
	here, ok := g.Distance(from, to)
	if !ok || here == 0 {
		return Port{}, false
	}
	for _, p := range g.t.Switch(from).Ports {
		if p.Peer == nil {
			continue
		}
		if d, ok := g.Distance(p.Peer.Name, to); ok && d == here-1 {
			return p, true
		}
	}
	return Port{}, false // cannot happen, because some neighbour is one link closer
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
