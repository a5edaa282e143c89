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

// network is the controller's state for a topology. Update replaces it by another one; it is
// immutable, except for the ways of its plan (avoid).
type network struct {
	topo    *topology.Topology // with the switches of left
	left    map[string]bool    // switches that have left the topology, and that some chain still needs
	plan    *tableplan.Plan
	devices []*device // as the topology lists the switches
	byName  map[string]*device
	chains  []*chainState // by id
	byID    map[uint8]*chainState
}

// net is the network as it is now. Only run's goroutine puts another into its place.
func (c *Controller) net() *network { return c.current.Load() }

// newNetwork makes a network without devices and chains.
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

// switches is the names of all switches, in order.
func (n *network) switches() []string {
	var out []string
	for _, s := range n.topo.Switches {
		out = append(out, s.Name)
	}
	return out
}

// device finds a switch's device. A goroutine that does something for a while asks for it, because
// the switch may have left meanwhile.
func (c *Controller) device(name string) (*device, error) {
	if d := c.net().byName[name]; d != nil {
		return d, nil
	}
	return nil, fmt.Errorf("%s has left the network: %w", name, switches.ErrNotConnected)
}

// isCurrent says whether a device is still the one of its switch.
func (c *Controller) isCurrent(d *device) bool { return c.net().byName[d.Spec.Name] == d }

// chainState is a chain: its machine, and what the shell does for it.
type chainState struct {
	topo       *topology.Chain // its name, id and address; all else may have changed
	space      keyspace.Space
	m          *chain.Machine
	waiting    map[chain.OpID]chan error // changes that somebody waits for
	operations map[chain.OpID]*keyOperation
	ops        *ops.Chain
	told       map[string]bool // switches that have said what they have of it
	// switches whose key_index entries have not been compared with the directory since they came up
	untidy  map[string]bool
	tidied  bool              // those of all members have been
	next    chain.Time        // when its machine must be ticked; 0: not
	tidying map[wire.Key]bool // keys whose entries are being made or dropped for that
	ready   bool              // as in the last event
	steers  int               // how often the lease that is wanted has been changed
	endCopy func()            // ends the copy that is under way
	// learners are those of the configuration, for other goroutines.
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

// shortAfter is how long everything must have been prompt before leases are short, the first time.
const shortAfter = 2 * time.Second

// want puts down what a topology may ask otherwise for later (chain.Machine.Want).
func want(o *chain.Options, ct *topology.Chain) {
	o.Members, o.FailureTimeout = ct.Members, ct.Patience
	o.ShortLease, o.ShortTimeout, o.ShortAfter = ct.ShortLease, ct.ShortPatience, shortAfter
	o.Rejoin, o.Length = rejoin.For(ct.Rejoin), ct.Length
}

// needs says whether any chain needs a switch, even if it has left.
func (n *network) needs(sw string) bool {
	return slices.ContainsFunc(n.chains, func(ch *chainState) bool { return ch.m.Needs(sw) })
}

// startDevice connects to a switch.
func (c *Controller) startDevice(d *device) {
	c.running.Go(func() { d.Run(c.ctx) })
	c.avoidLater(d, avoidAtStart)
}

// retire ends the connection to a switch that has left, or that is somewhere else now.
func (c *Controller) retire(d *device) {
	d.Stop()
	if c.net().byName[d.Spec.Name] == nil { // the switch is gone, and not another device in its place
		c.metrics.ForgetSwitch(d.Spec.Name)
		delete(c.avoided, d.Spec.Name)
		for _, ch := range c.net().chains {
			delete(ch.told, d.Spec.Name)
			delete(ch.untidy, d.Spec.Name)
		}
	}
}
