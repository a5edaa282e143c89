package sim

import (
	"bytes"
	"cmp"
	"fmt"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// conditions are how bad the network between switches and hosts is.
type conditions struct {
	delay     time.Duration // of every frame
	spread    time.Duration // mean of what chance adds to it
	loss, dup float64       // probabilities, for each frame on each link
	reorder   float64       // ... of being overtaken: up to `overtaken` more delay
	overtaken time.Duration
	late      float64 // ... of coming when it is long forgotten: up to lateBy more
	lateBy    time.Duration
}

// network is the data plane's links.
type network struct {
	conditions
	cut   map[link]bool
	rules []*rule
	held  []heldFrame

	flying int    // frames on their way
	storm  string // when there were too many
}

// link is the link between two switches (by name, in order), or between a switch and its host.
type link struct{ a, b string }

func between(a, b string) link { return link{min(a, b), max(a, b)} }

// rule is what a scenario does to certain packets.
type rule struct {
	from, to string // names, "" for any
	op       wire.Op
	flags    wire.Flags // that it must have
	times    int        // how many more; -1: any number
	share    float64    // of them, by chance; 0: all
	hold     bool       // else they are lost
	copies   int        // more of each; with hold, it is the second copy that is held back
}

// heldFrame is a frame that a rule holds back.
type heldFrame struct {
	what   string
	arrive func()
}

// fromNode takes a frame that leaves a switch by a port.
func (w *world) fromNode(n *node, port uint32, frame []byte) {
	p, ok := n.sw.Port(port)
	if !ok {
		return
	}
	frame = bytes.Clone(frame)
	switch {
	case p.Peer != nil:
		to := w.node(p.Peer.Name)
		w.carry(n.name, to.name, frame, func() { to.process(p.PeerPort, frame) })
	case p.Host != nil:
		h := w.hosts[p.Host]
		w.carry(n.name, p.Host.Name, frame, func() { h.receive(frame) })
	}
}

// fromHost takes a frame that a host sends.
func (w *world) fromHost(h *topology.Host, frame []byte) {
	to := w.node(h.Switch.Name)
	w.carry(h.Name, to.name, frame, func() { to.process(h.Port, frame) })
}

// carry takes a frame over a link, as the network is.
func (w *world) carry(from, to string, frame []byte, arrive func()) {
	net := &w.network
	copies := 1
	for _, r := range net.rules {
		if r.times == 0 || !r.takes(from, to, frame) || r.share > 0 && !w.dice.network.chance(r.share) {
			continue
		}
		if r.times > 0 {
			r.times--
		}
		switch {
		case r.copies > 0 && r.hold:
			w.trace("net", "%s to %s: doubled, and the second copy held back: %s", from, to, describe(frame))
			net.held = append(net.held, heldFrame{from + " to " + to + ": " + describe(frame), arrive})
		case r.copies > 0:
			copies += r.copies
		case r.hold:
			w.trace("net", "%s to %s: held back: %s", from, to, describe(frame))
			net.held = append(net.held, heldFrame{from + " to " + to + ": " + describe(frame), arrive})
			return
		default:
			w.lost(from, to, frame)
			return
		}
	}
	if net.cut[between(from, to)] {
		w.cover.add("network.cut off", 1)
		w.lost(from, to, frame)
		return
	}
	d := w.dice.network
	if d.chance(net.loss) {
		w.cover.add("network.lost", 1)
		w.lost(from, to, frame)
		return
	}
	// A frame that goes round and round (routes of two configurations do not always fit) would
	// become too many.
	if ttl := frame[22]; ttl > 52 && d.chance(net.dup) {
		w.cover.add("network.duplicated", 1)
		copies++
	}
	for range copies {
		delay := net.delay
		if net.spread > 0 {
			delay += d.about(net.spread)
		}
		if d.chance(net.reorder) {
			w.cover.add("network.reordered", 1)
			delay += d.between(0, net.overtaken)
		}
		if d.chance(net.late) {
			w.cover.add("network.late", 1)
			delay += d.between(0, net.lateBy)
		}
		if net.flying == maxFlying {
			net.storm = cmp.Or(net.storm, fmt.Sprintf("at %v, %s to %s: %s", w.loop.now, from, to, describe(frame)))
			return
		}
		net.flying++
		w.loop.after(delay, func() {
			net.flying--
			arrive()
		})
	}
}

// maxFlying is how many frames there may be on all links at once. Clients and controllers have some
// dozens on their way; so many come only from switches that make several of one, again and again.
const maxFlying = 2000

func (n *network) storms() (out []Violation) {
	if n.storm != "" {
		out = append(out, Violation{Kind: Storm, What: fmt.Sprintf("%d frames on their way %s", maxFlying, n.storm)})
	}
	return out
}

func (w *world) lost(from, to string, frame []byte) {
	if w.tracing() {
		w.traceKey(keyOf(frame), "net", "%s to %s: lost: %s", from, to, describe(frame))
	}
}

// takes says whether a rule is about a frame.
func (r *rule) takes(from, to string, frame []byte) bool {
	if r.from != "" && r.from != from || r.to != "" && r.to != to {
		return false
	}
	_, payload, err := wire.ParseFrame(frame)
	var p wire.Packet
	if err != nil || p.Unmarshal(payload, profile) != nil {
		return false
	}
	return (r.op == 0 || p.Op == r.op) && p.Flags&r.flags == r.flags
}

// release lets go the first n frames that rules hold back.
func (w *world) release(n int) {
	held := w.network.held[:min(n, len(w.network.held))]
	w.network.held = w.network.held[len(held):]
	for i, h := range held {
		w.trace("net", "let go: %s", h.what)
		w.loop.after(time.Duration(i+1)*w.network.delay, h.arrive)
	}
}

// describe is a frame for people.
func describe(frame []byte) string {
	_, payload, err := wire.ParseFrame(frame)
	var p wire.Packet
	if err != nil {
		return err.Error()
	}
	if err := p.Unmarshal(payload, profile); err != nil {
		return err.Error()
	}
	return p.String()
}

// keyOf is the key that a frame is about, 0 where it is about none.
func keyOf(frame []byte) wire.Key {
	_, payload, err := wire.ParseFrame(frame)
	var p wire.Packet
	if err != nil || p.Unmarshal(payload, profile) != nil || p.Op == wire.Lease || p.Op == wire.LeaseReply {
		return 0
	}
	return p.Key
}
