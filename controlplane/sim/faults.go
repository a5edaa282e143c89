package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/netcraq/netcraq/client/core"
	"github.com/netcraq/netcraq/controlplane/chain"
)

// schedule is what chance has in store for one seed.
type schedule struct {
	shape    *shape
	keys     int
	lease    time.Duration
	duration time.Duration // of faults and of clients' work
	net      conditions
	every    time.Duration // mean time between faults
	kinds    []fault       // that happen in this run
	clients  int
	sessions int // of each
	calls    int // of all
	patience time.Duration
	auto     bool // controllers give members up by themselves
	drift    float64
	slowDisk float64
	control  time.Duration
	resend   time.Duration // of clients
}

// fault is a kind of fault, or of an operator's doing.
type fault string

const (
	killSwitch     fault = "switch killed"
	isolateSwitch  fault = "switch cut off from the controller"
	cutLinks       fault = "link cut"
	cutHost        fault = "switch cut off from its host"
	burst          fault = "burst of loss"
	killController fault = "controller killed"
	twoControllers fault = "second controller started"
	cutController  fault = "controller cut off from some switches"
	killClient     fault = "client killed"
	freeze         fault = "chain frozen"
	reorder        fault = "chain reordered"
	changeLease    fault = "lease changed"
	removeMember   fault = "member removed by hand"
	recoverMember  fault = "member recovered"
	moveKey        fault = "key moved"
)

var allFaults = []fault{killSwitch, isolateSwitch, cutLinks, cutHost, burst, killController, twoControllers,
	cutController, killClient, freeze, reorder, changeLease, removeMember, recoverMember, moveKey}

// newSchedule draws a plan. Runs differ in kind: in one nothing fails but packets, in another
// everything does.
func newSchedule(seed uint64) *schedule {
	d := newDice(seed, diceRun)
	p := &schedule{
		shape: pick(d, shapes()...), keys: 1 + d.IntN(3), lease: pick(d, 20*time.Millisecond,
			40*time.Millisecond, 80*time.Millisecond),
		duration: d.between(150*time.Millisecond, 500*time.Millisecond), clients: 2 + d.IntN(4),
		sessions: 1 + d.IntN(2), calls: 100 + d.IntN(150),
		every: d.between(15*time.Millisecond, 100*time.Millisecond), patience: d.between(5*time.Millisecond,
			60*time.Millisecond),
		drift: pick(d, 0, 0.004), slowDisk: pick(d, 0, 0.2), control: pick(d, 0, 50*time.Microsecond, time.Millisecond),
		resend: pick(d, 2*time.Millisecond, 5*time.Millisecond, 20*time.Millisecond, 50*time.Millisecond),
	}
	p.net = conditions{
		delay: 10 * time.Microsecond, spread: pick(d, 0, 10*time.Microsecond, 200*time.Microsecond),
		loss: pick(d, 0, 0.01, 0.05, 0.15), dup: pick(d, 0, 0.05, 0.2), reorder: pick(d, 0, 0.1, 0.3),
		overtaken: pick(d, time.Millisecond, 10*time.Millisecond),
		late:      pick(d, 0, 0, 0.01), lateBy: 200 * time.Millisecond,
	}
	for _, f := range allFaults {
		if d.chance(0.35) {
			p.kinds = append(p.kinds, f)
		}
	}
	p.auto = d.chance(0.5)
	if d.chance(0.25) { // turmoil: a chain that changes all the time, one key, many calls
		p.keys, p.calls, p.every, p.auto = 1, 300, d.between(3*time.Millisecond, 15*time.Millisecond), true
		p.lease, p.patience = 20*time.Millisecond, d.between(time.Millisecond, 10*time.Millisecond)
		p.net.loss = pick(d, 0.05, 0.15, 0.3)
		p.kinds = []fault{recoverMember, removeMember, isolateSwitch, pick(d, killSwitch, killController, burst,
			freeze)}
	}
	return p
}

// faults keeps causing faults until the plan's time is over.
func (w *world) faults(p *schedule, end time.Duration) {
	d := w.dice.faults
	if len(p.kinds) > 0 {
		w.fromTimeToTime(d, p.every, end, func() { w.fault(pick(d, p.kinds...), p) })
	}
}

// fromTimeToTime has something done over and over, about every so long, until the end.
func (w *world) fromTimeToTime(d dice, every, end time.Duration, do func()) {
	var next func()
	next = func() {
		if w.loop.now >= end {
			return
		}
		do()
		w.loop.after(d.about(every), next)
	}
	w.loop.after(d.about(every), next)
}

// fault causes one fault, if it is possible now, and arranges its end.
func (w *world) fault(f fault, p *schedule) {
	d := w.dice.faults
	n := pick(d, w.nodes...)
	length := d.between(time.Millisecond, 120*time.Millisecond)
	s := w.controller()
	switch f {
	case killSwitch:
		if !n.alive || !w.spare(n) {
			return
		}
		w.cover.add("fault.killed at "+w.position(n), 1)
		w.killNode(n)
		w.loop.after(length, func() { w.startNode(n) })
	case isolateSwitch:
		if !n.alive || n.isolated || !w.spare(n) {
			return
		}
		w.cover.add("fault.cut off at "+w.position(n), 1)
		w.isolate(n, d.between(5*time.Millisecond, 40*time.Millisecond))
		w.loop.after(length, func() { w.reconnect(n) })
	case cutLinks:
		l := pick(d, w.links()...)
		w.cutLink(l, true)
		w.loop.after(length, func() { w.cutLink(l, false) })
	case cutHost:
		l := w.hostLinks(n)[0]
		w.cutLink(l, true)
		w.loop.after(length, func() { w.cutLink(l, false) })
	case burst:
		w.trace("fault", "a burst of loss")
		w.network.loss = 0.6
		w.loop.after(length/8, func() {
			if !w.mended {
				w.network.loss = p.net.loss
			}
		})
	case killController:
		if !s.alive {
			return
		}
		w.atSaving(s, func() {
			s.kill()
			w.loop.after(length/2, func() {
				if !w.controller().alive {
					w.startController()
				}
			})
		})
	case twoControllers:
		if !s.alive || len(w.controllers) > 5 {
			return
		}
		if d.chance(0.3) {
			w.splitControllers(s)
			break
		}
		if d.chance(0.5) {
			w.cutController(s, length)
		}
		w.startController()
		if d.chance(0.3) {
			w.cutController(w.controller(), length)
		}
	case cutController:
		if s = pick(d, w.controllers...); !s.alive {
			return
		}
		w.cutController(s, length)
	case killClient:
		c := pick(d, w.clients...)
		if !c.alive || c.left == 0 || int(w.lastSession)+p.sessions >= maxSessions {
			return
		}
		left := c.left
		c.kill()
		w.loop.after(length/8, func() {
			if next := w.newWorker(p, left); d.chance(0.5) {
				w.inherit(next, c.sessions)
			}
		})
	default:
		w.operate(f, n, length)
		return
	}
	w.cover.add("fault."+string(f), 1)
}

// atSaving does something to a controller: where the power is cut in this run, when a record is
// being saved, if one is before long.
func (w *world) atSaving(s *shell, do func()) {
	until := w.loop.now + 50*time.Millisecond
	var look func()
	look = func() {
		switch {
		case !s.alive || w.mended:
		case w.powerCuts == 0 || s.before != nil || w.store.renamed != nil || w.loop.now >= until:
			do()
		default:
			w.loop.after(100*time.Microsecond, look)
		}
	}
	look()
}

// cutController cuts a controller off from some switches, which others reach.
func (w *world) cutController(s *shell, length time.Duration) {
	d := w.dice.faults
	for _, dev := range s.devices {
		// Those who would be left must be enough for another.
		if dev.cut || d.chance(0.5) || !w.spare(dev.n) {
			continue
		}
		w.trace("fault", "%s cannot reach %s", s.name, dev.n.name)
		dev.cut = true
		dev.unreachable(d.between(5*time.Millisecond, 40*time.Millisecond))
		w.loop.after(length, func() { w.rejoin(dev) })
	}
}

// splitControllers starts a controller that reaches some switches, while the one before it goes on
// with the others. The new one must have a good switch.
func (w *world) splitControllers(s *shell) {
	d := w.dice.faults
	var good []*node
	for _, n := range w.nodes {
		if w.good(n) {
			good = append(good, n)
		}
	}
	if len(good) == 0 || s.saving > 0 {
		return
	}
	keep := pick(d, good...)
	length := d.between(50*time.Millisecond, 250*time.Millisecond)
	next := w.startController()
	for i, n := range w.nodes {
		dev := s.devices[i]
		if n != keep && d.chance(0.5) {
			dev = next.devices[i]
		}
		if dev.cut {
			continue
		}
		w.trace("fault", "%s cannot reach %s", dev.s.name, n.name)
		dev.cut = true
		dev.unreachable(d.between(5*time.Millisecond, 40*time.Millisecond))
		w.loop.after(length, func() { w.rejoin(dev) })
	}
	w.cover.add("fault.controllers split", 1)
}

// rejoin ends that.
func (w *world) rejoin(dev *device) {
	if dev.cut {
		w.trace("fault", "%s reaches %s again", dev.s.name, dev.n.name)
		dev.cut = false
		dev.healed()
	}
}

// operate does what an operator may do.
func (w *world) operate(f fault, n *node, length time.Duration) {
	s := w.controller()
	if !w.serving() {
		return
	}
	members := slices.Clone(s.status.Config.Members)
	var c chain.Change
	switch f {
	case freeze:
		yes, no := true, false
		c.Frozen = &yes
		w.loop.after(length/4, func() {
			if s := w.controller(); s.alive && !s.deposed {
				s.propose(chain.Change{Frozen: &no})
			}
		})
	case reorder:
		w.dice.faults.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		c.Members = members
	case moveKey:
		w.cover.add("fault."+string(f), 1)
		s.move(pick(w.dice.faults, w.keys...))
		return
	case changeLease:
		lease := pick(w.dice.faults, 20*time.Millisecond, 50*time.Millisecond, 100*time.Millisecond)
		c.Lease = &lease
	case removeMember:
		if !slices.Contains(members, n.name) || !w.spare(n) {
			return
		}
		c.Members = slices.DeleteFunc(members, func(m string) bool { return m == n.name })
	case recoverMember:
		if slices.Contains(members, n.name) || n == w.worker {
			return
		}
		w.trace("operator", "%s: %s", f, n.name)
		w.cover.add("fault."+string(f), 1)
		s.recover(n.name)
		return
	default:
		panic("no such fault: " + string(f))
	}
	w.trace("operator", "%s", f)
	w.cover.add("fault."+string(f), 1)
	s.propose(c)
}

// position is a switch's place in the chain.
func (w *world) position(n *node) string {
	members := w.store.record.Config.Members
	i := slices.Index(members, n.name)
	switch {
	case i < 0:
		return "outside"
	case len(members) == 1:
		return "only member"
	case i == 0:
		return "head"
	case i == len(members)-1:
		return "tail"
	}
	return "middle"
}

// newWorker starts a client that makes calls of its own.
func (w *world) newWorker(p *schedule, calls int) *client {
	d := w.dice.clients
	c := w.newClient(fmt.Sprintf("client%d", len(w.clients)+1), pick(d, w.shape.friends()...), p.sessions,
		func(cfg *core.Config) {
			cfg.Retransmit, cfg.ReturnAfter = p.resend, 100*time.Millisecond
			tail := cfg.Addresses[1:]
			d.Shuffle(len(tail), func(i, j int) { tail[i], tail[j] = tail[j], tail[i] })
		})
	c.left, c.think = calls, p.duration*time.Duration(p.clients)/time.Duration(p.calls)/2
	for range p.sessions {
		c.work()
	}
	return c
}
