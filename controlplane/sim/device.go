package sim

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
	"github.com/netcraq/netcraq/controlplane/controller/plan"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/switch/target"
)

// device is a controller's P4Runtime connection to a switch: a stream, and calls besides, until it
// breaks (channels.go). A switch that cannot be reached is noticed only after a while. What was
// sent meanwhile waits in the kernel of the sender. It may arrive when the network is whole again,
// even if the controller has given the connection up.
type device struct {
	s *shell
	n *node
	// What procedures know of it: all but copies, and copies.
	other, copies *ops.Switch

	connected bool // the controller has a connection
	ready     bool // ... and has said SwitchUp
	number    int  // of the connection
	starts    int  // n.starts when it was made
	cut       bool // this controller cannot reach the switch
	freshAt   int  // the connection in which the program was pushed
	emptying  bool // it is being emptied
	// keyIndex is what the switch has acknowledged to have, and part its part in the chain.
	keyIndex map[wire.Key]ops.Entry
	part     *chain.Assignment

	last    [channels]time.Duration // arrival of the last message, where messages are in order
	sent    int                     // how many messages were sent to the switch
	waits   time.Duration           // for how long the next packet-out waits in the switch, at least
	arrived int                     // which of them has come, at the latest
	stuck   []message               // sent while the switch cannot be reached
	pending []*asked                // without an answer
	jobs    []func(done func())
	busy    bool

	watchConf  *chain.Config // what watches are written for; nil: nothing was installed in this connection
	watchWaits bool          // they are to be written
}

type message struct {
	number  int // of the connection
	starts  int // n.starts when it was sent: with the process, its connections end
	arrive  func()
	channel channel
	asks    bool // whether a switch that is no member answers: takes as long each time
}

// reachable says whether messages get through.
func (d *device) reachable() bool { return d.s.alive && d.n.alive && !d.cut && !d.n.isolated }

// connect makes a connection, or tries again later.
func (d *device) connect() {
	if !d.s.alive || d.connected || d.s.deposed {
		return
	}
	if !d.reachable() {
		d.s.w.loop.after(d.s.w.control.between(10*time.Millisecond, 40*time.Millisecond), d.connect)
		return
	}
	d.connected, d.number, d.starts, d.emptying = true, d.number+1, d.n.starts, false
	d.last, d.jobs, d.busy = [channels]time.Duration{}, nil, false
	d.watchConf, d.watchWaits = nil, false
	number := d.number
	d.submit(func(done func()) { d.setUp(number, done) })
}

// setUp makes a switch that has just been connected ready for chains, and reads what it has.
func (d *device) setUp(number int, done func()) {
	loaded, fresh, backup := false, false, false
	var r chain.Report
	var index map[wire.Key]ops.Entry
	arbitrate := step{arbitration, "arbitration", func() {
		backup = d.n.election > d.s.election && !d.s.w.removed.arbitration
		if d.n.election <= d.s.election {
			d.n.election, d.n.connection = d.s.election, number
		}
		d.n.tellBackups()
		loaded = d.n.loaded
	}}
	program := func() step {
		if loaded {
			return step{reads, "program", func() {}}
		}
		return step{loads, "program", func() {
			d.n.load()
			fresh = true
		}}
	}
	then := func(err error) {
		if err == errPrimary && backup {
			d.s.depose(d)
		}
		if fresh {
			d.freshAt = number
		}
		if err != nil {
			if d.connected && d.number == number && err == errDeadline { // it is tried again
				d.s.later(setUpAgain, func() {
					if d.connected && d.number == number {
						d.setUp(number, done)
					}
				})
				return
			}
			d.broken(number)
			return
		}
		r.Fresh = d.freshAt == number
		d.part = r.Assignment
		if d.s.w.removed.lost {
			d.s.pretendHeld(d.n.name, &r)
		}
		d.ready, d.keyIndex = true, index
		d.s.untidy[d.n.name] = true
		d.s.m.SwitchUp(d.s.now(), d.n.name, r)
		d.s.flush()
		done()
	}
	d.call(arbitrate, func(err error) {
		if err != nil {
			then(err)
			return
		}
		d.each([]step{program(),
			{writes, "base", func() {
				d.n.setBase()
			}},
			{reads, "report", func() { r, index = d.n.report(), d.n.keyIndex }},
		}, then)
	})
}

// tellBackups tells controllers that they are not primary any more.
func (n *node) tellBackups() {
	if n.w.removed.arbitration {
		return
	}
	for _, s := range n.w.controllers {
		if d := s.devices[n.index]; s.election < n.election && d.connected {
			d.send(d.number, packetIns, func() { s.depose(d) })
		}
	}
}

// report is what a controller reads back from a switch.
func (n *node) report() chain.Report {
	r := chain.Report{Keys: len(n.keyIndex)}
	if n.assignment != nil {
		a := *n.assignment
		r.Assignment = &a
	}
	return r
}

// broken: the controller gives a connection up.
func (d *device) broken(number int) {
	if !d.s.alive || !d.connected || d.number != number {
		return
	}
	d.connected = false
	pending, jobs := d.pending, d.jobs
	d.pending, d.jobs, d.busy = nil, nil, false
	if d.ready {
		d.ready = false
		d.s.w.trace(d.s.name, "the connection to %s is lost", d.n.name)
		d.s.m.SwitchDown(d.s.now(), d.n.name)
		d.s.flush()
	}
	for _, c := range pending {
		c.end(cmp.Or(c.late, errConnection))
	}
	for _, job := range jobs { // each finds that there is no connection
		job(func() {})
	}
	d.s.w.loop.after(d.s.w.control.between(time.Millisecond, 20*time.Millisecond), d.connect)
}

// unreachable: messages do not get through from now on. It is noticed in a while, unless it is over
// by then.
func (d *device) unreachable(notice time.Duration) {
	number := d.number
	d.s.w.loop.after(notice, func() {
		if d.connected && d.number == number && (!d.reachable() || d.starts != d.n.starts) {
			d.broken(number)
		}
	})
}

// healed: messages get through again.
func (d *device) healed() {
	stuck := d.stuck
	d.stuck = nil
	late := d.s.w.late
	if late == 0 && len(stuck) > 0 {
		late = d.s.w.control.between(0, 80*time.Millisecond)
	}
	for _, m := range stuck {
		switch {
		case m.starts != d.n.starts:
		case m.number == d.number && d.connected:
			d.deliver(m)
		case m.channel.toNode() && (d.s.w.late > 0 || d.s.w.control.chance(0.5)):
			// TCP sends what was written before the end of a connection, with pauses of its own
			d.s.w.loop.after(late, func() {
				if d.n.alive && d.n.starts == m.starts && d.reachable() {
					m.arrive()
				}
			})
		}
	}
}

// primary says whether the switch takes what comes by a connection: it takes nothing of an earlier
// one, nor from an earlier controller.
func (d *device) primary(number int) bool {
	r := d.s.w.removed
	return r.arbitration || d.n.election < d.s.election ||
		d.n.election == d.s.election && (number >= d.n.connection || r.connections)
}

// send sends a message by a connection, either way.
func (d *device) send(number int, c channel, arrive func()) {
	d.sendMessage(message{number: number, starts: d.n.starts, arrive: arrive, channel: c})
}

func (d *device) sendMessage(m message) {
	if !d.n.alive {
		return
	}
	if !d.reachable() {
		d.stuck = append(d.stuck, m)
		return
	}
	d.deliver(m)
}

func (d *device) deliver(m message) {
	w := d.s.w
	starts := d.n.starts
	at := w.loop.now + 20*time.Microsecond + w.controlDelay
	if !m.asks {
		at = w.loop.now + w.control.between(20*time.Microsecond, 100*time.Microsecond) + w.control.about(w.controlDelay)
	}
	if !m.channel.toNode() {
		at += d.s.hearsLate()
	}
	at = d.inOrder(m.channel, at)
	w.loop.at(at, func() {
		if d.n.starts != starts || !d.n.alive {
			return // with the process, the connection is gone
		}
		if !d.reachable() && d.s.alive {
			d.stuck = append(d.stuck, m)
			return
		}
		if !m.channel.toNode() && (!d.s.alive || !d.connected || d.number != m.number) {
			return
		}
		m.arrive()
	})
}

// asked is something that a controller has asked a switch for.
type asked struct {
	d    *device
	then func(error) // nil: it was told
	late error       // its deadline has passed, and that is what ends the connection; nil: it has not
}

// expect notes that an answer is waited for.
func (d *device) expect(then func(error)) *asked {
	c := &asked{d: d, then: then}
	d.pending = append(d.pending, c)
	return c
}

// end tells what came of it, once.
func (c *asked) end(err error) {
	c.d.pending = slices.DeleteFunc(c.d.pending, func(x *asked) bool { return x == c })
	if then := c.then; then != nil && c.d.s.alive {
		c.then = nil
		then(err)
	}
}

// step is something that is done at a switch by one call.
type step struct {
	channel channel
	what    string // for scenarios: which call it is
	do      func()
}

// call has something done at the switch, and says when it was, or that it may not have been.
func (d *device) call(x step, then func(error)) {
	if !d.connected {
		then(errConnection)
		return
	}
	c := d.expect(then)
	number, starts, sent := d.number, d.n.starts, d.sends()
	d.send(number, x.channel, func() {
		d.n.carryOut(x, func() {
			if d.n.starts != starts || !d.n.alive {
				return
			}
			d.arrives(x.channel, sent)
			if c.then == nil {
				d.s.w.cover.add("channels.carried out when it was given up: "+x.channel.String(), 1)
			}
			err := errPrimary
			if d.primary(number) || x.channel == reads {
				x.do()
				if d.primary(number) || x.channel == reads {
					err = nil
				}
			}
			d.send(number, answers, func() { c.end(err) })
		})
	})
	d.deadline(c, number, x.channel)
}

// read has n things read at the switch, whoever is its primary: one after the other, and packets
// pass in between.
func (d *device) read(n int, one func(i int), then func(error)) {
	if !d.connected {
		then(errConnection)
		return
	}
	c := d.expect(then)
	number, starts := d.number, d.n.starts
	i := 0
	var next func()
	next = func() {
		w := d.s.w
		switch {
		case d.n.starts != starts || !d.n.alive: // with the process, the connection is gone
		case d.n.suspended:
			w.loop.after(time.Millisecond, next)
		case i == n:
			d.send(number, answers, func() { c.end(nil) })
		default:
			one(i)
			i++
			w.loop.after(w.control.between(time.Microsecond, 20*time.Microsecond), next)
		}
	}
	d.send(number, reads, func() { d.n.carryOut(step{reads, "registers", nil}, next) })
	d.deadline(c, number, reads)
}

// each has some things done one after the other, up to the first that fails.
func (d *device) each(steps []step, then func(error)) {
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

// submit gives the device's worker something to do after all that it was given before.
func (d *device) submit(job func(done func())) {
	d.jobs = append(d.jobs, job)
	d.work()
}

func (d *device) work() {
	if d.busy || len(d.jobs) == 0 {
		return
	}
	job := d.jobs[0]
	d.jobs = d.jobs[1:]
	d.busy = true
	number := d.number
	job(func() {
		if d.number == number {
			d.busy = false
			d.work()
		}
	})
}

// packetOut sends a frame into the switch's pipeline. Nobody hears whether it arrived.
func (d *device) packetOut(frame []byte) { d.sendPacket(frame, false) }

// ask is packetOut for a LEASE to a switch that is no member.
func (d *device) ask(frame []byte) { d.sendPacket(frame, true) }

func (d *device) sendPacket(frame []byte, asks bool) {
	if !d.connected {
		return
	}
	number, sent, waits := d.number, d.sends(), d.waits
	d.waits = 0
	d.sendMessage(message{number: number, starts: d.n.starts, channel: packetOuts, asks: asks, arrive: func() {
		if d.primary(number) {
			d.queueOut(frame, number, sent, waits)
		}
	}})
}

const cpuPort = 510

// packetInOp is where the op is in a packet that comes to the controller.
const packetInOp = 2 + wire.FrameOverhead

// toController takes a packet that a switch sends to whoever is its primary.
func (w *world) toController(n *node, frame []byte) {
	for _, s := range w.controllers {
		if !s.alive || s.election != n.election && !w.removed.arbitration {
			continue
		}
		d := s.devices[n.index]
		asks := len(frame) > packetInOp && frame[packetInOp] == byte(wire.LeaseReply) &&
			(n.assignment == nil || !n.assignment.Holds())
		d.sendMessage(message{number: d.number, starts: n.starts, channel: packetIns, asks: asks,
			arrive: func() { s.packetIn(d, frame) }})
	}
}

// depose: another controller is primary at a switch. This one lets go of all.
func (s *shell) depose(d *device) {
	if s.deposed {
		return
	}
	s.deposed = true
	s.w.cover.add("controller.deposed", 1)
	s.w.trace(s.name, "another controller is primary at %s: this one does nothing any more", d.n.name)
	for _, d := range s.devices {
		if d.ready {
			d.ready = false
			s.m.SwitchDown(s.now(), d.n.name)
			s.flush()
		}
	}
}

// ---- What calls do at the switch ----

// setBase is what follows from the topology, and from the leases of sessions, being written.
func (n *node) setBase() {
	for _, e := range slices.Concat(n.w.leases[n.index], n.w.base[n.index]) {
		n.set(e)
	}
	if !n.w.removed.peers {
		e := n.w.program.encode(plan.PeerDefault(false))
		must(n.p.SetDefault(e.table, e.e))
	}
	n.bare = false
}

// addPeers makes a switch believe what some chain_peer entries say, and what those say that it has.
func (n *node) addPeers(peers []p4rt.Entry) {
	if n.w.removed.peers {
		return
	}
	for _, p := range peers {
		e := n.w.program.encode(p)
		for _, old := range n.entries {
			for i := range e.e.Action.Params {
				if same(old, e) && old.e.Action.Params[i][0] == 1 {
					e.e.Action.Params[i] = old.e.Action.Params[i]
				}
			}
		}
		n.set(e)
	}
}

// dropOtherPeers leaves a switch no chain_peer entries but these.
func (n *node) dropOtherPeers(peers []p4rt.Entry) {
	if n.w.removed.peers {
		return
	}
	var want []entry
	for _, p := range peers {
		want = append(want, n.w.program.encode(p))
	}
	for _, old := range slices.Clone(n.entries) {
		if old.table == register("chain_peer") &&
			!slices.ContainsFunc(want, func(e entry) bool { return same(e, old) }) {
			n.unset(old)
		}
	}
	for _, e := range want {
		n.set(e)
	}
}

func (n *node) setGroup(g p4rt.Group) {
	replicas := []target.Replica{}
	for _, r := range g.Replicas {
		replicas = append(replicas, target.Replica{Port: r.Port, Instance: uint16(r.Instance)})
	}
	must(n.p.SetMulticastGroup(g.ID, replicas))
}

// dropOtherGroups removes the multicast groups of earlier configurations.
func (n *node) dropOtherGroups(keep []p4rt.Group) {
	for id := range n.p.MulticastGroups() {
		kept := false
		for _, g := range slices.Concat(keep, n.watched.Groups) {
			kept = kept || g.ID == id
		}
		if !kept {
			must(n.p.SetMulticastGroup(id, nil))
		}
	}
}

// strange: a switch has not what it was known to have, so what was to be changed was not: it is
// read again, in another connection.
func (d *device) strange() error {
	d.s.w.cover.add("controller.found a switch changed", 1)
	d.broken(d.number)
	return errChanged
}

// writeEntries makes or deletes key_index entries by a Write, and remembers what the switch has. An
// entry that is changed or deleted must be there, and one that is inserted must not.
func (d *device) writeEntries(insert bool, entries []ops.Entry, then func(error)) {
	known, strange := d.keyIndex, false
	d.call(step{writes, "keys", func() {
		for _, e := range entries {
			had, was := known[e.ID]
			if _, is := d.n.keyIndex[e.ID]; d.s.w.removed.unseen {
				d.n.place(e, insert)
			} else if was == insert && had == e || !was && !insert { // nothing is to be written
			} else if is != was {
				strange = true
			} else {
				d.n.place(e, insert)
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

// place makes or deletes a key_index entry.
func (n *node) place(planned ops.Entry, insert bool) {
	if planned.Slot >= maxSlots {
		panic(fmt.Sprintf("the key %v is beyond the %d slots of a run", planned.ID, maxSlots))
	}
	if insert {
		n.w.checkAlias(n, planned)
	}
	e := n.w.program.encode(plan.SlotEntry(planned))
	n.keyIndex = maps.Clone(n.keyIndex)
	delete(n.keyIndex, planned.ID)
	if insert {
		n.set(e)
		n.keyIndex[planned.ID] = planned
	} else {
		n.unset(e)
	}
}

// checkAlias notes an entry that lets others than the controller at a slot by its alias.
func (w *world) checkAlias(n *node, planned ops.Entry) {
	for _, k := range w.store.dir.Keys {
		if want := plan.AliasEntry(k); k.Alias == planned.ID && want != planned && len(w.contradicted) == 0 {
			w.contradicted = append(w.contradicted, Violation{Kind: AliasOpen, Key: k.ID,
				What: fmt.Sprintf("%s is given the entry %+v, and it should be %+v", n.name, planned, want)})
		}
	}
}

// forgetFormer drops the entries that a switch must not have as a member.
func (d *device) forgetFormer(former func(wire.Key) bool) {
	d.keyIndex = maps.Clone(d.keyIndex)
	for id := range d.n.keyIndex {
		if former(id) {
			d.n.place(ops.Entry{ID: id}, false)
			delete(d.keyIndex, id)
		}
	}
}

// The entries of the service address at a switch, for their matches.
func takeEntry(service netip.Addr) p4rt.Entry {
	return p4rt.Entry{Table: "local_address", Match: p4rt.Match{"ipv4_dst": p4rt.Exact(service)}, Action: "set_local"}
}

func routeEntry(service netip.Addr) p4rt.Entry {
	return p4rt.Entry{Table: "ipv4_lpm", Match: p4rt.Match{"ipv4_dst": p4rt.LPM(service, 32)}, Action: "to_controller"}
}

// acknowledgeToo gives a replica the groups with which it can acknowledge as a tail does: the
// tree's ports, and the port by which the write goes on.
func acknowledgeToo(part *plan.Part) {
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
