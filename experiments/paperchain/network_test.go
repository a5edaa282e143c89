package paperchain

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/tablefill"
	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/p4src/paper"
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp"
	"github.com/netcraq/netcraq/switch/target"
)

// These are the port numbers of every switch of the line.
const (
	toHost = 1
	toHead = 2
	toTail = 3
)

// clientPort is the UDP port of every host.
const clientPort = 4000

// network is a line of switches with a host at each. All switches are members of the chain:
//
//	h1         h2         h3         h4
//	│1         │1         │1         │1
//	s1 3 ── 2 s2 3 ── 2 s3 3 ── 2 s4
//	head                            tail
//
// Links keep the order of frames. Frames move only when run or step is called.
type network struct {
	t       *testing.T
	topo    *topology.Topology
	info    *p4rt.Info
	program *bmv2json.Program
	plan    map[string]Node
	devices []device
	queues  map[end][]([]byte)
	order   []end // the queues' ends, in the order of their first use
	inbox   [][]answer
	runs    int                          // number of frames that switches have processed
	lose    func(at end, p *Packet) bool // reports whether to lose a frame on the way to a switch; nil loses none
	hold    func(at end, p *Packet) bool // reports whether to put a frame aside; nil puts none aside
	held    []struct {
		at    end
		frame []byte
	} // these frames were put aside
}

// device is a switch on some engine.
type device interface {
	pipeline() target.Pipeline
	process(port uint32, frame []byte) []interp.Out
}

// end is a switch's end of a link.
type end struct {
	sw   int
	port uint32
}

// answer is a packet that a host received.
type answer struct {
	Packet
	from netip.Addr
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func line(switches int) string {
	var b strings.Builder
	var names []string
	b.WriteString("program: {json: p.json, p4info: p.txtpb}\nswitches:\n")
	for i := range switches {
		names = append(names, fmt.Sprintf("s%d", i+1))
		fmt.Fprintf(&b, "  - {name: s%d, p4runtime: 127.0.0.1:%d, address: 10.0.255.%d}\n", i+1, 50051+i, i+1)
	}
	b.WriteString("links:\n")
	for i := range switches - 1 {
		fmt.Fprintf(&b, "  - [s%d:%d, s%d:%d]\n", i+1, toTail, i+2, toHead)
	}
	b.WriteString("hosts:\n")
	for i := range switches {
		fmt.Fprintf(&b, "  - {name: h%d, ip: 10.0.0.%d, mac: 02:00:00:00:00:0%d, port: s%d:%d}\n", i+1, i+1, i+1, i+1, toHost)
	}
	fmt.Fprintf(&b, "chains:\n  - {id: 0, address: 10.0.254.1, leaseMillis: 0, members: [%s]}\n", strings.Join(names, ", "))
	return b.String()
}

func newNetwork(t *testing.T, switches int, open func(*testing.T, *bmv2json.Program) device) *network {
	t.Helper()
	n := &network{t: t, queues: map[end][]([]byte){}, inbox: make([][]answer, switches)}
	var err error
	n.topo, err = topology.Parse([]byte(line(switches)), "topology")
	check(t, err)
	n.plan, err = Plan(n.topo)
	check(t, err)
	text, p4info, err := paper.Compiled()
	check(t, err)
	n.program, n.info, err = tablefill.Parse(text, p4info)
	check(t, err)
	for _, s := range n.topo.Switches {
		d := open(t, n.program)
		n.devices = append(n.devices, d)
		n.apply(d, n.plan[s.Name])
	}
	return n
}

// apply writes a node's tables and groups into a switch.
func (n *network) apply(d device, node Node) {
	n.t.Helper()
	check(n.t, tablefill.Fill(d.pipeline(), n.info, node.Entries, node.Groups))
}

// request returns a frame from a host. A READ is addressed to the host's own switch, a WRITE to the
// head.
func (n *network) request(host int, p Packet) []byte {
	to := n.topo.Switches[host].Address
	if p.Op == Write {
		to = n.topo.Switches[0].Address
	}
	return n.frame(netip.AddrPortFrom(n.topo.Hosts[host].IP, clientPort), netip.AddrPortFrom(to, Port), p)
}

func (n *network) frame(from, to netip.AddrPort, p Packet) []byte {
	n.t.Helper()
	f := wire.Frame{Src: from, Dst: to}
	b, err := f.AppendTo(nil, p.Marshal())
	check(n.t, err)
	return b
}

// send queues a host's request.
func (n *network) send(host int, p Packet) { n.push(end{host, toHost}, n.request(host, p)) }

// ask sends a request, runs the network until it is idle, and returns the only answer.
func (n *network) ask(host int, p Packet) answer {
	n.t.Helper()
	n.inbox[host] = nil
	n.send(host, p)
	n.run()
	if len(n.inbox[host]) != 1 {
		n.t.Fatalf("%d answers to %v of key %d from h%d, want 1", len(n.inbox[host]), p.Op, p.Key, host+1)
	}
	return n.inbox[host][0]
}

func (n *network) push(at end, frame []byte) {
	_, payload, err := wire.ParseFrame(frame)
	if p := new(Packet); err == nil && p.Unmarshal(payload) == nil {
		switch {
		case n.lose != nil && n.lose(at, p):
			return
		case n.hold != nil && n.hold(at, p):
			n.held = append(n.held, struct {
				at    end
				frame []byte
			}{at, frame})
			return
		}
	}
	if _, ok := n.queues[at]; !ok {
		n.order = append(n.order, at)
	}
	n.queues[at] = append(n.queues[at], frame)
}

// busy returns the links with queued frames.
func (n *network) busy() (out []end) {
	for _, at := range n.order {
		if len(n.queues[at]) > 0 {
			out = append(out, at)
		}
	}
	return out
}

// step makes a switch process the next frame of a link.
func (n *network) step(at end) {
	frame := n.queues[at][0]
	n.queues[at] = n.queues[at][1:]
	n.runs++
	for _, out := range n.devices[at.sw].process(at.port, frame) {
		n.carry(at.sw, out.Port, bytes.Clone(out.Frame))
	}
}

func (n *network) run() {
	for busy := n.busy(); len(busy) > 0; busy = n.busy() {
		n.step(busy[0])
	}
}

// carry moves a frame to the other end of the cable.
func (n *network) carry(from int, port uint32, frame []byte) {
	n.t.Helper()
	switch p, ok := n.topo.Switches[from].Port(port); {
	case !ok:
		n.t.Errorf("s%d sends by port %d, which it has not", from+1, port)
	case p.Peer != nil:
		n.push(end{slices.Index(n.topo.Switches, p.Peer), p.PeerPort}, frame)
	default:
		f, payload, err := wire.ParseFrame(frame)
		check(n.t, err)
		a := answer{from: f.Src.Addr()}
		check(n.t, a.Unmarshal(payload))
		if h := n.topo.Hosts[from]; f.Dst != netip.AddrPortFrom(h.IP, clientPort) || [6]byte(h.MAC) != f.EthernetDst {
			n.t.Errorf("%s receives a frame for %v at %x", h.Name, f.Dst, f.EthernetDst)
		}
		n.inbox[from] = append(n.inbox[from], a)
	}
}

// register reads a cell of a switch's register.
func (n *network) register(sw int, name string, index int) uint64 {
	n.t.Helper()
	v, err := n.devices[sw].pipeline().ReadRegister("PaperIngress."+name, index)
	check(n.t, err)
	return new(big.Int).SetBytes(v).Uint64()
}

func (n *network) accesses(sw int, key int) uint64 {
	n.t.Helper()
	c, err := n.devices[sw].pipeline().ReadCounter("PaperIngress.accesses", key)
	check(n.t, err)
	return c.Packets
}

func value(v uint64) (b [ValueBytes]byte) {
	binary.BigEndian.PutUint64(b[8:], v)
	return b
}

func number(b [ValueBytes]byte) uint64 { return binary.BigEndian.Uint64(b[8:]) }

// interpreted is a switch on the interpreter.
type interpreted struct {
	p   *interp.Pipeline
	now time.Duration
}

func newInterpreted(t *testing.T, program *bmv2json.Program) device {
	t.Helper()
	p, err := interp.New(program, interp.Options{})
	check(t, err)
	return &interpreted{p, time.Second}
}

func (d *interpreted) pipeline() target.Pipeline { return d.p }

func (d *interpreted) process(port uint32, frame []byte) (outs []interp.Out) {
	d.now += time.Microsecond
	for _, o := range d.p.Process(d.now, port, frame) {
		outs = append(outs, interp.Out{Port: o.Port, Frame: bytes.Clone(o.Frame)})
	}
	return outs
}
