package world

import (
	"fmt"
	"slices"
	"time"

	"github.com/netcraq/netcraq/controlplane/controller/program"
	"github.com/netcraq/netcraq/controlplane/controller/tableplan"
	"github.com/netcraq/netcraq/controlplane/sim/compiled"
	"github.com/netcraq/netcraq/controlplane/sim/shapes"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/switch/interp"
	"github.com/netcraq/netcraq/switch/target"
)

// These are the parts of a switch's tables and registers that a run uses. All of them are empty
// when a run begins, and when a switch is restarted.
const (
	MaxSlots    = 8
	MaxSessions = topology.ControllerSessions + 88
	DirtyCells  = 4 // the program has DIRTY_BITS 2, so it has 4 cells
	events      = 64
)

// engine is an interpreter with the program. Runs use an engine one after the other, because
// creating one takes longer than a run.
type engine struct {
	Pipeline *interp.Pipeline
	Entries  []compiled.Entry // entries that the run has inserted
	buffer   interp.Buffer
}

func newEngine(p *compiled.Program) (*engine, error) {
	e := &engine{}
	var err error
	if e.Pipeline, err = interp.New(p.JSON, interp.Options{}); err != nil {
		return nil, fmt.Errorf("the program: %w", err)
	}
	return e, nil
}

// Must panics if the simulator itself has made a mistake.
func Must(err error) {
	if err != nil {
		panic(err) // the simulator itself has made a mistake
	}
}

// These are the registers and counters of the program, by the kind of their index. The kind limits
// the cells that a run can touch.
var (
	slotRegisters    = []string{"versions", "slot_writer"}
	objectRegisters  = []string{"objects.objects_length", "objects.objects_store"}
	sessionRegisters = []string{"session_request", "session_version"}
)

// Register returns the full name of a register of the program.
func Register(name string) string { return "NetcraqIngress.pipeline.chain." + name }

const eventsCounter = "NetcraqIngress.pipeline.events"

// clear restores the state of a new engine.
func (e *engine) clear() {
	e.ClearTables()
	e.ClearRegisters()
}

// ClearTables empties all tables and multicast groups.
func (e *engine) ClearTables() {
	for _, x := range e.Entries {
		Must(e.Pipeline.DeleteEntry(x.Table, x.TableEntry))
	}
	e.Entries = e.Entries[:0]
	for id := range e.Pipeline.MulticastGroups() {
		Must(e.Pipeline.SetMulticastGroup(id, nil))
	}
}

func (e *engine) ClearRegisters() {
	zero := func(name string, cells int) {
		name = Register(name)
		width := (e.Pipeline.Program().Register(name).Width + 7) / 8
		for i := range cells {
			Must(e.Pipeline.WriteRegister(name, i, make([]byte, width)))
		}
	}
	for _, r := range slotRegisters {
		zero(r, MaxSlots)
	}
	for _, r := range objectRegisters {
		zero(r, MaxSlots*(DirtyCells+1))
	}
	for _, r := range sessionRegisters {
		zero(r, MaxSessions)
	}
	zero("lease_expiry", shapes.ChainID+1)
	for i := range events {
		Must(e.Pipeline.WriteCounter(eventsCounter, i, target.CounterData{}))
	}
}

// Set inserts an entry, or changes the existing entry with the same match.
func (e *engine) Set(x compiled.Entry) {
	for i, old := range e.Entries {
		if same(old, x) {
			Must(e.Pipeline.ModifyEntry(x.Table, x.TableEntry))
			e.Entries[i] = x
			return
		}
	}
	Must(e.Pipeline.InsertEntry(x.Table, x.TableEntry))
	e.Entries = append(e.Entries, x)
}

// Unset deletes the entry with a match, if there is one.
func (e *engine) Unset(x compiled.Entry) {
	for i, old := range e.Entries {
		if same(old, x) {
			Must(e.Pipeline.DeleteEntry(x.Table, x.TableEntry))
			e.Entries = append(e.Entries[:i], e.Entries[i+1:]...)
			return
		}
	}
}

// same reports whether two entries have the same match.
func same(a, b compiled.Entry) bool {
	match := func(a, b target.FieldMatch) bool {
		return a.PrefixLen == b.PrefixLen && string(a.Value) == string(b.Value)
	}
	return a.Table == b.Table && slices.EqualFunc(a.TableEntry.Match, b.TableEntry.Match, match)
}

// Node is a switch: the program with its tables and registers, and a clock.
type Node struct {
	w      *World
	Index  int
	Switch *topology.Switch
	Name   string
	*engine

	NoRegisters bool // controllers cannot read the switch's registers, as with BMv2

	Alive    bool
	Isolated bool          // no controller can reach the switch
	backAt   time.Duration // when a controller could reach the switch again
	doubtful time.Duration // until this time, a controller may give the switch up because it is late
	Data     bool          // the switch is believed to have a member's data
	born     time.Duration // when the switch's clock was 0; the clock starts again with the switch
	Rate     float64       // rate of the switch's clock, relative to real time
	Loaded   bool          // a controller has loaded the program since the last start
	Bare     bool          // the switch has lost state, and no controller has set it up since
	Starts   int           // how often the switch was started

	Suspended bool          // the switch's machine is suspended
	Asleep    []asleepFrame // frames that arrived while the machine was suspended
	Stood     time.Duration // total time for which the switch's clock did not run

	// Assignment and the following fields are state that a controller reads back from the switch.
	Assignment *chain.Assignment
	KeyIndex   map[wire.Key]ops.Entry // this map is replaced as a whole, and never modified
	election   uint64                 // the highest election id of a controller so far
	// connection is the newest connection of the controller with the highest election id.
	connection int
	watched    tableplan.WatchPart // the watches that are installed
}

// asleepFrame is a frame that waits until the switch's machine continues.
type asleepFrame struct {
	Port  uint32
	Frame []byte
}

// clock returns the time that the program sees.
func (n *Node) clock() time.Duration {
	return time.Duration(float64(n.w.Loop.Now-n.born-n.Stood) * n.Rate)
}

// Start starts the switch's process, with empty state.
func (n *Node) Start() {
	n.wipe()
	n.Alive, n.Loaded, n.election, n.connection = true, false, 0, 0
	n.Suspended, n.Asleep, n.Stood = false, nil, 0
	n.Starts++
	n.born = n.w.Loop.Now - n.w.Control.Between(0, time.Second)
}

// kill ends the switch as kill -9 does. Registers, tables and all other state are lost.
func (n *Node) kill() {
	n.Count()
	n.Alive, n.Data = false, false
}

// Count adds the program's event counters to the run's coverage.
func (n *Node) Count() {
	for i := range events {
		c, err := n.Pipeline.ReadCounter(eventsCounter, i)
		Must(err)
		if c.Packets > 0 {
			n.w.Cover.Count("packets."+program.EventNames[i], int(c.Packets))
		}
	}
}

// Process handles a frame that came in by a port, and sends the frames that result.
func (n *Node) Process(port uint32, frame []byte) {
	if !n.Alive {
		return
	}
	if n.Suspended {
		if len(n.Asleep) < asleepFrames {
			n.Asleep = append(n.Asleep, asleepFrame{port, frame})
		}
		return
	}
	w := n.w
	w.Packets++
	var before [events]uint64
	if w.tracing() {
		n.events(&before)
	}
	n.Pipeline.ProcessInto(&n.buffer, n.clock(), port, frame)
	if w.tracing() {
		n.trace(port, frame, &before)
	}
	for _, o := range n.buffer.Outs {
		if o.Port == topology.CPUPort {
			n.queueIn(o.Frame)
		} else {
			w.FromNode(n, o.Port, o.Frame)
		}
	}
}

func (n *Node) events(out *[events]uint64) {
	for i := range out {
		c, err := n.Pipeline.ReadCounter(eventsCounter, i)
		Must(err)
		out[i] = c.Packets
	}
}

// ID returns a name's KEY_ID according to the store.
func (w *World) ID(name wire.Key) wire.Key {
	for _, k := range w.Store.Dir.Keys {
		if k.Name == shapes.NameOf(name) {
			return k.ID
		}
	}
	return name
}

// Slot holds the versions of a key at a switch.
type Slot struct{ Committed, Latest wire.Version }

func (n *Node) Slot(key wire.Key) (Slot, bool) {
	at, ok := n.KeyIndex[key]
	if !ok {
		return Slot{}, false
	}
	b, err := n.Pipeline.ReadRegister(Register("versions"), at.Slot)
	Must(err)
	return Slot{wire.Version(be64(b[:8])), wire.Version(be64(b[8:]))}, true
}

func be64(b []byte) (v uint64) {
	for _, x := range b {
		v = v<<8 | uint64(x)
	}
	return v
}

// asleepFrames is how many frames a suspended switch queues. The switch loses all further frames.
const asleepFrames = 64
