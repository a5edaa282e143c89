package world

import (
	"fmt"
	"slices"
	"time"

	"github.com/netcraq/netcraq/controlplane/sim/coroutine"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/sim/clockwork"
	"github.com/netcraq/netcraq/controlplane/sim/compiled"
	"github.com/netcraq/netcraq/controlplane/sim/judge"
	"github.com/netcraq/netcraq/controlplane/sim/logbook"
	"github.com/netcraq/netcraq/controlplane/sim/rules"
	"github.com/netcraq/netcraq/controlplane/sim/shapes"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// World is one run. It holds a network with its switches, controllers and clients, and the time.
type World struct {
	Program *compiled.Program
	Without rules.Removed
	Shape   *shapes.Shape
	Loop    clockwork.Loop
	Dice    struct{ run, network, Clients, Faults clockwork.Dice }
	Control clockwork.Dice // draws the delays of controllers' messages, and the rates of clocks
	onLine  func(logbook.Line)
	Cover   logbook.Coverage
	Packets int
	Mended  bool // all faults have ended

	Network      network
	Nodes        []*Node
	byName       map[string]*Node
	hosts        map[*topology.Host]*host
	base         [][]compiled.Entry
	leases       [][]compiled.Entry // entries that lease sessions to hosts, by switch
	serviceTake  compiled.Entry
	serviceRoute compiled.Entry

	Controllers []*Shell
	tasks       *coroutine.Scheduler // the controllers' procedures
	Store       store
	Members     []string // the members that a topology file would name
	Lease       time.Duration
	EpochFloor  uint16 // the last epoch of the earlier chain that used the same slots
	ShortAfter  time.Duration
	ShortLease  time.Duration // lease length while nothing is late; 0: leases have their usual length
	// Patience is how long controllers wait for unreachable members. If it is 0, an operator
	// removes such members.
	Patience    time.Duration
	OnlyStarved bool // whether starved controllers are the only fault
	// how long lost members must be steady before they return; 0: they do not return by themselves
	SettleFor time.Duration
	leftOut   map[string]bool // switches that operators have left out
	// Late is how long messages on connections that were given up are delayed after the network
	// works again. If it is 0, it is random whether and when they arrive.
	Late         time.Duration
	Disorder     disorder
	Peeks        peeks
	ControlRules []*ControlRule
	controlHeld  []heldControl
	CallTimeout  time.Duration  // time limit of controllers' calls
	ControlDelay time.Duration  // mean of the random delay of a controller's messages
	SlowDisk     float64        // probability that the store is slow
	Drift        float64        // largest deviation of clocks' rates from 1, up or down
	slews        bool           // whether clocks are slewed
	leaders      clockwork.Dice // draws the rates of leaders' clocks, if these are slewed
	Disk         clockwork.Dice // draws the fate of records that are saved
	BadDisk      float64        // probability that a save fails, which leaves the new record or the one before
	PowerCuts    float64        // probability that a kill during a save restores the earlier record

	// the first KEY_ID of each key, which serves as its name
	Keys         []wire.Key
	Incarnations map[wire.Key]judge.Incarnation // name and number of each KEY_ID so far
	// Offsets holds an offset for each KEY_ID. The name's version is the KEY_ID's version plus this
	// offset.
	Offsets   map[wire.Key]uint64
	Emptied   bool  // all keys are removed, and stay removed for a while
	Order     []int // order in which keys are placed again
	PlacesAll bool  // all keys are being placed again
	Moving    bool  // keys are moved, or removed and placed again
	// GoneUntil is the time before which removed keys are not placed again.
	GoneUntil   time.Duration
	slotsSaid   map[wire.Key]*slotSaid // clients' answers that a KEY_ID has no slot, by KEY_ID
	opened      map[wire.Key]bool      // KEY_IDs whose entries are open to clients, or are being opened
	Clients     []*Client
	History     judge.History
	lastPort    uint16
	LastSession uint16
	// begun holds, by session id, the request number to which the switches' records are reset when
	// the session is leased again.
	begun        map[uint16]uint32
	lastValue    int
	Attacked     bool  // a hostile host exists
	Worker       *Node // a hostile worker; nil if there is none
	Intrusions   []judge.Violation
	Contradicted []judge.Violation // violations that were found during the run, and not in the history
	Overheard    *overheard
	watcher      *watcher // the server that watches keys; nil if there is none
}

// Node returns the switch with the given name, or nil if there is none.
func (w *World) Node(name string) *Node { return w.byName[name] }

// ClockRate draws a clock's rate, close to 1.
func (w *World) ClockRate() float64 {
	if w.Drift == 0 {
		return 1
	}
	return 1 + w.Drift*(2*w.Control.Float64()-1)
}

// Controller returns the controller that was started last.
func (w *World) Controller() *Shell { return w.Controllers[len(w.Controllers)-1] }

// StartController starts a controller, which takes over from earlier controllers.
func (w *World) StartController() *Shell {
	n := len(w.Controllers) + 1
	s := newShell(w, fmt.Sprintf("controller%d", n), uint64(n))
	w.Controllers = append(w.Controllers, s)
	return s
}

// Serving reports whether a controller is running and the chain is complete.
func (w *World) Serving() bool {
	s := w.Controller()
	return s.Alive && !s.Deposed && s.Status.Ready
}

// ---- Faults ----

// Reconnect ends a switch's isolation.
func (w *World) Reconnect(n *Node) {
	if !n.Isolated {
		return
	}
	w.Trace("fault", "%s is no longer cut off from the controller", n.Name)
	n.Isolated, n.backAt = false, w.Loop.Now
	for _, s := range w.Controllers {
		s.Devices[n.Index].Healed()
	}
}

// CutLink cuts a link of the data plane, or restores it.
func (w *World) CutLink(l link, cut bool) {
	w.Trace("fault", "the link %s - %s is %s", l.a, l.b, map[bool]string{true: "cut", false: "mended"}[cut])
	if cut {
		w.Network.Cut[l] = true
	} else {
		delete(w.Network.Cut, l)
	}
}

// Links returns all links between switches, in order.
func (w *World) Links() []link {
	var out []link
	for _, n := range w.Nodes {
		for _, p := range n.Switch.Ports {
			if p.Peer != nil {
				if l := Between(n.Name, p.Peer.Name); !slices.Contains(out, l) {
					out = append(out, l)
				}
			}
		}
	}
	return out
}

// HostLinks returns the links to a switch's host.
func (w *World) HostLinks(n *Node) []link {
	var out []link
	for _, p := range n.Switch.Ports {
		if p.Host != nil {
			out = append(out, Between(n.Name, p.Host.Name))
		}
	}
	return out
}

// KillNode kills a switch as kill -9 does. The switch's state is lost, and its connections break at
// once.
func (w *World) KillNode(n *Node) {
	w.Trace("fault", "%s is killed", n.Name)
	n.kill()
	for _, s := range w.Controllers {
		s.Devices[n.Index].stuck = nil
		s.Devices[n.Index].Unreachable(w.Control.Between(100*time.Microsecond, 2*time.Millisecond))
	}
}

// StartNode starts a killed switch, with empty state.
func (w *World) StartNode(n *Node) {
	if n.Alive {
		return
	}
	w.Trace("fault", "%s is started", n.Name)
	n.Start()
}

// Good reports whether a switch can preserve the chain's data. Such a switch is a member, has the
// data, and can be reached by the controller. The controller may give up an unreachable member at
// any moment, so such a member counts as failed. It also counts as failed for one lease after it
// can be reached again, because the controller may give it up for missing answers until its first
// answer arrives.
func (w *World) Good(n *Node) bool {
	d := w.Controller().Devices[n.Index]
	if n.backAt > 0 && w.Loop.Now < n.backAt+w.Store.Record.Config.Lease || w.Loop.Now < n.doubtful {
		return false
	}
	return n.Alive && !n.Isolated && n.Data && !d.Cut && d.Ready &&
		w.Store.Record.Config.IsMember(n.Name) && w.Controller().Status.Config.IsMember(n.Name) &&
		!w.Controller().Left[n.Name]
}

// Spare reports whether there is a good switch besides n, so that n may fail. The protocol survives
// failures as long as one good switch remains.
func (w *World) Spare(n *Node) bool {
	for _, s := range w.Controllers {
		if s.Alive && s.Saving > 0 {
			return false // while a record is being saved, the next members are not known
		}
	}
	return slices.ContainsFunc(w.Nodes, func(x *Node) bool { return x != n && w.Good(x) })
}

// Isolate cuts a switch off from all controllers, but not from clients. The controllers notice
// after the duration notice.
func (w *World) Isolate(n *Node, notice time.Duration) {
	w.Trace("fault", "%s is cut off from the controller", n.Name)
	n.Isolated = true
	for _, s := range w.Controllers {
		s.Devices[n.Index].Unreachable(notice)
	}
}

// Engines holds the interpreters. Runs use an interpreter one after the other.
type Engines []*engine

// New makes a network in which nothing has been started. The rules in without are disabled.
func New(p *compiled.Program, without rules.Removed, engines *Engines, sh *shapes.Shape, seed uint64,
	onLine func(logbook.Line)) (*World, error) {
	w := &World{Program: p,
		Peeks: peeks{Guesses: judge.Guesses{Moved: map[wire.Key]string{}}}, Without: without, Shape: sh,
		onLine: onLine, Cover: logbook.Coverage{},
		leftOut:      map[string]bool{},
		Incarnations: map[wire.Key]judge.Incarnation{}, Offsets: map[wire.Key]uint64{},
		slotsSaid: map[wire.Key]*slotSaid{},
		opened:    map[wire.Key]bool{},
		byName:    map[string]*Node{}, hosts: map[*topology.Host]*host{},
		base: sh.BaseOf(p), Members: sh.Members(), Lease: shapes.DefaultLease, lastPort: 40000,
		CallTimeout: DefaultCallTimeout,
		LastSession: topology.ControllerSessions, begun: map[uint16]uint32{},
		leases: make([][]compiled.Entry, len(sh.Topology.Switches))}
	w.Store.w = w
	w.tasks = coroutine.NewScheduler(&w.Loop)
	if seed/2%2 == 0 {
		w.Store.etcd = map[string]string{}
	}
	dice := func(stream uint64) clockwork.Dice { return clockwork.NewDice(seed, stream) }
	w.Dice.run, w.Dice.network = dice(clockwork.DiceRun), dice(clockwork.DiceNetwork)
	w.Dice.Clients, w.Dice.Faults = dice(clockwork.DiceClients), dice(clockwork.DiceFaults)
	w.Control = dice(clockwork.DiceControl)
	w.Network = network{Conditions: Conditions{Delay: 20 * time.Microsecond}, Cut: map[link]bool{}}
	for i, sw := range sh.Topology.Switches {
		if i == len(*engines) {
			e, err := newEngine(p)
			if err != nil {
				return nil, err
			}
			*engines = append(*engines, e)
		}
		n := &Node{w: w, Index: i, Switch: sw, Name: sw.Name, engine: (*engines)[i], Rate: w.ClockRate()}
		w.Nodes = append(w.Nodes, n)
		w.byName[n.Name] = n
	}
	for _, h := range sh.Topology.Hosts {
		w.hosts[h] = &host{w: w, h: h}
	}
	service := sh.Topology.Chains[0].Address
	w.serviceTake = p.Encode(takeEntry(service))
	w.serviceRoute = p.Encode(routeEntry(service))
	return w, nil
}

// EndTasks ends the controllers' procedures that are still running.
func (w *World) EndTasks() { w.tasks.End() }
