package trouble

import (
	"fmt"
	"slices"
	"time"

	"github.com/netcraq/netcraq/client/calls"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/sim/clockwork"
	"github.com/netcraq/netcraq/controlplane/sim/shapes"
	"github.com/netcraq/netcraq/controlplane/sim/world"
)

// Schedule holds a seed's random choices.
type Schedule struct {
	Shape    *shapes.Shape
	Keys     int
	Lease    time.Duration
	Duration time.Duration // how long faults happen and clients work
	Net      world.Conditions
	every    time.Duration // mean time between faults
	Kinds    []fault       // the kinds of faults in this run
	Clients  int
	sessions int // number of sessions of each client
	Calls    int // number of calls of all clients together
	Patience time.Duration
	Auto     bool // controllers remove failed members by themselves
	Drift    float64
	SlowDisk float64
	Control  time.Duration
	resend   time.Duration // interval of clients' retransmissions
}

// fault is a kind of fault, or an action of an operator.
type fault string

const (
	killSwitch     fault = "switch killed"
	isolateSwitch  fault = "switch cut off from the controller"
	cutLinks       fault = "link cut"
	cutHost        fault = "switch cut off from its host"
	burst          fault = "burst of loss"
	killController fault = "controller killed"
	twoControllers fault = "second controller started"
	splitOff       fault = "controller cut off from some switches"
	killClient     fault = "client killed"
	freeze         fault = "chain frozen"
	reorder        fault = "chain reordered"
	changeLease    fault = "lease changed"
	removeMember   fault = "member removed by hand"
	RecoverMember  fault = "member recovered"
	MoveKey        fault = "key moved"
)

// AllFaults lists the kinds of faults that a schedule draws from.
var AllFaults = []fault{killSwitch, isolateSwitch, cutLinks, cutHost, burst, killController, twoControllers,
	splitOff, killClient, freeze, reorder, changeLease, removeMember, RecoverMember, MoveKey}

// NewSchedule draws a schedule. Some runs only lose packets, and others have every kind of fault.
func NewSchedule(seed uint64) *Schedule {
	d := clockwork.NewDice(seed, clockwork.DiceRun)
	p := &Schedule{
		Shape: clockwork.Pick(d, shapes.All()...), Keys: 1 + d.IntN(3), Lease: clockwork.Pick(d, 20*time.Millisecond,
			40*time.Millisecond, 80*time.Millisecond),
		Duration: d.Between(150*time.Millisecond, 500*time.Millisecond), Clients: 2 + d.IntN(4),
		sessions: 1 + d.IntN(2), Calls: 100 + d.IntN(150),
		every: d.Between(15*time.Millisecond, 100*time.Millisecond), Patience: d.Between(5*time.Millisecond,
			60*time.Millisecond),
		Drift: clockwork.Pick(d, 0, 0.004), SlowDisk: clockwork.Pick(d, 0, 0.2),
		Control: clockwork.Pick(d, 0, 50*time.Microsecond, time.Millisecond),
		resend:  clockwork.Pick(d, 2*time.Millisecond, 5*time.Millisecond, 20*time.Millisecond, 50*time.Millisecond),
	}
	p.Net = world.Conditions{
		Delay: 10 * time.Microsecond, Spread: clockwork.Pick(d, 0, 10*time.Microsecond, 200*time.Microsecond),
		Loss: clockwork.Pick(d, 0, 0.01, 0.05, 0.15), Dup: clockwork.Pick(d, 0, 0.05, 0.2),
		Reorder:   clockwork.Pick(d, 0, 0.1, 0.3),
		Overtaken: clockwork.Pick(d, time.Millisecond, 10*time.Millisecond),
		Late:      clockwork.Pick(d, 0, 0, 0.01), LateBy: 200 * time.Millisecond,
	}
	for _, f := range AllFaults {
		if d.Chance(0.35) {
			p.Kinds = append(p.Kinds, f)
		}
	}
	p.Auto = d.Chance(0.5)
	if d.Chance(0.25) { // the chain changes all the time, and many calls use one key
		p.Keys, p.Calls, p.every, p.Auto = 1, 300, d.Between(3*time.Millisecond, 15*time.Millisecond), true
		p.Lease, p.Patience = 20*time.Millisecond, d.Between(time.Millisecond, 10*time.Millisecond)
		p.Net.Loss = clockwork.Pick(d, 0.05, 0.15, 0.3)
		p.Kinds = []fault{RecoverMember, removeMember, isolateSwitch,
			clockwork.Pick(d, killSwitch, killController, burst,
				freeze)}
	}
	return p
}

// Faults keeps causing faults until the schedule's time is over.
func Faults(w *world.World, p *Schedule, end time.Duration) {
	d := w.Dice.Faults
	if len(p.Kinds) > 0 {
		fromTimeToTime(w, d, p.every, end, func() { causeFault(w, clockwork.Pick(d, p.Kinds...), p) })
	}
}

// fromTimeToTime calls do repeatedly until the end, with a mean interval of every.
func fromTimeToTime(w *world.World, d clockwork.Dice, every, end time.Duration, do func()) {
	var next func()
	next = func() {
		if w.Loop.Now >= end {
			return
		}
		do()
		w.Loop.After(d.About(every), next)
	}
	w.Loop.After(d.About(every), next)
}

// causeFault causes one fault, if it is possible now, and arranges its end.
func causeFault(w *world.World, f fault, p *Schedule) {
	d := w.Dice.Faults
	n := clockwork.Pick(d, w.Nodes...)
	length := d.Between(time.Millisecond, 120*time.Millisecond)
	s := w.Controller()
	switch f {
	case killSwitch:
		if !n.Alive || !w.Spare(n) {
			return
		}
		w.Cover.Count("fault.killed at "+position(w, n), 1)
		w.KillNode(n)
		w.Loop.After(length, func() { w.StartNode(n) })
	case isolateSwitch:
		if !n.Alive || n.Isolated || !w.Spare(n) {
			return
		}
		w.Cover.Count("fault.cut off at "+position(w, n), 1)
		w.Isolate(n, d.Between(5*time.Millisecond, 40*time.Millisecond))
		w.Loop.After(length, func() { w.Reconnect(n) })
	case cutLinks:
		l := clockwork.Pick(d, w.Links()...)
		w.CutLink(l, true)
		w.Loop.After(length, func() { w.CutLink(l, false) })
	case cutHost:
		l := w.HostLinks(n)[0]
		w.CutLink(l, true)
		w.Loop.After(length, func() { w.CutLink(l, false) })
	case burst:
		w.Trace("fault", "a burst of loss")
		w.Network.Loss = 0.6
		w.Loop.After(length/8, func() {
			if !w.Mended {
				w.Network.Loss = p.Net.Loss
			}
		})
	case killController:
		if !s.Alive {
			return
		}
		atSaving(w, s, func() {
			s.Kill()
			w.Loop.After(length/2, func() {
				if !w.Controller().Alive {
					w.StartController()
				}
			})
		})
	case twoControllers:
		if !s.Alive || len(w.Controllers) > 5 {
			return
		}
		if d.Chance(0.3) {
			splitControllers(w, s)
			break
		}
		if d.Chance(0.5) {
			cutController(w, s, length)
		}
		w.StartController()
		if d.Chance(0.3) {
			cutController(w, w.Controller(), length)
		}
	case splitOff:
		if s = clockwork.Pick(d, w.Controllers...); !s.Alive {
			return
		}
		cutController(w, s, length)
	case killClient:
		c := clockwork.Pick(d, w.Clients...)
		if !c.Alive || c.Left == 0 || int(w.LastSession)+p.sessions >= world.MaxSessions {
			return
		}
		left := c.Left
		c.Kill()
		w.Loop.After(length/8, func() {
			if next := NewWorker(w, p, left); d.Chance(0.5) {
				w.Inherit(next, c.Sessions)
			}
		})
	default:
		operate(w, f, n, length)
		return
	}
	w.Cover.Count("fault."+string(f), 1)
}

// atSaving calls do for a controller. In runs with power cuts, it first waits for a moment when the
// controller saves a record, if such a moment comes soon.
func atSaving(w *world.World, s *world.Shell, do func()) {
	until := w.Loop.Now + 50*time.Millisecond
	var look func()
	look = func() {
		switch {
		case !s.Alive || w.Mended:
		case w.PowerCuts == 0 || s.Before != nil || w.Store.Renamed != nil || w.Loop.Now >= until:
			do()
		default:
			w.Loop.After(100*time.Microsecond, look)
		}
	}
	look()
}

// cutController cuts a controller off from some switches, which other controllers still reach.
func cutController(w *world.World, s *world.Shell, length time.Duration) {
	d := w.Dice.Faults
	for _, dev := range s.Devices {
		// The remaining switches must suffice for another controller.
		if dev.Cut || d.Chance(0.5) || !w.Spare(dev.Node) {
			continue
		}
		w.Trace("fault", "%s cannot reach %s", s.Name, dev.Node.Name)
		dev.Cut = true
		dev.Unreachable(d.Between(5*time.Millisecond, 40*time.Millisecond))
		w.Loop.After(length, func() { Rejoin(w, dev) })
	}
}

// splitControllers starts a controller that reaches some switches, while the controller before it
// continues with the others. The new controller must reach a good switch.
func splitControllers(w *world.World, s *world.Shell) {
	d := w.Dice.Faults
	var good []*world.Node
	for _, n := range w.Nodes {
		if w.Good(n) {
			good = append(good, n)
		}
	}
	if len(good) == 0 || s.Saving > 0 {
		return
	}
	keep := clockwork.Pick(d, good...)
	length := d.Between(50*time.Millisecond, 250*time.Millisecond)
	next := w.StartController()
	for i, n := range w.Nodes {
		dev := s.Devices[i]
		if n != keep && d.Chance(0.5) {
			dev = next.Devices[i]
		}
		if dev.Cut {
			continue
		}
		w.Trace("fault", "%s cannot reach %s", dev.Shell.Name, n.Name)
		dev.Cut = true
		dev.Unreachable(d.Between(5*time.Millisecond, 40*time.Millisecond))
		w.Loop.After(length, func() { Rejoin(w, dev) })
	}
	w.Cover.Count("fault.controllers split", 1)
}

// Rejoin ends a controller's separation from a switch.
func Rejoin(w *world.World, dev *world.Device) {
	if dev.Cut {
		w.Trace("fault", "%s reaches %s again", dev.Shell.Name, dev.Node.Name)
		dev.Cut = false
		dev.Healed()
	}
}

// operate performs an action of an operator.
func operate(w *world.World, f fault, n *world.Node, length time.Duration) {
	s := w.Controller()
	if !w.Serving() {
		return
	}
	members := slices.Clone(s.Status.Config.Members)
	var c chain.Change
	switch f {
	case freeze:
		yes, no := true, false
		c.Frozen = &yes
		w.Loop.After(length/4, func() {
			if s := w.Controller(); s.Alive && !s.Deposed {
				s.Propose(chain.Change{Frozen: &no})
			}
		})
	case reorder:
		w.Dice.Faults.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		c.Members = members
	case MoveKey:
		w.Cover.Count("fault."+string(f), 1)
		s.Move(clockwork.Pick(w.Dice.Faults, w.Keys...))
		return
	case changeLease:
		lease := clockwork.Pick(w.Dice.Faults, 20*time.Millisecond, 50*time.Millisecond, 100*time.Millisecond)
		c.Lease = &lease
	case removeMember:
		if !slices.Contains(members, n.Name) || !w.Spare(n) {
			return
		}
		c.Members = slices.DeleteFunc(members, func(m string) bool { return m == n.Name })
	case RecoverMember:
		if slices.Contains(members, n.Name) || n == w.Worker {
			return
		}
		w.Trace("operator", "%s: %s", f, n.Name)
		w.Cover.Count("fault."+string(f), 1)
		s.Recover(n.Name)
		return
	default:
		panic("no such fault: " + string(f))
	}
	w.Trace("operator", "%s", f)
	w.Cover.Count("fault."+string(f), 1)
	s.Propose(c)
}

// position returns a switch's place in the chain.
func position(w *world.World, n *world.Node) string {
	members := w.Store.Record.Config.Members
	i := slices.Index(members, n.Name)
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

// NewWorker starts a client that makes calls by itself.
func NewWorker(w *world.World, p *Schedule, number int) *world.Client {
	d := w.Dice.Clients
	c := w.NewClient(fmt.Sprintf("client%d", len(w.Clients)+1), clockwork.Pick(d, w.Shape.Friends()...), p.sessions,
		func(cfg *calls.Config) {
			cfg.Retransmit, cfg.ReturnAfter = p.resend, 100*time.Millisecond
			tail := cfg.Addresses[1:]
			d.Shuffle(len(tail), func(i, j int) { tail[i], tail[j] = tail[j], tail[i] })
		})
	c.Left, c.Think = number, p.Duration*time.Duration(p.Clients)/time.Duration(p.Calls)/2
	for range p.sessions {
		c.Work()
	}
	return c
}
