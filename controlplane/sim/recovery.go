package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/keyspace"
	"github.com/netcraq/netcraq/wire"
)

// This file carries out what a failover and a recovery ask for: driving down again, emptying a switch, and copying. It is the counterpart of redrive.go and
// recover.go in package controller.

// redrive sends down again what is dirty at any of some switches, with Drain until all members hold the same.
func (s *shell) redrive(a chain.Redrive) {
	report := func(err error) { s.m.Redriven(s.now(), a.Epoch, err); s.flush() }
	r := &s.w.removed
	if !a.Drain && (r.redrive || r.redriveStuck && a.Stuck || r.redriveAlone && len(a.From) == 1) {
		s.later(0, func() { report(nil) })
		return
	}
	if r.redriveAll {
		a.From = a.From[:1]
	}
	keys := s.reachable()
	var failed error
	left := len(keys) * len(a.From)
	if left == 0 {
		s.later(0, func() { report(nil) })
		return
	}
	finish := func(err error) {
		failed = errors.Join(failed, err)
		if left--; left > 0 {
			return
		}
		if failed != nil || !a.Drain {
			report(failed)
			return
		}
		s.drained(ids(keys), s.status.Config.Members, a.Epoch, s.w.loop.now+writeTimeout, report)
	}
	for _, sw := range a.From {
		for _, k := range keys {
			s.redriveKey(a, s.device(sw), k.ID, finish)
		}
	}
}

// redriveKey sends a key's newest version down again until it is clean at a switch, or a newer one is on its way there.
func (s *shell) redriveKey(a chain.Redrive, from *device, key wire.Key, finish func(error)) {
	via := s.device(a.Via)
	deadline := s.w.loop.now + writeTimeout
	pause := 2 * time.Millisecond
	var version wire.Version
	looks := 0
	var try func()
	try = func() {
		s.fetch(from, key, wire.Newest, deadline, func(r *wire.Packet, err error) {
			looks++
			switch {
			case err != nil:
				finish(err)
			case r.Status != wire.Dirty || looks > 1 && r.Version != version:
				finish(nil)
			case r.Epoch != a.Epoch && !s.w.removed.redriveEpoch:
				finish(fmt.Errorf("%s: %w", from.n.name, errEpoch))
			case s.w.loop.now > deadline:
				finish(errTimeout)
			case looks == 1 && a.Stuck:
				version = r.Version
				s.later(chain.StuckFor, try)
			default:
				version = r.Version
				s.w.cover.add("controller.redriven", 1)
				if s.w.removed.redriveSession {
					r.Session, r.Request = 0, 0
				}
				if s.w.removed.redriveEpoch {
					r.Epoch = s.status.Config.Epoch
				}
				via.packetOut(s.frame(via, leasePort, &wire.Packet{Op: wire.Write, Flags: wire.Stamped | wire.NoReply, Epoch: r.Epoch,
					Session: r.Session, Request: r.Request, Key: key, Version: r.Version, Value: r.Value, Tombstone: r.Tombstone}))
				s.later(pause, try)
				pause = min(2*pause, 200*time.Millisecond)
			}
		})
	}
	try()
}

var errEpoch = errors.New("it has another epoch")

// recover asks the machine to bring a switch in.
func (s *shell) recover(sw string) chain.OpID {
	if slices.ContainsFunc(s.dir.Chain(chainID), func(k keyspace.Key) bool { return k.State == keyspace.Moving }) {
		return 0
	}
	s.lastOp++
	s.m.Recover(s.now(), s.lastOp, sw)
	s.flush()
	return s.lastOp
}

// erase loads the program anew, which empties everything.
func (s *shell) erase(a chain.Erase) {
	d := s.device(a.Switch)
	n := d.n
	d.submit(func(done func()) {
		d.each([]func(){
			n.erase,
			func() {
				for _, e := range slices.Concat(s.w.leases[n.index], s.w.base[n.index]) {
					n.set(e)
				}
			},
		}, func(err error) {
			if err != nil {
				s.m.EraseFailed(s.now(), a.Seq, err)
			} else {
				s.m.SwitchUp(s.now(), a.Switch, chain.Report{Fresh: true})
			}
			s.flush()
			done()
		})
	})
}

// erase is the program being loaded anew: nothing is in the switch. The clock goes on.
func (n *node) erase() {
	n.count()
	n.wipe()
}

// wipe empties a switch.
func (n *node) wipe() {
	entries := slices.Clone(n.entries)
	n.clear()
	n.data = false
	if n.w.removed.emptyHasNoRole && n.starts > 0 { // its registers alone
		for _, e := range entries {
			n.set(e)
		}
		return
	}
	n.assignment, n.slots = nil, map[wire.Key]int{}
}

// copy fills a switch, or compares it.
func (s *shell) copy(a chain.Copy) {
	report := func(err error) {
		if err == nil {
			s.w.cover.add(map[bool]string{true: "controller.compared", false: "controller.copied"}[a.Compare], 1)
		}
		s.m.Copied(s.now(), a.Seq, err)
		s.flush()
	}
	to := s.device(a.To)
	if a.Compare && s.w.removed.comparison {
		s.later(0, func() { report(nil) })
		return
	}
	if a.Compare {
		s.copyAll(a, s.w.loop.now+writeTimeout, report)
		return
	}
	keys := s.reachable()
	to.submit(func(done func()) {
		to.call(func() {
			for _, k := range keys {
				to.n.place(k, true)
			}
		}, func(err error) {
			done()
			if err != nil {
				report(err)
				return
			}
			s.copyAll(a, s.w.loop.now+writeTimeout, report)
		})
	})
}

// copyAll copies what differs, slots and sessions; with Compare until nothing does.
func (s *shell) copyAll(a chain.Copy, deadline time.Duration, then func(error)) {
	var failed error
	differs := false
	var sessions []uint16
	if !s.w.removed.copySessions {
		sessions = s.w.sessions()
	}
	keys := s.reachable()
	left := len(keys) + len(sessions)
	finish := func(same bool, err error) {
		failed = errors.Join(failed, err)
		differs = differs || !same
		if left--; left > 0 {
			return
		}
		switch {
		case failed != nil || !differs || !a.Compare:
			then(failed)
		case s.w.loop.now > deadline:
			then(errTimeout)
		default:
			s.copyAll(a, deadline, then)
		}
	}
	for _, k := range keys {
		flags := wire.Newest
		if s.w.removed.copyNewest {
			flags = 0
		}
		s.copyOne(a, &wire.Packet{Key: k.ID, Flags: flags}, deadline, finish)
	}
	for _, i := range sessions {
		s.copyOne(a, &wire.Packet{Key: wire.MakeKey(chainID, 0), Flags: wire.Session, Session: i}, deadline, finish)
	}
}

// copyOne copies one slot or session if it differs.
func (s *shell) copyOne(a chain.Copy, what *wire.Packet, deadline time.Duration, then func(same bool, err error)) {
	donor, to := s.device(a.Donor), s.device(a.To)
	get := func(d *device, then2 func(*wire.Packet)) {
		p := *what
		p.Op, p.Request = wire.Fetch, 1
		s.exchange(d, &p, deadline, func(r *wire.Packet) bool {
			return r.Op == wire.FetchReply && (r.Session == p.Session || p.Flags != wire.Session)
		},
			func(r *wire.Packet, err error) {
				if err == nil && r.Epoch != a.Epoch {
					err = fmt.Errorf("%s: %w", d.n.name, errEpoch)
				}
				if err != nil {
					then(false, err)
					return
				}
				then2(r)
			})
	}
	get(donor, func(r *wire.Packet) {
		get(to, func(q *wire.Packet) {
			session := what.Flags == wire.Session
			if session && q.Request == r.Request && q.Version == r.Version || !session && q.Status != wire.Dirty && q.Version == r.Version {
				then(true, nil)
				return
			}
			p := &wire.Packet{Op: wire.Sync, Key: what.Key, Flags: what.Flags & wire.Session, Session: r.Session, Request: r.Request, Version: r.Version,
				Value: r.Value, Tombstone: r.Tombstone}
			s.exchange(to, p, deadline, func(r *wire.Packet) bool { return r.Op == wire.SyncReply },
				func(_ *wire.Packet, err error) { then(false, err) })
		})
	})
}

// driveFrozen drives down what is dirty at the members of a frozen chain, again and again: what a controller must not do, and what the members of a frozen chain
// must not take.
func (w *world) driveFrozen() {
	w.loop.after(300*time.Microsecond, w.driveFrozen)
	s := w.controller()
	if !s.alive || s.deposed || !s.status.Decided || s.status.Config.Freeze != chain.FreezeAll {
		return
	}
	for _, m := range s.status.Config.Members {
		if !s.device(m).ready {
			continue
		}
		for _, k := range s.reachable() {
			s.redriveKey(chain.Redrive{Epoch: s.status.Config.Epoch, Via: s.status.Config.Members[0]}, s.device(m), k.ID, func(error) {})
		}
	}
}

// recoveries brings switches in that are there and are no members, soon after they have come back.
func (w *world) recoveries() {
	d := w.dice.faults
	w.loop.after(d.between(2*time.Millisecond, 30*time.Millisecond), w.recoveries)
	if w.mended || !w.serving() || w.controller().status.Config.Freeze != chain.Thawed {
		return
	}
	s := w.controller()
	var candidates []string
	for _, m := range w.members {
		if !s.status.Config.IsMember(m) && s.device(m).ready {
			candidates = append(candidates, m)
		}
	}
	if len(candidates) > 0 {
		sw := pick(d, candidates...)
		w.trace("operator", "%s: %s", recoverMember, sw)
		w.cover.add("fault."+string(recoverMember), 1)
		s.recover(sw)
	}
}
