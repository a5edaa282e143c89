package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/controller/plan"
	"github.com/netcraq/netcraq/controlplane/keyspace"
	"github.com/netcraq/netcraq/controlplane/sessions"
)

// This file is the simulator's counterpart of package controller: it carries out what chain.Machine
// asks for, on simulated switches, and reports back. The machine is the real one, and so are the
// procedures (package ops; task.go and target.go say how they are run), the table entries
// (controller.Layout) and the packets.

// shell is a controller process.
type shell struct {
	w        *world
	name     string
	election uint64
	alive    bool
	origin   time.Duration // when its clock was 0
	rate     float64       // of its clock
	leads    float64       // of the one by which it counts for how long it may act as the leader
	m        *chain.Machine
	devices  []*device // as the switches
	tick     int       // number of the newest timer
	deposed  bool
	led      time.Duration // when it asked the store whether it leads, and it did
	savedAt  time.Duration // when the last record is written
	saving   int           // records on their way to the store
	before   *chain.Record // what may come back if the power is cut now; nil: nothing

	port       uint16
	dir        *keyspace.Directory
	next       map[uint8]uint32     // the directory's, while a mutant has it forget them
	waiting    map[uint16]*exchange // by port
	ops        *ops.Chain           // what is done to switches
	copies     *ops.Chain           // ... of that, copying; apart for mutants' sake
	copying    *span                // the copy that is under way, or was last
	redriving  uint16               // the epoch of what was re-propagated last
	lastOp     chain.OpID
	lastSaid   chain.OpID // the last by which an operator has said who is a member
	operations map[chain.OpID]*operation
	// begun are the additions and removals that have begun: some wait for the directory to be on
	// record before the machine hears of them.
	begun map[*operation]bool
	// finished are the moves that have come to their end, and are on no record yet.
	finished []*mover
	// proposed is the members that operators' changes ask for, rejoins what the machine asked for,
	// by operation.
	proposed map[chain.OpID][]string
	rejoins  map[chain.OpID]uint64
	done     func(chain.OpID, error) // told of every operation's end
	status   chain.Status            // after the last input
	untidy   map[string]bool         // switches that have come up since they were tidied
	tidying  map[wire.Key]bool       // keys whose entries are being made or dropped for that
	tidied   bool                    // switches and directory were compared

	watching map[wire.Key]string // names, by KEY_ID
	starved  starvation
	shadowAt time.Duration            // since when the same switch is being brought in
	toldAt   map[uint16]time.Duration // when members were first told of the controller's sessions

	pretended map[string]uint16 // the last epoch in which a switch was said to be fenced (a mutant's)

	// switches that have left the network, and those of them that the machine does not know any
	// more
	left, forgotten map[string]bool
}

// operation is a change of keys.
type operation struct {
	ops.Writes
	running *span                 // the step that is being done; nil: none
	writes  map[wire.Key]*writing // that were sent
	// told of each write that is sent; nil: nobody is
	sent func(call time.Duration)
	// told of each write that was answered; nil: nobody is
	noted func(key wire.Key, call time.Duration, version wire.Version)
	done  func(error) // what follows its end; nil: nothing
}

// newOperation makes an operation on some keys, all with the same value; nil is a tombstone.
func newOperation(value []byte, keys ...keyspace.Key) *operation {
	o := &operation{Writes: ops.Writes{Keys: keys}, writes: map[wire.Key]*writing{}}
	for range keys {
		o.Values = append(o.Values, value)
	}
	return o
}

// writing is a write of an operation's.
type writing struct {
	request uint32
	call    time.Duration
	noted   bool
}

// The controller's own writer sessions are 1 to controllerSessions: a session has one write on its
// way at most. Clients' begin above those that the program keeps for controllers.
const controllerSessions = 4

// leasePort is where LEASEs come from, as in package controller.
const leasePort = 20036

var (
	errConnection = errors.New("the connection was lost")
	errPrimary    = errors.New("another controller is primary")
	errTimeout    = errors.New("no answer")
	errChanged    = errors.New("somebody else changes it, or it was emptied")
)

// leading is for how long a controller may give leases after it has heard from the store that it
// leads. One that takes over takes it that the one before did.
const leading = 40 * time.Millisecond

// storeReads is how long the store takes to answer a controller that has just been elected.
const storeReads = 200 * time.Microsecond

// newShell starts a controller, which takes over in the store, and goes on from what an earlier one
// stored.
func newShell(w *world, name string, election uint64) *shell {
	s := &shell{w: w, name: name, election: election, alive: true, rate: w.clockRate(),
		port:    30000 + uint16(w.control.IntN(20000)),
		waiting: map[uint16]*exchange{}, operations: map[chain.OpID]*operation{}, begun: map[*operation]bool{},
		proposed: map[chain.OpID][]string{}, rejoins: map[chain.OpID]uint64{},
		left:   map[string]bool{},
		toldAt: map[uint16]time.Duration{},
		untidy: map[string]bool{}, forgotten: map[string]bool{}, pretended: map[string]uint16{}}
	if s.leads = s.rate; w.slews {
		s.leads = w.slewed(w.leaders)
	}
	if w.removed.margin {
		s.rate *= 1.125 / 1.01 // the same, for it, as a margin of a hundredth
	}
	w.trace(name, "starts")
	for _, n := range w.nodes {
		d := &device{s: s, n: n}
		d.other = ops.NewSwitch(n.name, coroutines{s, false}, &opsTarget{device: d})
		d.copies = ops.NewSwitch(n.name, coroutines{s, true}, &opsTarget{device: d, copying: true,
			seen: map[int][]byte{}})
		s.devices = append(s.devices, d)
	}
	pool := ops.NewPool(controllerSessions, func(recorded []uint32) (uint32, error) {
		return sessions.Begin(recorded, w.control.Uint32), nil
	})
	s.ops = &ops.Chain{Runtime: coroutines{s, false}, ID: chainID, Pool: pool, Entry: s.entryOf,
		Equality: &ops.Equality{},
		Buries:   func(ops.Key) bool { return true },
		Switch:   func(name string) (*ops.Switch, error) { return s.device(name).other, nil }}
	s.copies = &ops.Chain{Runtime: coroutines{s, true}, ID: chainID, Pool: pool, Entry: s.entryOf,
		Switch: func(name string) (*ops.Switch, error) { return s.device(name).copies, nil }}
	w.store.leader = election
	s.later(storeReads, s.begin)
	return s
}

// begin makes the machine.
func (s *shell) begin() {
	w := s.w
	if w.store.leader != s.election {
		s.deposed = true
		return
	}
	var names []string
	for _, sw := range w.shape.topo.Switches {
		names = append(names, sw.Name)
	}
	o := chain.Options{Name: "main", Switches: names, Members: w.members, Lease: w.lease,
		EpochFloor: w.epochFloor, FailureTimeout: w.patience, PriorLeaseBound: leading, Rejoin: w.rejoinPolicy(),
		ShortLease: w.shortLease, ShortTimeout: w.shortLease / 2, ShortAfter: w.shortAfter}
	if w.removed.before {
		o.PriorLeaseBound = 0
	}
	o.Record = w.store.record
	s.origin = w.loop.now
	s.m = chain.New(o)
	w.store.settle() // where the machine has lived on
	s.newDirectory(w.store.dir)
	s.countKeys()
	if ops.InUse(s.dir, chainID) {
		s.ops.Equality.HasKeys(chainID)
	}
	for _, d := range s.devices {
		w.loop.after(w.control.between(0, time.Millisecond), d.connect)
	}
	s.lead()
	s.undoUnfinished()
	s.m.Tick(0)
	s.flush()
}

// lead asks the store again and again whether this controller still leads.
func (s *shell) lead() {
	asked := s.w.loop.now
	s.w.loop.after(s.w.control.between(50*time.Microsecond, 500*time.Microsecond), func() {
		if !s.alive {
			return
		}
		if s.w.store.leader != s.election {
			s.w.cover.add("controller.heard that another leads", 1)
			return
		}
		s.led = asked
		s.later(leading/4, s.lead)
	})
}

// kill ends the process, or its machine. What it has sent is on its way; what it stored stays, but
// for a record of which it has not heard that it is durable: after a power cut it may be the one
// before.
func (s *shell) kill() {
	w := s.w
	w.trace(s.name, "is killed")
	s.alive = false
	if w.store.renamed != nil && w.store.leader == s.election && w.disk.chance(w.powerCuts) {
		w.trace("store", "the power was cut: the directory is the one before")
		w.cover.add("store.older directory", 1)
		w.store.renamed = nil
	}
	if was := s.before; was != nil && w.store.leader == s.election && w.disk.chance(w.powerCuts) {
		w.trace("store", "the power was cut: the record is the one before")
		w.cover.add("store.older record", 1)
		w.store.setRecord(was)
	}
}

// now is its own clock.
func (s *shell) now() chain.Time { return time.Duration(float64(s.w.loop.now-s.origin) * s.rate) }

func (s *shell) device(sw string) *device {
	return s.devices[slices.IndexFunc(s.devices, func(d *device) bool { return d.n.name == sw })]
}

// flush does what the machine asks for, until it asks for nothing more, and arranges its next tick.
func (s *shell) flush() {
	for actions := s.m.Actions(); len(actions) > 0; actions = s.m.Actions() {
		for _, a := range actions {
			if _, lease := a.(chain.Lease); s.w.tracing() {
				s.w.onLine(Line{At: s.w.loop.now, Who: s.name, What: a.String(), Lease: lease})
			}
			s.do(a)
		}
	}
	s.forget()
	was := s.status.Config.Shadow
	if s.status = s.m.Status(s.now()); s.status.Config.Shadow != was {
		s.shadowAt = s.w.loop.now
	}
	if s.w.removed.wait && s.pretendFenced() {
		return
	}
	s.tidy()
	s.tick++
	if at, ok := s.m.Next(s.now()); ok {
		tick := s.tick
		s.w.loop.at(s.origin+time.Duration(float64(at)/s.rate)+time.Microsecond+s.tickLate(), func() {
			if s.alive && s.tick == tick {
				s.late(at)
				s.m.Tick(s.now())
				s.flush()
			}
		})
	}
}

// checkWhole notes a step on keys that is asked for while an earlier controller's recovery, or a
// configuration of this one's, is not at its end.
func (s *shell) checkWhole(a chain.Action) {
	st := s.m.Status(s.now())
	if (st.Config.Shadow != "" || !st.Installed || st.Config.Freeze != chain.Thawed) && len(s.w.contradicted) == 0 {
		s.w.contradicted = append(s.w.contradicted, Violation{Kind: HalfChanged,
			What: fmt.Sprintf("%s is asked for %v in %v, installed: %v", s.name, a, st.Config, st.Installed)})
	}
}

// do carries out one action.
func (s *shell) do(a chain.Action) {
	switch a.(type) {
	case chain.InsertKeys, chain.OpenKeys, chain.DeleteKeys, chain.DrainKeys, chain.WriteKeys, chain.DeleteValues:
		s.checkWhole(a)
	}
	switch a := a.(type) {
	case chain.Event:
		s.w.cover.add("chain."+a.Type, 1)
		s.givenUpInVain(a)
		if strings.HasPrefix(a.Message, "it is out of reach, and its lease") {
			s.w.cover.add("controller.lease waited out", 1)
		}
	case chain.Persist:
		s.persist(a)
	case chain.Lease:
		s.lease(a)
	case chain.Install:
		s.install(a)
	case chain.Reconnect:
		d := s.device(a.Switch)
		number := d.number
		s.w.loop.after(0, func() { d.broken(number) })
	case chain.Redrive:
		s.redrive(a)
	case chain.Rejoin:
		s.rejoin(a)
	case chain.Erase:
		s.erase(a)
	case chain.Copy:
		s.copy(a)
	case chain.CancelCopy:
		if s.copying != nil {
			s.copying.cancel(context.Canceled)
		}
	case chain.InsertKeys:
		s.entries(a.Op, a.Attempt, a.Switch, true, s.operations[a.Op].Keys, s.entriesBy(a.Alias))
	case chain.OpenKeys:
		written := s.operations[a.Op].Written()
		for _, k := range written {
			s.w.opened[k.ID] = true
		}
		s.entries(a.Op, a.Attempt, a.Switch, true, written, s.w.shape.layout.OpenEntry)
	case chain.DeleteKeys:
		s.entries(a.Op, a.Attempt, a.Switch, false, s.operations[a.Op].Keys, s.entriesBy(a.Alias))
	case chain.DrainKeys:
		s.drain(a)
	case chain.WriteKeys:
		s.values(a.Op, a.Attempt, false)
	case chain.DeleteValues:
		s.values(a.Op, a.Attempt, true)
	case chain.CancelKeys:
		if o := s.operations[a.Op]; o != nil && o.running != nil && !s.w.removed.keysGoOn {
			o.running.cancel(context.Canceled)
		}
	case chain.Done:
		o := s.operations[a.Op]
		delete(s.operations, a.Op)
		s.leavesOut(a.Op, a.Err)
		if seq, ok := s.rejoins[a.Op]; ok {
			delete(s.rejoins, a.Op)
			s.m.Rejoined(s.now(), seq, a.Err)
		}
		if o != nil && o.done != nil {
			o.done(a.Err)
		}
		if s.done != nil {
			s.done(a.Op, a.Err)
		}
	default:
		panic(fmt.Sprintf("an action that the simulator does not know: %T", a))
	}
}

// ---- Actions ----

var (
	errLeader = ops.ErrNotLeading
	errDisk   = errors.New("forcing the directory to the disk failed")
)

// persist makes a record durable, in a while. Whether or not the controller lives to hear of it.
func (s *shell) persist(a chain.Persist) {
	w := s.w
	took := w.control.between(50*time.Microsecond, time.Millisecond)
	if w.control.chance(w.slowDisk) {
		took += w.control.between(0, 60*time.Millisecond)
	}
	if w.removed.persist {
		took += w.control.between(0, 60*time.Millisecond)
		w.loop.after(0, func() { s.m.Persisted(s.now(), a.Seq, nil); s.flush() })
	}
	s.saving++
	// One after the other.
	s.savedAt = max(s.savedAt, w.loop.now+took/2)
	w.loop.at(s.savedAt, func() {
		var err error
		was := w.store.record
		switch {
		case w.store.leader != s.election && !w.removed.storeCompare:
			err = errLeader
		case w.disk.chance(w.badDisk): // the folder was not synced
			err = errDisk
			w.cover.add("store.not synced", 1)
			if w.disk.chance(0.5) {
				break
			}
			fallthrough
		default:
			r := a.Record
			if c := &r.Config; c.Filling && w.removed.fillingUnknown {
				c.Members, c.Shadow, c.Filling = c.Learners(), "", false
			}
			s.before = was
			w.store.setRecord(&r)
		}
		record := w.store.record
		w.loop.after(took/2, func() {
			if err == nil && w.store.record == record {
				s.before = nil
			}
			if s.saving--; s.alive && !w.removed.persist {
				s.m.Persisted(s.now(), a.Seq, err)
				s.flush()
			}
		})
	})
}

// leaseKey is the key of this controller's LEASEs, which is no other controller's.
func (s *shell) leaseKey() wire.Key { return wire.MakeKey(chainID, uint32(s.election)) }

// lease sends a LEASE.
func (s *shell) lease(a chain.Lease) {
	if float64(s.w.loop.now-s.led)*s.leads > float64(leading) && !s.w.removed.leads {
		return
	}
	if a.Duration == s.w.shortLease {
		s.w.cover.add("controller.short lease", 1)
		if s.w.removed.shortLease {
			a.Duration = s.w.lease
		}
	}
	if a.Duration == 0 && s.w.removed.fillingLease {
		a.Duration = s.w.lease
	}
	d := s.device(a.Switch)
	send := d.packetOut
	if a.Duration == 0 {
		send = d.ask
		if s.w.removed.unjudged {
			s.m.Alive(a.Switch)
			s.m.Working(s.now(), a.Switch)
		}
	}
	send(s.frame(d, leasePort, &wire.Packet{Op: wire.Lease, Epoch: a.Epoch, Session: a.Number,
		Key: s.leaseKey(), Request: uint32(a.Duration.Microseconds()), Version: wire.Version(a.Clock)}))
}

// install writes a switch's part of a configuration: groups, the chain_config entry, the service
// address; then what nothing refers to any more. Packets pass in between.
func (s *shell) install(a chain.Install) {
	d := s.device(a.Switch)
	n := d.n
	if s.w.removed.freeze && a.Config.Shadow != "" {
		a.Config.Freeze = chain.Thawed
	}
	part := s.w.shape.layout.Chain(s.w.shape.topo.Chains[0], n.sw, a.Config)
	if s.w.removed.ackFromTailAlone && a.Assignment.Role == chain.Replica {
		acknowledgeToo(&part)
	}
	peers := plan.PeerEntries(chainID, part.Peers)
	encode := s.w.program.encode
	strange := false
	steps := []step{
		{writes, "groups", func() {
			if a.Assignment.Role.Member() && !s.w.removed.formerKeys {
				had := chain.None
				if n.assignment != nil {
					had = n.assignment.Role
				}
				used := s.dir.Used(chainID)
				if s.w.removed.formerMembers {
					used = func(wire.Key) bool { return false }
				}
				d.forgetFormer(ops.Former(had, s.dir.Chain(chainID), used))
			}
			for _, g := range part.Groups {
				n.setGroup(g)
			}
			n.addPeers(peers)
		}},
		{writes, "chain", func() {
			assignment := a.Assignment
			if assignment.Filling() && s.w.removed.fillingUnmarked {
				assignment.Head = a.Config.Members[0]
			}
			// The entry that is changed must be there, and one that is inserted must not.
			if strange = (n.assignment == nil) != (d.part == nil) && !s.w.removed.unseen; strange {
				return
			}
			n.set(encode(part.Config))
			n.assignment, n.data = &assignment, assignment.Role.Member()
		}},
		{writes, "address", func() {
			if strange {
				return
			}
			if part.Take != nil {
				n.set(encode(*part.Take))
			}
			if part.Route != nil {
				n.set(encode(*part.Route))
			}
		}},
		{writes, "former", func() {
			if strange {
				return
			}
			if part.Take == nil {
				n.unset(s.w.serviceTake)
			}
			if part.Route == nil {
				n.unset(s.w.serviceRoute)
			}
			n.dropOtherGroups(part.Groups)
			n.dropOtherPeers(peers)
		}},
	}
	d.submit(func(done func()) {
		d.each(steps, func(err error) {
			if err == nil && strange {
				err = d.strange()
			}
			if err == nil {
				d.part = &a.Assignment
			}
			s.m.Installed(s.now(), a.Switch, a.Seq, err)
			s.flush()
			if err == nil {
				d.watchFrom(a.Config)
			}
			done()
		})
	})
}

// entryOf is the key_index entry of a key.
func (s *shell) entryOf(k keyspace.Key) ops.Entry {
	if s.w.removed.open && !k.Hidden() || s.w.removed.hidden && k.Hidden() {
		return s.w.shape.layout.OpenEntry(k)
	}
	return s.w.shape.layout.Entry(k)
}

// entriesBy makes the entries of keys, or of their aliases.
func (s *shell) entriesBy(alias bool) func(keyspace.Key) ops.Entry {
	if alias {
		return plan.AliasEntry
	}
	return s.entryOf
}

// entries makes or deletes an entry of the key_index for each of an operation's keys at a switch.
func (s *shell) entries(op chain.OpID, attempt int, sw string, insert bool, of []keyspace.Key,
	entry func(keyspace.Key) ops.Entry) {
	d := s.device(sw)
	var entries []ops.Entry
	for _, k := range of {
		e := entry(k)
		if s.w.removed.moveLeaves && !insert && e.ID != k.Alias && k.Alias != 0 && sw != s.status.Config.Members[0] {
			continue
		}
		entries = append(entries, e)
	}
	d.submit(func(done func()) {
		d.writeEntries(insert, entries, func(err error) {
			s.m.KeysDone(s.now(), op, attempt, err, true)
			s.flush()
			done()
		})
	})
}

// values writes the values of an operation's keys.
func (s *shell) values(op chain.OpID, attempt int, remove bool) {
	members := slices.Clone(s.status.Config.Members)
	s.work(op, attempt, func(ctx context.Context, o *operation) error {
		if !remove && !s.w.removed.unequal {
			begun := func() map[uint16]uint32 { return maps.Clone(s.w.begun) }
			if err := s.ops.Equalise(ctx, func() (_, _ []string) { return members, nil }, begun); err != nil {
				return err
			}
		}
		return s.ops.WriteAll(ctx, &o.Writes, members, remove)
	})
}

// work does a step of an operation, which takes a while.
func (s *shell) work(op chain.OpID, attempt int, do func(context.Context, *operation) error) {
	o := s.operations[op]
	o.running = s.start(func(ctx context.Context) error { return do(ctx, o) }, func(err error) {
		s.m.KeysDone(s.now(), op, attempt, err, true)
		s.flush()
	})
}

// writes notes a write of the controller's that is sent.
func (s *shell) writes(p *wire.Packet) {
	for _, id := range slices.Sorted(maps.Keys(s.operations)) {
		o := s.operations[id]
		if slices.ContainsFunc(o.Keys, func(k keyspace.Key) bool { return k.ID == p.Key }) {
			if was := o.writes[p.Key]; was != nil && was.request == p.Request {
				return
			}
			o.writes[p.Key] = &writing{request: p.Request, call: s.w.loop.now}
			if o.sent != nil {
				o.sent(s.w.loop.now)
			}
		}
	}
}

// wrote notes the answer to one.
func (s *shell) wrote(p, r *wire.Packet) {
	for _, id := range slices.Sorted(maps.Keys(s.operations)) {
		o := s.operations[id]
		x := o.writes[p.Key]
		if x != nil && !x.noted && r.Request == x.request && (r.Status == wire.OK ||
			r.Status == wire.Superseded) && o.noted != nil {
			x.noted = true
			o.noted(p.Key, x.call, r.Version)
		}
	}
}

// propose asks the machine for a change of the configuration. A controller that has just been
// started refuses (0).
func (s *shell) propose(c chain.Change) chain.OpID {
	if s.m == nil {
		return 0
	}
	s.lastOp++
	if c.Members != nil {
		s.proposed[s.lastOp], s.lastSaid = slices.Clone(c.Members), s.lastOp
		for _, m := range c.Members { // from now on it may be on record, whatever the operator is told
			delete(s.w.leftOut, m)
		}
	}
	c.Rest = s.w.removed.leftOut
	s.m.Propose(s.now(), s.lastOp, c)
	s.flush()
	return s.lastOp
}

// ---- Packets of the controller's ----

// later does something if the controller still lives then.
func (s *shell) later(d time.Duration, do func()) {
	s.w.loop.after(d, func() {
		if s.alive {
			do()
		}
	})
}

// frame wraps a packet for packet-out at a switch, packet-out header included.
func (s *shell) frame(d *device, srcPort uint16, p *wire.Packet) []byte {
	payload, err := p.Marshal(profile)
	must(err)
	f := wire.Frame{Src: netip.AddrPortFrom(s.w.shape.topo.Controller.Address, srcPort),
		Dst: netip.AddrPortFrom(d.n.sw.Address, wire.Port)}
	copy(f.EthernetDst[:], d.n.sw.MAC)
	b, err := f.AppendTo([]byte{0, 0x40}, payload) // submit_to_ingress
	must(err)
	return b
}

// packetIn takes a packet that a switch sent to the controller, packet-in header included.
func (s *shell) packetIn(d *device, frame []byte) {
	f, payload, err := wire.ParseFrame(frame[2:])
	var p wire.Packet
	if err != nil || p.Unmarshal(payload, profile) != nil {
		return
	}
	if p.Op == wire.LeaseReply && p.Status != wire.OK && s.w.removed.mistrust && s.trustsAnyway(d, &p) {
		return
	}
	if p.Op == wire.LeaseReply {
		if p.Key != s.leaseKey() {
			s.w.cover.add("controller.heard the reply to another's LEASE", 1)
			if !s.w.removed.leaseTag {
				return
			}
		}
		if d.emptying {
			return
		}
		s.m.LeaseReply(s.now(), d.n.name, chain.LeaseAnswer{Number: p.Session, Clock: uint64(p.Version),
			Left: time.Duration(p.Request) * time.Microsecond, Epoch: p.Epoch, Granted: p.Status == wire.OK})
		s.flush()
		return
	}
	if x := s.waiting[f.Dst.Port()]; x != nil {
		p.Value = bytes.Clone(p.Value)
		x.deliver(&p)
	}
}
