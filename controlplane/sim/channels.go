package sim

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/wire"
)

// P4Runtime promises an order only within a stream, and that a switch carries out no change of
// somebody who is not its primary at that moment. So packet-outs, packet-ins and each call are
// channels of their own. A call whose deadline has passed may be carried out later, as long as its
// election id is still the highest; a packet that the server of a switch has taken may wait before
// the pipeline (its CPU port queue), whoever is primary when it gets there.

// channel is a way that messages between a controller and a switch go.
type channel int

const (
	arbitration channel = iota // on the stream, and answered
	packetOuts                 // on the stream, to the switch
	packetIns                  // on the stream, from the switch: with what the server itself says
	writes                     // Write, each a call of its own
	loads                      // SetForwardingPipelineConfig
	reads                      // Read
	answers                    // of calls
	channels                   // that there are
)

func (c channel) toNode() bool { return c != packetIns && c != answers }

func (c channel) String() string {
	return [...]string{"arbitration", "packet-out", "packet-in", "Write", "SetForwardingPipelineConfig", "Read", "answer"}[c]
}

// inOrder is when a message arrives that would at a moment: not before those that were sent before
// it in its order. In scenarios there is one order for all messages of a way, so that what is to be
// overtaken is held back by name.
func (d *device) inOrder(c channel, at time.Duration) time.Duration {
	order := packetOuts
	if !c.toNode() {
		order = packetIns
	}
	at = max(at, d.last[order])
	d.last[order] = at
	return at
}

// defaultCallTimeout is how long a call may take in a scenario.
const defaultCallTimeout = time.Second

// setUpAgain is after how long a controller sets a switch up again in the same connection.
const setUpAgain = 10 * time.Millisecond

var errDeadline = errors.New("the deadline has passed")

// deadline ends a call that takes too long. What becomes of it nobody knows: so after a call that
// changes something the controller goes on by another connection, with a higher election id, or
// what it writes next could be overtaken by this one.
func (d *device) deadline(c *asked, number int, x channel) {
	if x == arbitration {
		return
	}
	d.s.w.loop.after(d.s.w.callTimeout, func() {
		if c.then == nil || !d.s.alive || !d.connected || d.number != number {
			return
		}
		d.s.w.cover.add("controller."+x.String()+" given up", 1)
		if d.s.w.tracing() {
			d.s.w.trace(d.s.name, "has no answer from %s to a %v, and gives it up", d.n.name, x)
		}
		if x == reads || d.s.w.removed.outcome {
			c.end(errDeadline)
			return
		}
		c.late = errDeadline
		d.broken(number)
	})
}

// controlRule is what a scenario holds back between controllers and a switch.
type controlRule struct {
	n       *node
	channel channel
	op      wire.Op // of a packet; 0: any
	what    string  // of a call; "ANY": any
	times   int     // how many more; -1: any number
}

// heldControl is what a rule holds back.
type heldControl struct {
	n    *node
	what string
	goOn func()
}

// holdsBack says whether a rule holds something back, which goes on then when it is let go.
func (n *node) holdsBack(what string, takes func(*controlRule) bool, goOn func()) bool {
	w, starts := n.w, n.starts
	for _, r := range w.controlRules {
		if r.n != n || r.times == 0 || !takes(r) {
			continue
		}
		if r.times > 0 {
			r.times--
		}
		w.trace("net", "held back at %s: %s", n.name, what)
		w.controlHeld = append(w.controlHeld, heldControl{n, what, func() {
			if n.alive && n.starts == starts {
				goOn()
			}
		}})
		return true
	}
	return false
}

// letGo lets go the first some of what is held back at a switch (nil: at any); -1: all of it.
func (w *world) letGo(n *node, most int) {
	var kept []heldControl
	for _, h := range w.controlHeld {
		if most == 0 || n != nil && h.n != n {
			kept = append(kept, h)
			continue
		}
		most--
		w.trace("net", "let go at %s: %s", h.n.name, h.what)
		w.loop.after(0, h.goOn)
	}
	w.controlHeld = kept
}

// carryOut has a switch carry a call out, when it gets to it.
func (n *node) carryOut(x step, do func()) {
	if len(n.w.controlRules) > 0 && n.holdsBack(x.channel.String()+" of "+x.what, func(r *controlRule) bool {
		return r.channel == x.channel && (r.what == x.what || r.what == "ANY")
	}, do) {
		return
	}
	do()
}

// queueOut takes a packet-out that the server has taken to the pipeline.
func (n *node) queueOut(frame []byte) {
	n.queue(packetOuts, frame, func() { n.process(cpuPort, frame) })
}

// queueIn takes a packet for the controller from the pipeline to the server.
func (n *node) queueIn(frame []byte) {
	frame = bytes.Clone(frame)
	n.queue(packetIns, frame, func() { n.w.toController(n, frame) })
}

func (n *node) queue(c channel, frame []byte, goOn func()) {
	if len(n.w.controlRules) > 0 && n.holdsBack(c.String()+" "+describe(frame[2:]), func(r *controlRule) bool {
		return r.channel == c && (r.op == 0 || r.op == packetOf(frame[2:]).Op)
	}, goOn) {
		return
	}
	goOn()
}

// loss is what a switch loses behind its controllers' backs.
type loss struct {
	tables    bool // all tables, and multicast groups
	part      bool // its part in the chain: its configuration, and the entries of keys
	registers bool
}

// wipeNode has a switch lose something; connections, and who is primary, stay.
func (w *world) wipeNode(n *node, l loss) {
	w.trace("fault", "%s loses what it has: %+v", n.name, l)
	n.count()
	n.data = false
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
