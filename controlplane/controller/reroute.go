package controller

import (
	"context"
	"sync"
	"time"

	"github.com/netcraq/netcraq/controlplane/p4rt"
)

// A switch that the controller has lost may have stopped, and then packets that are routed through
// it are lost. So routes and acknowledgement trees bypass it where another path exists. If the
// switch is in fact running, this does no harm, because packets only take another path. The avoided
// switches are on record, so that a controller that starts does not route packets through dead
// switches again.

// avoidAfter is how long a switch may be out of reach before routes bypass it. A chain cannot be
// shortened sooner, because the lease has to run out.
const avoidAfter = 50 * time.Millisecond

// avoidAtStart is how long a switch may take to be set up when the controller starts or the switch
// joins, if that has not begun. A switch that died together with the controller's predecessor is
// not on record as avoided.
const avoidAtStart = 5 * time.Second

// avoidLater makes routes bypass a switch unless it is set up within a time.
func (c *Controller) avoidLater(d *device, after time.Duration) {
	time.AfterFunc(after, func() {
		c.post(func() {
			if d.ready || c.deposed != "" || c.avoided[d.Spec.Name] || !c.isCurrent(d) {
				return
			}
			if after == avoidAtStart && d.state.Phase == p4rt.Primary && d.lastError == "" {
				c.avoidLater(d, after) // it is being set up, or waits for its turn
				return
			}
			c.avoided[d.Spec.Name] = true
			c.rerouteSoon("switch.avoided", d, "it is out of reach: routes go around it where they can")
		})
	})
}

// rerouteSoon is reroute, once for all switches of which the controller hears together.
func (c *Controller) rerouteSoon(kind string, about *device, why string) {
	c.events.Add(kind, about.Spec.Name, "", why)
	c.rerouting = true
}

// rerouteNow does what rerouteSoon was asked for.
func (c *Controller) rerouteNow() {
	if !c.rerouting {
		return
	}
	c.rerouting = false
	c.net().plan.Avoid(c.avoided)
	c.save(nil)
	for _, d := range c.net().devices {
		d.RefreshLater()
	}
}

// reroute updates everything that depends on routes, at all switches, before jobs that are
// submitted later.
func (c *Controller) reroute(kind string, about *device, why string) {
	c.net().plan.Avoid(c.avoided)
	c.events.Add(kind, about.Spec.Name, "", why)
	c.save(nil)
	for _, d := range c.net().devices {
		d.RefreshSoon() // if the switch is not ready, the refresh follows its present setup step
	}
}

// afterOthers calls the function then when all other switches have finished their submitted jobs,
// or after a second.
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
			other.Submit(func(context.Context) { c.post(done) })
		}
	}
	time.AfterFunc(time.Second, func() { c.post(start) })
	done()
}
