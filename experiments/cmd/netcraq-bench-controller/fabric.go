package main

import (
	"fmt"
	"slices"

	"github.com/netcraq/netcraq/controlplane/topology"
)

// The parts of the network. Leaves are in pods. Each pod has two aggregation switches, which every
// leaf of the pod and both core switches are connected to.
//
//	 c1   c2              core
//	 │ ╲ ╱ │
//	a1  ╳  a2 ...         aggregation, two in each pod
//	 │ ╱ ╲ │
//	l1 l2 ... l48         leaves
const (
	cores     = 2
	podAggs   = 2
	podLeaves = 48
)

// chainSlots is how many slots each chain has. The chains of the largest network fit the program.
const chainSlots = 16

// fabric is a network of a given number of switches and chains.
type fabric struct {
	perChain int // members of each chain
	spec     topology.Spec
	cables   [][4]int // switch, port, switch, port; switches count from 1
	ports    []int    // the ports that each switch has
	leaves   []int
}

// newFabric describes a network of n switches, without their P4Runtime addresses.
func newFabric(n, chains, perChain int, program topology.ProgramSpec, leaseMillis int) (*fabric, error) {
	if least := cores + podAggs + perChain - 1; n < least || perChain < 3 {
		return nil, fmt.Errorf("%d switches and %d members of a chain: give at least 3 members, and %d switches for %d",
			n, perChain, cores+podAggs+max(perChain, 3)-1, max(perChain, 3))
	}
	f := &fabric{perChain: perChain, ports: make([]int, n+1)}
	f.spec.Program = program
	for i := 1; i <= n; i++ {
		id := uint64(i)
		f.spec.Switches = append(f.spec.Switches, topology.SwitchSpec{Name: name(i), DeviceID: &id,
			Address: fmt.Sprintf("10.1.%d.%d", i>>8, i&255)})
	}
	for next := cores + 1; next <= n; {
		aggs := []int{next, next + 1}
		for next += podAggs; next <= n && next-aggs[1] <= podLeaves; next++ {
			f.leaves = append(f.leaves, next)
			for _, a := range aggs {
				f.connect(next, a)
			}
		}
		for _, a := range aggs {
			for c := 1; c <= cores && a <= n; c++ {
				f.connect(a, c)
			}
		}
	}
	for i, leaf := range []int{f.leaves[0], f.leaves[len(f.leaves)-1]} {
		f.ports[leaf]++
		f.spec.Hosts = append(f.spec.Hosts, topology.HostSpec{Name: fmt.Sprint("h", i+1),
			IP: fmt.Sprintf("10.2.0.%d", i+1), MAC: fmt.Sprintf("02:00:00:00:00:%02x", i+1),
			Port: fmt.Sprintf("%s:%d", name(leaf), f.ports[leaf])})
	}
	for c := range chains {
		f.addChain(c, leaseMillis)
	}
	return f, nil
}

func name(sw int) string { return fmt.Sprint("s", sw) }

func (f *fabric) connect(a, b int) {
	f.ports[a]++
	f.ports[b]++
	f.cables = append(f.cables, [4]int{a, f.ports[a], b, f.ports[b]})
	f.spec.Links = append(f.spec.Links, []string{fmt.Sprintf("%s:%d", name(a), f.ports[a]),
		fmt.Sprintf("%s:%d", name(b), f.ports[b])})
}

// addChain adds a chain of a leaf, a core switch and other leaves. Each core switch is in half of
// the chains, and every leaf in at most one chain while there are enough.
func (f *fabric) addChain(c, leaseMillis int) {
	members := f.members(c)
	spec := topology.ChainSpec{ID: &c, Name: chainName(c), Address: fmt.Sprintf("10.3.0.%d", c+1), Slots: chainSlots,
		LeaseMillis: &leaseMillis}
	for _, m := range members {
		spec.Members = append(spec.Members, name(m))
	}
	f.spec.Chains = append(f.spec.Chains, spec)
}

func chainName(c int) string { return fmt.Sprint("chain", c) }

func (f *fabric) members(c int) (out []int) {
	for i := range f.perChain - 1 {
		out = append(out, f.leaves[(c*(f.perChain-1)+i)%len(f.leaves)])
	}
	return slices.Insert(out, 1, 1+c%cores)
}

// inChains returns how many switches are members of chains.
func (f *fabric) inChains() int {
	distinct := map[int]bool{}
	for c := range f.spec.Chains {
		for _, m := range f.members(c) {
			distinct[m] = true
		}
	}
	return len(distinct)
}
