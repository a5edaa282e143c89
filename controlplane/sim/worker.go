package sim

import (
	"time"

	"github.com/netcraq/netcraq/api/wire"
)

// A hostile worker is a switch outside the chain whose machine somebody has taken over. Its links
// to other switches are fabric ports there, and it sends what it likes by them: writes stamped as
// the head stamps them, acknowledgements, answers, requests in the controller's name. Nobody must
// believe it. What it can do as its own hosts' switch is left out, because nobody can prevent that:
// it sends no requests in a client's name, and nothing to its own hosts.

// workerShape is the network that some runs have a hostile worker in, and workerName the worker.
const workerShape, workerName = "mesh4", "s4"

// drawWorker makes the last switch of a mesh a hostile worker, in some runs. It must come before
// the chain is formed.
func (w *world) drawWorker(seed uint64) {
	if !groups[groupWorker] || w.shape.name != workerShape || !newDice(seed, diceWorker).chance(0.3) {
		return
	}
	w.worker = w.node(workerName)
	w.members = w.members[:len(w.members)-1]
}

// work has the worker send until the run is over.
func (w *world) work(seed uint64) {
	if w.worker == nil {
		return
	}
	d := newDice(seed, diceWorker)
	hosts := w.shape.foes()
	var next func()
	next = func() {
		for _, h := range hosts {
			if h.Switch != w.worker.sw {
				continue
			}
			if frame := w.forge(d, h); frame != nil && !asClient(frame) {
				w.cover.add("worker.sent", 1)
				w.fromNode(w.worker, pick(d, w.worker.fabric()...), frame)
			}
		}
		w.loop.after(d.between(50*time.Microsecond, time.Millisecond), next)
	}
	next()
}

// fabric returns the ports of a switch that lead to other switches.
func (n *node) fabric() (out []uint32) {
	for _, p := range n.sw.Ports {
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
	if err != nil || p.Unmarshal(payload, profile) != nil {
		return true
	}
	return !p.Op.IsReply() && p.Op != wire.Ack && p.Flags&wire.Stamped == 0 && f.Principal != 0xFFFF
}
