package tableplan

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// leaves returns a network of two core switches and pods of two aggregation switches and some
// leaves, with a host and a prefix at some of them, in a random order.
func leaves(t *testing.T, r *rand.Rand, pods, podLeaves int) *topology.Topology {
	t.Helper()
	n := 2 + pods*(2+podLeaves)
	order := r.Perm(n)
	s := topology.Spec{Program: topology.ProgramSpec{JSON: "p.json", P4Info: "p.txtpb"}, Switches: make([]topology.SwitchSpec, n)}
	ports := make([]int, n)
	connect := func(a, b int) {
		ports[a]++
		ports[b]++
		s.Links = append(s.Links, []string{fmt.Sprintf("s%d:%d", a, ports[a]), fmt.Sprintf("s%d:%d", b, ports[b])})
	}
	for i := range n {
		id := uint64(i + 1)
		s.Switches[order[i]] = topology.SwitchSpec{Name: fmt.Sprint("s", i), DeviceID: &id, P4Runtime: fmt.Sprintf("192.0.2.1:%d", 1000+i),
			Address: fmt.Sprintf("10.1.%d.%d", i>>8, i&255)}
		if i%3 == 0 {
			s.Switches[order[i]].Prefixes = []string{fmt.Sprintf("10.4.%d.0/24", i)}
		}
	}
	for pod := range pods {
		a := 2 + pod*(2+podLeaves)
		for _, agg := range []int{a, a + 1} {
			connect(agg, 0)
			connect(agg, 1)
			for leaf := a + 2; leaf < a+2+podLeaves; leaf++ {
				connect(leaf, agg)
			}
		}
	}
	for i := 2; i < n; i += 7 {
		ports[i]++
		ip := fmt.Sprintf("10.5.0.%d", i)
		if i%3 == 0 {
			ip = fmt.Sprintf("10.4.%d.9", i)
		}
		s.Hosts = append(s.Hosts, topology.HostSpec{Name: fmt.Sprint("h", i), IP: ip,
			MAC: fmt.Sprintf("02:00:00:00:00:%02x", i), Port: fmt.Sprintf("s%d:%d", i, ports[i])})
	}
	id := 0
	s.Chains = []topology.ChainSpec{{ID: &id, Name: "c", Address: "10.3.0.1", Members: []string{"s4", "s0", fmt.Sprint("s", n-1)}}}
	top, err := topology.New(s, "test")
	if err != nil {
		t.Fatal(err)
	}
	return top
}

// tables are the routes of each switch, and the addresses that it takes.
type tables struct {
	top    *topology.Topology
	routes map[string]map[netip.Prefix]p4rt.Entry
	takes  map[string]map[netip.Addr]bool
}

func tablesOf(p *Plan) *tables {
	out := &tables{p.Topology, map[string]map[netip.Prefix]p4rt.Entry{}, map[string]map[netip.Addr]bool{}}
	conf := chain.Config{Epoch: 1, Members: p.Topology.Chains[0].Members}
	for _, s := range p.Topology.Switches {
		routes, takes := map[netip.Prefix]p4rt.Entry{}, map[netip.Addr]bool{}
		part := p.Chain(p.Topology.Chains[0], s, conf)
		all := p.Base(s)
		for _, e := range []*p4rt.Entry{part.Take, part.Route} {
			if e != nil {
				all = append(all, *e)
			}
		}
		for _, e := range all {
			switch k := e.Match["ipv4_dst"]; e.Table {
			case "ipv4_lpm":
				prefix := netip.PrefixFrom(k.Value.(netip.Addr), k.Prefix)
				if _, twice := routes[prefix]; twice {
					panic(fmt.Sprint(s.Name, " has two routes for ", prefix))
				}
				routes[prefix] = e
			case "local_address":
				takes[k.Value.(netip.Addr)] = true
			}
		}
		out.routes[s.Name], out.takes[s.Name] = routes, takes
	}
	return out
}

// send returns the switches that a packet to an address passes from a switch on, and where it ends:
// at a switch ("at"), at a host or the controller ("out"), dropped ("drop"), or never ("circle").
// takes says whether switches take packets to their own and service addresses.
func (x *tables) send(from string, to netip.Addr, takes bool) (way []string, end string) {
	for at := x.top.Switch(from); ; {
		if way = append(way, at.Name); len(way) > len(x.top.Switches) {
			return way, "circle"
		}
		if takes && x.takes[at.Name][to] {
			return way, "at"
		}
		var best p4rt.Entry
		bits := -1
		for b := 32; b >= 0 && bits < 0; b-- {
			if prefix, err := to.Prefix(b); err == nil {
				if e, ok := x.routes[at.Name][prefix]; ok {
					best, bits = e, b
				}
			}
		}
		switch {
		case bits < 0 || best.Action == "no_route":
			return way, "drop"
		case best.Action == "to_controller":
			return way, "out"
		}
		port, ok := at.Port(best.Params["port"].(uint32))
		if !ok || port.Peer == nil {
			return way, "out"
		}
		at = port.Peer
	}
}

// TestGathered: switches that gather their routes send packets to all addresses of the network the
// same way as with a route for each, whichever switches are avoided. No other packet circles.
func TestGathered(t *testing.T) {
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 0))
		top := leaves(t, r, 3, 36)
		gathering, err := New(top, &Numbering{})
		if err != nil {
			t.Fatal(err)
		}
		each, _ := New(top, &Numbering{})
		each.cover = nil
		down := map[string]bool{}
		for range r.IntN(4) {
			down[top.Switches[r.IntN(len(top.Switches))].Name] = true
		}
		gathering.Avoid(down)
		each.Avoid(down)
		x, y := tablesOf(gathering), tablesOf(each)
		few, many := 0, 0
		for _, s := range top.Switches {
			few += len(x.routes[s.Name])
			many += len(y.routes[s.Name])
		}
		if few*5 > many {
			t.Errorf("seed %d: %d routes, of %d", seed, few, many)
		}
		known := []netip.Addr{top.Chains[0].Address}
		unknown := []netip.Addr{netip.MustParseAddr("10.1.200.7"), netip.MustParseAddr("10.3.0.2"), netip.MustParseAddr("11.0.0.1")}
		for _, s := range top.Switches {
			known = append(known, s.Address)
			for _, p := range s.Prefixes {
				unknown = append(unknown, p.Addr().Next().Next())
			}
		}
		for _, h := range top.Hosts {
			known = append(known, h.IP)
		}
		for _, s := range top.Switches {
			for _, to := range known {
				want, wantEnd := y.send(s.Name, to, true)
				if got, end := x.send(s.Name, to, true); end != wantEnd || !slices.Equal(got, want) {
					t.Fatalf("seed %d, without %v: from %s to %v by %v, %s; want %v, %s", seed, down, s.Name, to, got, end, want, wantEnd)
				}
				// The program takes only its own packets.
				if got, end := x.send(s.Name, to, false); end == "circle" {
					t.Fatalf("seed %d, without %v: what is not NetCRAQ's circles from %s to %v by %v", seed, down, s.Name, to, got)
				}
			}
			for _, to := range unknown {
				if got, end := x.send(s.Name, to, true); end != "drop" {
					t.Fatalf("seed %d, without %v: from %s to %v by %v: %s", seed, down, s.Name, to, got, end)
				}
			}
		}
	}
}

// TestSmallNetworksDoNotGather: a network of few switches has a route for each address.
func TestSmallNetworksDoNotGather(t *testing.T) {
	top := leaves(t, rand.New(rand.NewPCG(1, 1)), 1, 20)
	p, err := New(top, &Numbering{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range top.Switches {
		if p.gather(s) != nil {
			t.Errorf("%s gathers its routes", s.Name)
		}
	}
}
