package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/netcraq/netcraq/controlplane/controller/plan"
	"github.com/netcraq/netcraq/controlplane/controller/program"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/switch/interp"
	"github.com/netcraq/netcraq/switch/target"
)

// What a run uses of a switch. All of it is empty when a run begins and when a switch is started
// again.
const (
	maxSlots    = 8
	maxSessions = topology.ControllerSessions + 88
	dirtyCells  = 4 // DIRTY_BITS 2
	events      = 64
)

// engine is an interpreter with the program, used by one run after the other: making one takes
// longer than a run.
type engine struct {
	p       *interp.Pipeline
	entries []entry // what a run has put into its tables
	buffer  interp.Buffer
}

func newEngine(p *Program) (*engine, error) {
	e := &engine{}
	var err error
	if e.p, err = interp.New(p.json, interp.Options{}); err != nil {
		return nil, fmt.Errorf("the program: %w", err)
	}
	return e, nil
}

func must(err error) {
	if err != nil {
		panic(err) // the simulator's own mistake
	}
}

// The registers and counters of the program, and how many cells of each a run can touch, by what.
var (
	slotRegisters    = []string{"versions", "slot_writer"}
	objectRegisters  = []string{"objects.objects_length", "objects.objects_store"}
	sessionRegisters = []string{"session_request", "session_version"}
)

func register(name string) string { return "NetcraqIngress.pipeline.chain." + name }

const eventsCounter = "NetcraqIngress.pipeline.events"

// clear makes it as it was when it was made.
func (e *engine) clear() {
	e.clearTables()
	e.clearRegisters()
}

func (e *engine) clearTables() {
	for _, x := range e.entries {
		must(e.p.DeleteEntry(x.table, x.e))
	}
	e.entries = e.entries[:0]
	for id := range e.p.MulticastGroups() {
		must(e.p.SetMulticastGroup(id, nil))
	}
}

func (e *engine) clearRegisters() {
	zero := func(name string, cells int) {
		name = register(name)
		width := (e.p.Program().Register(name).Width + 7) / 8
		for i := range cells {
			must(e.p.WriteRegister(name, i, make([]byte, width)))
		}
	}
	for _, r := range slotRegisters {
		zero(r, maxSlots)
	}
	for _, r := range objectRegisters {
		zero(r, maxSlots*(dirtyCells+1))
	}
	for _, r := range sessionRegisters {
		zero(r, maxSessions)
	}
	zero("lease_expiry", chainID+1)
	for i := range events {
		must(e.p.WriteCounter(eventsCounter, i, target.CounterData{}))
	}
}

// set inserts an entry, or changes the one with its match.
func (e *engine) set(x entry) {
	for i, old := range e.entries {
		if same(old, x) {
			must(e.p.ModifyEntry(x.table, x.e))
			e.entries[i] = x
			return
		}
	}
	must(e.p.InsertEntry(x.table, x.e))
	e.entries = append(e.entries, x)
}

// unset deletes the entry with a match, if there is one.
func (e *engine) unset(x entry) {
	for i, old := range e.entries {
		if same(old, x) {
			must(e.p.DeleteEntry(x.table, x.e))
			e.entries = append(e.entries[:i], e.entries[i+1:]...)
			return
		}
	}
}

// same says whether two entries have the same match.
func same(a, b entry) bool {
	return a.table == b.table && slices.EqualFunc(a.e.Match, b.e.Match, func(a, b target.FieldMatch) bool {
		return a.PrefixLen == b.PrefixLen && string(a.Value) == string(b.Value)
	})
}

// node is a switch: the program, the tables and registers, a clock of its own.
type node struct {
	w     *world
	index int
	sw    *topology.Switch
	name  string
	*engine

	noRegisters bool // it shows none, as BMv2

	alive    bool
	isolated bool          // no controller can reach it
	backAt   time.Duration // when one could again
	doubtful time.Duration // until when a controller may give it up for what is late
	data     bool          // it has what a member must have, as far as anybody can tell
	born     time.Duration // when its clock was 0; the clock starts anew when the switch does
	rate     float64       // of its clock
	loaded   bool          // the program has been pushed since it was started
	bare     bool          // it has lost something, and has not been set up since
	starts   int           // how often it was started

	suspended bool          // its machine is
	asleep    []asleepFrame // what came meanwhile
	stood     time.Duration // for how long its clock has stood still

	// What a controller reads back from it.
	assignment *chain.Assignment
	keyIndex   map[wire.Key]ops.Entry // never changed, but replaced
	election   uint64                 // the highest election id that a controller has come with
	connection int                    // ... and the newest of its connections
	watched    plan.WatchPart         // who watches what
}

// asleepFrame is a frame that waits until the switch's machine goes on.
type asleepFrame struct {
	port  uint32
	frame []byte
}

// clock is what the program sees as the time.
func (n *node) clock() time.Duration {
	return time.Duration(float64(n.w.loop.now-n.born-n.stood) * n.rate)
}

// start is the process being started, with nothing in it.
func (n *node) start() {
	n.wipe()
	n.alive, n.loaded, n.election, n.connection = true, false, 0, 0
	n.suspended, n.asleep, n.stood = false, nil, 0
	n.starts++
	n.born = n.w.loop.now - n.w.control.between(0, time.Second)
}

// kill is kill -9: registers, tables and all are gone.
func (n *node) kill() {
	n.count()
	n.alive, n.data = false, false
}

// count adds what became of the switch's packets to the run's coverage.
func (n *node) count() {
	for i := range events {
		c, err := n.p.ReadCounter(eventsCounter, i)
		must(err)
		if c.Packets > 0 {
			n.w.cover.add("packets."+program.EventNames[i], int(c.Packets))
		}
	}
}

// process takes a frame that came in by a port, and sends on what comes out.
func (n *node) process(port uint32, frame []byte) {
	if !n.alive {
		return
	}
	if n.suspended {
		if len(n.asleep) < asleepFrames {
			n.asleep = append(n.asleep, asleepFrame{port, frame})
		}
		return
	}
	w := n.w
	w.packets++
	var before [events]uint64
	if w.tracing() {
		n.events(&before)
	}
	n.p.ProcessInto(&n.buffer, n.clock(), port, frame)
	if w.tracing() {
		n.trace(port, frame, &before)
	}
	for _, o := range n.buffer.Outs {
		if o.Port == topology.CPUPort {
			n.queueIn(o.Frame)
		} else {
			w.fromNode(n, o.Port, o.Frame)
		}
	}
}

func (n *node) events(out *[events]uint64) {
	for i := range out {
		c, err := n.p.ReadCounter(eventsCounter, i)
		must(err)
		out[i] = c.Packets
	}
}

// id is the KEY_ID that a name has now, as the store knows.
func (w *world) id(name wire.Key) wire.Key {
	for _, k := range w.store.dir.Keys {
		if k.Name == nameOf(name) {
			return k.ID
		}
	}
	return name
}

// slot is what a switch holds for a key.
type slot struct{ committed, latest wire.Version }

func (n *node) slot(key wire.Key) (slot, bool) {
	at, ok := n.keyIndex[key]
	if !ok {
		return slot{}, false
	}
	b, err := n.p.ReadRegister(register("versions"), at.Slot)
	must(err)
	return slot{wire.Version(be64(b[:8])), wire.Version(be64(b[8:]))}, true
}

func be64(b []byte) (v uint64) {
	for _, x := range b {
		v = v<<8 | uint64(x)
	}
	return v
}

// asleepFrames is how many frames wait for a switch that is suspended; the rest is lost.
const asleepFrames = 64
