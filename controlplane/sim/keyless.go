package sim

import (
	"slices"
	"time"

	"github.com/netcraq/netcraq/controlplane/chain"
)

// Chains that change while they have no keys: operators take all keys out, have members go and
// come, in any order, and place keys again. A switch that has been away keeps what its registers
// held, and the next key to get a slot is another. As with machines that are suspended, this has
// dice of its own.

// keyless has that happen from time to time, in some runs. (Where hostile hosts are, they have a
// key of their own, which stays.)
func (w *world) keyless(p *schedule, seed uint64, end time.Duration) {
	d := newDice(seed, diceKeyless)
	if !groups[groupKeyless] || !d.chance(0.4) || w.attacked {
		return
	}
	w.moving = true // clients look their keys up
	w.fromTimeToTime(d, max(4*p.every, 40*time.Millisecond), end, func() {
		if !w.emptied {
			w.takeAll(d, w.loop.now+100*time.Millisecond)
		}
	})
}

// takeAll takes all keys out, has the chain change, and places the keys again. Often somebody
// leaves the chain first, so that its registers hold what the keys had.
func (w *world) takeAll(d dice, until time.Duration) {
	w.emptied = true
	if n := pick(d, w.nodes...); w.serving() && d.chance(0.7) && w.spare(n) {
		s := w.controller()
		members := slices.DeleteFunc(slices.Clone(s.status.Config.Members), func(m string) bool { return m == n.name })
		if len(members) > 0 && len(members) < len(s.status.Config.Members) {
			w.trace("operator", "%s leaves before the keys do", n.name)
			w.cover.add("fault.left before the keys", 1)
			s.propose(chain.Change{Members: members})
		}
	}
	var wait, change func()
	over := func() {
		w.emptied = false
		w.placeAll(d)
	}
	wait = func() {
		if w.mended || w.loop.now >= until {
			over()
			return
		}
		if len(w.store.dir.Keys) == 0 && w.serving() {
			w.cover.add("fault.chain without keys", 1)
			until = w.loop.now + d.between(5*time.Millisecond, 60*time.Millisecond)
			change()
			return
		}
		if w.serving() {
			for _, k := range w.keys {
				w.controller().takeOut(k)
			}
		}
		w.loop.after(2*time.Millisecond, wait)
	}
	change = func() {
		if w.mended || w.loop.now >= until {
			over()
			return
		}
		if w.serving() {
			w.reshape(d)
		}
		w.loop.after(d.between(time.Millisecond, 5*time.Millisecond), change)
	}
	wait()
}

// reshape changes who is a member of a chain without keys.
func (w *world) reshape(d dice) {
	s := w.controller()
	var there []string
	for _, m := range w.members {
		if s.device(m).ready && !s.left[m] {
			there = append(there, m)
		}
	}
	if len(there) == 0 {
		return
	}
	d.Shuffle(len(there), func(i, j int) { there[i], there[j] = there[j], there[i] })
	there = there[:1+d.IntN(len(there))]
	for _, m := range there {
		if !s.status.Config.IsMember(m) && d.chance(0.5) {
			w.trace("operator", "%s: %s, in a chain without keys", recoverMember, m)
			s.recover(m)
			return
		}
	}
	w.trace("operator", "members: %v, of a chain without keys", there)
	w.cover.add("fault.members of a chain without keys", 1)
	s.propose(chain.Change{Members: there})
}

// placeAll places all keys that are not there, in any order, again and again: one may be on its way
// out.
func (w *world) placeAll(d dice) {
	w.order = d.Perm(len(w.keys))
	if w.placesAll {
		return
	}
	w.placesAll = true
	var again func()
	again = func() {
		for _, i := range w.order {
			s := w.controller()
			if !w.emptied && !w.placed(w.keys[i]) && w.serving() && s.now() >= 2*leading {
				s.place(w.keys[i])
			}
		}
		w.loop.after(2*time.Millisecond, again)
	}
	again()
}
