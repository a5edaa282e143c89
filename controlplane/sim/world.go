package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// world is one run: a network with its switches, controllers and clients, and the time.
type world struct {
	program *Program
	removed removed
	shape   *shape
	loop    loop
	dice    struct{ run, network, clients, faults dice }
	control dice // delays of what controllers do, and clocks
	onLine  func(Line)
	cover   Coverage
	packets int
	mended  bool // faults have ended

	network      network
	nodes        []*node
	byName       map[string]*node
	hosts        map[*topology.Host]*host
	base         [][]entry
	leases       [][]entry // of sessions to hosts, by switch
	serviceTake  entry
	serviceRoute entry

	controllers []*shell
	tasks       []*task // of controllers, those that have not ended
	running     *task   // nil: the loop
	store       store
	members     []string // as the topology file would want them
	lease       time.Duration
	epochFloor  uint16 // the last epoch of the chain that had the slots before
	shortAfter  time.Duration
	shortLease  time.Duration   // while everything is prompt; 0: there are none
	patience    time.Duration   // of controllers with members that are out of reach; 0: an operator gives them up
	onlyStarved bool            // controllers are starved, and nothing else is wrong
	settleFor   time.Duration   // for how long members that were lost must be steady to come back; 0: they do not
	leftOut     map[string]bool // by operators
	// what was sent by connections that were given up comes so long after the network is whole; 0:
	// chance decides when, and whether
	late         time.Duration
	disorder     disorder
	peeks        peeks
	controlRules []*controlRule
	controlHeld  []heldControl
	callTimeout  time.Duration // of controllers' calls
	controlDelay time.Duration // mean of what chance adds to the delay of a controller's messages
	slowDisk     float64       // how often the store takes long
	drift        float64       // of clocks, either way
	slews        bool          // clocks are slewed
	leaders      dice          // of leaders' clocks, where they are
	disk         dice          // of what becomes of records
	badDisk      float64       // how often the store fails, and has the new record or the one before
	powerCuts    float64       // how often the record before comes back when a controller is killed while it saves

	keys         []wire.Key               // the first KEY_ID of each: for clients, its name
	incarnations map[wire.Key]incarnation // of all KEY_IDs that a name has had
	offsets      map[wire.Key]uint64      // of KEY_IDs: what makes their versions those of the name
	emptied      bool                     // all keys are taken out, and stay out for a while
	order        []int                    // in which keys are placed again
	placesAll    bool                     // and they are
	moving       bool                     // keys are moved, or removed and placed again
	goneUntil    time.Duration            // keys that were removed are not placed again before
	slotsSaid    map[wire.Key]*slotSaid   // what clients were told of KEY_IDs' slots
	opened       map[wire.Key]bool        // KEY_IDs whose entries are open to clients, or being opened
	clients      []*client
	history      history
	lastPort     uint16
	lastSession  uint16
	begun        map[uint16]uint32 // what the records of sessions were set to that were leased again
	lastValue    int
	attacked     bool  // a hostile host is there
	worker       *node // a hostile worker; nil: there is none
	intrusions   []Violation
	contradicted []Violation // what somebody was told, and what he was told before
	overheard    *overheard
	watcher      *watcher // nil: nobody watches
}

func (w *world) node(name string) *node { return w.byName[name] }

// clockRate is how fast a clock runs: nearly right.
func (w *world) clockRate() float64 {
	if w.drift == 0 {
		return 1
	}
	return 1 + w.drift*(2*w.control.Float64()-1)
}

// controller is the controller that was started last.
func (w *world) controller() *shell { return w.controllers[len(w.controllers)-1] }

// startController starts a controller, which takes over from those before it.
func (w *world) startController() *shell {
	n := len(w.controllers) + 1
	s := newShell(w, fmt.Sprintf("controller%d", n), uint64(n))
	w.controllers = append(w.controllers, s)
	return s
}

// serving says whether a controller is there and the chain as it should be.
func (w *world) serving() bool {
	s := w.controller()
	return s.alive && !s.deposed && s.status.Ready
}

// ---- Faults ----

// reconnect ends that.
func (w *world) reconnect(n *node) {
	if !n.isolated {
		return
	}
	w.trace("fault", "%s is no longer cut off from the controller", n.name)
	n.isolated, n.backAt = false, w.loop.now
	for _, s := range w.controllers {
		s.devices[n.index].healed()
	}
}

// cutLink cuts a link of the data plane, or mends it.
func (w *world) cutLink(l link, cut bool) {
	w.trace("fault", "the link %s - %s is %s", l.a, l.b, map[bool]string{true: "cut", false: "mended"}[cut])
	if cut {
		w.network.cut[l] = true
	} else {
		delete(w.network.cut, l)
	}
}

// links is all links between switches, in order.
func (w *world) links() []link {
	var out []link
	for _, n := range w.nodes {
		for _, p := range n.sw.Ports {
			if p.Peer != nil {
				if l := between(n.name, p.Peer.Name); !slices.Contains(out, l) {
					out = append(out, l)
				}
			}
		}
	}
	return out
}

// hostLinks is the links to a switch's host.
func (w *world) hostLinks(n *node) []link {
	var out []link
	for _, p := range n.sw.Ports {
		if p.Host != nil {
			out = append(out, between(n.name, p.Host.Name))
		}
	}
	return out
}

// killNode is kill -9 of a switch: what was in it is gone. Its connections break at once.
func (w *world) killNode(n *node) {
	w.trace("fault", "%s is killed", n.name)
	n.kill()
	for _, s := range w.controllers {
		s.devices[n.index].stuck = nil
		s.devices[n.index].unreachable(w.control.between(100*time.Microsecond, 2*time.Millisecond))
	}
}

// startNode starts a killed switch, with nothing in it.
func (w *world) startNode(n *node) {
	if n.alive {
		return
	}
	w.trace("fault", "%s is started", n.name)
	n.start()
}

// good says whether a switch can keep the chain's data: it is a member, it has the data, and the
// controller reaches it. One that the controller has lost from sight may be given up at any moment,
// so it counts as failed; so it does for a lease after it is back, since it is given up for the
// answers that it owed meanwhile until it has given one.
func (w *world) good(n *node) bool {
	d := w.controller().devices[n.index]
	if n.backAt > 0 && w.loop.now < n.backAt+w.store.record.Config.Lease || w.loop.now < n.doubtful {
		return false
	}
	return n.alive && !n.isolated && n.data && !d.cut && d.ready &&
		w.store.record.Config.IsMember(n.name) && w.controller().status.Config.IsMember(n.name) &&
		!w.controller().left[n.name]
}

// spare says whether there is a good switch besides n, so that n can fail: the protocol stands for
// as many failures as leave one.
func (w *world) spare(n *node) bool {
	for _, s := range w.controllers {
		if s.alive && s.saving > 0 {
			return false // who will be a member is being decided
		}
	}
	return slices.ContainsFunc(w.nodes, func(x *node) bool { return x != n && w.good(x) })
}

// isolate cuts a switch off from all controllers, but from nobody else; they notice after a while.
func (w *world) isolate(n *node, notice time.Duration) {
	w.trace("fault", "%s is cut off from the controller", n.name)
	n.isolated = true
	for _, s := range w.controllers {
		s.devices[n.index].unreachable(notice)
	}
}

// engines are used by one run after the other.
type engines []*engine

// newWorld makes a network in which nothing has been started. All rules but those in without are
// kept.
func newWorld(p *Program, without removed, engines *engines, sh *shape, seed uint64,
	onLine func(Line)) (*world, error) {
	w := &world{program: p,
		peeks: peeks{guesses: guesses{moved: map[wire.Key]string{}}}, removed: without, shape: sh, onLine: onLine, cover: Coverage{},
		leftOut:      map[string]bool{},
		incarnations: map[wire.Key]incarnation{}, offsets: map[wire.Key]uint64{}, slotsSaid: map[wire.Key]*slotSaid{},
		opened: map[wire.Key]bool{},
		byName: map[string]*node{}, hosts: map[*topology.Host]*host{},
		base: sh.baseOf(p), members: sh.members(), lease: defaultLease, lastPort: 40000,
		callTimeout: defaultCallTimeout,
		lastSession: topology.ControllerSessions, begun: map[uint16]uint32{},
		leases: make([][]entry, len(sh.topo.Switches))}
	w.store.w = w
	if seed/2%2 == 0 {
		w.store.etcd = map[string]string{}
	}
	w.dice.run, w.dice.network, w.dice.clients, w.dice.faults = newDice(seed, diceRun),
		newDice(seed, diceNetwork), newDice(seed, diceClients), newDice(seed, diceFaults)
	w.control = newDice(seed, diceControl)
	w.network = network{conditions: conditions{delay: 20 * time.Microsecond}, cut: map[link]bool{}}
	for i, sw := range sh.topo.Switches {
		if i == len(*engines) {
			e, err := newEngine(p)
			if err != nil {
				return nil, err
			}
			*engines = append(*engines, e)
		}
		n := &node{w: w, index: i, sw: sw, name: sw.Name, engine: (*engines)[i], rate: w.clockRate()}
		w.nodes = append(w.nodes, n)
		w.byName[n.name] = n
	}
	for _, h := range sh.topo.Hosts {
		w.hosts[h] = &host{w: w, h: h}
	}
	service := sh.topo.Chains[0].Address
	w.serviceTake = p.encode(takeEntry(service))
	w.serviceRoute = p.encode(routeEntry(service))
	return w, nil
}
