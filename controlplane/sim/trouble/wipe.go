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

// Switches that lose what they hold while their controllers' connections live on: somebody loads a
// program, or writes by another role or another port; or an agent outlives its data plane. Nobody
// tells a controller. As with machines that are suspended, this has dice of its own.

// Loss is what a switch loses.
type Loss struct {
	Tables    bool // all tables, and multicast groups
	Part      bool // its part in the chain: its configuration, and the entries of keys
	Registers bool
}

// String is the loss as timelines have it.
func (l Loss) String() string {
	return fmt.Sprintf("{tables:%v part:%v registers:%v}", l.Tables, l.Part, l.Registers)
}

// Wipes has switches lose something from time to time, in some runs. A controller that is starved
// may give up all others before it notices that, so not then.
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
		if !w.Store.Record.Config.IsMember(n.Name) { // nobody looks at what else it has
			l.Part, l.Tables = true, false
		}
		w.Cover.Count("fault.wiped at "+position(w, n), 1)
		WipeNode(w, n, l)
	})
}

// WipeNode has a switch lose something. Connections, and who is primary, stay. (What its registers
// alone have lost nothing tells, so no run has that.)
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

// SetUpAnew ends the connections of a switch that has lost something, and of which no controller
// has noticed that. (Nobody looks at switches that are not members: but acknowledgements, and all
// that goes to hosts, may pass them.)
func SetUpAnew(w *world.World, n *world.Node) {
	for _, s := range w.Controllers {
		if d := s.Devices[n.Index]; n.Bare {
			d.Broken(d.Number)
		}
	}
}
