package shapes

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/controller/tableplan"
	"github.com/netcraq/netcraq/controlplane/sim/compiled"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// Shape is a network on which seeds run. It consists of a topology, and of data derived from it.
type Shape struct {
	Name     string
	Topology *topology.Topology
	Layout   *tableplan.Plan
	base     map[*compiled.Program][][]compiled.Entry // base entries of each switch, by program
	mu       sync.Mutex
}

// All returns all networks. Every switch has a host at its first port, and a hostile host at its
// last port.
//
//	line    s1 ─ s2 ─ s3 ─ s4     replies pass members on their way (read repair); a dead switch cuts the network in two
//	star    all at a hub, s0      the hub has no part in the chain, and forwards everything
//	mesh    each at each          losing a switch disconnects no other
//	ring    s1 ─ s2 ─ s3 ─ s4 ─ s1
var All = sync.OnceValue(func() []*Shape {
	var out []*Shape
	for _, n := range []int{2, 3, 4} {
		out = append(out, newShape(fmt.Sprintf("line%d", n), n, false, func(a, b int) bool { return b == a+1 }))
	}
	for _, n := range []int{3, 4} {
		out = append(out, newShape(fmt.Sprintf("star%d", n), n, true, func(a, b int) bool { return a == 0 }))
	}
	for _, n := range []int{3, 4} {
		out = append(out, newShape(fmt.Sprintf("mesh%d", n), n, false, func(a, b int) bool { return true }))
	}
	out = append(out, newShape("ring4", 4, false, func(a, b int) bool { return b == a+1 || a == 1 && b == 4 }))
	return out
})

// ChainID is the id of the only chain in a simulation.
const ChainID = 1

// newShape makes a shape. A switch has the address 10.0.255.N and its host 10.0.0.N.
func newShape(name string, n int, hub bool, linked func(a, b int) bool) *Shape {
	var switches, links, hosts, hostile, members []string
	first := 1
	if hub {
		first = 0
	}
	ports := make([]int, n+1)
	port := func(i int) string { ports[i]++; return fmt.Sprintf("s%d:%d", i, ports[i]) }
	for i := first; i <= n; i++ {
		switches = append(switches, fmt.Sprintf("  - {name: s%d, p4runtime: '127.0.0.1:%d', deviceId: %d, address: 10.0.255.%d}", i, 50051+i, i+1, 100+i))
		hosts = append(hosts, fmt.Sprintf("  - {name: h%d, ip: 10.0.0.%d, mac: '02:00:00:00:00:%02x', port: '%s', principal: clients, access: {default: write, shared: write}}",
			i, 100+i, i+1, port(i)))
		if i > 0 {
			members = append(members, fmt.Sprintf("s%d", i))
		}
	}
	for a := first; a <= n; a++ {
		for b := a + 1; b <= n; b++ {
			if linked(a, b) {
				links = append(links, fmt.Sprintf("  - [%s, %s]", port(a), port(b)))
			}
		}
	}
	for i := first; i <= n; i++ {
		access := "principal: mallory, access: {shared: write}"
		if i%2 == 0 {
			access = "access: {}"
		}
		hostile = append(hostile, fmt.Sprintf("  - {name: m%d, ip: 10.0.0.%d, mac: '02:00:00:00:01:%02x', port: '%s', %s}", i, 200+i, i+1, port(i), access))
	}
	text := fmt.Sprintf("realms: [{name: shared, prefixes: [%s]}]\n", NameOf(SharedKey)) + fmt.Sprintf("program: {json: netcraq-128.json, p4info: netcraq-128.p4info.txtpb}\nswitches:\n%s\nlinks:\n%s\nhosts:\n%s\n"+
		"chains:\n  - {id: %d, name: main, address: 10.0.254.1, members: [%s], leaseMillis: 200}\n",
		strings.Join(switches, "\n"), strings.Join(links, "\n"), strings.Join(append(hosts, hostile...), "\n"),
		ChainID, strings.Join(members, ", "))
	t, err := topology.Parse([]byte(text), name)
	if err != nil {
		panic(fmt.Sprintf("the shape %s: %v\n%s", name, err, text))
	}
	layout, err := tableplan.New(t, tableplan.NewNumbering(nil))
	if err != nil {
		panic(fmt.Sprintf("the shape %s: %v", name, err))
	}
	return &Shape{Name: name, Topology: t, Layout: layout, base: map[*compiled.Program][][]compiled.Entry{}}
}

// Find returns the shape with the given name.
func Find(name string) (*Shape, error) {
	var names []string
	for _, s := range All() {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return nil, fmt.Errorf("there is no network %q; there is: %s", name, strings.Join(names, ", "))
}

// BaseOf returns the table entries of a shape's switches that do not depend on the chain.
func (s *Shape) BaseOf(p *compiled.Program) [][]compiled.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.base[p] == nil {
		for _, sw := range s.Topology.Switches {
			var entries []compiled.Entry
			for _, e := range s.Layout.Base(sw) {
				entries = append(entries, p.Encode(e))
			}
			s.base[p] = append(s.base[p], entries)
		}
	}
	return s.base[p]
}

// Friends returns the hosts that run clients.
func (s *Shape) Friends() []*topology.Host { return s.hosts("clients") }

// Foes returns the hostile hosts. Some have a closed port, and some may use a key of another realm.
func (s *Shape) Foes() []*topology.Host { return append(s.hosts("mallory"), s.hosts("")...) }

func (s *Shape) hosts(principal string) (out []*topology.Host) {
	for _, h := range s.Topology.Hosts {
		if h.Principal == principal {
			out = append(out, h)
		}
	}
	return out
}

// Members returns all switches that can be members, which are all switches except a hub.
func (s *Shape) Members() []string { return s.Topology.Chains[0].Members }

// DefaultLease is the lease length of a scenario that sets none.
const DefaultLease = 100 * time.Millisecond

// NameOf returns a key's name in the directory, by its first KEY_ID.
func NameOf(key wire.Key) string { return fmt.Sprintf("k%d", key&0xFFFFFF) }

// SharedKey is the key that hostile hosts may write.
var SharedKey = wire.MakeKey(ChainID, 99)
