package world

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

	"github.com/netcraq/netcraq/controlplane/sim/coroutine"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/controller/tableplan"
	"github.com/netcraq/netcraq/controlplane/keyspace"
	"github.com/netcraq/netcraq/controlplane/sessions"
	"github.com/netcraq/netcraq/controlplane/sim/compiled"
	"github.com/netcraq/netcraq/controlplane/sim/judge"
	"github.com/netcraq/netcraq/controlplane/sim/logbook"
	"github.com/netcraq/netcraq/controlplane/sim/shapes"
)

// This file is the simulator's counterpart of package controller. It carries out the actions of
// chain.Machine on simulated switches, and reports the results to the machine. The machine, the
// procedures (package ops), the table entries (tableplan.Plan) and the packets are the real ones.
// Package coroutine and target.go run the procedures.

// Shell is a simulated controller process.
type Shell struct {
	World    *World
	Name     string
	election uint64
	Alive    bool
	origin   time.Duration // when the controller's clock was 0
	rate     float64       // rate of the controller's clock, relative to real time
	// leads is the rate of the clock by which the controller measures how long it may act as the
	// leader.
	leads   float64
	Machine *chain.Machine
	Devices []*Device // the controller's connections, in the order of the switches
	tick    int       // number of the newest timer
	Deposed bool
	led     time.Duration // when the controller last asked the store whether it leads, and the store said yes
	savedAt time.Duration // when the last record will be written
	Saving  int           // number of records that are being saved
	Before  *chain.Record // the record that a power cut at present could restore; nil if there is none

	port       uint16
	dir        *keyspace.Directory
	next       map[uint8]uint32     // the directory's counters while a mutant makes the directory forget them
	waiting    map[uint16]*exchange // requests that wait for a reply, by port
	ops        *ops.Chain           // procedures at switches
	copies     *ops.Chain           // procedures that copy, kept apart because of mutants
	process    *coroutine.Process   // the process in which the controller's procedures run
	copying    *coroutine.Span      // the present or last copy
	redriving  uint16               // the epoch of the last re-propagation
	lastOp     chain.OpID
	lastSaid   chain.OpID // the last operation by which an operator set the members
	operations map[chain.OpID]*operation
	// begun holds the additions and removals that have begun. Some of them wait until the directory
	// is on record, and the machine does not know them yet.
	begun map[*operation]bool
	// finished holds the moves that have ended and are not on record yet.
	finished []*mover
	// proposed holds the members in operators' changes, by operation. rejoins holds the sequence
	// numbers of the machine's Rejoin requests, by operation.
	proposed map[chain.OpID][]string
	rejoins  map[chain.OpID]uint64
	Done     func(chain.OpID, error) // called at the end of every operation
	Status   chain.Status            // the machine's status after its last input
	untidy   map[string]bool         // switches that have come up since their last tidying
	tidying  map[wire.Key]bool       // keys whose entries tidying is inserting or deleting
	tidied   bool                    // whether tidying has compared the switches with the directory

	watching map[wire.Key]string // names of watched keys, by KEY_ID
	Starved  Starvation
	ShadowAt time.Duration            // when the present recovery of a switch began
	toldAt   map[uint16]time.Duration // when members first learned of the controller's sessions

	pretended map[string]uint16 // the last epoch in which a mutant reported a switch as fenced

	// Left holds the switches that have left the network. forgotten holds those of them that the
	// machine no longer knows.
	Left, forgotten map[string]bool
}

// operation is a change of keys.
type operation struct {
	ops.Writes
	running *coroutine.Span       // the present step; nil if there is none
	writes  map[wire.Key]*writing // writes that have been sent
	// sent is called for each write that is sent. It may be nil.
	sent func(call time.Duration)
	// noted is called for each write that was answered. It may be nil.
	noted func(key wire.Key, call time.Duration, version wire.Version)
	done  func(error) // called at the operation's end; may be nil
}

// newOperation makes an operation on keys, all with the same value. The value nil stands for a
// tombstone.
func newOperation(value []byte, keys ...keyspace.Key) *operation {
	o := &operation{Writes: ops.Writes{Keys: keys}, writes: map[wire.Key]*writing{}}
	for range keys {
		o.Values = append(o.Values, value)
	}
	return o
}

// writing is a write of an operation.
type writing struct {
	request uint32
	call    time.Duration
	noted   bool
}

// ControllerSessions is the number of the controller's own writer sessions, which are 1 to
// ControllerSessions. A session has at most one write in flight. Clients' sessions begin above
// those that the program reserves for controllers.
const ControllerSessions = 4

// leasePort is the UDP source port of LEASEs, as in package controller.
const leasePort = 20036

var (
	errConnection = errors.New("the connection was lost")
	errPrimary    = errors.New("another controller is primary")
	errTimeout    = errors.New("no answer")
	errChanged    = errors.New("somebody else changes it, or it was emptied")
)

// Leading is how long a controller may give leases after the store has confirmed that it leads. A
// new leader assumes that its predecessor uses the same time.
const Leading = 40 * time.Millisecond

// runtime returns the runtime for procedures that copy, if copies is set, and otherwise the runtime
// for all other procedures.
func (s *Shell) runtime(copies bool) coroutine.Runtime {
	return coroutine.Runtime{Process: s.process, EndsEarly: copies && s.World.Without.EndsEarly}
}

// storeReads is the store's delay in answering a newly elected controller.
const storeReads = 200 * time.Microsecond

// newShell starts a controller, which takes over as leader in the store and continues from the
// stored state.
func newShell(w *World, name string, election uint64) *Shell {
	s := &Shell{World: w, Name: name, election: election, Alive: true, rate: w.ClockRate(),
		port:    30000 + uint16(w.Control.IntN(20000)),
		waiting: map[uint16]*exchange{}, operations: map[chain.OpID]*operation{}, begun: map[*operation]bool{},
		proposed: map[chain.OpID][]string{}, rejoins: map[chain.OpID]uint64{},
		Left:   map[string]bool{},
		toldAt: map[uint16]time.Duration{},
		untidy: map[string]bool{}, forgotten: map[string]bool{}, pretended: map[string]uint16{}}
	s.process = &coroutine.Process{Scheduler: w.tasks, Alive: func() bool { return s.Alive }}
	if s.leads = s.rate; w.slews {
		s.leads = w.slewed(w.leaders)
	}
	if w.Without.Margin {
		// For this mutant, the effect is that of a margin of only a hundredth.
		s.rate *= 1.125 / 1.01
	}
	w.Trace(name, "starts")
	for _, n := range w.Nodes {
		d := &Device{Shell: s, Node: n}
		d.other = ops.NewSwitch(n.Name, s.runtime(false), &opsTarget{Device: d})
		d.copies = ops.NewSwitch(n.Name, s.runtime(true), &opsTarget{Device: d, copying: true,
			seen: map[int][]byte{}})
		s.Devices = append(s.Devices, d)
	}
	pool := ops.NewPool(ControllerSessions, func(recorded []uint32) (uint32, error) {
		return sessions.Begin(recorded, w.Control.Uint32), nil
	})
	s.ops = &ops.Chain{Runtime: s.runtime(false), ID: shapes.ChainID, Pool: pool, Entry: s.entryOf,
		Equality: &ops.Equality{},
		Buries:   func(ops.Key) bool { return true },
		Switch:   func(name string) (*ops.Switch, error) { return s.Device(name).other, nil }}
	s.copies = &ops.Chain{Runtime: s.runtime(true), ID: shapes.ChainID, Pool: pool, Entry: s.entryOf,
		Switch: func(name string) (*ops.Switch, error) { return s.Device(name).copies, nil }}
	w.Store.leader = election
	s.Later(storeReads, s.begin)
	return s
}

// begin creates the machine.
func (s *Shell) begin() {
	w := s.World
	if w.Store.leader != s.election {
		s.Deposed = true
		return
	}
	var names []string
	for _, sw := range w.Shape.Topology.Switches {
		names = append(names, sw.Name)
	}
	o := chain.Options{Name: "main", Switches: names, Members: w.Members, Lease: w.Lease,
		EpochFloor: w.EpochFloor, FailureTimeout: w.Patience, PriorLeaseBound: Leading, Rejoin: w.rejoinPolicy(),
		ShortLease: w.ShortLease, ShortTimeout: w.ShortLease / 2, ShortAfter: w.ShortAfter}
	if w.Without.Before {
		o.PriorLeaseBound = 0
	}
	o.Record = w.Store.Record
	s.origin = w.Loop.Now
	s.Machine = chain.New(o)
	w.Store.settle() // settle the last save, unless a power cut has undone it
	s.newDirectory(w.Store.Dir)
	s.countKeys()
	if ops.InUse(s.dir, shapes.ChainID) {
		s.ops.Equality.HasKeys(shapes.ChainID)
	}
	for _, d := range s.Devices {
		w.Loop.After(w.Control.Between(0, time.Millisecond), d.connect)
	}
	s.lead()
	s.undoUnfinished()
	s.Machine.Tick(0)
	s.Flush()
}

// lead repeatedly asks the store whether this controller still leads.
func (s *Shell) lead() {
	asked := s.World.Loop.Now
	s.World.Loop.After(s.World.Control.Between(50*time.Microsecond, 500*time.Microsecond), func() {
		if !s.Alive {
			return
		}
		if s.World.Store.leader != s.election {
			s.World.Cover.Count("controller.heard that another leads", 1)
			return
		}
		s.led = asked
		s.Later(Leading/4, s.lead)
	})
}

// Kill ends the process, or its machine. Messages in flight stay in flight. The stored state stays,
// except that a power cut may restore the record before the last one. That can happen only while
// the controller does not know that the last record is durable.
func (s *Shell) Kill() {
	w := s.World
	w.Trace(s.Name, "is killed")
	s.Alive = false
	if w.Store.Renamed != nil && w.Store.leader == s.election && w.Disk.Chance(w.PowerCuts) {
		w.Trace("store", "the power was cut: the directory is the one before")
		w.Cover.Count("store.older directory", 1)
		w.Store.Renamed = nil
	}
	if was := s.Before; was != nil && w.Store.leader == s.election && w.Disk.Chance(w.PowerCuts) {
		w.Trace("store", "the power was cut: the record is the one before")
		w.Cover.Count("store.older record", 1)
		w.Store.SetRecord(was)
	}
}

// Clock returns the time of the controller's own clock.
func (s *Shell) Clock() chain.Time { return time.Duration(float64(s.World.Loop.Now-s.origin) * s.rate) }

// Device finds the controller's connection to a switch.
func (s *Shell) Device(sw string) *Device {
	return s.Devices[slices.IndexFunc(s.Devices, func(d *Device) bool { return d.Node.Name == sw })]
}

// Flush carries out the machine's actions until the machine has none left, and schedules the
// machine's next tick.
func (s *Shell) Flush() {
	for actions := s.Machine.Actions(); len(actions) > 0; actions = s.Machine.Actions() {
		for _, a := range actions {
			if _, lease := a.(chain.Lease); s.World.tracing() {
				s.World.onLine(logbook.Line{At: s.World.Loop.Now, Who: s.Name, What: a.String(), Lease: lease})
			}
			s.do(a)
		}
	}
	s.forget()
	was := s.Status.Config.Shadow
	if s.Status = s.Machine.Status(s.Clock()); s.Status.Config.Shadow != was {
		s.ShadowAt = s.World.Loop.Now
	}
	if s.World.Without.Wait && s.pretendFenced() {
		return
	}
	s.tidy()
	s.tick++
	if at, ok := s.Machine.Next(s.Clock()); ok {
		tick := s.tick
		s.World.Loop.At(s.origin+time.Duration(float64(at)/s.rate)+time.Microsecond+s.tickLate(), func() {
			if s.Alive && s.tick == tick {
				s.late(at)
				s.Machine.Tick(s.Clock())
				s.Flush()
			}
		})
	}
}

// checkWhole records a violation if the machine requests a step on keys too early. That is before
// an earlier controller's recovery, or a configuration of this controller, is complete.
func (s *Shell) checkWhole(a chain.Action) {
	st := s.Machine.Status(s.Clock())
	if (st.Config.Shadow != "" || !st.Installed || st.Config.Freeze != chain.Thawed) && len(s.World.Contradicted) == 0 {
		s.World.Contradicted = append(s.World.Contradicted, judge.Violation{Kind: judge.HalfChanged,
			What: fmt.Sprintf("%s is asked for %v in %v, installed: %v", s.Name, a, st.Config, st.Installed)})
	}
}

// do carries out one action.
func (s *Shell) do(a chain.Action) {
	switch a.(type) {
	case chain.InsertKeys, chain.OpenKeys, chain.DeleteKeys, chain.DrainKeys, chain.WriteKeys, chain.DeleteValues:
		s.checkWhole(a)
	}
	switch a := a.(type) {
	case chain.Event:
		s.World.Cover.Count("chain."+a.Type, 1)
		s.givenUpInVain(a)
		if strings.HasPrefix(a.Message, "it is out of reach, and its lease") {
			s.World.Cover.Count("controller.lease waited out", 1)
		}
	case chain.Persist:
		s.persist(a)
	case chain.Lease:
		s.lease(a)
	case chain.Install:
		s.install(a)
	case chain.Reconnect:
		d := s.Device(a.Switch)
		number := d.Number
		s.World.Loop.After(0, func() { d.Broken(number) })
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
			s.copying.Cancel(context.Canceled)
		}
	case chain.InsertKeys:
		s.entries(a.Op, a.Attempt, a.Switch, true, s.operations[a.Op].Keys, s.entriesBy(a.Alias))
	case chain.OpenKeys:
		written := s.operations[a.Op].Written()
		for _, k := range written {
			s.World.opened[k.ID] = true
		}
		s.entries(a.Op, a.Attempt, a.Switch, true, written, s.World.Shape.Layout.OpenEntry)
	case chain.DeleteKeys:
		s.entries(a.Op, a.Attempt, a.Switch, false, s.operations[a.Op].Keys, s.entriesBy(a.Alias))
	case chain.DrainKeys:
		s.drain(a)
	case chain.WriteKeys:
		s.values(a.Op, a.Attempt, false)
	case chain.DeleteValues:
		s.values(a.Op, a.Attempt, true)
	case chain.CancelKeys:
		if o := s.operations[a.Op]; o != nil && o.running != nil && !s.World.Without.KeysGoOn {
			o.running.Cancel(context.Canceled)
		}
	case chain.Done:
		o := s.operations[a.Op]
		delete(s.operations, a.Op)
		s.leavesOut(a.Op, a.Err)
		if seq, ok := s.rejoins[a.Op]; ok {
			delete(s.rejoins, a.Op)
			s.Machine.Rejoined(s.Clock(), seq, a.Err)
		}
		if o != nil && o.done != nil {
			o.done(a.Err)
		}
		if s.Done != nil {
			s.Done(a.Op, a.Err)
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

// persist makes a record durable after a while, even if the controller does not live until then.
func (s *Shell) persist(a chain.Persist) {
	w := s.World
	took := w.Control.Between(50*time.Microsecond, time.Millisecond)
	if w.Control.Chance(w.SlowDisk) {
		took += w.Control.Between(0, 60*time.Millisecond)
	}
	if w.Without.Persist {
		took += w.Control.Between(0, 60*time.Millisecond)
		w.Loop.After(0, func() { s.Machine.Persisted(s.Clock(), a.Seq, nil); s.Flush() })
	}
	s.Saving++
	// Records are saved one after the other.
	s.savedAt = max(s.savedAt, w.Loop.Now+took/2)
	w.Loop.At(s.savedAt, func() {
		var err error
		was := w.Store.Record
		switch {
		case w.Store.leader != s.election && !w.Without.StoreCompare:
			err = errLeader
		case w.Disk.Chance(w.BadDisk): // the folder could not be synced
			err = errDisk
			w.Cover.Count("store.not synced", 1)
			if w.Disk.Chance(0.5) {
				break
			}
			fallthrough
		default:
			r := a.Record
			if c := &r.Config; c.Filling && w.Without.FillingUnknown {
				c.Members, c.Shadow, c.Filling = c.Learners(), "", false
			}
			s.Before = was
			w.Store.SetRecord(&r)
		}
		record := w.Store.Record
		w.Loop.After(took/2, func() {
			if err == nil && w.Store.Record == record {
				s.Before = nil
			}
			if s.Saving--; s.Alive && !w.Without.Persist {
				s.Machine.Persisted(s.Clock(), a.Seq, err)
				s.Flush()
			}
		})
	})
}

// leaseKey is the key in this controller's LEASEs. It differs for each controller.
func (s *Shell) leaseKey() wire.Key { return wire.MakeKey(shapes.ChainID, uint32(s.election)) }

// lease sends a LEASE.
func (s *Shell) lease(a chain.Lease) {
	if float64(s.World.Loop.Now-s.led)*s.leads > float64(Leading) && !s.World.Without.Leads {
		return
	}
	if a.Duration == s.World.ShortLease {
		s.World.Cover.Count("controller.short lease", 1)
		if s.World.Without.ShortLease {
			a.Duration = s.World.Lease
		}
	}
	if a.Duration == 0 && s.World.Without.FillingLease {
		a.Duration = s.World.Lease
	}
	d := s.Device(a.Switch)
	send := d.packetOut
	if a.Duration == 0 {
		send = d.ask
		if s.World.Without.Unjudged {
			s.Machine.Alive(a.Switch)
			s.Machine.Working(s.Clock(), a.Switch)
		}
	}
	send(s.frame(d, leasePort, &wire.Packet{Op: wire.Lease, Epoch: a.Epoch, Session: a.Number,
		Key: s.leaseKey(), Request: uint32(a.Duration.Microseconds()), Version: wire.Version(a.Clock)}))
}

// install writes a switch's part of a configuration: groups, the chain_config entry, and the
// service address. Then it removes objects to which nothing refers any more. Packets pass between
// the steps.
func (s *Shell) install(a chain.Install) {
	d := s.Device(a.Switch)
	n := d.Node
	if s.World.Without.Freeze && a.Config.Shadow != "" {
		a.Config.Freeze = chain.Thawed
	}
	part := s.World.Shape.Layout.Chain(s.World.Shape.Topology.Chains[0], n.Switch, a.Config)
	if s.World.Without.AckFromTailAlone && a.Assignment.Role == chain.Replica {
		acknowledgeToo(&part)
	}
	peers := tableplan.PeerEntries(shapes.ChainID, part.Peers)
	encode := s.World.Program.Encode
	strange := false
	steps := []step{
		{Writes, "groups", func() {
			if a.Assignment.Role.Member() && !s.World.Without.FormerKeys {
				had := chain.None
				if n.Assignment != nil {
					had = n.Assignment.Role
				}
				used := s.dir.Used(shapes.ChainID)
				if s.World.Without.FormerMembers {
					used = func(wire.Key) bool { return false }
				}
				d.forgetFormer(ops.Former(had, s.dir.Chain(shapes.ChainID), used))
			}
			for _, g := range part.Groups {
				n.setGroup(g)
			}
			n.addPeers(peers)
		}},
		{Writes, "chain", func() {
			assignment := a.Assignment
			if assignment.Filling() && s.World.Without.FillingUnmarked {
				assignment.Head = a.Config.Members[0]
			}
			// An entry that is changed must exist, and an entry that is inserted must not exist.
			if strange = (n.Assignment == nil) != (d.part == nil) && !s.World.Without.Unseen; strange {
				return
			}
			n.Set(encode(part.Config))
			n.Assignment, n.Data = &assignment, assignment.Role.Member()
		}},
		{Writes, "address", func() {
			if strange {
				return
			}
			if part.Take != nil {
				n.Set(encode(*part.Take))
			}
			if part.Route != nil {
				n.Set(encode(*part.Route))
			}
		}},
		{Writes, "former", func() {
			if strange {
				return
			}
			if part.Take == nil {
				n.Unset(s.World.serviceTake)
			}
			if part.Route == nil {
				n.Unset(s.World.serviceRoute)
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
			s.Machine.Installed(s.Clock(), a.Switch, a.Seq, err)
			s.Flush()
			if err == nil {
				d.watchFrom(a.Config)
			}
			done()
		})
	})
}

// entryOf returns the key_index entry of a key.
func (s *Shell) entryOf(k keyspace.Key) ops.Entry {
	if s.World.Without.Open && !k.Hidden() || s.World.Without.Hidden && k.Hidden() {
		return s.World.Shape.Layout.OpenEntry(k)
	}
	return s.World.Shape.Layout.Entry(k)
}

// entriesBy returns the function that makes the key_index entries of keys, or of their aliases.
func (s *Shell) entriesBy(alias bool) func(keyspace.Key) ops.Entry {
	if alias {
		return tableplan.AliasEntry
	}
	return s.entryOf
}

// entries inserts or deletes a key_index entry at a switch for each of an operation's keys.
func (s *Shell) entries(op chain.OpID, attempt int, sw string, insert bool, of []keyspace.Key,
	entry func(keyspace.Key) ops.Entry) {
	d := s.Device(sw)
	var entries []ops.Entry
	for _, k := range of {
		e := entry(k)
		if s.World.Without.MoveLeaves && !insert && e.ID != k.Alias && k.Alias != 0 &&
			sw != s.Status.Config.Members[0] {
			continue
		}
		entries = append(entries, e)
	}
	d.submit(func(done func()) {
		d.writeEntries(insert, entries, func(err error) {
			s.Machine.KeysDone(s.Clock(), op, attempt, err, true)
			s.Flush()
			done()
		})
	})
}

// values writes the values of an operation's keys.
func (s *Shell) values(op chain.OpID, attempt int, remove bool) {
	members := slices.Clone(s.Status.Config.Members)
	s.work(op, attempt, func(ctx context.Context, o *operation) error {
		if !remove && !s.World.Without.Unequal {
			begun := func() map[uint16]uint32 { return maps.Clone(s.World.begun) }
			if err := s.ops.Equalise(ctx, func() (_, _ []string) { return members, nil }, begun); err != nil {
				return err
			}
		}
		return s.ops.WriteAll(ctx, &o.Writes, members, remove)
	})
}

// work runs a step of an operation in a task.
func (s *Shell) work(op chain.OpID, attempt int, do func(context.Context, *operation) error) {
	o := s.operations[op]
	o.running = s.process.Start(func(ctx context.Context) error { return do(ctx, o) }, func(err error) {
		s.Machine.KeysDone(s.Clock(), op, attempt, err, true)
		s.Flush()
	})
}

// writes notes that the controller sends a write.
func (s *Shell) writes(p *wire.Packet) {
	for _, id := range slices.Sorted(maps.Keys(s.operations)) {
		o := s.operations[id]
		if slices.ContainsFunc(o.Keys, func(k keyspace.Key) bool { return k.ID == p.Key }) {
			if was := o.writes[p.Key]; was != nil && was.request == p.Request {
				return
			}
			o.writes[p.Key] = &writing{request: p.Request, call: s.World.Loop.Now}
			if o.sent != nil {
				o.sent(s.World.Loop.Now)
			}
		}
	}
}

// wrote notes the answer to a write.
func (s *Shell) wrote(p, r *wire.Packet) {
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

// Propose asks the machine to change the configuration. It returns 0 if the controller has just
// started and refuses.
func (s *Shell) Propose(c chain.Change) chain.OpID {
	if s.Machine == nil {
		return 0
	}
	s.lastOp++
	if c.Members != nil {
		s.proposed[s.lastOp], s.lastSaid = slices.Clone(c.Members), s.lastOp
		for _, m := range c.Members { // the change may be recorded from now on, whatever answer the operator gets
			delete(s.World.leftOut, m)
		}
	}
	c.Rest = s.World.Without.LeftOut
	s.Machine.Propose(s.Clock(), s.lastOp, c)
	s.Flush()
	return s.lastOp
}

// ---- Packets of the controller ----

// Later runs do after d, if the controller is still alive.
func (s *Shell) Later(d time.Duration, do func()) {
	s.World.Loop.After(d, func() {
		if s.Alive {
			do()
		}
	})
}

// frame wraps a packet in a packet-out for a switch, including the packet-out header.
func (s *Shell) frame(d *Device, srcPort uint16, p *wire.Packet) []byte {
	payload, err := p.Marshal(compiled.Profile)
	Must(err)
	f := wire.Frame{Src: netip.AddrPortFrom(s.World.Shape.Topology.Controller.Address, srcPort),
		Dst: netip.AddrPortFrom(d.Node.Switch.Address, wire.Port)}
	copy(f.EthernetDst[:], d.Node.Switch.MAC)
	b, err := f.AppendTo([]byte{0, 0x40}, payload) // the header sets submit_to_ingress
	Must(err)
	return b
}

// packetIn handles a packet-in from a switch, including the packet-in header.
func (s *Shell) packetIn(d *Device, frame []byte) {
	f, payload, err := wire.ParseFrame(frame[2:])
	var p wire.Packet
	if err != nil || p.Unmarshal(payload, compiled.Profile) != nil {
		return
	}
	if p.Op == wire.LeaseReply && p.Status != wire.OK && s.World.Without.Mistrust && s.trustsAnyway(d, &p) {
		return
	}
	if p.Op == wire.LeaseReply {
		if p.Key != s.leaseKey() {
			s.World.Cover.Count("controller.heard the reply to another's LEASE", 1)
			if !s.World.Without.LeaseTag {
				return
			}
		}
		if d.emptying {
			return
		}
		s.Machine.LeaseReply(s.Clock(), d.Node.Name, chain.LeaseAnswer{Number: p.Session, Clock: uint64(p.Version),
			Left: time.Duration(p.Request) * time.Microsecond, Epoch: p.Epoch, Granted: p.Status == wire.OK})
		s.Flush()
		return
	}
	if x := s.waiting[f.Dst.Port()]; x != nil {
		p.Value = bytes.Clone(p.Value)
		x.deliver(&p)
	}
}
