package sim

import (
	"bytes"
	"errors"
	"time"

	"github.com/netcraq/netcraq/api/wire"
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

// disorder is how late messages come where each channel is for itself. What comes late on a stream
// holds up all that follows on it; packets are late in the switch, where they wait apart.
type disorder struct {
	dice
	apart bool // each channel is for itself; otherwise all of a way are in one order
	late  [channels]lateness
}

// lateness is how often something is late, and by how much at most.
type lateness struct {
	often float64
	most  time.Duration
}

// disorders has channels be for themselves, in most runs.
func (w *world) disorders(seed uint64) {
	d := newDice(seed, diceChannels)
	w.disorder = disorder{dice: d}
	if !groups[groupLate] || !d.chance(0.6) {
		return
	}
	w.callTimeout = pick(d, 30*time.Millisecond, 60*time.Millisecond, 200*time.Millisecond)
	late := func(often ...float64) lateness {
		return lateness{pick(d, often...), pick(d, 2*time.Millisecond, 20*time.Millisecond, 80*time.Millisecond,
			200*time.Millisecond)}
	}
	w.disorder.apart = true
	w.disorder.late = [channels]lateness{
		arbitration: late(0, 0.05),
		packetOuts:  late(0, 0.01, 0.05, 0.2),
		packetIns:   late(0, 0.01, 0.05, 0.2),
		writes:      late(0, 0.01, 0.05),
		loads:       late(0, 0.2),
		reads:       late(0, 0.01, 0.05),
		answers:     late(0, 0.01, 0.05),
	}
}

// lateBy is how late something is that goes to a switch or comes from it; 0: it is not. A
// controller may give up a switch for something that is so late that a deadline passes, or that no
// LEASE is answered. So that is a failure of the switch, until it has given answers for a while,
// and happens where it can fail.
func (n *node) lateBy(c channel) time.Duration {
	w, d := n.w, &n.w.disorder
	if !d.apart || w.mended || !d.chance(d.late[c].often) {
		return 0
	}
	w.cover.add("channels.late "+c.String(), 1)
	late, lease := d.between(0, d.late[c].most), w.store.record.Config.Lease
	harmless := w.callTimeout / 2
	if lease > 0 {
		harmless = min(harmless, lease/4)
	}
	switch {
	case late <= harmless:
	case w.spare(n):
		n.doubtful = max(n.doubtful, w.loop.now+late+w.callTimeout+lease)
	default:
		late = harmless
	}
	return late
}

func (c channel) toNode() bool { return c != packetIns && c != answers }

func (c channel) String() string {
	return [...]string{"arbitration", "packet-out", "packet-in", "Write", "SetForwardingPipelineConfig", "Read", "answer"}[c]
}

// inOrder is when a message arrives that would at a moment: not before those that were sent before
// it in its order. In scenarios there is one order for all messages of a way, so that what is to be
// overtaken is held back by name.
func (d *device) inOrder(c channel, at time.Duration) time.Duration {
	if d.s.w.disorder.apart && c != packetOuts && c != packetIns {
		if at += d.n.lateBy(c); c != arbitration { // which is the first of its stream
			return at
		}
	}
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

// queueOut takes a packet-out that the server has taken to the pipeline. It was sent by a
// connection, at a place in its order.
func (d *device) queueOut(frame []byte, number, sent int, waits time.Duration) {
	d.n.queue(packetOuts, frame, waits, func() {
		d.arrives(packetOuts, sent)
		switch n := d.n; {
		case d.s.election != n.election:
			n.w.cover.add("channels.packet-out of a controller before", 1)
		case number != n.connection:
			n.w.cover.add("channels.packet-out of a connection before", 1)
		}
		d.n.process(cpuPort, frame)
	})
}

// sends is a message's place in the order in which a controller sends to a switch.
func (d *device) sends() int {
	d.sent++
	return d.sent
}

// arrives notes that a message has come to where it has an effect, and whether one that was sent
// later has come there before it.
func (d *device) arrives(c channel, sent int) {
	if sent < d.arrived {
		d.s.w.cover.add("channels.overtaken "+c.String(), 1)
	}
	d.arrived = max(d.arrived, sent)
}

// queueIn takes a packet for the controller from the pipeline to the server.
func (n *node) queueIn(frame []byte) {
	frame = bytes.Clone(frame)
	n.queue(packetIns, frame, 0, func() { n.w.toController(n, frame) })
}

func (n *node) queue(c channel, frame []byte, waits time.Duration, goOn func()) {
	if len(n.w.controlRules) > 0 && n.holdsBack(c.String()+" "+describe(frame[2:]), func(r *controlRule) bool {
		return r.channel == c && (r.op == 0 || r.op == packetOf(frame[2:]).Op)
	}, goOn) {
		return
	}
	if late := max(n.lateBy(c), waits); late > 0 {
		starts := n.starts
		n.w.loop.after(late, func() {
			if n.alive && n.starts == starts {
				goOn()
			}
		})
		return
	}
	goOn()
}
