package world

import (
	"bytes"
	"cmp"
	"fmt"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/sim/compiled"
	"github.com/netcraq/netcraq/controlplane/sim/judge"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// Conditions describe the quality of the network between switches and hosts.
type Conditions struct {
	Delay     time.Duration // delay of every frame
	Spread    time.Duration // mean of a random addition to Delay
	Loss, Dup float64       // probabilities that a frame is lost, or duplicated, on each link
	// Reorder is the probability that a frame is overtaken, because up to `overtaken` is added to
	// its delay.
	Reorder   float64
	Overtaken time.Duration
	Late      float64 // probability that a frame comes very late, because up to lateBy is added to its delay
	LateBy    time.Duration
}

// network holds the links of the data plane.
type network struct {
	Conditions
	Cut   map[link]bool
	Rules []*Rule
	Held  []heldFrame

	flying int    // number of frames on their way
	storm  string // describes the moment when there were too many frames; "" if that has not happened
}

// link is the link between two switches (by name, sorted), or between a switch and its host.
type link struct{ a, b string }

// Between returns the link between two switches, or between a switch and its host.
func Between(a, b string) link { return link{min(a, b), max(a, b)} }

// Rule is a scenario's treatment of certain packets.
type Rule struct {
	From, To string // names of the link's ends; "" stands for any
	Op       wire.Op
	Flags    wire.Flags // flags that the packet must have
	Times    int        // number of packets that the rule still applies to; -1 means all
	Share    float64    // probability that the rule applies to a packet; 0 means always
	Hold     bool       // whether packets are held back; otherwise they are lost
	// Copies is the number of additional copies of each packet. With Hold, the second copy is held
	// back.
	Copies int
}

// heldFrame is a frame that a rule holds back.
type heldFrame struct {
	what   string
	arrive func()
}

// FromNode sends a frame from a switch's port.
func (w *World) FromNode(n *Node, port uint32, frame []byte) {
	p, ok := n.Switch.Port(port)
	if !ok {
		return
	}
	frame = bytes.Clone(frame)
	switch {
	case p.Peer != nil:
		to := w.Node(p.Peer.Name)
		w.carry(n.Name, to.Name, frame, func() { to.Process(p.PeerPort, frame) })
	case p.Host != nil:
		h := w.hosts[p.Host]
		w.carry(n.Name, p.Host.Name, frame, func() { h.receive(frame) })
	}
}

// FromHost sends a frame from a host.
func (w *World) FromHost(h *topology.Host, frame []byte) {
	to := w.Node(h.Switch.Name)
	w.carry(h.Name, to.Name, frame, func() { to.Process(h.Port, frame) })
}

// carry sends a frame over a link, under the network's conditions.
func (w *World) carry(from, to string, frame []byte, arrive func()) {
	net := &w.Network
	copies := 1
	for _, r := range net.Rules {
		if r.Times == 0 || !r.takes(from, to, frame) || r.Share > 0 && !w.Dice.network.Chance(r.Share) {
			continue
		}
		if r.Times > 0 {
			r.Times--
		}
		switch {
		case r.Copies > 0 && r.Hold:
			w.Trace("net", "%s to %s: doubled, and the second copy held back: %s", from, to, describe(frame))
			net.Held = append(net.Held, heldFrame{from + " to " + to + ": " + describe(frame), arrive})
		case r.Copies > 0:
			copies += r.Copies
		case r.Hold:
			w.Trace("net", "%s to %s: held back: %s", from, to, describe(frame))
			net.Held = append(net.Held, heldFrame{from + " to " + to + ": " + describe(frame), arrive})
			return
		default:
			w.lost(from, to, frame)
			return
		}
	}
	if net.Cut[Between(from, to)] {
		w.Cover.Count("network.cut off", 1)
		w.lost(from, to, frame)
		return
	}
	d := w.Dice.network
	if d.Chance(net.Loss) {
		w.Cover.Count("network.lost", 1)
		w.lost(from, to, frame)
		return
	}
	// Frames that loop are not duplicated, because they would multiply. Frames can loop because
	// routes of two configurations do not always fit together.
	if ttl := frame[22]; ttl > 52 && d.Chance(net.Dup) {
		w.Cover.Count("network.duplicated", 1)
		copies++
	}
	for range copies {
		delay := net.Delay
		if net.Spread > 0 {
			delay += d.About(net.Spread)
		}
		if d.Chance(net.Reorder) {
			w.Cover.Count("network.reordered", 1)
			delay += d.Between(0, net.Overtaken)
		}
		if d.Chance(net.Late) {
			w.Cover.Count("network.late", 1)
			delay += d.Between(0, net.LateBy)
		}
		if net.flying == maxFlying {
			net.storm = cmp.Or(net.storm, fmt.Sprintf("at %v, %s to %s: %s", w.Loop.Now, from, to, describe(frame)))
			return
		}
		net.flying++
		w.Loop.After(delay, func() {
			net.flying--
			arrive()
		})
	}
}

// maxFlying is the highest allowed number of frames on all links at once. Clients and controllers
// have some dozens in flight, so only a multiplication of frames at switches can exceed it.
const maxFlying = 2000

// Storms returns a violation if there were too many frames.
func (n *network) Storms() (out []judge.Violation) {
	if n.storm != "" {
		out = append(out, judge.Violation{Kind: judge.Storm, What: fmt.Sprintf("%d frames on their way %s", maxFlying, n.storm)})
	}
	return out
}

func (w *World) lost(from, to string, frame []byte) {
	if w.tracing() {
		w.TraceKey(keyOf(frame), "net", "%s to %s: lost: %s", from, to, describe(frame))
	}
}

// takes reports whether a rule applies to a frame.
func (r *Rule) takes(from, to string, frame []byte) bool {
	if r.From != "" && r.From != from || r.To != "" && r.To != to {
		return false
	}
	_, payload, err := wire.ParseFrame(frame)
	var p wire.Packet
	if err != nil || p.Unmarshal(payload, compiled.Profile) != nil {
		return false
	}
	return (r.Op == 0 || p.Op == r.Op) && p.Flags&r.Flags == r.Flags
}

// Release sends the first n frames that rules hold back.
func (w *World) Release(n int) {
	held := w.Network.Held[:min(n, len(w.Network.Held))]
	w.Network.Held = w.Network.Held[len(held):]
	for i, h := range held {
		w.Trace("net", "let go: %s", h.what)
		w.Loop.After(time.Duration(i+1)*w.Network.Delay, h.arrive)
	}
}

// describe returns a readable form of a frame.
func describe(frame []byte) string {
	_, payload, err := wire.ParseFrame(frame)
	var p wire.Packet
	if err != nil {
		return err.Error()
	}
	if err := p.Unmarshal(payload, compiled.Profile); err != nil {
		return err.Error()
	}
	return p.String()
}

// keyOf returns the key of a frame, or 0 if the frame has none.
func keyOf(frame []byte) wire.Key {
	_, payload, err := wire.ParseFrame(frame)
	var p wire.Packet
	if err != nil || p.Unmarshal(payload, compiled.Profile) != nil || p.Op == wire.Lease || p.Op == wire.LeaseReply {
		return 0
	}
	return p.Key
}
