package controller

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/chain/rejoin"
	"github.com/netcraq/netcraq/controlplane/controller/saved"
	"github.com/netcraq/netcraq/controlplane/controller/switches"
	"github.com/netcraq/netcraq/controlplane/controller/tableplan"
	"github.com/netcraq/netcraq/controlplane/keyspace"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// network is the controller's state for one topology. Update replaces it as a whole. It is
// immutable, except for the routes of its plan (avoid).
type network struct {
	topo    *topology.Topology // the topology, including the switches in left
	saved   []saved.Switch     // its switches, as they are put on record
	left    map[string]bool    // switches that have left the topology, and that some chain still needs
	plan    *tableplan.Plan
	devices []*device // the devices, in the topology's order of switches
	byName  map[string]*device
	chains  []*chainState // the chains, ordered by id
	byID    map[uint8]*chainState
}

// net returns the present network. Only run's goroutine replaces it.
func (c *Controller) net() *network { return c.current.Load() }

// newNetwork returns a network without devices and chains.
func newNetwork(t *topology.Topology, given *tableplan.Numbering, left []string,
	avoided map[string]bool) (*network, error) {
	p, err := tableplan.New(t, given)
	if err != nil {
		return nil, err
	}
	p.Avoid(avoided)
	n := &network{topo: t, saved: saved.Switches(t), left: map[string]bool{}, plan: p, byName: map[string]*device{},
		byID: map[uint8]*chainState{}}
	for _, s := range left {
		n.left[s] = true
	}
	return n, nil
}

func (n *network) addDevice(d *device) {
	n.devices = append(n.devices, d)
	n.byName[d.Spec.Name] = d
}

func (n *network) addChain(ch *chainState) {
	n.chains = append(n.chains, ch)
	n.byID[ch.topo.ID] = ch
	slices.SortFunc(n.chains, func(a, b *chainState) int { return cmp.Compare(a.topo.ID, b.topo.ID) })
}

// switches returns the names of all switches, in order.
func (n *network) switches() []string {
	var out []string
	for _, s := range n.topo.Switches {
		out = append(out, s.Name)
	}
	return out
}

// device returns a switch's device. A goroutine that works for a while must call device before each
// use, because the switch may have left meanwhile.
func (c *Controller) device(name string) (*device, error) {
	if d := c.net().byName[name]; d != nil {
		return d, nil
	}
	return nil, fmt.Errorf("%s has left the network: %w", name, switches.ErrNotConnected)
}

// isCurrent reports whether a device is still the device of its switch.
func (c *Controller) isCurrent(d *device) bool { return c.net().byName[d.Spec.Name] == d }

// chainState is a chain's machine and the shell's state for it.
type chainState struct {
	topo       *topology.Chain // only its name, id and address are up to date
	space      keyspace.Space
	m          *chain.Machine
	waiting    map[chain.OpID]chan error // the result channels of operations whose callers wait
	operations map[chain.OpID]*keyOperation
	ops        *ops.Chain
	told       map[string]bool // switches that have reported their state of the chain
	// switches whose key_index entries have not been compared with the directory since they came up
	untidy  map[string]bool
	tidyAt  chain.Time        // not before then, unless a member is untidy
	tidied  bool              // the entries of all members have been compared
	next    chain.Time        // when the machine must be ticked; 0: never
	tidying map[wire.Key]bool // keys whose entries tidying is inserting or deleting
	ready   bool              // whether the last event said that the chain is ready
	steers  int               // how often the requested lease has changed
	endCopy func()            // cancels the copy that is under way
	ways    ways              // of the last configuration for which they were needed
	// learners holds the configuration's learners, for other goroutines.
	learners atomic.Pointer[[]string]
}

// ways are the switches by which messages go between some switches.
type ways struct {
	plan     *tableplan.Plan // nil: not known yet
	graph    *topology.Graph
	learners []string
	switches map[string]bool
}

// waysOf returns the switches on the routes between the switches of a configuration. What a chain
// does depends on these; all others only send clients' packets on.
func (ch *chainState) waysOf(n *network, conf chain.Config) map[string]bool {
	graph, learners := n.plan.Graph(), conf.Learners()
	if w := &ch.ways; w.plan != n.plan || w.graph != graph || !slices.Equal(w.learners, learners) {
		*w = ways{n.plan, graph, learners, n.plan.Ways(learners)}
	}
	return ch.ways.switches
}

// answers reports whether a switch may answer for the chain.
func (ch *chainState) answers(sw string) bool {
	l := ch.learners.Load()
	return l != nil && slices.Contains(*l, sw)
}

// newChain returns the state of the chain with an index in a topology.
func (c *Controller) newChain(t *topology.Topology, i int, space keyspace.Space, o chain.Options) *chainState {
	ct := t.Chains[i]
	o.Name, o.Lease = ct.Name, ct.Lease
	want(&o, t, i)
	return &chainState{topo: ct, ops: c.procedures(ct), space: space, m: chain.New(o),
		waiting: map[chain.OpID]chan error{}, operations: map[chain.OpID]*keyOperation{},
		told: map[string]bool{}, untidy: map[string]bool{}, endCopy: func() {}}
}

// shortAfter is how long everything must have been prompt before leases first become short.
const shortAfter = 2 * time.Second

// want sets those options that a topology may change later (chain.Machine.Want), for the chain with
// an index in it.
func want(o *chain.Options, t *topology.Topology, i int) {
	ct := t.Chains[i]
	o.Members, o.FailureTimeout = ct.Members, ct.Patience
	o.ShortLease, o.ShortTimeout, o.ShortAfter = ct.ShortLease, ct.ShortPatience, shortAfter
	o.Rejoin, o.Length = rejoin.For(ct.Rejoin), ct.Length
	chains := time.Duration(len(t.Chains))
	o.ProbeEvery = max(time.Second, chains*time.Second/probesAtOnce)
	o.ProbeFirst = time.Second + (o.ProbeEvery-time.Second)*time.Duration(i)/chains
}

// probesAtOnce is how many chains ask a switch for its state in a second if it gets leases from
// none of them. A switch that has lost its content shows that to any of them, so the machines of
// many chains ask less often each, and at different times.
const probesAtOnce = 4

// needs reports whether any chain needs a switch, even if the switch has left.
func (n *network) needs(sw string) bool {
	return slices.ContainsFunc(n.chains, func(ch *chainState) bool { return ch.m.Needs(sw) })
}

// startDevice connects to a switch.
func (c *Controller) startDevice(d *device) {
	c.running.Go(func() { d.Run(c.ctx) })
	c.avoidLater(d, avoidAtStart)
}

// retire ends the connection to a switch that has left, or whose address has changed.
func (c *Controller) retire(d *device) {
	d.Stop()
	if c.net().byName[d.Spec.Name] == nil { // the switch is gone, rather than replaced by another device
		c.metrics.ForgetSwitch(d.Spec.Name)
		delete(c.avoided, d.Spec.Name)
		for _, ch := range c.net().chains {
			delete(ch.told, d.Spec.Name)
			delete(ch.untidy, d.Spec.Name)
		}
	}
}
