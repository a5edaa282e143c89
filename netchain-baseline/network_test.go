package netchain

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp"
)

// network simulates switches in a ring, a host at each switch, and a controller. The interpreter
// runs the switches. Each link delivers its frames in order, and a random seed determines which
// link delivers next. Each access of the controller to a switch is one step, like the delivery of a
// frame.
//
//	h1    h2    h3    h4
//	│1    │1    │1    │1
//	s1 ── s2 ── s3 ── s4 ── s1 ...    the first of them are the chain, the others stand by; mesh has a link between any two
type network struct {
	t       *testing.T
	seqBits int
	topo    *topology.Topology
	program *bmv2json.Program

	nodes  []*node
	queues map[end][]arrival // frames in flight to a switch's port
	order  []end             // the keys of queues, in the order of their first use
	slow   end
	flying map[int]int  // number of frames in flight, by the number of the packet that caused them
	given  map[int]bool // numbers of the packets to which a head has given a sequence number
	last   int          // number of the last sent packet
	dice   *rand.Rand
	now    time.Duration
	inbox  map[int][]answer   // answers that each host has received
	heard  map[uint32]*Packet // packets that the controller has received, by tag
	lose   func(at end) bool  // reports whether to drop a frame; may be nil

	*Controller
	f       *simFabric
	current *call // the call in which the controller waits
	running bool
	failure error // error of the controller's last operation
}

type node struct {
	s    *topology.Switch
	p    *interp.Pipeline
	dead bool

	unnumbered uint64 // number of packets that the switch dropped because it was not the head
}

// works reports whether the switch processes frames.
func (x *node) works() bool { return !x.dead && x.p != nil }

// refused reports whether the switch has dropped packets since the last call of refused because it
// was not the head.
func (x *node) refused(t *testing.T) bool {
	c, err := x.p.ReadCounter("NetchainIngress.replica.dropped", 3)
	check(t, err)
	before := x.unnumbered
	x.unnumbered = c.Packets
	return c.Packets > before
}

// end is a switch's end of a link.
type end struct {
	sw   int
	port uint32
}

type arrival struct {
	origin int
	frame  []byte
}

// answer is a packet that a host received.
type answer struct {
	*Packet
	payload []byte
}

const toHost = 1 // the port of a switch that leads to its host; the next port leads toward s1, and so on

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newNetwork starts the switches of a topology, with the given number of keys and virtual groups.
func newNetwork(t *testing.T, text string, seqBits, keys, groups int) *network {
	t.Helper()
	topo, err := topology.Parse([]byte(text), "topology")
	check(t, err)
	c, program, err := newController(topo, Options{SeqBits: seqBits, Keys: keys, Groups: groups})
	check(t, err)
	check(t, c.o.check(topo))
	n := &network{t: t, seqBits: seqBits, topo: topo, queues: map[end][]arrival{}, flying: map[int]int{},
		given: map[int]bool{}, dice: rand.New(rand.NewPCG(1, 1)), now: time.Second,
		inbox: map[int][]answer{}, heard: map[uint32]*Packet{}, Controller: c}
	if n.program, err = bmv2json.Parse(program); err != nil {
		t.Fatal(err)
	}
	for _, s := range topo.Switches {
		n.nodes = append(n.nodes, &node{s: s})
	}
	n.f = &simFabric{n: n, calls: make(chan *call), finished: make(chan error)}
	c.f = n.f
	n.do(c.Start)
	return n
}

func ring(switches, members int) string {
	return links(switches, members, func(i, j int) bool { return j == i+1 || i == 0 && j == switches-1 })
}

func mesh(switches, members int) string {
	return links(switches, members, func(i, j int) bool { return true })
}

// links returns a topology. The function linked says which switches have a link.
func links(switches, members int, linked func(i, j int) bool) string {
	var b strings.Builder
	b.WriteString("program: {json: p.json, p4info: p.txtpb}\nswitches:\n")
	for i := range switches {
		fmt.Fprintf(&b, "  - {name: s%d, p4runtime: 127.0.0.1:%d, address: 10.0.255.%d}\n", i+1, 50051+i, i+1)
	}
	b.WriteString("links:\n")
	for j := range switches {
		for i := range j {
			if linked(i, j) {
				fmt.Fprintf(&b, "  - [s%d:%d, s%d:%d]\n", i+1, toHost+1+j, j+1, toHost+1+i)
			}
		}
	}
	b.WriteString("hosts:\n")
	for i := range switches {
		fmt.Fprintf(&b, "  - {name: h%d, ip: 10.0.0.%d, mac: 02:00:00:00:00:0%d, port: s%d:%d}\n", i+1, i+1, i+1, i+1, toHost)
	}
	var names []string
	for i := range members {
		names = append(names, fmt.Sprintf("s%d", i+1))
	}
	fmt.Fprintf(&b, "chains:\n  - {id: 0, address: 10.0.254.1, leaseMillis: 0, members: [%s]}\n", strings.Join(names, ", "))
	return b.String()
}

func (n *network) node(name string) *node {
	return n.nodes[slices.IndexFunc(n.nodes, func(x *node) bool { return x.s.Name == name })]
}

// chain returns the addresses that clients write into their packets.
func (n *network) chain() (out []netip.Addr) {
	for _, p := range n.plan.places {
		out = append(out, p.member.Address)
	}
	return out
}

// kill stops a switch without a notice to the controller.
func (n *network) kill(name string) {
	n.node(name).dead = true
	for at, q := range n.queues {
		if n.nodes[at.sw].s.Name == name {
			for _, a := range q {
				n.land(a)
			}
			n.queues[at] = nil
		}
	}
}

// start starts a killed switch again, with empty tables and registers.
func (n *network) start(name string) { n.node(name).dead, n.node(name).p = false, nil }

func (n *network) push(at end, a arrival) {
	if n.nodes[at.sw].dead || n.lose != nil && n.lose(at) {
		return
	}
	if _, ok := n.queues[at]; !ok {
		n.order = append(n.order, at)
	}
	n.queues[at] = append(n.queues[at], a)
	n.flying[a.origin]++
}

func (n *network) land(a arrival) {
	if n.flying[a.origin]--; n.flying[a.origin] == 0 {
		delete(n.flying, a.origin)
	}
}

// send sends a packet from a host, and returns its number.
func (n *network) send(host int, p *Packet) int {
	n.t.Helper()
	to := p.Request(n.chain())
	payload, err := p.Marshal(n.seqBits)
	check(n.t, err)
	f := wire.Frame{Src: netip.AddrPortFrom(n.topo.Hosts[host].IP, 4000), Dst: netip.AddrPortFrom(to, Port)}
	b, err := f.AppendTo(nil, payload)
	check(n.t, err)
	n.last++
	n.push(end{host, toHost}, arrival{n.last, b})
	return n.last
}

// step delivers one frame on a randomly chosen link. It returns false if no frame is in flight. One
// link is always far slower than the others.
func (n *network) step() bool {
	var busy []end
	for _, at := range n.order {
		if len(n.queues[at]) > 0 {
			busy = append(busy, at)
		}
	}
	if len(busy) == 0 {
		return false
	}
	if n.dice.IntN(300) == 0 {
		n.slow = n.order[n.dice.IntN(len(n.order))]
	}
	at := busy[n.dice.IntN(len(busy))]
	if at == n.slow && n.dice.IntN(50) > 0 {
		at = busy[n.dice.IntN(len(busy))]
	}
	a := n.queues[at][0]
	n.queues[at] = n.queues[at][1:]
	n.now += time.Microsecond
	if x := n.nodes[at.sw]; x.works() {
		outs := x.p.Process(n.now, at.port, a.frame)
		if len(outs) == 0 && !x.refused(n.t) { // the packet was lost, and a head may have numbered it before
			n.given[a.origin] = true
		}
		for _, out := range outs {
			if Status(out.Frame[wire.FrameOverhead+1])&numbered != 0 {
				n.given[a.origin] = true
			}
			n.carry(at.sw, out.Port, arrival{a.origin, slices.Clone(out.Frame)})
		}
	}
	n.land(a)
	return true
}

// carry moves a frame that leaves a switch to the other end of the cable.
func (n *network) carry(from int, port uint32, a arrival) {
	if port == topology.CPUPort {
		_, payload, err := wire.ParseFrame(a.frame)
		check(n.t, err)
		p := new(Packet)
		check(n.t, p.Unmarshal(payload, n.seqBits))
		n.heard[tagOf(payload, len(p.Rest))] = p
		return
	}
	out, ok := n.nodes[from].s.Port(port)
	switch {
	case !ok:
	case out.Peer != nil:
		n.push(end{slices.Index(n.topo.Switches, out.Peer), out.PeerPort}, a)
	case out.Host != nil:
		_, payload, err := wire.ParseFrame(a.frame)
		check(n.t, err)
		p := new(Packet)
		check(n.t, p.Unmarshal(payload, n.seqBits))
		n.inbox[from] = append(n.inbox[from], answer{p, payload})
	}
}

// ask sends a packet and returns the answer.
func (n *network) ask(host int, p *Packet) *Packet {
	n.t.Helper()
	n.inbox[host] = nil
	n.send(host, p)
	for n.step() {
	}
	if len(n.inbox[host]) != 1 {
		n.t.Fatalf("%d answers to %+v", len(n.inbox[host]), p)
	}
	return n.inbox[host][0].Packet
}

// register returns the first slot of a switch's register.
func (n *network) register(name, register string) []byte {
	n.t.Helper()
	v, err := n.node(name).p.ReadRegister("NetchainIngress.replica."+register, 0)
	check(n.t, err)
	return v
}
