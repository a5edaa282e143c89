package netchain

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp"
	"github.com/netcraq/netcraq/switch/target"
)

// A line of switches on the interpreter, a host at each; frames go along links one after the other, in an order that a seed chooses between links.
//
//	h1        h2        h3
//	│1        │1        │1
//	s1 2───3 s2 2───3 s3      s4 is another switch at s3's port 2, for recovery
type network struct {
	t       *testing.T
	seqBits int
	nodes   []*node
	queues  map[int][]arrival // by switch and port: frames on their way to it
	order   []int             // of the queues, as they were first used
	dice    *rand.Rand
	now     time.Duration
	inbox   map[int][]*Packet // by host
}

type node struct {
	p    *interp.Pipeline
	dead bool
}

type arrival struct {
	port  uint32
	frame []byte
}

func switchAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 255, byte(i + 1)}) }
func hostAddr(i int) netip.Addr   { return netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}) }

const (
	toHost  = 1
	toRight = 2
	toLeft  = 3
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newNetwork(t *testing.T, seqBits, switches int, keys ...uint32) *network {
	t.Helper()
	text, _, err := Compiled(seqBits)
	check(t, err)
	program, err := bmv2json.Parse(text)
	check(t, err)
	n := &network{t: t, seqBits: seqBits, queues: map[int][]arrival{}, dice: rand.New(rand.NewPCG(1, 1)), now: time.Second, inbox: map[int][]*Packet{}}
	for i := range switches {
		p, err := interp.New(program, interp.Options{})
		check(t, err)
		n.nodes = append(n.nodes, &node{p: p})
		a := switchAddr(i).As4()
		n.insert(i, "NetchainIngress.local_address", "NetchainIngress.take", nil, target.FieldMatch{Value: a[:]})
		for j := range switches {
			port := byte(toHost)
			if j < i {
				port = toLeft
			} else if j > i {
				port = toRight
			}
			h, s := hostAddr(j).As4(), switchAddr(j).As4()
			n.route(i, h, port)
			if i != j {
				n.route(i, s, port)
			}
		}
		for slot, k := range keys {
			n.insert(i, "NetchainIngress.replica.key_index", "NetchainIngress.replica.set_slot", [][]byte{be32(uint32(slot))}, target.FieldMatch{Value: be32(k)})
		}
	}
	return n
}

func be32(v uint32) []byte { return binary.BigEndian.AppendUint32(nil, v) }

func (n *network) insert(i int, table, action string, params [][]byte, match ...target.FieldMatch) {
	n.t.Helper()
	check(n.t, n.nodes[i].p.InsertEntry(table, &target.TableEntry{Match: match, Priority: 1, Action: &target.ActionCall{Action: action, Params: params}}))
}

func (n *network) route(i int, to [4]byte, port byte) {
	n.insert(i, "NetchainIngress.ipv4_lpm", "NetchainIngress.forward", [][]byte{make([]byte, 6), {0, port}}, target.FieldMatch{Value: to[:], PrefixLen: 32})
}

// session makes a switch give its numbers in a session from now on.
func (n *network) session(i int, number uint32) {
	e := &target.TableEntry{Match: []target.FieldMatch{{Value: []byte{0}}}, Action: &target.ActionCall{Action: "NetchainIngress.replica.begin_session", Params: [][]byte{be32(number)}}}
	if err := n.nodes[i].p.InsertEntry("NetchainIngress.replica.head_session", e); errors.Is(err, target.ErrExists) {
		check(n.t, n.nodes[i].p.ModifyEntry("NetchainIngress.replica.head_session", e))
	} else {
		check(n.t, err)
	}
}

// detour is what a neighbour does with packets for a switch that is gone: where the list has more (more true) or has not.
func (n *network) detour(i, gone int, more bool, action string, params ...[]byte) {
	a := switchAddr(gone).As4()
	sc := target.FieldMatch{Value: []byte{0, 0}, Mask: []byte{0xff, 0xff}}
	priority := 2
	if more {
		sc, priority = target.FieldMatch{Value: []byte{0, 0}, Mask: []byte{0, 0}}, 1
	}
	for _, d := range detours {
		check(n.t, n.nodes[i].p.InsertEntry(d+"detours", &target.TableEntry{Priority: priority,
			Match:  []target.FieldMatch{{Value: a[:]}, {Value: []byte{0}, Mask: []byte{0}}, sc, {Value: []byte{0}, Mask: []byte{0}}},
			Action: &target.ActionCall{Action: d + action, Params: params}}))
	}
}

var detours = []string{"NetchainIngress.detour.", "NetchainIngress.detour_next."}

// fail takes a switch away, and tells its neighbours (NetChain, algorithm 2).
func (n *network) fail(gone int) {
	n.nodes[gone].dead = true
	for i := range n.nodes {
		if !n.nodes[i].dead {
			n.detour(i, gone, true, "skip")
			n.detour(i, gone, false, "answer_for_the_last")
		}
	}
}

// send has a host send a packet.
func (n *network) send(host int, p *Packet, chain []int) {
	n.t.Helper()
	var addrs []netip.Addr
	for _, i := range chain {
		addrs = append(addrs, switchAddr(i))
	}
	to := p.Request(addrs)
	payload, err := p.Marshal(n.seqBits)
	check(n.t, err)
	n.push(host, arrival{toHost, frame(hostAddr(host), to, uint16(4000+p.Key&0xff), payload)})
}

func (n *network) push(sw int, a arrival) {
	id := sw<<8 | int(a.port)
	if _, ok := n.queues[id]; !ok {
		n.order = append(n.order, id)
	}
	n.queues[id] = append(n.queues[id], a)
}

// step delivers one frame, from a link that chance chooses; false: none is on its way.
func (n *network) step() bool {
	var busy []int
	for _, id := range n.order {
		if len(n.queues[id]) > 0 {
			busy = append(busy, id)
		}
	}
	if len(busy) == 0 {
		return false
	}
	id := busy[n.dice.IntN(len(busy))]
	a := n.queues[id][0]
	n.queues[id] = n.queues[id][1:]
	n.now += time.Microsecond
	sw := id >> 8
	for _, out := range n.nodes[sw].p.Process(n.now, a.port, a.frame) {
		f := append([]byte{}, out.Frame...)
		switch out.Port {
		case toHost:
			p := new(Packet)
			check(n.t, p.Unmarshal(f[42:], n.seqBits))
			n.inbox[sw] = append(n.inbox[sw], p)
		case toRight:
			n.carry(sw, sw+1, arrival{toLeft, f})
		case toLeft:
			n.carry(sw, sw-1, arrival{toRight, f})
		}
	}
	return true
}

// carry brings a frame to the next switch; what is gone is passed by, as if there were another way.
func (n *network) carry(from, to int, a arrival) {
	for to >= 0 && to < len(n.nodes) && n.nodes[to].dead {
		to += to - from
		from = to
	}
	if to >= 0 && to < len(n.nodes) {
		n.push(to, a)
	}
}

// ask sends a packet and gives the answer.
func (n *network) ask(host int, p *Packet, chain []int) *Packet {
	n.t.Helper()
	n.inbox[host] = nil
	n.send(host, p, chain)
	for n.step() {
	}
	if len(n.inbox[host]) != 1 {
		n.t.Fatalf("%d answers to %+v", len(n.inbox[host]), p)
	}
	return n.inbox[host][0]
}

// frame is Ethernet, IPv4 and UDP around a payload.
func frame(src, dst netip.Addr, port uint16, payload []byte) []byte {
	b := make([]byte, 42, 42+len(payload))
	b[12], b[13], b[14], b[22], b[23] = 8, 0, 0x45, 64, 17
	binary.BigEndian.PutUint16(b[16:], uint16(28+len(payload)))
	copy(b[26:], src.AsSlice())
	copy(b[30:], dst.AsSlice())
	sum := uint32(0)
	for i := 14; i < 34; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(b[24:], ^uint16(sum))
	binary.BigEndian.PutUint16(b[34:], port)
	binary.BigEndian.PutUint16(b[36:], Port)
	binary.BigEndian.PutUint16(b[38:], uint16(8+len(payload)))
	return append(b, payload...)
}

func value(n uint64) (v [ValueBytes]byte) {
	binary.BigEndian.PutUint64(v[8:], n)
	return v
}

func number(v [ValueBytes]byte) uint64 { return binary.BigEndian.Uint64(v[8:]) }

// cas compares with old and writes fresh.
func cas(key uint32, old, fresh uint64) *Packet {
	p := &Packet{Op: CAS, Key: key, Value: value(fresh)}
	binary.BigEndian.PutUint64(p.Value[:], old)
	return p
}

func eachWidth(t *testing.T, f func(t *testing.T, seqBits int)) {
	for _, bits := range []int{16, 128} {
		t.Run(fmt.Sprintf("SEQ %d bits", bits), func(t *testing.T) { f(t, bits) })
	}
}

func expect(t *testing.T, got *Packet, op Op, status Status, v uint64) {
	t.Helper()
	if got.Op != op || got.Status != status || number(got.Value) != v {
		t.Errorf("got op %d, status %d, value %d; want %d, %d, %d", got.Op, got.Status, number(got.Value), op, status, v)
	}
}

func TestOperations(t *testing.T) {
	eachWidth(t, func(t *testing.T, bits int) {
		n := newNetwork(t, bits, 4, 7)
		chain := []int{0, 1, 2, 3}
		expect(t, n.ask(0, &Packet{Op: Read, Key: 7}, chain), ReadReply, NotFound, 0)
		expect(t, n.ask(2, &Packet{Op: Write, Key: 7, Value: value(41)}, chain), WriteReply, OK, 41)
		for host := range 4 {
			expect(t, n.ask(host, &Packet{Op: Read, Key: 7}, chain), ReadReply, OK, 41)
		}
		expect(t, n.ask(1, cas(7, 40, 50), chain), CASReply, CASFailed, 41)
		expect(t, n.ask(1, cas(7, 41, 42), chain), CASReply, OK, 42)
		expect(t, n.ask(3, &Packet{Op: Read, Key: 7}, chain), ReadReply, OK, 42)
		if r := n.ask(3, &Packet{Op: Delete, Key: 7}, chain); r.Op != DeleteReply || r.Status != OK {
			t.Errorf("%+v", r)
		}
		expect(t, n.ask(0, &Packet{Op: Read, Key: 7}, chain), ReadReply, NotFound, 0)
		expect(t, n.ask(0, &Packet{Op: Read, Key: 8}, chain), ReadReply, NotFound, 0)
		// Every switch has counted what it did: reads at the tail alone, a write at each.
		for i := range 4 {
			reads, err := n.nodes[i].p.ReadCounter("NetchainIngress.replica.reads", 0)
			check(t, err)
			writes, err := n.nodes[i].p.ReadCounter("NetchainIngress.replica.writes", 0)
			check(t, err)
			wantReads := uint64(0)
			if i == 3 {
				wantReads = 7
			}
			if reads.Packets != wantReads || writes.Packets != 3 {
				t.Errorf("s%d: %d reads, %d writes", i+1, reads.Packets, writes.Packets)
			}
		}
	})
}

// TestWrap: numbers of 16 bits go round, and what is newer stays newer.
func TestWrap(t *testing.T) {
	n := newNetwork(t, 16, 2, 7)
	chain := []int{0, 1}
	for i := range n.nodes {
		check(t, n.nodes[i].p.WriteRegister("NetchainIngress.replica.sequence", 0, []byte{0xff, 0xfe}))
	}
	for v := range uint64(4) {
		expect(t, n.ask(0, &Packet{Op: Write, Key: 7, Value: value(v)}, chain), WriteReply, OK, v)
		expect(t, n.ask(0, &Packet{Op: Read, Key: 7}, chain), ReadReply, OK, v)
	}
}

// TestFailover: the switches around one that is gone go on without it, and clients need to know nothing.
func TestFailover(t *testing.T) {
	for gone, name := range []string{"head", "middle", "tail"} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t, 128, 3, 7)
			chain := []int{0, 1, 2}
			host := (gone + 1) % 3
			expect(t, n.ask(host, &Packet{Op: Write, Key: 7, Value: value(1)}, chain), WriteReply, OK, 1)
			n.fail(gone)
			if gone == 0 {
				n.session(1, 1)
			}
			expect(t, n.ask(host, &Packet{Op: Read, Key: 7}, chain), ReadReply, OK, 1)
			expect(t, n.ask(host, &Packet{Op: Write, Key: 7, Value: value(2)}, chain), WriteReply, OK, 2)
			expect(t, n.ask(host, &Packet{Op: Read, Key: 7}, chain), ReadReply, OK, 2)
			expect(t, n.ask(host, cas(7, 2, 3), chain), CASReply, OK, 3)
			expect(t, n.ask(host, &Packet{Op: Read, Key: 7}, chain), ReadReply, OK, 3)
		})
	}
}

// TestSession: a new head's numbers are above those that the old one gave and nobody but it knew.
func TestSession(t *testing.T) {
	n := newNetwork(t, 128, 3, 7)
	chain := []int{0, 1, 2}
	expect(t, n.ask(1, &Packet{Op: Write, Key: 7, Value: value(1)}, chain), WriteReply, OK, 1)
	for range 3 { // three writes that get a number at the head, and no further
		n.send(1, &Packet{Op: Write, Key: 7, Value: value(9)}, chain)
	}
	for len(n.queues[0<<8|toRight]) > 0 || len(n.queues[1<<8|toHost]) > 0 {
		n.step()
		delete(n.queues, 1<<8|toLeft) // from s1 to s2: lost
	}
	n.fail(0)
	n.session(1, 1)
	r := n.ask(1, &Packet{Op: Write, Key: 7, Value: value(2)}, chain)
	expect(t, r, WriteReply, OK, 2)
	if r.Seq.High>>32 != 1 {
		t.Errorf("the number is of session %d", r.Seq.High>>32)
	}
	expect(t, n.ask(2, &Packet{Op: Read, Key: 7}, chain), ReadReply, OK, 2)
}

// TestRecovery: a spare takes the place of a switch that is gone, a virtual group at a time: its writes are held, it is filled, and what was for the old one goes to it.
func TestRecovery(t *testing.T) {
	n := newNetwork(t, 128, 4, 7)
	chain := []int{0, 1, 2}
	expect(t, n.ask(0, &Packet{Op: Write, Key: 7, Value: value(1)}, chain), WriteReply, OK, 1)
	n.fail(1)
	expect(t, n.ask(0, &Packet{Op: Write, Key: 7, Value: value(2)}, chain), WriteReply, OK, 2)
	for _, r := range []string{"sequence", "objects", "present"} { // from the one after it (NetChain, algorithm 3)
		v, err := n.nodes[2].p.ReadRegister("NetchainIngress.replica."+r, 0)
		check(t, err)
		check(t, n.nodes[3].p.WriteRegister("NetchainIngress.replica."+r, 0, v))
	}
	spare := switchAddr(3).As4()
	for _, i := range []int{0, 2, 3} {
		a := switchAddr(1).As4()
		any1 := target.FieldMatch{Value: []byte{0}, Mask: []byte{0}}
		for _, d := range detours {
			check(t, n.nodes[i].p.InsertEntry(d+"detours", &target.TableEntry{Priority: 9,
				Match:  []target.FieldMatch{{Value: a[:]}, any1, {Value: []byte{0, 0}, Mask: []byte{0, 0}}, any1},
				Action: &target.ActionCall{Action: d + "redirect", Params: [][]byte{spare[:]}}}))
		}
	}
	expect(t, n.ask(0, &Packet{Op: Write, Key: 7, Value: value(3)}, chain), WriteReply, OK, 3)
	for _, i := range []int{0, 2, 3} {
		v, err := n.nodes[i].p.ReadRegister("NetchainIngress.replica.objects", 0)
		check(t, err)
		if number([16]byte(v)) != 3 {
			t.Errorf("s%d has %x", i+1, v)
		}
	}
	expect(t, n.ask(2, &Packet{Op: Read, Key: 7}, chain), ReadReply, OK, 3)
}

// TestConsistency: without failures and loss, whatever clients are told is linearizable.
func TestConsistency(t *testing.T) {
	eachWidth(t, func(t *testing.T, bits int) {
		for seed := range uint64(200) {
			n := newNetwork(t, bits, 4, 0, 1)
			n.dice = rand.New(rand.NewPCG(2, seed))
			consistent(t, n, seed)
		}
	})
}

type input struct {
	op       Op
	key      uint32
	old, new uint64
}

type output struct {
	status Status
	value  uint64
}

// consistent has four clients make calls, each at a host and with a key of its own to be told its answers by, and checks the history.
func consistent(t *testing.T, n *network, seed uint64) {
	type client struct {
		busy  bool
		in    input
		begin int64
		calls int
	}
	clients := make([]client, 4)
	var ops []porcupine.Operation
	clock := int64(0)
	for {
		clock++
		done := true
		for i := range clients {
			c := &clients[i]
			if c.busy && len(n.inbox[i]) > 0 {
				r := n.inbox[i][0]
				n.inbox[i] = n.inbox[i][1:]
				ops = append(ops, porcupine.Operation{ClientId: i, Input: c.in, Call: c.begin, Output: output{r.Status, number(r.Value)}, Return: clock})
				c.busy = false
			}
			if !c.busy && c.calls < 8 && n.dice.IntN(3) == 0 {
				c.calls++
				c.in = input{op: []Op{Read, Read, Write, CAS, Delete}[n.dice.IntN(5)], key: n.dice.Uint32N(2), old: n.dice.Uint64N(4), new: n.dice.Uint64N(4)}
				p := &Packet{Op: c.in.op, Key: c.in.key, Value: value(c.in.new)}
				if c.in.op == CAS {
					p = cas(c.in.key, c.in.old, c.in.new)
				}
				c.begin, c.busy = clock, true
				n.send(i, p, []int{0, 1, 2, 3})
			}
			done = done && c.calls == 8
		}
		if !n.step() && done {
			break
		}
	}
	for i, c := range clients {
		if c.busy && len(n.inbox[i]) == 0 {
			t.Fatalf("seed %d: client %d was not answered: %+v", seed, i, c.in)
		}
	}
	if !porcupine.CheckOperations(register, ops) {
		t.Errorf("seed %d: not linearizable", seed)
	}
}

type cell struct {
	there bool
	value uint64
}

var register = porcupine.Model{
	Partition: func(h []porcupine.Operation) [][]porcupine.Operation {
		var by [2][]porcupine.Operation
		for _, o := range h {
			k := o.Input.(input).key
			by[k] = append(by[k], o)
		}
		return by[:]
	},
	Init: func() any { return cell{} },
	Step: func(state, in, out any) (bool, any) {
		s, i, o := state.(cell), in.(input), out.(output)
		switch i.op {
		case Read:
			return o.status == NotFound && !s.there || o.status == OK && s.there && o.value == s.value, s
		case Write:
			return o.status == OK, cell{true, i.new}
		case Delete:
			return o.status == OK, cell{false, i.new}
		}
		if o.status == CASFailed {
			return s.value != i.old && o.value == s.value, s
		}
		return o.status == OK && s.value == i.old, cell{true, i.new}
	},
}
