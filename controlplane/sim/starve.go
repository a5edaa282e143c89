package sim

import (
	"slices"
	"time"
)

// Controllers that are starved: their machine has too much to do, so they do late what is due, and
// take in late what switches have answered. Nothing is wrong with the switches. As with machines
// that are suspended, this has dice of its own.

// starvations has controllers starved from time to time, in some runs.
func (w *world) starvations(p *schedule, seed uint64, end time.Duration) {
	d := newDice(seed, diceStarve)
	if !d.chance(0.3) {
		return
	}
	w.fromTimeToTime(d, 3*p.every, end, func() {
		w.starve(d.between(50*time.Millisecond, 500*time.Millisecond), starvation{
			tick: d.between(0, w.lease), hears: d.between(0, 2*w.lease)})
	})
}

// starve has the newest controller starved for a while.
func (w *world) starve(length time.Duration, how starvation) {
	s := w.controller()
	wiped := func(n *node) bool { return n.bare && w.store.record.Config.IsMember(n.name) } // and not noticed, perhaps
	if s == nil || !s.alive || slices.ContainsFunc(w.nodes, wiped) {
		return
	}
	w.cover.add("fault.controller starved", 1)
	w.trace("fault", "%s is starved: what is due it does %v late, and hears %v late", s.name, how.tick, how.hears)
	how.until = w.loop.now + length
	s.starved = how
}
