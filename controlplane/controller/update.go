package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/controller/switches"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// This file changes the topology of a running network. For hosts, the controller writes the
// differing entries. A new switch gets its program and routes, and a chain may then take it in
// (Recover). The controller keeps a switch that leaves for as long as some chain needs it. Each
// chain fences the switch and continues without it, as without a failed switch. Then the controller
// forgets it.

// Update changes the network to another topology, and returns when the switches have begun to
// change. If the network cannot change to the topology, Update returns an *api.Error and leaves
// everything as it is. Update needs a running controller. It compares the topology with the last
// given one, not with the present state of the chains:
//
//   - Hosts, ports, links and prefixes may change at will.
//   - Switches may come and go. If the P4Runtime server of a switch changes, the controller
//     connects to the new one. A switch's address and MAC address cannot change while it is in the
//     network.
//   - Chains may come. They may go when they hold no keys. The lease, patience and rejoin of a
//     chain may change; its id, address and slots may not. The topology names only a chain's first
//     members. After that, ChangeChain and Recover change them, and a switch that leaves is
//     removed.
//   - The program, the sessions, the controller's address and the certificates (other than by
//     renewing their files) may not change.
func (c *Controller) Update(ctx context.Context, t *topology.Topology) error {
	var failed error
	err := c.call(ctx, func() {
		if failed = c.inCharge(); failed == nil {
			failed = c.update(t)
		}
	})
	return apiError(errors.Join(err, failed))
}

// update runs Update on run's goroutine.
func (c *Controller) update(t *topology.Topology) error {
	if t.Equal(c.wanted) {
		return nil
	}
	if err := c.allows(t); err != nil {
		return err
	}
	before := c.wanted
	if err := c.arrange(t); err != nil {
		return err
	}
	c.wanted = t
	for _, ct := range t.Chains {
		if old := before.Chain(ct.Name); old != nil && old.Lease != ct.Lease {
			c.steer(c.net().byID[ct.ID], ct.Lease)
		}
	}
	c.save(nil)
	return nil
}

// refused returns the error for a topology that the network cannot change to.
func refused(format string, args ...any) error {
	return fmt.Errorf("%w: the topology was not changed: "+format, append([]any{chain.ErrRefused}, args...)...)
}

// allows returns why the network cannot change to a topology. arrange finds the remaining reasons.
func (c *Controller) allows(t *topology.Topology) error {
	now := c.wanted
	switch {
	case t.Program != now.Program:
		return refused("the program cannot change while the controller runs: restart it")
	case t.Sessions != now.Sessions:
		return refused("the sessions cannot change while the controller runs: restart it")
	case t.Controller != now.Controller:
		return refused("the controller's address cannot change while it runs: restart it")
	case t.TLS != now.TLS:
		return refused("p4runtimeTLS cannot change while the controller runs: restart it (the files themselves are read again for each connection)")
	}
	for _, s := range t.Switches {
		// A switch that is only kept for a chain still has its old address.
		if old := c.net().topo.Switch(s.Name); old != nil && (old.Address != s.Address ||
			!bytes.Equal(old.MAC, s.MAC)) {
			return refused("the address %v (%v) of switch %s cannot become %v (%v) while it is there: take the switch out first", old.Address, old.MAC, s.Name, s.Address, s.MAC)
		}
	}
	for _, ch := range c.net().chains {
		ct := t.Chain(ch.topo.Name)
		switch {
		case ct == nil && (c.dir.Count(ch.topo.ID) > 0 || len(ch.operations) > 0):
			return refused("the chain %s holds %d keys: remove them first, or move them to another chain", ch.topo.Name, c.dir.Count(ch.topo.ID))
		case ct == nil:
		case ct.ID != ch.topo.ID || ct.Address != ch.topo.Address:
			return refused("the chain %s has the id %d and the address %v, and keeps them: make another chain, and remove this one", ct.Name, ch.topo.ID, ch.topo.Address)
		case ct.Slots != 0 && ct.Slots != ch.space.Count:
			return refused("the chain %s has %d slots, and keeps them: make another chain, and move its keys there", ct.Name, ch.space.Count)
		}
	}
	for _, ct := range t.Chains {
		if old := c.net().byID[ct.ID]; old != nil && old.topo.Name != ct.Name {
			return refused("the chain %s has the id %d, which %s cannot have at once: give it another id, or remove %s before", old.topo.Name, ct.ID, ct.Name, old.topo.Name)
		}
		if until, ok := c.gone[ct.ID]; ok && c.net().byID[ct.ID] == nil && c.now() < until {
			return fmt.Errorf("%w: the id %d was that of a chain that was removed a moment ago, and leases of that may live for %v: try again then",
				chain.ErrUnavailable, ct.ID, (until - c.now()).Round(time.Millisecond))
		}
	}
	return nil
}

// arrange makes t the network. It also keeps the switches of the previous network that chains still
// need.
func (c *Controller) arrange(t *topology.Topology) error {
	old := c.net()
	var left []string
	for _, s := range old.topo.Switches {
		if t.Switch(s.Name) == nil && old.needs(s.Name) {
			left = append(left, s.Name)
		}
	}
	topo, err := t.Keeping(old.topo, left)
	if err != nil {
		return refused("%w", err)
	}
	spaces, err := c.prog.Fit(topo, c.dir.Spaces())
	if err != nil {
		return refused("%w", err)
	}
	n, err := newNetwork(topo, c.numbering, left, c.avoided)
	if err != nil {
		return refused("%w", err)
	}
	// A switch may have been connected before, even under another name, and rejects a controller
	// with a lower election id than it has seen.
	election := c.election
	for _, d := range old.devices {
		election.Low = max(election.Low, d.NextElection())
	}
	var joined []*device
	for _, s := range topo.Switches {
		d := old.byName[s.Name]
		if d == nil || d.Spec.P4Runtime != s.P4Runtime || d.Spec.DeviceID != s.DeviceID ||
			d.Spec.ServerName != s.ServerName {
			if d, err = c.newDevice(s, election); err != nil {
				return refused("%w", err)
			}
			joined = append(joined, d)
		}
		n.addDevice(d)
	}
	// No step after this can fail.
	c.election = election
	for _, ch := range old.chains {
		if t.Chain(ch.topo.Name) == nil {
			c.removeChain(ch)
		}
	}
	for _, ch := range old.chains {
		c.epoch = max(c.epoch, ch.m.Status(c.now()).Config.Epoch)
	}
	var added []*chainState
	for i, ct := range topo.Chains {
		ch := old.byID[ct.ID]
		if ch == nil {
			ch = c.newChain(ct, spaces[i], chain.Options{Switches: n.switches(),
				Made: c.now(), PriorLeaseBound: c.leading, EpochFloor: c.epoch})
			added = append(added, ch)
		}
		n.addChain(ch)
	}
	c.dir.SetSpaces(spaces)
	c.current.Store(n)
	c.adjust(old, n, joined, added)
	return nil
}

// adjust applies a new network to the chains and devices.
func (c *Controller) adjust(old, n *network, joined []*device, added []*chainState) {
	isNew := map[string]bool{}
	for _, d := range joined {
		isNew[d.Spec.Name] = true
		c.metrics.ShowSwitch(d.Spec.Name, false)
		if before := old.byName[d.Spec.Name]; before != nil {
			c.events.Add("switch.replaced", d.Spec.Name, "", fmt.Sprintf("it is at %s, and was at %s", d.Spec.P4Runtime, before.Spec.P4Runtime))
		} else {
			c.events.Add("switch.joined", d.Spec.Name, "", "at "+d.Spec.P4Runtime)
		}
	}
	for _, ch := range n.chains {
		m := c.touch(ch)
		for _, d := range old.devices {
			if isNew[d.Spec.Name] {
				m.SwitchDown(c.now(), d.Spec.Name)
			}
		}
		ct := n.topo.Chain(ch.topo.Name)
		var o chain.Options
		want(&o, ct)
		m.Want(o)
		m.SetSwitches(c.now(), n.switches(), n.left)
	}
	for _, d := range old.devices {
		name := d.Spec.Name
		if n.left[name] && !old.left[name] {
			c.events.Add("switch.leaving", name, "", "chains go on without it before it is forgotten")
		}
		if n.byName[name] == nil {
			c.events.Add("switch.left", name, "", "")
		}
		if !c.isCurrent(d) {
			c.retire(d)
		}
	}
	for _, d := range joined {
		c.startDevice(d)
	}
	for _, ch := range added {
		ch.m.SetKeys(c.dir.Count(ch.topo.ID))
		c.events.Add("chain.added", "", ch.topo.Name, fmt.Sprintf("%s, service address %v, slots %d to %d",
			strings.Join(ch.topo.Members, " -> "), ch.topo.Address, ch.space.First, ch.space.First+ch.space.Count-1))
		c.touch(ch).Tick(c.now())
	}
	if !slices.EqualFunc(old.topo.Realms, n.topo.Realms, topology.Realm.Equal) {
		c.realign()
	}
	c.publishLeases()
	for _, d := range n.devices {
		if len(added) > 0 && d.ready {
			c.lookAgain(d) // the switch reports its content to the new chains
		}
		if !isNew[d.Spec.Name] {
			d.RefreshSoon()
		}
	}
}

// realign updates the keys' entries at all switches to the keys' present realms.
func (c *Controller) realign() {
	var keys []ops.Entry
	for _, k := range c.dir.List("") {
		keys = append(keys, c.net().plan.OpenEntry(k))
	}
	for _, d := range c.net().devices {
		d.Submit(func(ctx context.Context) {
			err := d.Read(ctx)
			if err == nil {
				err = d.Realign(ctx, keys)
			}
			if err != nil && !switches.Passing(err) { // a lost switch is corrected when it comes up again
				c.post(func() { c.events.Add("keys.not-realigned", d.Spec.Name, "", err.Error()) })
			}
		})
	}
}

// lookAgain reads a switch's content again and reports it to new chains.
func (c *Controller) lookAgain(d *device) {
	d.Submit(func(ctx context.Context) {
		stream, reports, err := d.ReadChains(ctx)
		if err != nil { // a lost switch reports when it is back
			return
		}
		c.post(func() {
			if c.deposed != "" || !c.isCurrent(d) || !d.ready || d.state.Stream != stream {
				return
			}
			for _, ch := range c.net().chains {
				if ch.told[d.Spec.Name] {
					continue
				}
				if r, ok := reports[ch.topo.ID]; ok {
					c.report(ch, d, r, false)
				}
			}
		})
	})
}

// removeChain forgets a chain without keys.
func (c *Controller) removeChain(ch *chainState) {
	conf := ch.m.Status(c.now()).Config
	// A switch that is out of reach may answer for the chain until its lease runs out.
	c.gone[ch.topo.ID] = ch.m.LeasesOver(c.now())
	c.epoch = max(c.epoch, conf.Epoch)
	delete(c.records, ch.topo.Name)
	delete(c.touched, ch)
	for _, waits := range ch.waiting {
		waits <- fmt.Errorf("%w: the chain %s was removed", errNotFound, ch.topo.Name)
	}
	c.metrics.ForgetChain(ch.topo.Name)
	c.events.Add("chain.removed", "", ch.topo.Name, "")
}

// release forgets switches that have left once no chain needs them. It reports whether it forgot
// any.
func (c *Controller) release() bool {
	n := c.net()
	if c.deposed != "" || !slices.ContainsFunc(n.devices, func(d *device) bool {
		return n.left[d.Spec.Name] && !n.needs(d.Spec.Name)
	}) {
		return false
	}
	if err := c.arrange(c.wanted); err != nil {
		if c.forgetting != err.Error() { // report a reason once, because release is tried all the time
			c.events.Add("switch.not-forgotten", "", "", err.Error())
		}
		c.forgetting = err.Error()
		return false
	}
	c.forgetting = ""
	c.save(nil)
	return true
}

// steerEvery is the pause before the controller asks a chain again to change its lease, if another
// change of the chain was in the way.
const steerEvery = 500 * time.Millisecond

// steer changes a chain's lease as soon as that is possible.
func (c *Controller) steer(ch *chainState, lease time.Duration) {
	ch.steers++
	this := ch.steers
	go func() {
		for {
			err := c.change(c.ctx, ch.topo.Name, chain.Change{Lease: &lease})
			if err == nil || !errors.Is(err, chain.ErrUnavailable) {
				if err != nil {
					c.post(func() {
						c.events.Add("chain.lease-not-changed", "", ch.topo.Name, err.Error())
					})
				}
				return
			}
			select {
			case <-c.ctx.Done():
				return
			case <-time.After(steerEvery):
			}
			overtaken := false
			if c.call(c.ctx, func() {
				overtaken = ch.steers != this || c.net().byID[ch.topo.ID] != ch
			}) != nil || overtaken {
				return
			}
		}
	}()
}
