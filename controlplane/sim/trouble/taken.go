package trouble

import (
	"slices"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/calls"
	"github.com/netcraq/netcraq/controlplane/sim/clockwork"
	"github.com/netcraq/netcraq/controlplane/sim/world"
)

// This file takes rights, sessions or keys from clients while their requests are in flight. A
// switch may then execute the first copy of a request and refuse the second copy, or the other way
// round. These faults have a stream of random numbers of their own, like switches that leave.

// In some runs, Takes takes rights, sessions or keys from clients from time to time.
func Takes(w *world.World, p *Schedule, seed uint64, end time.Duration) {
	d := clockwork.NewDice(seed, clockwork.DiceTaken)
	var kinds []func(*world.World, clockwork.Dice)
	for _, kind := range []func(*world.World, clockwork.Dice){takeRights, takeSession, takeKey} {
		if d.Chance(0.15) {
			kinds = append(kinds, kind)
		}
	}
	if len(kinds) == 0 {
		return
	}
	w.Moving = true // this makes clients look up their keys
	fromTimeToTime(w, d, 3*p.every, end, func() { clockwork.Pick(d, kinds...)(w, d) })
	var ensure func()
	ensure = func() {
		if w.Loop.Now >= w.GoneUntil || w.Mended {
			names := slices.Clone(w.Keys)
			d.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
			addLost(w, names)
		}
		w.Loop.After(5*time.Millisecond, ensure)
	}
	ensure()
}

// takeRights revokes all or some of the clients' rights to their keys, at one switch after the
// other, and restores them later.
func takeRights(w *world.World, d clockwork.Dice) {
	w.Cover.Count("fault.rights taken", 1)
	read, length := d.Chance(0.5), d.Between(time.Millisecond, 20*time.Millisecond)
	w.Trace("operator", "clients may not write for %v, and read: %v", length, read)
	for _, n := range w.Nodes {
		from := d.Between(0, 2*time.Millisecond)
		w.Loop.After(from, func() {
			if !w.Mended {
				grantAt(w, n, read, false)
			}
		})
		w.Loop.After(from+length, func() { grantAt(w, n, true, true) })
	}
}

// Grant sets the clients' rights to keys, at all switches.
func Grant(w *world.World, read, write bool) {
	for _, n := range w.Nodes {
		grantAt(w, n, read, write)
	}
}

func grantAt(w *world.World, n *world.Node, read, write bool) {
	if n.Alive && n.Loaded {
		n.Set(w.Program.Encode(w.Shape.Layout.Grant("clients", "default", read, write)))
	}
}

// takeSession takes a session from a client without telling it, as a controller without memory
// does, and gives it another session after a while.
func takeSession(w *world.World, d clockwork.Dice) {
	c := clockwork.Pick(d, w.Clients...)
	if !c.Alive || c.Left == 0 || len(c.Sessions) == 0 || w.LastSession+2 >= world.MaxSessions {
		return
	}
	w.Cover.Count("fault.session taken", 1)
	TakeFrom(w, c)
	w.Loop.After(d.Between(100*time.Microsecond, 10*time.Millisecond), func() { GiveTo(w, c) })
}

// TakeFrom takes a client's session without telling the client.
func TakeFrom(w *world.World, c *world.Client) {
	id := c.Sessions[0]
	c.Sessions = c.Sessions[1:]
	w.Trace("operator", "takes session %d from %s", id, c.Name)
	w.LeaveSession(id)
	c.Robbed = true
	c.Machine.AwaitSessions(w.Loop.Now, true)
}

// GiveTo gives a client another session in place of a session that was taken.
func GiveTo(w *world.World, c *world.Client) {
	if !c.Alive || w.LastSession+2 >= world.MaxSessions {
		return
	}
	w.LastSession++
	w.LeaseTo(w.LastSession, c.Host)
	c.Sessions = append(c.Sessions, w.LastSession)
	world.Must(c.Machine.AddSession(w.Loop.Now, calls.Session{ID: w.LastSession, NextRequest: 1}))
	c.Flush()
}

// takeKey removes a key, and places it again under another KEY_ID when the removal is done.
// Sometimes it instead removes all keys, replaces the controller, and places the keys again, often
// in slots that other keys had.
func takeKey(w *world.World, d clockwork.Dice) {
	if !w.Serving() {
		return
	}
	s := w.Controller()
	if !d.Chance(0.3) {
		s.TakeOut(clockwork.Pick(d, w.Keys...))
		return
	}
	w.Cover.Count("fault.all keys removed", 1)
	length := d.Between(10*time.Millisecond, 60*time.Millisecond)
	w.GoneUntil = w.Loop.Now + length
	for _, name := range w.Keys {
		s.TakeOut(name)
	}
	w.Loop.After(length/2, func() {
		if !w.Mended && w.Controller() == s && s.Alive {
			s.Kill()
			w.StartController()
		}
	})
}

// addLost places the missing keys, under KEY_IDs that have not been used.
func addLost(w *world.World, names []wire.Key) {
	if s := w.Controller(); !w.Emptied && w.Serving() && s.Machine != nil && s.Clock() >= 2*world.Leading {
		for _, name := range names {
			s.Place(name)
		}
	}
}
