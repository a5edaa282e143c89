package trouble

import (
	"slices"
	"time"

	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/sim/clockwork"
	"github.com/netcraq/netcraq/controlplane/sim/world"
)

// This file changes chains while they have no keys. Operators remove all keys, remove and add
// members in any order, and place keys again. A switch that has been out of the chain keeps the
// contents of its registers, and its slots go to other keys. These faults have a stream of random
// numbers of their own, like suspended machines.

// In some runs, Keyless removes all keys and changes the chain from time to time. (If there are
// hostile hosts, their key stays.)
func Keyless(w *world.World, p *Schedule, seed uint64, end time.Duration) {
	d := clockwork.NewDice(seed, clockwork.DiceKeyless)
	if !clockwork.Included[clockwork.GroupKeyless] || !d.Chance(0.4) || w.Attacked {
		return
	}
	w.Moving = true // this makes clients look up their keys
	fromTimeToTime(w, d, max(4*p.every, 40*time.Millisecond), end, func() {
		if !w.Emptied {
			takeAll(w, d, w.Loop.Now+100*time.Millisecond)
		}
	})
}

// takeAll removes all keys, changes the chain, and places the keys again. Often a member leaves the
// chain first, so its registers keep the contents of the keys.
func takeAll(w *world.World, d clockwork.Dice, until time.Duration) {
	w.Emptied = true
	if n := clockwork.Pick(d, w.Nodes...); w.Serving() && d.Chance(0.7) && w.Spare(n) {
		s := w.Controller()
		members := slices.DeleteFunc(slices.Clone(s.Status.Config.Members), func(m string) bool { return m == n.Name })
		if len(members) > 0 && len(members) < len(s.Status.Config.Members) {
			w.Trace("operator", "%s leaves before the keys do", n.Name)
			w.Cover.Count("fault.left before the keys", 1)
			s.Propose(chain.Change{Members: members})
		}
	}
	var wait, change func()
	over := func() {
		w.Emptied = false
		placeAll(w, d)
	}
	wait = func() {
		if w.Mended || w.Loop.Now >= until {
			over()
			return
		}
		if len(w.Store.Dir.Keys) == 0 && w.Serving() {
			w.Cover.Count("fault.chain without keys", 1)
			until = w.Loop.Now + d.Between(5*time.Millisecond, 60*time.Millisecond)
			change()
			return
		}
		if w.Serving() {
			for _, k := range w.Keys {
				w.Controller().TakeOut(k)
			}
		}
		w.Loop.After(2*time.Millisecond, wait)
	}
	change = func() {
		if w.Mended || w.Loop.Now >= until {
			over()
			return
		}
		if w.Serving() {
			reshape(w, d)
		}
		w.Loop.After(d.Between(time.Millisecond, 5*time.Millisecond), change)
	}
	wait()
}

// reshape changes the members of a chain without keys.
func reshape(w *world.World, d clockwork.Dice) {
	s := w.Controller()
	var there []string
	for _, m := range w.Members {
		if s.Device(m).Ready && !s.Left[m] {
			there = append(there, m)
		}
	}
	if len(there) == 0 {
		return
	}
	d.Shuffle(len(there), func(i, j int) { there[i], there[j] = there[j], there[i] })
	there = there[:1+d.IntN(len(there))]
	for _, m := range there {
		if !s.Status.Config.IsMember(m) && d.Chance(0.5) {
			w.Trace("operator", "%s: %s, in a chain without keys", RecoverMember, m)
			s.Recover(m)
			return
		}
	}
	w.Trace("operator", "members: %v, of a chain without keys", there)
	w.Cover.Count("fault.members of a chain without keys", 1)
	s.Propose(chain.Change{Members: there})
}

// placeAll places all missing keys, in any order. It repeats this, because a key may still be in
// removal.
func placeAll(w *world.World, d clockwork.Dice) {
	w.Order = d.Perm(len(w.Keys))
	if w.PlacesAll {
		return
	}
	w.PlacesAll = true
	var again func()
	again = func() {
		for _, i := range w.Order {
			s := w.Controller()
			if !w.Emptied && !w.Placed(w.Keys[i]) && w.Serving() && s.Clock() >= 2*world.Leading {
				s.Place(w.Keys[i])
			}
		}
		w.Loop.After(2*time.Millisecond, again)
	}
	again()
}
