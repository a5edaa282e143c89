package controller

import (
	"context"
	"sync"
	"time"
)

// A switch that the controller has lost may have stopped, and then what is sent to others by way of
// it is lost. So routes and acknowledgement trees go around it, where there is a way around. That
// it may be running all the same does no harm: they go another way, that is all. Which switches are
// avoided is on record, so that a controller that starts does not send packets to the dead again.

// avoidAfter is how long a switch may be out of reach before routes go around it. A chain cannot be
// shortened sooner, because the lease has to run out.
const avoidAfter = 50 * time.Millisecond

// avoidAtStart is the time that a switch has to be set up when the controller starts or the switch
// joins. A switch that died together with the controller's predecessor is not on record as avoided.
const avoidAtStart = 5 * time.Second

// avoidLater has a switch avoided unless it is set up after a time.
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

// reroute brings what follows from the ways through the network to all switches.
func (c *Controller) reroute(kind string, about *device, why string) {
	c.net().plan.Avoid(c.avoided)
	c.events.Add(kind, about.Spec.Name, "", why)
	c.save(nil)
	for _, d := range c.net().devices {
		d.RefreshSoon() // after its present setup step, if it is not ready
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
			other.Submit(func(context.Context) { c.post(done) })
		}
	}
	time.AfterFunc(time.Second, func() { c.post(start) })
	done()
}
