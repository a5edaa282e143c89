package sim

import (
	"slices"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/core"
)

// What clients need and is taken from them while their requests are on their way, so that of two
// copies of one request the first is executed and the second refused, or the other way round:
// rights, sessions, keys. As with switches that leave, these faults have dice of their own.

// takes has such things taken away from time to time, in some runs.
func (w *world) takes(p *schedule, seed uint64, end time.Duration) {
	d := newDice(seed, diceTaken)
	var kinds []func(dice)
	for _, kind := range []func(dice){w.takeRights, w.takeSession, w.takeKey} {
		if d.chance(0.15) {
			kinds = append(kinds, kind)
		}
	}
	if len(kinds) == 0 {
		return
	}
	w.moving = true // clients look their keys up
	w.fromTimeToTime(d, 3*p.every, end, func() { pick(d, kinds...)(d) })
	var ensure func()
	ensure = func() {
		if w.loop.now >= w.goneUntil || w.mended {
			names := slices.Clone(w.keys)
			d.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
			w.addLost(names)
		}
		w.loop.after(5*time.Millisecond, ensure)
	}
	ensure()
}

// takeRights takes all or some of what clients may do with their keys, at one switch after the
// other, and gives it back.
func (w *world) takeRights(d dice) {
	w.cover.add("fault.rights taken", 1)
	read, length := d.chance(0.5), d.between(time.Millisecond, 20*time.Millisecond)
	w.trace("operator", "clients may not write for %v, and read: %v", length, read)
	for _, n := range w.nodes {
		from := d.between(0, 2*time.Millisecond)
		w.loop.after(from, func() {
			if !w.mended {
				w.grantAt(n, read, false)
			}
		})
		w.loop.after(from+length, func() { w.grantAt(n, true, true) })
	}
}

// grant says what clients may do with their keys, at all switches.
func (w *world) grant(read, write bool) {
	for _, n := range w.nodes {
		w.grantAt(n, read, write)
	}
}

func (w *world) grantAt(n *node, read, write bool) {
	if n.alive && n.loaded {
		n.set(w.program.encode(w.shape.layout.Grant("clients", "default", read, write)))
	}
}

// takeSession takes a session from a client that does not know of it, as a controller without
// memory does, and gives it another after a while.
func (w *world) takeSession(d dice) {
	c := pick(d, w.clients...)
	if !c.alive || c.left == 0 || len(c.sessions) == 0 || w.lastSession+2 >= maxSessions {
		return
	}
	w.cover.add("fault.session taken", 1)
	w.takeFrom(c)
	w.loop.after(d.between(100*time.Microsecond, 10*time.Millisecond), func() { w.giveTo(c) })
}

func (w *world) takeFrom(c *client) {
	id := c.sessions[0]
	c.sessions = c.sessions[1:]
	w.trace("operator", "takes session %d from %s", id, c.name)
	w.leaveSession(id)
	c.robbed = true
	c.m.AwaitSessions(w.loop.now, true)
}

func (w *world) giveTo(c *client) {
	if !c.alive || w.lastSession+2 >= maxSessions {
		return
	}
	w.lastSession++
	w.leaseTo(w.lastSession, c.h)
	c.sessions = append(c.sessions, w.lastSession)
	must(c.m.AddSession(w.loop.now, core.Session{ID: w.lastSession, NextRequest: 1}))
	c.flush()
}

// takeKey takes a key out of the network. It is placed again, under another KEY_ID, when it is
// gone. Or all keys are taken out, another controller comes, and it places them again, where others
// of them may have been.
func (w *world) takeKey(d dice) {
	if !w.serving() {
		return
	}
	s := w.controller()
	if !d.chance(0.3) {
		s.takeOut(pick(d, w.keys...))
		return
	}
	w.cover.add("fault.all keys removed", 1)
	length := d.between(10*time.Millisecond, 60*time.Millisecond)
	w.goneUntil = w.loop.now + length
	for _, name := range w.keys {
		s.takeOut(name)
	}
	w.loop.after(length/2, func() {
		if !w.mended && w.controller() == s && s.alive {
			s.kill()
			w.startController()
		}
	})
}

// addLost places those keys that are not in the network, under KEY_IDs that have not been used.
func (w *world) addLost(names []wire.Key) {
	if s := w.controller(); !w.emptied && w.serving() && s.m != nil && s.now() >= 2*leading {
		for _, name := range names {
			s.place(name)
		}
	}
}
