package world

import (
	"fmt"
	"strings"

	"github.com/netcraq/netcraq/controlplane/controller/program"
	"github.com/netcraq/netcraq/controlplane/sim/compiled"
	"github.com/netcraq/netcraq/controlplane/sim/logbook"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// tracing reports whether the run has a timeline. A timeline costs more than the rest of a run. So
// runs have none, and a run is repeated to get one.
func (w *World) tracing() bool { return w.onLine != nil }

// Trace writes a line of the timeline.
func (w *World) Trace(who, format string, args ...any) { w.TraceKey(0, who, format, args...) }

// TraceKey writes a line about a key.
func (w *World) TraceKey(key wire.Key, who, format string, args ...any) {
	if w.tracing() {
		w.onLine(logbook.Line{At: w.Loop.Now, Who: who, What: fmt.Sprintf(format, args...), Key: key})
	}
}

// trace writes what a switch did with a packet: the packet, the event as which the switch counted
// it, and the packets that came out.
func (n *Node) trace(port uint32, frame []byte, before *[events]uint64) {
	var after [events]uint64
	n.events(&after)
	became := "nothing"
	for i := range after {
		if after[i] != before[i] {
			became = strings.ToUpper(program.EventNames[i])
		}
	}
	from := "the controller"
	if port == topology.CPUPort {
		frame = frame[2:]
	} else if p, ok := n.Switch.Port(port); ok && p.Peer != nil {
		from = p.Peer.Name
	} else if ok && p.Host != nil {
		from = p.Host.Name
	}
	in := packetOf(frame)
	l := logbook.Line{At: n.w.Loop.Now, Who: n.Name, Key: keyOf(frame), Lease: in.Op == wire.Lease}
	s := fmt.Sprintf("%v from %s: %s", in, from, became)
	for _, o := range n.buffer.Outs {
		to, out := "the controller", o.Frame
		if o.Port == topology.CPUPort {
			out = out[2:]
		} else if p, ok := n.Switch.Port(o.Port); ok && p.Peer != nil {
			to = p.Peer.Name
		} else if ok && p.Host != nil {
			to = p.Host.Name
		}
		x := packetOf(out)
		if len(n.buffer.Outs) == 1 && x.String() == in.String() {
			s += "; on to " + to
		} else {
			s += fmt.Sprintf("; %v to %s", x, to)
		}
	}
	l.What = s
	n.w.onLine(l)
}

// packetOf decodes the packet in a frame. If the frame contains none, the packet's operation is
// invalid.
func packetOf(frame []byte) *wire.Packet {
	p := new(wire.Packet)
	if _, payload, err := wire.ParseFrame(frame); err == nil {
		_ = p.Unmarshal(payload, compiled.Profile)
	}
	return p
}
