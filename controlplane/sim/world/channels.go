package world

import (
	"bytes"
	"errors"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/sim/clockwork"
)

// P4Runtime promises an order only within a stream, and a switch carries out changes only from the
// controller that is its primary at that moment. So the simulator has separate channels for
// packet-outs, for packet-ins and for each kind of call. A call whose deadline has passed may be
// carried out later, as long as its election id is still the highest. A packet that the server of a
// switch has accepted may wait before the pipeline (in its CPU port queue), whichever controller is
// primary when it gets there.

// channel is a path of messages between a controller and a switch.
type channel int

const (
	arbitration channel = iota // the arbitration on the stream, with its answer
	PacketOuts                 // messages on the stream to the switch
	PacketIns                  // messages on the stream from the switch, including the server's own messages
	Writes                     // Write calls, each independent of the others
	Loads                      // SetForwardingPipelineConfig calls
	Reads                      // Read calls
	answers                    // answers to calls
	channels                   // number of channels
)

// disorder is the lateness of messages if each channel has its own order. A late message on a
// stream delays all messages that follow it on the stream. Late packets wait in the switch.
type disorder struct {
	clockwork.Dice
	Apart bool // whether each channel has its own order; otherwise all channels of a direction share one order
	late  [channels]lateness
}

// lateness is the probability that a message is late, and the longest delay of a late message.
type lateness struct {
	often float64
	most  time.Duration
}

// In most runs, Disorders gives each channel its own order.
func (w *World) Disorders(seed uint64) {
	d := clockwork.NewDice(seed, clockwork.DiceChannels)
	w.Disorder = disorder{Dice: d}
	if !clockwork.Included[clockwork.GroupLate] || !d.Chance(0.6) {
		return
	}
	w.CallTimeout = clockwork.Pick(d, 30*time.Millisecond, 60*time.Millisecond, 200*time.Millisecond)
	late := func(often ...float64) lateness {
		return lateness{clockwork.Pick(d, often...),
			clockwork.Pick(d, 2*time.Millisecond, 20*time.Millisecond, 80*time.Millisecond,
				200*time.Millisecond)}
	}
	w.Disorder.Apart = true
	w.Disorder.late = [channels]lateness{
		arbitration: late(0, 0.05),
		PacketOuts:  late(0, 0.01, 0.05, 0.2),
		PacketIns:   late(0, 0.01, 0.05, 0.2),
		Writes:      late(0, 0.01, 0.05),
		Loads:       late(0, 0.2),
		Reads:       late(0, 0.01, 0.05),
		answers:     late(0, 0.01, 0.05),
	}
}

// lateBy draws the delay of a message to or from a switch, which may be 0. A delay may make a call
// miss its deadline, or leave a LEASE without an answer, so that a controller gives up the switch.
// Such a delay counts as a failure of the switch, until the switch has answered for a while. So it
// happens only if the switch may fail.
func (n *Node) lateBy(c channel) time.Duration {
	w, d := n.w, &n.w.Disorder
	if !d.Apart || w.Mended || !d.Chance(d.late[c].often) {
		return 0
	}
	w.Cover.Count("channels.late "+c.String(), 1)
	late, lease := d.Between(0, d.late[c].most), w.Store.Record.Config.Lease
	harmless := w.CallTimeout / 2
	if lease > 0 {
		harmless = min(harmless, lease/4)
	}
	switch {
	case late <= harmless:
	case w.Spare(n):
		n.doubtful = max(n.doubtful, w.Loop.Now+late+w.CallTimeout+lease)
	default:
		late = harmless
	}
	return late
}

func (c channel) toNode() bool { return c != PacketIns && c != answers }

func (c channel) String() string {
	return [...]string{"arbitration", "packet-out", "packet-in", "Write", "SetForwardingPipelineConfig", "Read", "answer"}[c]
}

// inOrder returns the arrival time of a message that would otherwise arrive at the time at. The
// message must not overtake earlier messages of its order. Scenarios have one order for all
// messages of a direction. A scenario holds back messages by name if others must overtake them.
func (d *Device) inOrder(c channel, at time.Duration) time.Duration {
	if d.Shell.World.Disorder.Apart && c != PacketOuts && c != PacketIns {
		if at += d.Node.lateBy(c); c != arbitration { // arbitration is the first message of its stream
			return at
		}
	}
	order := PacketOuts
	if !c.toNode() {
		order = PacketIns
	}
	at = max(at, d.last[order])
	d.last[order] = at
	return at
}

// DefaultCallTimeout is how long a call of a controller may take in a scenario.
const DefaultCallTimeout = time.Second

// setUpAgain is the pause before a controller repeats the set-up of a switch on the same
// connection.
const setUpAgain = 10 * time.Millisecond

var errDeadline = errors.New("the deadline has passed")

// deadline ends a call that takes too long. Nobody knows whether the switch will carry out the
// call. If the call changes something, the controller therefore continues on another connection,
// with a higher election id. Otherwise this call could overtake its next write.
func (d *Device) deadline(c *asked, number int, x channel) {
	if x == arbitration {
		return
	}
	d.Shell.World.Loop.After(d.Shell.World.CallTimeout, func() {
		if c.then == nil || !d.Shell.Alive || !d.connected || d.Number != number {
			return
		}
		d.Shell.World.Cover.Count("controller."+x.String()+" given up", 1)
		if d.Shell.World.tracing() {
			d.Shell.World.Trace(d.Shell.Name, "has no answer from %s to a %v, and gives it up", d.Node.Name, x)
		}
		if x == Reads || d.Shell.World.Without.Outcome {
			c.end(errDeadline)
			return
		}
		c.late = errDeadline
		d.Broken(number)
	})
}

// ControlRule holds back messages between controllers and a switch, in a scenario.
type ControlRule struct {
	Node    *Node
	Channel channel
	Op      wire.Op // operation of the packets; 0 stands for any
	What    string  // name of the calls; "ANY" stands for any call
	Times   int     // number of messages still to hold back; -1 stands for any number
}

// heldControl is a message that a rule holds back.
type heldControl struct {
	n    *Node
	what string
	goOn func()
}

// holdsBack reports whether a rule holds a message back. If so, goOn runs when the message is
// released.
func (n *Node) holdsBack(what string, takes func(*ControlRule) bool, goOn func()) bool {
	w, starts := n.w, n.Starts
	for _, r := range w.ControlRules {
		if r.Node != n || r.Times == 0 || !takes(r) {
			continue
		}
		if r.Times > 0 {
			r.Times--
		}
		w.Trace("net", "held back at %s: %s", n.Name, what)
		w.controlHeld = append(w.controlHeld, heldControl{n, what, func() {
			if n.Alive && n.Starts == starts {
				goOn()
			}
		}})
		return true
	}
	return false
}

// LetGo releases messages that are held back at a switch, or at any switch if n is nil. It releases
// the first most messages, or all messages if most is -1.
func (w *World) LetGo(n *Node, most int) {
	var kept []heldControl
	for _, h := range w.controlHeld {
		if most == 0 || n != nil && h.n != n {
			kept = append(kept, h)
			continue
		}
		most--
		w.Trace("net", "let go at %s: %s", h.n.Name, h.what)
		w.Loop.After(0, h.goOn)
	}
	w.controlHeld = kept
}

// carryOut makes a switch carry out a call, when the call has reached it.
func (n *Node) carryOut(x step, do func()) {
	if len(n.w.ControlRules) > 0 && n.holdsBack(x.channel.String()+" of "+x.what, func(r *ControlRule) bool {
		return r.Channel == x.channel && (r.What == x.what || r.What == "ANY")
	}, do) {
		return
	}
	do()
}

// queueOut passes a packet-out from the server to the pipeline. number is the connection by which
// the packet-out came, and sent is its place in that connection's order.
func (d *Device) queueOut(frame []byte, number, sent int, waits time.Duration) {
	d.Node.queue(PacketOuts, frame, waits, func() {
		d.arrives(PacketOuts, sent)
		switch n := d.Node; {
		case d.Shell.election != n.election:
			n.w.Cover.Count("channels.packet-out of a controller before", 1)
		case number != n.connection:
			n.w.Cover.Count("channels.packet-out of a connection before", 1)
		}
		d.Node.Process(cpuPort, frame)
	})
}

// sends counts a new message to the switch, and returns its place in the order in which the
// controller sends.
func (d *Device) sends() int {
	d.sent++
	return d.sent
}

// arrives notes that a message has taken effect. It also counts the cases in which a later message
// took effect before it.
func (d *Device) arrives(c channel, sent int) {
	if sent < d.arrived {
		d.Shell.World.Cover.Count("channels.overtaken "+c.String(), 1)
	}
	d.arrived = max(d.arrived, sent)
}

// queueIn passes a packet for the controller from the pipeline to the server.
func (n *Node) queueIn(frame []byte) {
	frame = bytes.Clone(frame)
	n.queue(PacketIns, frame, 0, func() { n.w.toController(n, frame) })
}

func (n *Node) queue(c channel, frame []byte, waits time.Duration, goOn func()) {
	if len(n.w.ControlRules) > 0 && n.holdsBack(c.String()+" "+describe(frame[2:]), func(r *ControlRule) bool {
		return r.Channel == c && (r.Op == 0 || r.Op == packetOf(frame[2:]).Op)
	}, goOn) {
		return
	}
	if late := max(n.lateBy(c), waits); late > 0 {
		starts := n.Starts
		n.w.Loop.After(late, func() {
			if n.Alive && n.Starts == starts {
				goOn()
			}
		})
		return
	}
	goOn()
}
