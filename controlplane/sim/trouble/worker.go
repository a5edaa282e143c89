package trouble

import (
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/sim/clockwork"
	"github.com/netcraq/netcraq/controlplane/sim/compiled"
	"github.com/netcraq/netcraq/controlplane/sim/world"
)

// A hostile worker is a switch outside the chain under an attacker's control. Other switches treat
// its links as fabric ports. So it may send them any packet: writes stamped like the head's,
// acknowledgements, answers, and requests in the controller's name. No switch may accept such
// packets. The worker sends no requests in a client's name, and nothing to its own hosts, because
// nobody can prevent that.

// workerShape is the network in which some runs have a hostile worker, and workerName is the name
// of the worker.
const workerShape, workerName = "mesh4", "s4"

// In some runs, DrawWorker turns the last switch of a mesh into a hostile worker. Call it before
// the chain is formed.
func DrawWorker(w *world.World, seed uint64) {
	if !clockwork.Included[clockwork.GroupWorker] || w.Shape.Name != workerShape ||
		!clockwork.NewDice(seed, clockwork.DiceWorker).Chance(0.3) {
		return
	}
	w.Worker = w.Node(workerName)
	w.Members = w.Members[:len(w.Members)-1]
}

// Work makes the worker send until the run is over.
func Work(w *world.World, seed uint64) {
	if w.Worker == nil {
		return
	}
	d := clockwork.NewDice(seed, clockwork.DiceWorker)
	hosts := w.Shape.Foes()
	var next func()
	next = func() {
		for _, h := range hosts {
			if h.Switch != w.Worker.Switch {
				continue
			}
			if frame := forge(w, d, h); frame != nil && !asClient(frame) {
				w.Cover.Count("worker.sent", 1)
				w.FromNode(w.Worker, clockwork.Pick(d, fabric(w.Worker)...), frame)
			}
		}
		w.Loop.After(d.Between(50*time.Microsecond, time.Millisecond), next)
	}
	next()
}

// fabric returns the ports of a switch that lead to other switches.
func fabric(n *world.Node) (out []uint32) {
	for _, p := range n.Switch.Ports {
		if p.Peer != nil {
			out = append(out, p.Number)
		}
	}
	return out
}

// asClient reports whether a frame is a request that a client could have sent.
func asClient(frame []byte) bool {
	f, payload, err := wire.ParseFrame(frame)
	var p wire.Packet
	if err != nil || p.Unmarshal(payload, compiled.Profile) != nil {
		return true
	}
	return !p.Op.IsReply() && p.Op != wire.Ack && p.Flags&wire.Stamped == 0 && f.Principal != 0xFFFF
}
