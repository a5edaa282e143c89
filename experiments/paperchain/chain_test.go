package paperchain

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/switch/bmv2json"
)

// head, middle and tail are the numbers of switches in a line of four.
const (
	head   = 0
	middle = 2
	tail   = 3
	length = 4
)

type opener = func(*testing.T, *bmv2json.Program) device

// clean fails the test unless a key is clean at a switch and has the wanted value.
func (n *network) clean(sw, key int, want uint64) {
	n.t.Helper()
	if r, w := n.register(sw, "read_index", key), n.register(sw, "write_index", key); r != 0 || w != 0 {
		n.t.Errorf("s%d: read_index %d, write_index %d, want a clean key", sw+1, r, w)
	}
	if v := n.register(sw, "objects_store", key*Versions); v != want {
		n.t.Errorf("s%d: the clean version is %d, want %d", sw+1, v, want)
	}
}

// dirty fails the test unless a key has this many dirty versions at a switch, and the newest one
// has the wanted value.
func (n *network) dirty(sw, key, versions int, newest uint64) {
	n.t.Helper()
	if r, w := n.register(sw, "read_index", key), n.register(sw, "write_index", key); int(r) != versions || int(w) != versions+1 {
		n.t.Errorf("s%d: read_index %d, write_index %d, want %d dirty versions", sw+1, r, w, versions)
	}
	if v := n.register(sw, "objects_store", key*Versions+versions); v != newest {
		n.t.Errorf("s%d: the newest dirty version is %d, want %d", sw+1, v, newest)
	}
}

// expect fails the test unless an answer has this operation, sender and value.
func (n *network) expect(a answer, op Op, from int, v uint64) {
	n.t.Helper()
	if addr := n.topo.Switches[from].Address; a.Op != op || a.from != addr || number(a.Value) != v {
		n.t.Errorf("%v from %v with value %d, want %v from %v with %d", a.Op, a.from, number(a.Value), op, addr, v)
	}
}

// beforeTail drops WRITEs on the way to the tail.
func beforeTail(at end, p *Packet) bool { return at.sw == tail && p.Op == Write }

// TestWriteAndCleanReads: a write is acknowledged exactly once to its client, at any switch. After
// that, every switch answers reads itself.
func TestWriteAndCleanReads(t *testing.T) {
	eachEngine(t, func(t *testing.T, open opener) {
		n := newNetwork(t, length, open)
		for client := range length {
			v := uint64(10 + client)
			n.runs = 0
			n.expect(n.ask(client, Packet{Op: Write, Key: 7, Value: value(v)}), Acknowledge, tail, v)
			// A write passes from the client's switch to the head, and down the chain. Its
			// acknowledgement passes from the tail once to each other switch.
			if want := client + length + length - 1; n.runs != want {
				t.Errorf("a write from h%d is processed %d times, want %d", client+1, n.runs, want)
			}
			for sw := range length {
				n.clean(sw, 7, v)
				n.runs = 0
				n.expect(n.ask(sw, Packet{Op: Read, Key: 7}), ReadReply, sw, v)
				if n.runs != 1 {
					t.Errorf("a clean read at s%d is processed %d times, want 1", sw+1, n.runs)
				}
			}
		}
	})
}

// TestNeverWritten: a key that was never written reads as zeros.
func TestNeverWritten(t *testing.T) {
	n := newNetwork(t, 2, newInterpreted)
	n.expect(n.ask(0, Packet{Op: Read, Key: Keys - 1}), ReadReply, 0, 0)
}

// TestChainOfOne: if a chain has one node, the node is head and tail.
func TestChainOfOne(t *testing.T) {
	n := newNetwork(t, 1, newInterpreted)
	n.expect(n.ask(0, Packet{Op: Write, Value: value(3)}), Acknowledge, 0, 3)
	n.expect(n.ask(0, Packet{Op: Read}), ReadReply, 0, 3)
}

// TestDirtyReads: while a write is in flight, head and middle forward reads to the tail, which
// answers with its committed value.
func TestDirtyReads(t *testing.T) {
	eachEngine(t, func(t *testing.T, open opener) {
		n := newNetwork(t, length, open)
		n.ask(1, Packet{Op: Write, Key: 7, Value: value(1)})
		n.lose = beforeTail
		n.send(1, Packet{Op: Write, Key: 7, Value: value(2)})
		n.run()
		n.dirty(head, 7, 1, 2)
		n.dirty(middle, 7, 1, 2)
		n.clean(tail, 7, 1)
		for sw := range length {
			n.runs = 0
			n.expect(n.ask(sw, Packet{Op: Read, Key: 7}), ReadReply, tail, 1)
			if want := 2*(tail-sw) + 1; n.runs != want {
				t.Errorf("a dirty read at s%d is processed %d times, want %d", sw+1, n.runs, want)
			}
		}
		n.expect(n.ask(head, Packet{Op: Read, Key: 8}), ReadReply, head, 0) // key 8 is clean
	})
}

// TestDirtyReadAtTheTail: a node that becomes the tail while it has dirty versions answers with the
// newest of them, which every node before it has.
func TestDirtyReadAtTheTail(t *testing.T) {
	eachEngine(t, func(t *testing.T, open opener) {
		n := newNetwork(t, length, open)
		n.lose = beforeTail
		for v := range uint64(3) {
			n.send(0, Packet{Op: Write, Key: 7, Value: value(v + 1)})
			n.run()
		}
		n.dirty(middle, 7, 3, 3)
		role := n.plan["s3"].Entries[0]
		role.Params["is_tail"] = 1
		n.apply(n.devices[middle], Node{Entries: []p4rt.Entry{role}})
		n.expect(n.ask(middle, Packet{Op: Read, Key: 7}), ReadReply, middle, 3)
		// The next write makes the key clean.
		n.send(0, Packet{Op: Write, Key: 7, Value: value(4)})
		n.run()
		n.clean(middle, 7, 4)
		n.clean(head, 7, 4)
	})
}

// TestOrder: an ACKNOWLEDGE leaves a key with a newer version dirty. A late ACKNOWLEDGE changes
// nothing.
func TestOrder(t *testing.T) {
	eachEngine(t, func(t *testing.T, open opener) {
		n := newNetwork(t, length, open)
		n.hold = func(at end, p *Packet) bool { return at.sw == middle && p.Op == Acknowledge }
		n.send(0, Packet{Op: Write, Key: 7, Value: value(1)})
		n.run()
		n.send(0, Packet{Op: Write, Key: 7, Value: value(2)})
		n.run()
		n.clean(tail, 7, 2)
		n.dirty(head, 7, 2, 2)
		n.hold = nil
		if len(n.held) != 2 {
			t.Fatalf("%d acknowledgements on their way, want 2", len(n.held))
		}
		n.push(n.held[0].at, n.held[0].frame) // deliver the ACKNOWLEDGE of the first write
		n.run()
		n.dirty(head, 7, 2, 2)
		if got := n.inbox[0]; len(got) != 1 || number(got[0].Value) != 1 {
			t.Errorf("the first client is answered %+v, want the ACKNOWLEDGE of 1", got)
		}
		n.expect(n.ask(1, Packet{Op: Read, Key: 7}), ReadReply, tail, 2)
		n.push(n.held[1].at, n.held[1].frame)
		n.run()
		n.clean(head, 7, 2)
		n.push(n.held[0].at, n.held[0].frame) // deliver the first ACKNOWLEDGE once more
		n.run()
		for sw := range length {
			n.clean(sw, 7, 2)
		}
	})
}

// TestStaleWrite: a replica and the tail drop a write that another write has overtaken.
func TestStaleWrite(t *testing.T) {
	eachEngine(t, func(t *testing.T, open opener) {
		for _, sw := range []int{middle, tail} {
			n := newNetwork(t, length, open)
			n.hold = func(at end, p *Packet) bool { return at.sw == sw && p.Op == Write && number(p.Value) == 1 }
			n.send(0, Packet{Op: Write, Key: 7, Value: value(1)})
			n.run()
			n.expect(n.ask(0, Packet{Op: Write, Key: 7, Value: value(2)}), Acknowledge, tail, 2)
			n.hold, n.inbox[0] = nil, nil
			n.push(n.held[0].at, n.held[0].frame)
			n.run()
			if len(n.inbox[0]) != 0 {
				t.Errorf("a write that was overtaken before s%d is answered: %+v", sw+1, n.inbox[0])
			}
			for each := range length {
				n.clean(each, 7, 2)
			}
		}
	})
}

// TestFull: the head drops a write for which it has no free cell. The next ACKNOWLEDGE of the
// newest version frees the cells.
func TestFull(t *testing.T) {
	eachEngine(t, func(t *testing.T, open opener) {
		n := newNetwork(t, length, open)
		n.hold = beforeTail
		for v := range uint64(Versions + 2) {
			n.send(0, Packet{Op: Write, Key: 7, Value: value(v + 1)})
			n.run()
		}
		if len(n.held) != Versions-1 {
			t.Fatalf("%d writes come as far as the tail, want %d: one for each dirty cell", len(n.held), Versions-1)
		}
		n.dirty(head, 7, Versions-1, Versions-1)
		// The cells of the next key are not touched.
		n.expect(n.ask(0, Packet{Op: Read, Key: 8}), ReadReply, head, 0)
		n.hold = nil
		for _, h := range n.held {
			n.push(h.at, h.frame)
		}
		n.run()
		for sw := range length {
			n.clean(sw, 7, Versions-1)
		}
		n.expect(n.ask(2, Packet{Op: Write, Key: 7, Value: value(99)}), Acknowledge, tail, 99)
	})
}

// TestLostWrites: if lost writes take all cells of a key, the key accepts no further writes, as in
// the paper. Reads continue.
func TestLostWrites(t *testing.T) {
	n := newNetwork(t, length, newInterpreted)
	n.lose = beforeTail
	for v := range uint64(Versions) {
		n.send(0, Packet{Op: Write, Key: 7, Value: value(v + 1)})
		n.run()
	}
	n.lose = nil
	n.send(0, Packet{Op: Write, Key: 7, Value: value(99)})
	n.run()
	if len(n.inbox[0]) != 0 {
		t.Errorf("answers: %+v", n.inbox[0])
	}
	n.expect(n.ask(0, Packet{Op: Read, Key: 7}), ReadReply, tail, 0)
}

// TestNumbersGoRound: the write number after 16,383 is 1, and counts as newer.
func TestNumbersGoRound(t *testing.T) {
	eachEngine(t, func(t *testing.T, open opener) {
		n := newNetwork(t, length, open)
		for _, d := range n.devices {
			check(t, d.pipeline().WriteRegister("PaperIngress.newest_version", 7, []byte{0x3f, 0xfe}))
		}
		for i, want := range []uint16{0x3fff, 1, 2} {
			a := n.ask(0, Packet{Op: Write, Key: 7, Value: value(uint64(i))})
			n.expect(a, Acknowledge, tail, uint64(i))
			if a.Version != want {
				t.Errorf("the write has number %d, want %d", a.Version, want)
			}
			n.clean(head, 7, uint64(i))
		}
	})
}

// TestAccesses: a switch counts, for each key, the requests that it handles.
func TestAccesses(t *testing.T) {
	eachEngine(t, func(t *testing.T, open opener) {
		n := newNetwork(t, length, open)
		n.ask(1, Packet{Op: Write, Key: 7, Value: value(1)})
		n.ask(1, Packet{Op: Read, Key: 7})
		n.ask(1, Packet{Op: Read, Key: 7})
		n.ask(1, Packet{Op: Read, Key: 8})
		for sw, want := range []uint64{1, 3, 1, 1} {
			if got := n.accesses(sw, 7); got != want {
				t.Errorf("s%d counts %d accesses of the key, want %d", sw+1, got, want)
			}
		}
	})
}

// TestDropped: a switch drops these frames and sends nothing.
func TestDropped(t *testing.T) {
	eachEngine(t, func(t *testing.T, open opener) {
		n := newNetwork(t, length, open)
		h1, s1, s2 := n.topo.Hosts[0].IP, n.topo.Switches[0].Address, n.topo.Switches[1].Address
		from := netip.AddrPortFrom(h1, clientPort)
		at := func(a netip.Addr) netip.AddrPort { return netip.AddrPortFrom(a, Port) }
		old, sum := n.frame(from, at(s2), Packet{Op: Read}), n.frame(from, at(s1), Packet{Op: Read})
		// change the time to live, and the checksum's high byte by as much (there is no carry here)
		old[22], old[24] = 1, old[24]+63
		sum[25] ^= 1
		for name, frame := range map[string][]byte{
			"a key that there is not":                n.frame(from, at(s1), Packet{Op: Read, Key: Keys}),
			"a key that there is not, in a WRITE":    n.frame(from, at(s1), Packet{Op: Write, Key: 1 << 31}),
			"an address without a route":             n.frame(from, at(netip.MustParseAddr("10.9.9.9")), Packet{Op: Read}),
			"the last hop of a time to live":         old,
			"a checksum that is wrong":               sum,
			"a frame that is not IPv4":               append(make([]byte, 12), append([]byte{0x86, 0xdd}, make([]byte, 60)...)...),
			"a WRITE without a number, at a replica": nil,
		} {
			n.runs, n.inbox[0] = 0, nil
			switch name {
			case "a WRITE without a number, at a replica":
				n.push(end{1, toHead}, n.frame(from, at(s2), Packet{Op: Write, Key: 7}))
			default:
				n.push(end{0, toHost}, frame)
			}
			n.run()
			if n.runs != 1 || len(n.inbox[0]) != 0 {
				t.Errorf("%s: processed %d times, answers %+v; want 1 and none", name, n.runs, n.inbox[0])
			}
		}
	})
}

// TestNoRole: a switch without entries from the control plane only routes packets.
func TestNoRole(t *testing.T) {
	n := newNetwork(t, 2, newInterpreted)
	d := newInterpreted(t, n.program)
	n.apply(d, Node{Entries: n.plan["s1"].Entries[1:]})
	for _, p := range []Packet{{Op: Write}, {Op: Read}} {
		f := n.frame(netip.AddrPortFrom(n.topo.Hosts[0].IP, clientPort),
			netip.AddrPortFrom(n.topo.Switches[0].Address, Port), p)
		if outs := d.process(toHost, f); len(outs) != 0 {
			t.Errorf("%v: %d frames, want none", p.Op, len(outs))
		}
	}
	if v, err := d.pipeline().ReadRegister("PaperIngress.write_index", 0); err != nil || !slices.Equal(v, []byte{0}) {
		t.Errorf("write_index is %v (%v), want 0", v, err)
	}
}

// TestOverhead: NetCRAQ adds 22 bytes to a datagram, in every packet of a write and a read.
func TestOverhead(t *testing.T) {
	n := newNetwork(t, length, newInterpreted)
	const ethernetIPv4AndUDP = 14 + 20 + 8
	for _, p := range []Packet{{Op: Write, Value: value(1)}, {Op: Read}} {
		n.send(3, p)
		for busy := n.busy(); len(busy) > 0; busy = n.busy() {
			if got := len(n.queues[busy[0]][0]) - ethernetIPv4AndUDP; got != 22 {
				t.Errorf("%v: %d bytes, want 22", p.Op, got)
			}
			n.step(busy[0])
		}
	}
}

// TestPlanRefuses: Plan refuses topologies that the program cannot serve.
func TestPlanRefuses(t *testing.T) {
	text := line(3)
	for name, change := range map[string]string{
		"a ring":                            "  - [s1:4, s3:4]\nhosts:\n",
		"a switch that is not in the chain": "members: [s1, s2]",
	} {
		old := "hosts:\n"
		if name != "a ring" {
			old = "members: [s1, s2, s3]"
		}
		topo, err := topology.Parse([]byte(strings.Replace(text, old, change, 1)), "topology")
		check(t, err)
		if _, err := Plan(topo); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
