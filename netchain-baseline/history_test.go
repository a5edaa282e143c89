package netchain

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// In these tests, clients at every switch read, write, delete, and compare and swap. The answers
// must be linearizable. A client sends each packet only once, because NetChain would execute a
// repeated packet twice. If the packet is lost, the client continues with another request. If a
// head has numbered the lost packet, the switches may have executed it or may still execute it.

type input struct {
	op       Op
	key      uint32
	old, new uint64
}

type output struct {
	known  bool
	status Status
	value  uint64
}

type client struct {
	host  int
	busy  bool
	in    input
	tag   uint32 // the packet's tag, which identifies the answer; also the number of the sent packet
	sent  int    // number of addresses in the packet's list
	begin int64
}

type history struct {
	n       *network
	clients []*client
	ops     []porcupine.Operation
	clock   int64
	asked   int
	wrong   string
	seen    map[uint32]uint64 // for each key, the value in the last answer to any client; the next CAS expects it
	counts  map[string]int    // number of answers by operation and status
}

func newHistory(n *network) *history {
	h := &history{n: n, seen: map[uint32]uint64{}, counts: map[string]int{}}
	for i := range n.nodes {
		h.clients = append(h.clients, &client{host: i})
	}
	return h
}

// step makes one step of the network, the controller and the clients. If `asking` is true, clients
// sometimes send new requests.
func (h *history) step(asking bool) {
	h.clock++
	for _, c := range h.clients {
		h.answers(c)
		if asking && !c.busy && h.n.nodes[c.host].works() && h.n.dice.IntN(12) == 0 {
			key := Key(h.n.dice.IntN(h.n.o.Keys), h.n.o.Groups)
			h.ask(c, input{[]Op{Read, Read, Read, Write, Write, CAS, CAS, Delete}[h.n.dice.IntN(8)], key,
				h.seen[key], uint64(h.asked + 1)})
		}
	}
	h.n.step()
	if h.n.dice.IntN(2) == 0 {
		h.n.control()
	}
}

func (h *history) ask(c *client, in input) {
	h.asked++
	c.in, c.busy, c.begin, c.tag = in, true, h.clock, uint32(h.n.last+1)
	p := &Packet{Op: in.op, Key: in.key, Value: value(in.new)}
	if in.op == CAS {
		p = cas(in.key, in.old, in.new)
	}
	p.Tag = c.tag
	h.n.send(c.host, p)
	c.sent = len(p.Rest)
}

// answers processes the answers to a client. It also notices that no answer will arrive.
func (h *history) answers(c *client) {
	for _, a := range h.n.inbox[c.host] {
		switch {
		case !c.busy || tagOf(a.payload, c.sent) != c.tag:
			h.wrong = fmt.Sprintf("client %d was answered %+v to nothing that it asked", c.host, a.Packet)
		case a.Op != c.in.op+1 || a.Key != c.in.key:
			h.wrong = fmt.Sprintf("client %d was answered %+v to %+v", c.host, a.Packet, c.in)
		case a.Status == Gone:
			h.lost(c)
		default:
			h.counts[fmt.Sprint(c.in.op, " ", a.Status)]++
			h.seen[a.Key] = number(a.Value)
			h.done(c, output{true, a.Status, number(a.Value)}, h.clock)
		}
	}
	h.n.inbox[c.host] = nil
	if c.busy && h.n.flying[int(c.tag)] == 0 {
		h.lost(c)
	}
}

func (h *history) lost(c *client) {
	c.busy = false
	if c.in.op != Read && h.n.given[int(c.tag)] {
		h.counts["lost"]++
		h.done(c, output{}, math.MaxInt64)
	}
}

func (h *history) done(c *client, out output, at int64) {
	c.busy = false
	h.ops = append(h.ops, porcupine.Operation{ClientId: c.host, Input: c.in, Call: c.begin, Output: out, Return: at})
}

// steps runs the network until clients have sent the given number of new requests.
func (h *history) steps(questions int) {
	for end := h.asked + questions; h.asked < end; {
		h.step(true)
	}
}

// during runs an operation of the controller while clients continue to send requests.
func (h *history) during(f func(context.Context) error) error {
	for h.n.begin(f); h.n.running; {
		h.step(h.asked < 160) // limit the number of requests, because the recovery may take long
	}
	return h.n.failure
}

// verdict reads every key once more. It returns a description of the violation of linearizability,
// or "".
func (h *history) verdict() string {
	settled := func() {
		for slices.ContainsFunc(h.clients, func(c *client) bool { return c.busy }) {
			h.step(false)
		}
	}
	settled()
	for k := range h.n.o.Keys {
		for _, c := range h.clients {
			if h.n.nodes[c.host].works() {
				h.ask(c, input{op: Read, key: Key(k, h.n.o.Groups)})
			}
		}
		settled()
	}
	if h.wrong != "" {
		return h.wrong
	}
	switch porcupine.CheckOperationsTimeout(cells, h.ops, 5*time.Second) {
	case porcupine.Illegal:
		return notLinearizable
	case porcupine.Unknown:
		return "the check takes too long"
	}
	return ""
}

const notLinearizable = "not linearizable"

type register struct {
	there bool
	value uint64
}

// cells is the sequential model of the store for the linearizability check. It has a register for
// each key.
var cells = porcupine.Model{
	Partition: func(h []porcupine.Operation) (out [][]porcupine.Operation) {
		by := map[uint32][]porcupine.Operation{}
		for _, o := range h {
			k := o.Input.(input).key
			by[k] = append(by[k], o)
		}
		for _, ops := range by {
			out = append(out, ops)
		}
		return out
	},
	Init: func() any { return register{} },
	Step: func(state, in, out any) (bool, any) {
		s, i, o := state.(register), in.(input), out.(output)
		switch i.op {
		case Read:
			return o.status == NotFound && !s.there || o.status == OK && s.there && o.value == s.value, s
		case Write:
			return !o.known || o.status == OK, register{true, i.new}
		case Delete:
			return !o.known || o.status == OK, register{false, i.new}
		}
		if o.status == CASFailed || !o.known && s.value != i.old {
			return !o.known || s.value != i.old && o.value == s.value, s
		}
		return (!o.known || o.status == OK) && s.value == i.old, register{true, i.new}
	},
}

// TestConsistency checks histories without failures and without lost packets.
func TestConsistency(t *testing.T) {
	eachWidth(t, func(t *testing.T, bits int) {
		for seed := range uint64(seeds) {
			n := newNetwork(t, ring(4, 4), bits, 2, 1)
			n.dice = rand.New(rand.NewPCG(2, seed))
			h := newHistory(n)
			h.steps(40)
			if wrong := h.verdict(); wrong != "" {
				t.Errorf("seed %d: %s", seed, wrong)
			}
		}
	})
}

// sixth is a topology with six switches. Any two switches can fail without separating the others.
// The head and the tail are not neighbours.
var sixth = links(6, 4, func(i, j int) bool { return j-i != 3 })

// failures makes switches fail and return under load, and counts the clients' answers. It returns a
// description of the violation of linearizability, or "".
func failures(n *network, seed uint64, counts map[string]int) string {
	n.t.Helper()
	n.dice = rand.New(rand.NewPCG(3, seed))
	h := newHistory(n)
	h.counts = counts
	h.steps(12)
	for range 2 {
		at := n.plan.places[n.dice.IntN(len(n.plan.places))]
		gone := at.by.Name
		n.kill(gone)
		h.steps(n.dice.IntN(10))
		if err := h.during(func(ctx context.Context) error { return n.Fail(ctx, gone) }); err != nil {
			return err.Error()
		}
		h.steps(12)
		n.start(gone)
		by := []string{at.member.Name, "s5", "s6"}[n.dice.IntN(3)] // the failed switch itself, or a replacement
		if n.plan.placeOf(n.topo.Switch(by)) != nil {
			by = at.member.Name
		}
		other := ""
		if n.dice.IntN(2) == 0 { // let another switch fail during the recovery
			if x := n.plan.places[n.dice.IntN(len(n.plan.places))]; x != at {
				other = x.by.Name
			}
		}
		if wrong := h.recover(at.member.Name, by, other); wrong != "" {
			return wrong
		}
		h.steps(12)
	}
	return h.verdict()
}

// recover lets a switch take a member's place in the chain. If `other` is not empty, the switch
// with this name fails during the recovery, and is recovered afterwards.
func (h *history) recover(member, by, other string) string {
	n := h.n
	again := func(member, by string) error {
		return h.during(func(ctx context.Context) error {
			_, err := n.Recover(ctx, member, by)
			return err
		})
	}
	if other == "" {
		if err := again(member, by); err != nil {
			return err.Error()
		}
		return ""
	}
	place := n.plan.placeOf(n.topo.Switch(other)).member.Name
	left := n.dice.IntN(600)
	n.begin(func(ctx context.Context) error {
		_, err := n.Recover(ctx, member, by)
		return err
	})
	for ; n.running || left >= 0; left-- {
		if left == 0 {
			n.kill(other)
		}
		h.step(h.asked < 160)
	}
	failed := n.failure != nil
	if err := h.during(func(ctx context.Context) error { return n.Fail(ctx, other) }); err != nil {
		return err.Error()
	}
	h.steps(4)
	if failed {
		h.counts["a recovery that another failure ends"]++
		if err := again(member, by); err != nil {
			return err.Error()
		}
	}
	n.start(other)
	if err := again(place, other); err != nil {
		return err.Error()
	}
	return ""
}

// TestFailures checks histories in which any switch fails and is recovered, by the same switch or
// by a replacement.
func TestFailures(t *testing.T) {
	eachWidth(t, func(t *testing.T, bits int) {
		counts := map[string]int{}
		for seed := range uint64(seeds) {
			if wrong := failures(newNetwork(t, sixth, bits, 3, 2), seed, counts); wrong != "" {
				t.Errorf("seed %d: %s", seed, wrong)
			}
		}
		t.Log(counts)
		for _, what := range []string{"READ OK", "READ NOT_FOUND", "WRITE OK", "DELETE OK", "CAS OK", "CAS CAS_FAILED", "lost", "a recovery that another failure ends"} {
			if counts[what] < seeds/10 {
				t.Errorf("%s: only %d", what, counts[what])
			}
		}
	})
}

const seeds = 100

// TestDrain checks that the tests detect a faulty recovery. The recovery does not wait until all
// numbered writes have passed the chain.
func TestDrain(t *testing.T) {
	for seed := range uint64(30 * seeds) {
		n := newNetwork(t, sixth, 128, 3, 2)
		n.f.noDrain = true
		if failures(n, seed, map[string]int{}) == notLinearizable {
			return
		}
	}
	t.Error("it is not noticed")
}
