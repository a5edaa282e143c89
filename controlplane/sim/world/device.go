package world

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/controller/tableplan"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/sim/compiled"
	"github.com/netcraq/netcraq/controlplane/sim/judge"
	"github.com/netcraq/netcraq/switch/target"
)

// Device is a controller's P4Runtime connection to a switch. A connection consists of a stream and
// separate calls, until it breaks (channels.go). A controller notices only after a while that a
// switch cannot be reached. Messages sent meanwhile wait in the sender's kernel. They may arrive
// when the network works again, even if the controller has given up the connection.
type Device struct {
	Shell *Shell
	Node  *Node
	// copies is this switch's state for procedures that copy, and other is its state for all other
	// procedures.
	other, copies *ops.Switch

	connected bool // the controller has a connection
	Ready     bool // the controller has also called SwitchUp for this connection
	Number    int  // number of the connection
	starts    int  // value of Node.Starts when the connection was made
	Cut       bool // this controller cannot reach the switch
	freshAt   int  // number of the connection in which the controller loaded the program
	emptying  bool // the switch is being emptied
	// keyIndex has the key_index entries that the switch has acknowledged, and part is the switch's
	// part in the chain.
	keyIndex map[wire.Key]ops.Entry
	part     *chain.Assignment

	last    [channels]time.Duration // for each order, the arrival time of the last message
	sent    int                     // number of messages that were sent to the switch
	waits   time.Duration           // the minimum time that the next packet-out waits in the switch
	arrived int                     // place of the latest message that has arrived, in the order of sending
	stuck   []message               // messages sent while the switch cannot be reached
	pending []*asked                // calls without an answer
	jobs    []func(done func())
	busy    bool

	// watchConf is the configuration for which watches are written. It is nil if nothing was
	// installed in this connection.
	watchConf  *chain.Config
	watchWaits bool // a write of the watches is scheduled
}

type message struct {
	number  int // number of the connection that carries the message
	starts  int // value of Node.Starts when the message was sent, because a restart ends connections
	arrive  func()
	channel channel
	asks    bool // the message is a LEASE to a switch that is not a member
}

// reachable reports whether messages reach the switch.
func (d *Device) reachable() bool { return d.Shell.Alive && d.Node.Alive && !d.Cut && !d.Node.Isolated }

// connect makes a connection, or schedules another attempt.
func (d *Device) connect() {
	if !d.Shell.Alive || d.connected || d.Shell.Deposed {
		return
	}
	if !d.reachable() {
		d.Shell.World.Loop.After(d.Shell.World.Control.Between(10*time.Millisecond, 40*time.Millisecond), d.connect)
		return
	}
	d.connected, d.Number, d.starts, d.emptying = true, d.Number+1, d.Node.Starts, false
	d.last, d.jobs, d.busy = [channels]time.Duration{}, nil, false
	d.watchConf, d.watchWaits = nil, false
	number := d.Number
	d.submit(func(done func()) { d.setUp(number, done) })
}

// setUp prepares a newly connected switch for chains, and reads the switch's state.
func (d *Device) setUp(number int, done func()) {
	loaded, fresh, backup := false, false, false
	var r chain.Report
	var index map[wire.Key]ops.Entry
	arbitrate := step{arbitration, "arbitration", func() {
		backup = d.Node.election > d.Shell.election && !d.Shell.World.Without.Arbitration
		if d.Node.election <= d.Shell.election {
			d.Node.election, d.Node.connection = d.Shell.election, number
		}
		d.Node.tellBackups()
		loaded = d.Node.Loaded
	}}
	program := func() step {
		if loaded {
			return step{Reads, "program", func() {}}
		}
		return step{Loads, "program", func() {
			d.Node.load()
			fresh = true
		}}
	}
	then := func(err error) {
		if err == errPrimary && backup {
			d.Shell.depose(d)
		}
		if fresh {
			d.freshAt = number
		}
		if err != nil {
			// the device tries again after a missed deadline
			if d.connected && d.Number == number && err == errDeadline {
				d.Shell.Later(setUpAgain, func() {
					if d.connected && d.Number == number {
						d.setUp(number, done)
					}
				})
				return
			}
			d.Broken(number)
			return
		}
		r.Fresh = d.freshAt == number
		d.part = r.Assignment
		if d.Shell.World.Without.Lost {
			d.Shell.pretendHeld(d.Node.Name, &r)
		}
		d.Ready, d.keyIndex = true, index
		d.Shell.untidy[d.Node.Name] = true
		d.Shell.Machine.SwitchUp(d.Shell.Clock(), d.Node.Name, r)
		d.Shell.Flush()
		done()
	}
	d.call(arbitrate, func(err error) {
		if err != nil {
			then(err)
			return
		}
		d.each([]step{program(),
			{Writes, "base", func() {
				d.Node.setBase()
			}},
			{Reads, "report", func() { r, index = d.Node.report(), d.Node.KeyIndex }},
		}, then)
	})
}

// tellBackups tells the switch's other controllers that another controller is primary.
func (n *Node) tellBackups() {
	if n.w.Without.Arbitration {
		return
	}
	for _, s := range n.w.Controllers {
		if d := s.Devices[n.Index]; s.election < n.election && d.connected {
			d.send(d.Number, PacketIns, func() { s.depose(d) })
		}
	}
}

// report returns the state that a controller reads back from a switch.
func (n *Node) report() chain.Report {
	r := chain.Report{Keys: len(n.KeyIndex)}
	if n.Assignment != nil {
		a := *n.Assignment
		r.Assignment = &a
	}
	return r
}

// Broken makes the controller give up a connection.
func (d *Device) Broken(number int) {
	if !d.Shell.Alive || !d.connected || d.Number != number {
		return
	}
	d.connected = false
	pending, jobs := d.pending, d.jobs
	d.pending, d.jobs, d.busy = nil, nil, false
	if d.Ready {
		d.Ready = false
		d.Shell.World.Trace(d.Shell.Name, "the connection to %s is lost", d.Node.Name)
		d.Shell.Machine.SwitchDown(d.Shell.Clock(), d.Node.Name)
		d.Shell.Flush()
	}
	for _, c := range pending {
		c.end(cmp.Or(c.late, errConnection))
	}
	for _, job := range jobs { // the jobs fail, because there is no connection any more
		job(func() {})
	}
	d.Shell.World.Loop.After(d.Shell.World.Control.Between(time.Millisecond, 20*time.Millisecond), d.connect)
}

// Unreachable makes messages wait from now on. The controller notices after a while, unless the
// switch can be reached again before.
func (d *Device) Unreachable(notice time.Duration) {
	number := d.Number
	d.Shell.World.Loop.After(notice, func() {
		if d.connected && d.Number == number && (!d.reachable() || d.starts != d.Node.Starts) {
			d.Broken(number)
		}
	})
}

// Healed lets messages get through again.
func (d *Device) Healed() {
	stuck := d.stuck
	d.stuck = nil
	late := d.Shell.World.Late
	if late == 0 && len(stuck) > 0 {
		late = d.Shell.World.Control.Between(0, 80*time.Millisecond)
	}
	for _, m := range stuck {
		switch {
		case m.starts != d.Node.Starts:
		case m.number == d.Number && d.connected:
			d.deliver(m)
		case m.channel.toNode() && (d.Shell.World.Late > 0 || d.Shell.World.Control.Chance(0.5)):
			// TCP may still deliver data that was written before the connection ended, because it
			// retransmits with pauses.
			d.Shell.World.Loop.After(late, func() {
				if d.Node.Alive && d.Node.Starts == m.starts && d.reachable() {
					m.arrive()
				}
			})
		}
	}
}

// primary reports whether the switch accepts messages of a connection. The switch rejects messages
// of earlier connections, and of earlier controllers.
func (d *Device) primary(number int) bool {
	r := d.Shell.World.Without
	return r.Arbitration || d.Node.election < d.Shell.election ||
		d.Node.election == d.Shell.election && (number >= d.Node.connection || r.Connections)
}

// send sends a message on a connection, in the channel's direction.
func (d *Device) send(number int, c channel, arrive func()) {
	d.sendMessage(message{number: number, starts: d.Node.Starts, arrive: arrive, channel: c})
}

func (d *Device) sendMessage(m message) {
	if !d.Node.Alive {
		return
	}
	if !d.reachable() {
		d.stuck = append(d.stuck, m)
		return
	}
	d.deliver(m)
}

func (d *Device) deliver(m message) {
	w := d.Shell.World
	starts := d.Node.Starts
	at := w.Loop.Now + 20*time.Microsecond + w.ControlDelay
	if !m.asks {
		at = w.Loop.Now + w.Control.Between(20*time.Microsecond, 100*time.Microsecond) + w.Control.About(w.ControlDelay)
	}
	if !m.channel.toNode() {
		at += d.Shell.hearsLate()
	}
	at = d.inOrder(m.channel, at)
	w.Loop.At(at, func() {
		if d.Node.Starts != starts || !d.Node.Alive {
			return // the restart ended the connection
		}
		if !d.reachable() && d.Shell.Alive {
			d.stuck = append(d.stuck, m)
			return
		}
		if !m.channel.toNode() && (!d.Shell.Alive || !d.connected || d.Number != m.number) {
			return
		}
		m.arrive()
	})
}

// asked is a request of a controller to a switch.
type asked struct {
	d    *Device
	then func(error) // set to nil when it has been called
	late error       // the error of the request if its deadline has passed, which ends the connection
}

// expect registers a request whose answer the controller awaits.
func (d *Device) expect(then func(error)) *asked {
	c := &asked{d: d, then: then}
	d.pending = append(d.pending, c)
	return c
}

// end reports the request's result, once.
func (c *asked) end(err error) {
	c.d.pending = slices.DeleteFunc(c.d.pending, func(x *asked) bool { return x == c })
	if then := c.then; then != nil && c.d.Shell.Alive {
		c.then = nil
		then(err)
	}
}

// step is a change that one call makes at a switch.
type step struct {
	channel channel
	what    string // the name of the call in scenarios
	do      func()
}

// call carries out a step at the switch. The function then learns whether the step was carried out,
// or may not have been.
func (d *Device) call(x step, then func(error)) {
	if !d.connected {
		then(errConnection)
		return
	}
	c := d.expect(then)
	number, starts, sent := d.Number, d.Node.Starts, d.sends()
	d.send(number, x.channel, func() {
		d.Node.carryOut(x, func() {
			if d.Node.Starts != starts || !d.Node.Alive {
				return
			}
			d.arrives(x.channel, sent)
			if c.then == nil {
				d.Shell.World.Cover.Count("channels.carried out when it was given up: "+x.channel.String(), 1)
			}
			err := errPrimary
			if d.primary(number) || x.channel == Reads {
				x.do()
				if d.primary(number) || x.channel == Reads {
					err = nil
				}
			}
			d.send(number, answers, func() { c.end(err) })
		})
	})
	d.deadline(c, number, x.channel)
}

// read calls the function one at the switch, n times, even if this controller is not primary there.
// Packets pass between the calls.
func (d *Device) read(n int, one func(i int), then func(error)) {
	if !d.connected {
		then(errConnection)
		return
	}
	c := d.expect(then)
	number, starts := d.Number, d.Node.Starts
	i := 0
	var next func()
	next = func() {
		w := d.Shell.World
		switch {
		case d.Node.Starts != starts || !d.Node.Alive: // the restart ended the connection
		case d.Node.Suspended:
			w.Loop.After(time.Millisecond, next)
		case i == n:
			d.send(number, answers, func() { c.end(nil) })
		default:
			one(i)
			i++
			w.Loop.After(w.Control.Between(time.Microsecond, 20*time.Microsecond), next)
		}
	}
	d.send(number, Reads, func() { d.Node.carryOut(step{Reads, "registers", nil}, next) })
	d.deadline(c, number, Reads)
}

// each carries out steps one after the other. It stops at the first step that fails.
func (d *Device) each(steps []step, then func(error)) {
	if len(steps) == 0 {
		then(nil)
		return
	}
	d.call(steps[0], func(err error) {
		if err != nil {
			then(err)
			return
		}
		d.each(steps[1:], then)
	})
}

// submit queues a job for the device's worker.
func (d *Device) submit(job func(done func())) {
	d.jobs = append(d.jobs, job)
	d.work()
}

func (d *Device) work() {
	if d.busy || len(d.jobs) == 0 {
		return
	}
	job := d.jobs[0]
	d.jobs = d.jobs[1:]
	d.busy = true
	number := d.Number
	job(func() {
		if d.Number == number {
			d.busy = false
			d.work()
		}
	})
}

// packetOut sends a frame into the switch's pipeline. Nothing reports whether it arrived.
func (d *Device) packetOut(frame []byte) { d.sendPacket(frame, false) }

// ask is packetOut for a LEASE to a switch that is not a member.
func (d *Device) ask(frame []byte) { d.sendPacket(frame, true) }

func (d *Device) sendPacket(frame []byte, asks bool) {
	if !d.connected {
		return
	}
	number, sent, waits := d.Number, d.sends(), d.waits
	d.waits = 0
	d.sendMessage(message{number: number, starts: d.Node.Starts, channel: PacketOuts, asks: asks, arrive: func() {
		if d.primary(number) {
			d.queueOut(frame, number, sent, waits)
		}
	}})
}

const cpuPort = 510

// packetInOp is the offset of the operation in a packet-in.
const packetInOp = 2 + wire.FrameOverhead

// toController sends a packet-in from a switch to its primary controller.
func (w *World) toController(n *Node, frame []byte) {
	for _, s := range w.Controllers {
		if !s.Alive || s.election != n.election && !w.Without.Arbitration {
			continue
		}
		d := s.Devices[n.Index]
		asks := len(frame) > packetInOp && frame[packetInOp] == byte(wire.LeaseReply) &&
			(n.Assignment == nil || !n.Assignment.Holds())
		d.sendMessage(message{number: d.Number, starts: n.Starts, channel: PacketIns, asks: asks,
			arrive: func() { s.packetIn(d, frame) }})
	}
}

// depose handles the message that another controller is primary at a switch. It makes this
// controller release all switches.
func (s *Shell) depose(d *Device) {
	if s.Deposed {
		return
	}
	s.Deposed = true
	s.World.Cover.Count("controller.deposed", 1)
	s.World.Trace(s.Name, "another controller is primary at %s: this one does nothing any more", d.Node.Name)
	for _, d := range s.Devices {
		if d.Ready {
			d.Ready = false
			s.Machine.SwitchDown(s.Clock(), d.Node.Name)
			s.Flush()
		}
	}
}

// ---- Effects of calls at the switch ----

// setBase writes the entries that follow from the topology, and from the leases of sessions.
func (n *Node) setBase() {
	for _, e := range slices.Concat(n.w.leases[n.Index], n.w.base[n.Index]) {
		n.Set(e)
	}
	if !n.w.Without.Peers {
		e := n.w.Program.Encode(tableplan.PeerDefault(false))
		Must(n.Pipeline.SetDefault(e.Table, e.TableEntry))
	}
	n.Bare = false
}

// addPeers adds chain_peer entries for the neighbors from which the switch accepts messages.
func (n *Node) addPeers(peers []p4rt.Entry) {
	if n.w.Without.Peers {
		return
	}
	for _, p := range peers {
		e := n.w.Program.Encode(p)
		for _, old := range n.Entries {
			for i := range e.TableEntry.Action.Params {
				if same(old, e) && old.TableEntry.Action.Params[i][0] == 1 {
					e.TableEntry.Action.Params[i] = old.TableEntry.Action.Params[i]
				}
			}
		}
		n.Set(e)
	}
}

// dropOtherPeers deletes all chain_peer entries except for the given ones.
func (n *Node) dropOtherPeers(peers []p4rt.Entry) {
	if n.w.Without.Peers {
		return
	}
	var want []compiled.Entry
	for _, p := range peers {
		want = append(want, n.w.Program.Encode(p))
	}
	for _, old := range slices.Clone(n.Entries) {
		if old.Table == Register("chain_peer") &&
			!slices.ContainsFunc(want, func(e compiled.Entry) bool { return same(e, old) }) {
			n.Unset(old)
		}
	}
	for _, e := range want {
		n.Set(e)
	}
}

func (n *Node) setGroup(g p4rt.Group) {
	replicas := []target.Replica{}
	for _, r := range g.Replicas {
		replicas = append(replicas, target.Replica{Port: r.Port, Instance: uint16(r.Instance)})
	}
	Must(n.Pipeline.SetMulticastGroup(g.ID, replicas))
}

// dropOtherGroups removes the multicast groups of earlier configurations.
func (n *Node) dropOtherGroups(keep []p4rt.Group) {
	for id := range n.Pipeline.MulticastGroups() {
		kept := false
		for _, g := range slices.Concat(keep, n.watched.Groups) {
			kept = kept || g.ID == id
		}
		if !kept {
			Must(n.Pipeline.SetMulticastGroup(id, nil))
		}
	}
}

// strange handles a change that failed because a switch lacks the state that the controller
// expected. The controller reads the state again, in another connection.
func (d *Device) strange() error {
	d.Shell.World.Cover.Count("controller.found a switch changed", 1)
	d.Broken(d.Number)
	return errChanged
}

// writeEntries inserts or deletes key_index entries by a Write, and records the switch's entries.
// An entry to change or delete must exist, and an entry to insert must not exist.
func (d *Device) writeEntries(insert bool, entries []ops.Entry, then func(error)) {
	known, strange := d.keyIndex, false
	d.call(step{Writes, "keys", func() {
		for _, e := range entries {
			had, was := known[e.ID]
			if _, is := d.Node.KeyIndex[e.ID]; d.Shell.World.Without.Unseen {
				d.Node.place(e, insert)
			} else if was == insert && had == e || !was && !insert { // there is nothing to write
			} else if is != was {
				strange = true
			} else {
				d.Node.place(e, insert)
			}
		}
	}}, func(err error) {
		if err == nil && strange {
			err = d.strange()
		}
		if err == nil {
			d.keyIndex = maps.Clone(d.keyIndex)
			for _, e := range entries {
				if delete(d.keyIndex, e.ID); insert {
					d.keyIndex[e.ID] = e
				}
			}
		}
		then(err)
	})
}

// place inserts or deletes a key_index entry at the switch.
func (n *Node) place(planned ops.Entry, insert bool) {
	if planned.Slot >= MaxSlots {
		panic(fmt.Sprintf("the key %v is beyond the %d slots of a run", planned.ID, MaxSlots))
	}
	if insert {
		n.w.checkAlias(n, planned)
	}
	e := n.w.Program.Encode(tableplan.SlotEntry(planned))
	n.KeyIndex = maps.Clone(n.KeyIndex)
	delete(n.KeyIndex, planned.ID)
	if insert {
		n.Set(e)
		n.KeyIndex[planned.ID] = planned
	} else {
		n.Unset(e)
	}
}

// checkAlias records an entry that opens a slot's alias to anyone but the controller.
func (w *World) checkAlias(n *Node, planned ops.Entry) {
	for _, k := range w.Store.Dir.Keys {
		if want := tableplan.AliasEntry(k); k.Alias == planned.ID && want != planned && len(w.Contradicted) == 0 {
			w.Contradicted = append(w.Contradicted, judge.Violation{Kind: judge.AliasOpen, Key: k.ID,
				What: fmt.Sprintf("%s is given the entry %+v, and it should be %+v", n.Name, planned, want)})
		}
	}
}

// forgetFormer deletes the entries that a member must not have.
func (d *Device) forgetFormer(former func(wire.Key) bool) {
	d.keyIndex = maps.Clone(d.keyIndex)
	for id := range d.Node.KeyIndex {
		if former(id) {
			d.Node.place(ops.Entry{ID: id}, false)
			delete(d.keyIndex, id)
		}
	}
}

// takeEntry and routeEntry return entries of the service address with only their matches.
func takeEntry(service netip.Addr) p4rt.Entry {
	return p4rt.Entry{Table: "local_address", Match: p4rt.Match{"ipv4_dst": p4rt.Exact(service)}, Action: "set_local"}
}

func routeEntry(service netip.Addr) p4rt.Entry {
	return p4rt.Entry{Table: "ipv4_lpm", Match: p4rt.Match{"ipv4_dst": p4rt.LPM(service, 32)}, Action: "to_controller"}
}

// acknowledgeToo gives a replica multicast groups with which it acknowledges like a tail. The
// groups have the tree's ports, and the port by which the write continues.
func acknowledgeToo(part *tableplan.Part) {
	const base = 1000
	if len(part.Groups) == 0 {
		return
	}
	acks := part.Groups[0].Replicas
	part.Config.Params["reply_group"] = uint16(base)
	for port := uint32(1); port < 8; port++ {
		part.Groups = append(part.Groups, p4rt.Group{ID: base + port, Replicas: append(slices.Clone(acks),
			p4rt.Replica{Port: port, Instance: 2})})
	}
}
