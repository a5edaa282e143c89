package trouble

import (
	"fmt"
	"slices"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/sim/clockwork"
	"github.com/netcraq/netcraq/controlplane/sim/world"
)

// This file makes switches lose their state while the controllers' connections stay up. This can
// happen if somebody loads a program, or writes under another role or port, or if an agent outlives
// its data plane. Nobody tells a controller. These faults have a stream of random numbers of their
// own, like suspended machines.

// Loss says which state a switch loses.
type Loss struct {
	Tables    bool // all tables, and multicast groups
	Part      bool // the switch's part in the chain, which is its configuration and the entries of keys
	Registers bool
}

// String returns the loss in the form that timelines use.
func (l Loss) String() string {
	return fmt.Sprintf("{tables:%v part:%v registers:%v}", l.Tables, l.Part, l.Registers)
}

// In some runs, Wipes makes switches lose state from time to time. It spares runs that starve
// controllers, because a starved controller may give up all other switches before it notices the
// loss.
func Wipes(w *world.World, p *Schedule, seed uint64, end time.Duration) {
	d := clockwork.NewDice(seed, clockwork.DiceWipe)
	if !clockwork.Included[clockwork.GroupWiped] || !d.Chance(0.3) {
		return
	}
	fromTimeToTime(w, d, 4*p.every, end, func() {
		n := clockwork.Pick(d, w.Nodes...)
		l := clockwork.Pick(d, Loss{Tables: true, Registers: true}, Loss{Part: true, Registers: true},
			Loss{Tables: true},
			Loss{Part: true})
		if !n.Alive || n.Suspended || !w.Spare(n) || w.Loop.Now < w.Controller().Starved.Until {
			return
		}
		if !w.Store.Record.Config.IsMember(n.Name) { // the machine checks no other state of non-members
			l.Part, l.Tables = true, false
		}
		w.Cover.Count("fault.wiped at "+position(w, n), 1)
		WipeNode(w, n, l)
	})
}

// WipeNode makes a switch lose state. Connections stay open, and the primary controller stays
// primary. (In no run does a switch lose only its registers, because nothing can reveal that.)
func WipeNode(w *world.World, n *world.Node, l Loss) {
	w.Trace("fault", "%s loses what it has: %v", n.Name, l)
	n.Count()
	n.Data, n.Bare = false, true
	if l.Tables {
		n.ClearTables()
		n.ForgetTables()
	}
	if l.Part {
		for _, e := range slices.Clone(n.Entries) {
			if e.Table == world.Register("chain_config") || e.Table == world.Register("key_index") {
				n.Unset(e)
			}
		}
		n.Assignment, n.KeyIndex = nil, map[wire.Key]ops.Entry{}
	}
	if l.Registers {
		n.ClearRegisters()
	}
}

// SetUpAnew ends the connections of a switch that has lost state, if no controller has noticed the
// loss. (Nobody checks switches that are not members. But acknowledgements, and all packets for
// hosts, may pass such switches.)
func SetUpAnew(w *world.World, n *world.Node) {
	for _, s := range w.Controllers {
		if d := s.Devices[n.Index]; n.Bare {
			d.Broken(d.Number)
		}
	}
}
