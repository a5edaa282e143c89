package controller

import (
	"context"
	"fmt"

	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/controller/observe"
	"github.com/netcraq/netcraq/controlplane/controller/switches"
	"github.com/netcraq/netcraq/controlplane/p4rt"
)

// connection handles a change of the state of a switch's connection.
func (c *Controller) connection(d *device, s p4rt.State) {
	was := d.state
	d.state = s
	if d.ready && (s.Phase != p4rt.Primary || s.Stream != was.Stream) {
		c.setReady(d, false)
		for _, ch := range c.net().chains {
			c.touch(ch).SwitchDown(c.now(), d.Spec.Name)
		}
		c.avoidLater(d, avoidAfter)
	}
	if s.Phase == p4rt.Backup && c.deposed == "" {
		c.depose(d.Spec.Name, fmt.Sprintf("another controller (election id %v) has taken over at %s: this one does nothing any more; "+
			"restart it to take the network back", s.Primary, d.Spec.Name))
	}
	switch s.Phase {
	case p4rt.Disconnected:
		text := "not connected"
		if s.Err != nil {
			text = observe.Printable(s.Err.Error())
		}
		if d.lastError != text {
			kind := "switch.unreachable"
			if was.Phase != p4rt.Disconnected {
				kind = "switch.disconnected"
			}
			c.events.Add(kind, d.Spec.Name, "", text+"; trying again")
		}
		d.lastError = text
	case p4rt.Backup:
		d.lastError = fmt.Sprintf("another controller (election id %v) is primary", s.Primary)
		c.events.Add("switch.backup", d.Spec.Name, "", d.lastError)
	case p4rt.Primary:
		d.lastError = ""
		if c.deposed != "" {
			return
		}
		if was.Phase != p4rt.Primary || was.Stream != s.Stream {
			c.events.Add("switch.connected", d.Spec.Name, "", "at "+d.Spec.P4Runtime)
			if text := c.versionWarningAt(d); text != "" {
				c.events.Add("switch.version-untested", d.Spec.Name, "", text)
			}
			d.Submit(func(ctx context.Context) { d.SetUp(ctx, s.Stream) })
		}
	}
}

// setReady notes whether a switch can be used.
func (c *Controller) setReady(d *device, ready bool) {
	d.ready, d.emptying = ready, false
	c.metrics.ShowSwitch(d.Spec.Name, ready)
}

// depose stops this controller because another controller has taken over, at a switch or in the
// store. The other controller may change everything, so this controller can no longer rely on its
// knowledge. It releases all switches, and does not take them back by itself even if it becomes
// primary again. Otherwise two controllers would undo each other's work.
func (c *Controller) depose(at, why string) {
	if c.deposed != "" {
		return
	}
	c.deposed = why
	close(c.letGo)
	c.events.Add("controller.deposed", at, "", why)
	for _, d := range c.net().devices {
		if d.ready {
			c.setReady(d, false)
			for _, ch := range c.net().chains {
				c.touch(ch).SwitchDown(c.now(), d.Spec.Name)
			}
		}
	}
}

// Deposed returns a channel that is closed when another controller has taken over and this
// controller has stopped working.
func (c *Controller) Deposed() <-chan struct{} { return c.letGo }

// switchUp handles a switch that has everything that follows from the topology.
func (c *Controller) switchUp(d *device, stream int, fresh bool, reports map[uint8]switches.Report) {
	if c.deposed != "" || d.state.Phase != p4rt.Primary || d.state.Stream != stream {
		return // the connection was lost again
	}
	d.lastError = ""
	c.setReady(d, true)
	if c.avoided[d.Spec.Name] {
		delete(c.avoided, d.Spec.Name)
		c.reroute("switch.rerouted", d, "it is there again: routes go by it")
	}
	for _, ch := range c.net().chains {
		if r, ok := reports[ch.topo.ID]; ok {
			c.report(ch, d, r, fresh)
		} else { // the chain was added after the switch was read
			c.lookAgain(d)
		}
	}
}

// report passes a switch's state of a chain to the chain's machine.
func (c *Controller) report(ch *chainState, d *device, r switches.Report, fresh bool) {
	ch.told[d.Spec.Name] = true
	ch.untidy[d.Spec.Name] = true
	c.touch(ch).SwitchUp(c.now(), d.Spec.Name, chain.Report{Assignment: r.Assignment, Fresh: fresh, Keys: r.Keys})
}
