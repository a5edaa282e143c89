package programs

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/experiments/paperchain"
	netchain "github.com/netcraq/netcraq/netchain-baseline"
	"github.com/netcraq/netcraq/p4src"
	"github.com/netcraq/netcraq/p4src/paper"
	"github.com/netcraq/netcraq/switch/ebpf"
)

// These are the names of systems.
const (
	NetChain = "NetChain"
	Paper    = "NetCRAQ as in the paper"
	Shipped  = "NetCRAQ"
	Leased   = "NetCRAQ with leases" // in the default configuration, members answer reads while they have a lease
)

// These are the kinds of packets.
const (
	CleanRead    = "clean read: answered"
	DirtyRead    = "dirty read: sent to the tail"
	DirtyAnswer  = "dirty read: answered at the tail"
	PassingRead  = "read passing"
	PassingReply = "read reply passing"
	WriteHead    = "write at the head"
	WriteReplica = "write at a replica"
	WriteTail    = "write at the tail"
	WriteReply   = "write's answer at a replica"
)

// Kinds lists all kinds, in the order in which they are displayed.
var Kinds = []string{CleanRead, DirtyRead, DirtyAnswer, PassingRead, PassingReply, WriteHead, WriteReplica,
	WriteTail, WriteReply}

// These are the ports of every switch.
const (
	hostPort = 1
	headPort = 2 // the port towards the head
	tailPort = 3 // the port towards the tail
)

// client is the source of requests. It is h1, at switch s1.
var client = netip.MustParseAddrPort("10.0.0.1:4000")

// Case is a packet that one switch of a system processes repeatedly.
type Case struct {
	System, Kind string

	Program   Program
	Entries   []p4rt.Entry
	Groups    []p4rt.Group
	Registers map[ebpf.Cell][]byte // initial content of registers' cells
	// Variant says that the program may lack tables and registers. The case then omits their
	// entries and cells.
	Variant bool
	Before  []Frame // frames that the switch processes before the measurement
	Frame   Frame
	Changes ebpf.Changes
}

// Frame is a frame that arrives at a port of a switch.
type Frame struct {
	Port  uint32
	Bytes []byte
}

// Program is a compiled program: the BMv2 JSON, and the P4Info as text.
type Program struct{ JSON, P4Info []byte }

// line returns the topology of all cases.
func line() (*topology.Topology, error) {
	var b strings.Builder
	b.WriteString("program: {json: p.json, p4info: p.txtpb}\nswitches:\n")
	for i := 1; i <= 4; i++ {
		fmt.Fprintf(&b, "  - {name: s%d, p4runtime: 127.0.0.1:%d, address: 10.0.255.%d}\n", i, 50050+i, i)
	}
	b.WriteString("links:\n")
	for i := 1; i < 4; i++ {
		fmt.Fprintf(&b, "  - [s%d:%d, s%d:%d]\n", i, tailPort, i+1, headPort)
	}
	fmt.Fprintf(&b, "hosts:\n  - {name: h1, ip: %v, mac: 02:00:00:00:00:01, port: s1:%d}\n", client.Addr(), hostPort)
	b.WriteString("chains:\n  - {id: 0, address: 10.0.254.1, leaseMillis: 0, members: [s1, s2, s3, s4]}\n")
	return topology.Parse([]byte(b.String()), "the line")
}

func address(sw int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 255, byte(sw)}) }

// builder makes the cases of one system. It remembers the first error.
type builder struct {
	system  string
	program Program
	setup   func(sw int) ([]p4rt.Entry, []p4rt.Group)
	cases   []Case
	err     error
}

func (b *builder) frame(port uint32, from, to netip.AddrPort, payload []byte, err error) Frame {
	f := wire.Frame{Src: from, Dst: to, Principal: principal}
	bytes, err2 := f.AppendTo(nil, payload)
	for _, e := range []error{err, err2} {
		if b.err == nil && e != nil {
			b.err = fmt.Errorf("a frame of %s: %w", b.system, e)
		}
	}
	return Frame{port, bytes}
}

// add adds a case at a switch.
func (b *builder) add(kind string, sw int, f Frame, more Case) {
	more.System, more.Kind, more.Program, more.Frame = b.system, kind, b.program, f
	more.Entries, more.Groups = b.setup(sw)
	b.cases = append(b.cases, more)
}

// All returns the cases of all systems. extra are variants of the shipped program by name.
func All(extra map[string]Program) ([]Case, error) {
	topo, err := line()
	if err != nil {
		return nil, err
	}
	var cases []Case
	for _, make := range []func(*topology.Topology) ([]Case, error){netChain, paperCases} {
		some, err := make(topo)
		if err != nil {
			return nil, err
		}
		cases = append(cases, some...)
	}
	json, p4info, err := p4src.Compiled(int(wire.Profile128))
	if err != nil {
		return nil, err
	}
	programs := map[string]Program{Shipped: {json, p4info}, Leased: {json, p4info}}
	names := []string{Shipped, Leased}
	for name, program := range extra {
		programs[name] = program
		names = append(names, name)
	}
	slices.Sort(names[2:])
	for _, name := range names {
		some, err := shipped(name, programs[name], name != Shipped)
		if err != nil {
			return nil, err
		}
		_, variant := extra[name]
		for i := range some {
			some[i].Variant = variant
		}
		cases = append(cases, some...)
	}
	return cases, nil
}

// ---- NetChain ----

func netChain(topo *topology.Topology) ([]Case, error) {
	const seqBits = 128
	json, p4info, err := netchain.Compiled(seqBits)
	if err != nil {
		return nil, err
	}
	b := &builder{system: NetChain, program: Program{json, p4info}}
	b.setup = func(sw int) (out []p4rt.Entry, _ []p4rt.Group) {
		out = append(routes(topo, sw),
			entry("local_address", p4rt.Match{"ipv4_dst": p4rt.Exact(address(sw))}, "set_local", p4rt.Params{"whole": 1}),
			entry("key_index", p4rt.Match{"KEY": p4rt.Exact(netchain.Key(0, 1))}, "set_slot", p4rt.Params{"slot": 0}))
		if sw == 1 {
			out = append(out, entry("head_session", p4rt.Match{"group": p4rt.Exact(0)}, "begin_session", p4rt.Params{"session": 0}))
		}
		return out, nil
	}
	at := func(sw int) netip.AddrPort { return netip.AddrPortFrom(address(sw), netchain.Port) }
	send := func(port uint32, from, to netip.AddrPort, p netchain.Packet) Frame {
		payload, err := p.Marshal(seqBits)
		return b.frame(port, from, to, payload, err)
	}
	after := func(sw int) (out []netip.Addr) {
		for i := sw + 1; i <= 4; i++ {
			out = append(out, address(i))
		}
		return out
	}
	read := netchain.Packet{Op: netchain.Read, Rest: []netip.Addr{address(3), address(2), address(1)}}
	b.add(CleanRead, 4, send(headPort, client, at(4), read), Case{})
	b.add(PassingRead, 2, send(headPort, client, at(4), read), Case{})
	reply := netchain.Packet{Op: netchain.ReadReply}
	b.add(PassingReply, 2, send(tailPort, at(4), client, reply), Case{})
	b.add(WriteHead, 1, send(hostPort, client, at(1), netchain.Packet{Op: netchain.Write, Rest: after(1)}), Case{})
	// The number in the last 32 bits of SEQ counts up.
	fresh := Case{Changes: ebpf.Changes{Counts: []int{wire.FrameOverhead + 1 + 1 + 2 + 4 + 12}}}
	const numbered = 0x80
	write := netchain.Packet{Op: netchain.Write, Status: numbered}
	b.add(WriteTail, 4, send(headPort, client, at(4), write), fresh)
	write.Rest = after(2)
	b.add(WriteReplica, 2, send(headPort, client, at(2), write), fresh)
	b.add(WriteReply, 2, send(tailPort, at(4), client, netchain.Packet{Op: netchain.WriteReply}), Case{})
	return b.cases, b.err
}

// routes returns the routes of a switch of the line, as forward entries of ipv4_lpm.
func routes(topo *topology.Topology, sw int) (out []p4rt.Entry) {
	route := func(to netip.Addr, port int) {
		out = append(out, entry("ipv4_lpm", p4rt.Match{"ipv4_dst": p4rt.LPM(to, 32)}, "forward",
			p4rt.Params{"dst_mac": net.HardwareAddr{2, 0, 0, 0, 1, byte(sw)}, "port": port}))
	}
	for i := range topo.Switches {
		switch other := i + 1; {
		case other < sw:
			route(address(other), headPort)
		case other > sw:
			route(address(other), tailPort)
		}
	}
	if sw == 1 {
		route(client.Addr(), hostPort)
	} else {
		route(client.Addr(), headPort)
	}
	return out
}

func entry(table string, match p4rt.Match, action string, params p4rt.Params) p4rt.Entry {
	return p4rt.Entry{Table: table, Match: match, Action: action, Params: params}
}

// ---- NetCRAQ as in the paper ----

func paperCases(topo *topology.Topology) ([]Case, error) {
	json, p4info, err := paper.Compiled()
	if err != nil {
		return nil, err
	}
	plan, err := paperchain.Plan(topo)
	if err != nil {
		return nil, err
	}
	b := &builder{system: Paper, program: Program{json, p4info}}
	b.setup = func(sw int) ([]p4rt.Entry, []p4rt.Group) {
		n := plan[fmt.Sprintf("s%d", sw)]
		return n.Entries, n.Groups
	}
	at := func(sw int) netip.AddrPort { return netip.AddrPortFrom(address(sw), paperchain.Port) }
	send := func(port uint32, from, to netip.AddrPort, op paperchain.Op, version uint16) Frame {
		p := paperchain.Packet{Op: op, Version: version}
		return b.frame(port, from, to, p.Marshal(), nil)
	}
	// Each write has the number 1. Its key is clean, and was never written before.
	zeros := func(registers ...string) (c Case) {
		for _, r := range registers {
			c.Changes.Zeros = append(c.Changes.Zeros, ebpf.Cell{Register: "PaperIngress." + r})
		}
		return c
	}
	write := send(hostPort, client, at(1), paperchain.Write, 0)
	b.add(CleanRead, 1, send(hostPort, client, at(1), paperchain.Read, 0), Case{})
	b.add(DirtyRead, 1, send(hostPort, client, at(1), paperchain.Read, 0), Case{Before: []Frame{write}})
	b.add(DirtyAnswer, 4, send(headPort, client, at(4), paperchain.Read, 0), Case{})
	b.add(PassingRead, 2, send(headPort, client, at(4), paperchain.Read, 0), Case{})
	b.add(PassingReply, 2, send(tailPort, at(4), client, paperchain.ReadReply, 0), Case{})
	b.add(WriteHead, 1, write, zeros("newest_version", "write_index"))
	b.add(WriteReplica, 2, send(headPort, client, at(2), paperchain.Write, 1), zeros("newest_version", "write_index"))
	b.add(WriteTail, 4, send(headPort, client, at(4), paperchain.Write, 1), zeros("newest_version"))
	b.add(WriteReply, 2, send(tailPort, at(4), client, paperchain.Acknowledge, 1), zeros("newest_version"))
	return b.cases, b.err
}
