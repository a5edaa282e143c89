package sim

import (
	"context"
	"slices"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/controller/plan"
	"github.com/netcraq/netcraq/controlplane/keyspace"
)

// This file is what a failover and a recovery ask for, as far as it is not package ops's.

// redrive re-propagates what is dirty.
func (s *shell) redrive(a chain.Redrive) {
	r := &s.w.removed
	skip := !a.Drain && (r.redrive || r.redriveStuck && a.Stuck || r.redriveAlone && len(a.From) == 1)
	if r.redriveAll {
		a.From = a.From[:1]
	}
	s.redriving = a.Epoch
	keys, sent := ops.Reachable(s.dir.Chain(chainID)), 0
	s.start(func(ctx context.Context) (err error) {
		if !skip {
			sent, err = s.ops.Redrive(ctx, a, keys)
		}
		return err
	}, func(err error) {
		s.w.cover.add("controller.redriven", sent)
		s.m.Redriven(s.now(), a.Epoch, err)
		s.flush()
	})
}

// recover is an operator's asking for a switch to be brought in.
func (s *shell) recover(sw string) chain.OpID {
	delete(s.w.leftOut, sw)
	return s.bringIn(sw, func(op chain.OpID) { s.lastSaid = op })
}

// bringIn asks the machine to bring a switch in, by an operation that is named before; 0: not now.
func (s *shell) bringIn(sw string, named func(chain.OpID)) chain.OpID {
	moving := func(k keyspace.Key) bool { return k.State == keyspace.Moving }
	if len(s.tidying) > 0 || slices.ContainsFunc(s.dir.Chain(chainID), moving) {
		return 0
	}
	s.lastOp++
	op := s.lastOp
	named(op)
	s.m.Recover(s.now(), op, sw)
	s.flush()
	return op
}

// erase loads the program anew, which empties everything.
func (s *shell) erase(a chain.Erase) {
	d := s.device(a.Switch)
	n := d.n
	d.emptying = true
	d.submit(func(done func()) {
		d.each([]step{
			{loads, "program", n.load},
			{writes, "base", n.setBase},
		}, func(err error) {
			d.emptying = false
			if err != nil {
				s.m.EraseFailed(s.now(), a.Seq, err)
			} else {
				d.keyIndex, d.part = n.keyIndex, n.assignment
				s.untidy[a.Switch] = true
				s.m.SwitchUp(s.now(), a.Switch, chain.Report{Fresh: true})
			}
			s.flush()
			done()
		})
	})
}

// load is the program being loaded: nothing is in the switch then. The clock goes on.
func (n *node) load() {
	n.count()
	n.wipe()
	n.loaded = true
}

// wipe empties a switch.
func (n *node) wipe() {
	entries := slices.Clone(n.entries)
	n.clear()
	n.data = false
	if n.w.removed.emptyHasNoRole && n.starts > 0 { // its registers alone
		n.watched = plan.WatchPart{}
		for _, e := range entries {
			n.set(e)
		}
		return
	}
	n.forgetTables()
}

// forgetTables is that a controller reads nothing back.
func (n *node) forgetTables() {
	n.assignment, n.keyIndex, n.watched = nil, map[wire.Key]ops.Entry{}, plan.WatchPart{}
}

// copy fills a switch, or compares it.
func (s *shell) copy(a chain.Copy) {
	r := &s.w.removed
	keys, records := ops.Reachable(s.dir.Chain(chainID)), s.w.sessions()
	if r.copySessions {
		records = nil
	}
	if r.dropsMoving {
		keys = slices.DeleteFunc(keys, func(k keyspace.Key) bool { return k.Alias != 0 })
	}
	s.copying = s.start(func(ctx context.Context) error {
		if (a.Compare || a.Passed) && r.comparison {
			return nil
		}
		if members := s.status.Config.Members; a.Passed && r.fillsFromBefore {
			a.Donor = members[len(members)-2]
		}
		_, _, err := s.copies.Copy(ctx, a, keys, records)
		return err
	}, func(err error) {
		if err == nil {
			what := "controller.copied"
			switch {
			case a.Compare:
				what = "controller.compared"
			case a.Passed:
				what = "controller.caught up"
			}
			s.w.cover.add(what, 1)
		}
		s.m.Copied(s.now(), a.Seq, err)
		s.flush()
	})
}

// driveFrozen re-propagates what is dirty at the members of a frozen chain, again and again: what a
// controller must not do, and what the members of a frozen chain must not take.
func (w *world) driveFrozen() {
	w.loop.after(300*time.Microsecond, w.driveFrozen)
	s := w.controller()
	if !s.alive || s.deposed || !s.status.Decided || s.status.Config.Freeze != chain.FreezeAll {
		return
	}
	a := chain.Redrive{Epoch: s.status.Config.Epoch, Via: s.status.Config.Members[0]}
	for _, m := range s.status.Config.Members {
		if s.device(m).ready {
			a.From = append(a.From, m)
		}
	}
	if len(a.From) == 0 {
		return
	}
	keys := ops.Reachable(s.dir.Chain(chainID))
	s.start(func(ctx context.Context) error {
		ctx, cancel := coroutines{s, false}.WithTimeout(ctx, 5*time.Millisecond)
		defer cancel()
		_, err := s.ops.Redrive(ctx, a, keys)
		return err
	}, func(error) {})
}
