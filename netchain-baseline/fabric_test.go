package netchain

import (
	"context"
	"errors"
	"slices"

	v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/netcraq/netcraq/controlplane/tablefill"
	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/switch/interp"
	"github.com/netcraq/netcraq/switch/target"
)

// simFabric is the controller's access to the simulated switches. The controller and the network
// take turns. While the network makes a step, the controller waits in a call.
type simFabric struct {
	n        *network
	calls    chan *call
	finished chan error

	noDrain bool // makes the controller skip waiting for writes in the chain, to test the checks (a mutant)
}

// call is a condition for which the controller waits. The network checks it after each step.
type call struct {
	try  func() (done bool)
	done chan struct{}
}

func (f *simFabric) wait(try func() bool) {
	c := &call{try, make(chan struct{})}
	f.calls <- c
	<-c.done
}

// begin starts an operation of the controller.
func (n *network) begin(f func(context.Context) error) {
	n.running = true
	go func() { n.f.finished <- f(context.Background()) }()
	n.hear()
}

// hear waits until the controller waits in a call, or until its operation ends.
func (n *network) hear() {
	select {
	case n.current = <-n.f.calls:
	case n.failure = <-n.f.finished:
		n.current, n.running = nil, false
	}
}

// control lets the controller continue if the condition for which it waits holds.
func (n *network) control() {
	if n.running && n.current.try() {
		close(n.current.done)
		n.hear()
	}
}

// do runs an operation of the controller while the network delivers frames.
func (n *network) do(f func(context.Context) error) {
	n.t.Helper()
	for n.begin(f); n.running; {
		n.step()
		n.control()
	}
	check(n.t, n.failure)
}

var errDead = errors.New("the switch does not answer")

// at calls a function for a switch.
func (f *simFabric) at(sw string, what func(*node)) (err error) {
	f.wait(func() bool {
		if x := f.n.node(sw); x.dead {
			err = errDead
		} else {
			what(x)
		}
		return true
	})
	return err
}

func (f *simFabric) reload(_ context.Context, sw string) error {
	return f.at(sw, func(x *node) {
		p, err := interp.New(f.n.program, interp.Options{})
		check(f.n.t, err)
		x.p, x.unnumbered = p, 0
	})
}

// write changes the entries one by one, so that frames can arrive between two changes.
func (f *simFabric) write(_ context.Context, sw string, updates []*v1.Update) error {
	for _, u := range updates {
		if err := f.at(sw, func(x *node) { f.n.apply(x, u) }); err != nil {
			return err
		}
	}
	return nil
}

func (f *simFabric) inject(o *outgoing) (origin int) {
	b, err := o.frame(f.n.seqBits)
	check(f.n.t, err)
	f.n.last++
	f.n.push(end{slices.Index(f.n.nodes, f.n.node(o.via)), topology.CPUPort}, arrival{f.n.last, b})
	return f.n.last
}

func (f *simFabric) tell(_ context.Context, out []outgoing) error {
	f.wait(func() bool {
		for _, o := range out {
			f.inject(&o)
		}
		return true
	})
	return nil
}

func (f *simFabric) exchange(_ context.Context, out []outgoing) (answers []*Packet, err error) {
	if f.noDrain && out[0].to != self {
		return nil, nil
	}
	var origins []int
	f.wait(func() bool {
		if origins == nil {
			for _, o := range out {
				o.packet.Tag = uint32(f.n.last + 1)
				origins = append(origins, f.inject(&o))
			}
		}
		return !slices.ContainsFunc(origins, func(o int) bool { return f.n.flying[o] > 0 })
	})
	for _, o := range origins {
		p := f.n.heard[uint32(o)]
		if p == nil {
			return nil, errDead
		}
		answers = append(answers, p)
	}
	return answers, nil
}

func (f *simFabric) settle(context.Context) error {
	before := -1
	f.wait(func() bool {
		if before < 0 {
			before = f.n.last
		}
		for origin := range f.n.flying {
			if origin <= before {
				return false
			}
		}
		return true
	})
	return nil
}

// apply changes the tables of an interpreter as a P4Runtime server does.
func (n *network) apply(x *node, u *v1.Update) {
	te := u.Entity.GetTableEntry()
	table, entry, err := tablefill.Entry(n.info, te)
	check(n.t, err)
	do := map[v1.Update_Type]func(string, *target.TableEntry) error{
		v1.Update_INSERT: x.p.InsertEntry,
		v1.Update_MODIFY: x.p.ModifyEntry,
		v1.Update_DELETE: x.p.DeleteEntry,
	}
	if err := do[u.Type](table, entry); err != nil {
		n.t.Errorf("%s: %v of %v: %v", x.s.Name, u.Type, te, err)
	}
}
