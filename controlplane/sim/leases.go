package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/netcraq/netcraq/client/core"
	"github.com/netcraq/netcraq/controlplane/sessions"
	"github.com/netcraq/netcraq/wire"
)

// Sessions that change hands: those of a client that is dead are leased to the next, at once, while what the dead one has sent is still on its way. It is the counterpart of
// sessions.go in package controller.

// inherit leases a dead client's sessions to another; it gets none where there is no controller that could see to it.
func (w *world) inherit(c *client, ids []uint16) {
	s := w.controller()
	if !w.serving() || !s.status.Installed {
		return
	}
	for _, id := range ids {
		w.leaveSession(id)
		s.beginAnew(id, func(last uint32, err error) {
			if err != nil || !c.alive {
				return
			}
			w.cover.add("controller.leased again", 1)
			w.trace(s.name, "leases session %d to %s, from request %d on", id, c.name, last+1)
			w.leaseTo(id, c.h)
			must(c.m.AddSession(w.loop.now, core.Session{ID: id, NextRequest: last + 1}))
			c.flush()
			c.work()
		})
	}
}

// leaveSession takes a session from the host that it is leased to.
func (w *world) leaveSession(id uint16) {
	for i, entries := range w.leases {
		w.leases[i] = slices.DeleteFunc(entries, func(e entry) bool {
			mine := be64(append(make([]byte, 6), e.e.Match[0].Value...)) == uint64(id)
			if mine && w.nodes[i].alive {
				w.nodes[i].unset(e)
			}
			return mine
		})
	}
}

// beginAnew makes the record of a session begin anew at all switches that some write comes to.
func (s *shell) beginAnew(id uint16, then func(last uint32, err error)) {
	deadline := s.w.loop.now + fetchTimeout
	ask := func(sw string, p *wire.Packet, reply wire.Op, then func(*wire.Packet, error)) {
		s.exchange(s.device(sw), p, deadline, func(r *wire.Packet) bool { return r.Op == reply && r.Session == id }, then)
	}
	all := func(of []string, each func(sw string, done func(error)), then func(error)) {
		left := len(of)
		var failed error
		for _, sw := range of {
			each(sw, func(err error) {
				failed = errors.Join(failed, err)
				if left--; left == 0 {
					then(failed)
				}
			})
		}
	}
	at := s.status.Config.Learners()
	var last uint32
	reset := func(of []string, then func(error)) {
		if s.w.removed.recordStays {
			s.later(0, func() { then(nil) })
			return
		}
		all(of, func(sw string, done func(error)) {
			ask(sw, &wire.Packet{Op: wire.Sync, Flags: wire.Session | wire.Newest, Session: id, Request: last, Tombstone: true}, wire.SyncReply,
				func(_ *wire.Packet, err error) { done(err) })
		}, then)
	}
	var finish func(error)
	finish = func(err error) {
		late := slices.DeleteFunc(slices.Clone(s.status.Config.Learners()), func(sw string) bool { return slices.Contains(at, sw) })
		if err == nil && !s.status.Installed { // a switch that is being left out may be head for a while
			s.later(time.Millisecond, func() { finish(nil) })
			return
		}
		if err != nil || len(late) == 0 {
			then(last, err)
			return
		}
		at = append(at, late...)
		reset(late, finish)
	}
	var records []uint32
	all(at, func(sw string, done func(error)) {
		ask(sw, &wire.Packet{Op: wire.Fetch, Flags: wire.Session, Session: id, Request: 1}, wire.FetchReply, func(r *wire.Packet, err error) {
			if err == nil {
				records = append(records, r.Request)
			}
			done(err)
		})
	}, func(err error) {
		if err != nil {
			then(0, err)
			return
		}
		last = sessions.Begin(records, s.w.dice.faults.Uint32)
		reset(at, finish)
	})
}
