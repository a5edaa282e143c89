package controller

import (
	"context"
	"sync"
	"time"
)

// A switch that the controller has lost may have stopped, and then packets that are routed through
// it are lost. So routes and acknowledgement trees bypass it where another path exists. If the
// switch is in fact running, this does no harm, because packets only take another path. The avoided
// switches are on record, so that a controller that starts does not route packets through dead
// switches again.

// avoidAfter is how long a switch may be out of reach before routes bypass it. A chain cannot be
// shortened sooner, because the lease has to run out.
const avoidAfter = 50 * time.Millisecond

// avoidAtStart is how long a switch may take to be set up, when the controller starts or the switch
// joins, before routes bypass it. Routes must bypass a switch that died together with the previous
// controller, although it is not on record as avoided.
const avoidAtStart = 5 * time.Second

// avoidLater makes routes bypass a switch unless it is set up within a time.
func (c *Controller) avoidLater(d *device, after time.Duration) {
	time.AfterFunc(after, func() {
		c.post(func() {
			if d.ready || c.deposed != "" || c.avoided[d.Spec.Name] || !c.isCurrent(d) {
				return
			}
			c.avoided[d.Spec.Name] = true
			c.reroute("switch.avoided", d, "it is out of reach: routes go around it where they can")
		})
	})
}

// reroute updates, at all switches, everything that depends on routes.
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
