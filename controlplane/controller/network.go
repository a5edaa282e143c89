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
	"github.com/netcraq/netcraq/controlplane/controller/switches"
	"github.com/netcraq/netcraq/controlplane/controller/tableplan"
	"github.com/netcraq/netcraq/controlplane/keyspace"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// network is the controller's state for one topology. Update replaces it as a whole. It is
// immutable, except for the routes of its plan (avoid).
type network struct {
	topo    *topology.Topology // the topology, including the switches in left
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
	n := &network{topo: t, left: map[string]bool{}, plan: p, byName: map[string]*device{},
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
	tidied  bool              // the entries of all members have been compared
	next    chain.Time        // when the machine must be ticked; 0: never
	tidying map[wire.Key]bool // keys whose entries tidying is inserting or deleting
	ready   bool              // whether the last event said that the chain is ready
	steers  int               // how often the requested lease has changed
	endCopy func()            // cancels the copy that is under way
	// learners holds the configuration's learners, for other goroutines.
	learners atomic.Pointer[[]string]
}

// answers reports whether a switch may answer for the chain.
func (ch *chainState) answers(sw string) bool {
	l := ch.learners.Load()
	return l != nil && slices.Contains(*l, sw)
}

func (c *Controller) newChain(ct *topology.Chain, space keyspace.Space, o chain.Options) *chainState {
	o.Name, o.Lease = ct.Name, ct.Lease
	want(&o, ct)
	return &chainState{topo: ct, ops: c.procedures(ct), space: space, m: chain.New(o),
		waiting: map[chain.OpID]chan error{}, operations: map[chain.OpID]*keyOperation{},
		told: map[string]bool{}, untidy: map[string]bool{}, endCopy: func() {}}
}

// shortAfter is how long everything must have been prompt before leases first become short.
const shortAfter = 2 * time.Second

// want sets the options that a topology may change later (chain.Machine.Want).
func want(o *chain.Options, ct *topology.Chain) {
	o.Members, o.FailureTimeout = ct.Members, ct.Patience
	o.ShortLease, o.ShortTimeout, o.ShortAfter = ct.ShortLease, ct.ShortPatience, shortAfter
	o.Rejoin, o.Length = rejoin.For(ct.Rejoin), ct.Length
}

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
