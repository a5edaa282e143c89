package sim

import (
	"slices"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
)

// Switches that lose what they hold while their controllers' connections live on: somebody loads a
// program, or writes by another role or another port; or an agent outlives its data plane. Nobody
// tells a controller. As with machines that are suspended, this has dice of its own.

// loss is what a switch loses.
type loss struct {
	tables    bool // all tables, and multicast groups
	part      bool // its part in the chain: its configuration, and the entries of keys
	registers bool
}

// wipes has switches lose something from time to time, in some runs. A controller that is starved
// may give up all others before it notices that, so not then.
func (w *world) wipes(p *schedule, seed uint64, end time.Duration) {
	d := newDice(seed, diceWipe)
	if !groups[groupWiped] || !d.chance(0.3) {
		return
	}
	w.fromTimeToTime(d, 4*p.every, end, func() {
		n := pick(d, w.nodes...)
		l := pick(d, loss{tables: true, registers: true}, loss{part: true, registers: true}, loss{tables: true},
			loss{part: true})
		if !n.alive || n.suspended || !w.spare(n) || w.loop.now < w.controller().starved.until {
			return
		}
		if !w.store.record.Config.IsMember(n.name) { // nobody looks at what else it has
			l.part, l.tables = true, false
		}
		w.cover.add("fault.wiped at "+w.position(n), 1)
		w.wipeNode(n, l)
	})
}

// wipeNode has a switch lose something. Connections, and who is primary, stay. (What its registers
// alone have lost nothing tells, so no run has that.)
func (w *world) wipeNode(n *node, l loss) {
	w.trace("fault", "%s loses what it has: %+v", n.name, l)
	n.count()
	n.data, n.bare = false, true
	if l.tables {
		n.clearTables()
		n.forgetTables()
	}
	if l.part {
		for _, e := range slices.Clone(n.entries) {
			if e.table == register("chain_config") || e.table == register("key_index") {
				n.unset(e)
			}
		}
		n.assignment, n.keyIndex = nil, map[wire.Key]ops.Entry{}
	}
	if l.registers {
		n.clearRegisters()
	}
}

// setUpAnew ends the connections of a switch that has lost something, and of which no controller
// has noticed that. (Nobody looks at switches that are not members: but acknowledgements, and all
// that goes to hosts, may pass them.)
func (w *world) setUpAnew(n *node) {
	for _, s := range w.controllers {
		if d := s.devices[n.index]; n.bare {
			d.broken(d.number)
		}
	}
}
