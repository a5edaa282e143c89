package trouble

import (
	"slices"
	"time"

	"github.com/netcraq/netcraq/controlplane/sim/clockwork"
	"github.com/netcraq/netcraq/controlplane/sim/world"
)

// This file makes controllers slow, as on overloaded machines. They act late, and handle the
// switches' answers late. The switches have no fault. These faults have a stream of random numbers
// of their own, like suspended machines.

// In some runs, Starvations starves controllers from time to time.
func Starvations(w *world.World, p *Schedule, seed uint64, end time.Duration) {
	d := clockwork.NewDice(seed, clockwork.DiceStarve)
	if !d.Chance(0.3) {
		return
	}
	fromTimeToTime(w, d, 3*p.every, end, func() {
		Starve(w, d.Between(50*time.Millisecond, 500*time.Millisecond), world.Starvation{
			Tick: d.Between(0, w.Lease), Hears: d.Between(0, 2*w.Lease)})
	})
}

// Starve starves the newest controller for a while.
func Starve(w *world.World, length time.Duration, how world.Starvation) {
	s := w.Controller()
	// wiped reports whether a switch has lost state, perhaps unnoticed.
	wiped := func(n *world.Node) bool { return n.Bare && w.Store.Record.Config.IsMember(n.Name) }
	if s == nil || !s.Alive || slices.ContainsFunc(w.Nodes, wiped) {
		return
	}
	w.Cover.Count("fault.controller starved", 1)
	w.Trace("fault", "%s is starved: what is due it does %v late, and hears %v late", s.Name, how.Tick, how.Hears)
	how.Until = w.Loop.Now + length
	s.Starved = how
}
