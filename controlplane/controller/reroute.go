package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/netcraq/netcraq/controlplane/p4rt"
)

// A switch that the controller has lost may have stopped, and then what is sent to others by way of
// it is lost. So routes and acknowledgement trees go around it, where there is a way around. That
// it may be running all the same does no harm: they go another way, that is all. Which switches are
// avoided is on record, so that a controller that starts does not send packets to the dead again.

// avoidAfter is for how long a switch may be out of reach before routes go around it. A chain
// cannot be shortened sooner, for the lease has to run out.
const avoidAfter = 50 * time.Millisecond

// avoidLater has a switch avoided if it does not come back soon.
func (c *Controller) avoidLater(d *device) {
	time.AfterFunc(avoidAfter, func() {
		c.post(func() {
			if d.ready || c.deposed != "" || c.avoided[d.sw.Name] || !c.isCurrent(d) {
				return
			}
			c.avoided[d.sw.Name] = true
			c.reroute("switch.avoided", d, "it is out of reach: routes go around it where they can")
		})
	})
}

// reroute brings what follows from the ways through the network to all switches.
func (c *Controller) reroute(kind string, about *device, why string) {
	c.net().plan.avoid(c.avoided)
	c.events.add(kind, about.sw.Name, "", why)
	c.save(nil)
	for _, d := range c.net().devices {
		d.refreshSoon() // after what is being done to set it up, where it is not ready
	}
}

// afterOthers calls then when the other switches have done what they were given to do, or had a
// second to do it.
func (c *Controller) afterOthers(d *device, then func()) {
	var once sync.Once
	start := func() { once.Do(then) }
	left := 1
	done := func() {
		if left--; left == 0 {
			start()
		}
	}
	for _, other := range c.net().devices {
		if other != d && other.ready {
			left++
			other.submit(func(context.Context) { c.post(done) })
		}
	}
	time.AfterFunc(time.Second, func() { c.post(start) })
	done()
}

// refreshSoon has the worker refresh the switch, once for all changes that there are until it comes
// to it.
func (d *device) refreshSoon() {
	if d.stale.Swap(true) {
		return
	}
	d.submit(func(ctx context.Context) {
		d.stale.Store(false) // before it looks at the plan
		d.refresh(ctx)
	})
}

// read makes what is known of a switch's tables hold, if it has been set up in this connection;
// else errNotConnected.
func (d *device) read(ctx context.Context) error {
	s := d.client.State()
	if s.Phase != p4rt.Primary || d.setUpAt != s.Stream {
		return fmt.Errorf("%s: %w", d.sw.Name, errNotConnected)
	}
	return d.load(ctx, s.Stream)
}

// refresh writes what has changed of a switch's routes and of the multicast groups of its chains.
func (d *device) refresh(ctx context.Context) {
	err := d.read(ctx)
	if errors.Is(err, errNotConnected) {
		return // it gets everything when it is set up
	}
	if err == nil {
		err = d.writeBase(ctx)
	}
	for id, conf := range d.parts {
		if ch := d.c.net().byID[id]; ch == nil {
			delete(d.parts, id)
		} else if err == nil {
			var rest []*v1.Update
			if rest, err = d.install(ctx, ch.topo, conf, true); err == nil {
				err = d.apply(ctx, rest...)
			}
		}
	}
	if err != nil && !passing(err) { // one that is lost gets everything when it is back
		d.c.post(func() { d.c.events.add("switch.not-rerouted", d.sw.Name, "", err.Error()) })
	}
}
