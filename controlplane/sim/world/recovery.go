package world

import (
	"context"
	"slices"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/controller/tableplan"
	"github.com/netcraq/netcraq/controlplane/keyspace"
	"github.com/netcraq/netcraq/controlplane/sim/shapes"
)

// This file is the simulator's side of failover and recovery. The procedures are in package ops.

// redrive re-propagates the dirty keys.
func (s *Shell) redrive(a chain.Redrive) {
	r := &s.World.Without
	skip := !a.Drain && (r.Redrive || r.RedriveStuck && a.Stuck || r.RedriveAlone && len(a.From) == 1)
	if r.RedriveAll {
		a.From = a.From[:1]
	}
	s.redriving = a.Epoch
	keys, sent := ops.Reachable(s.dir.Chain(shapes.ChainID)), 0
	s.process.Start(func(ctx context.Context) (err error) {
		if !skip {
			sent, err = s.ops.Redrive(ctx, a, keys)
		}
		return err
	}, func(err error) {
		s.World.Cover.Count("controller.redriven", sent)
		s.Machine.Redriven(s.Clock(), a.Epoch, err)
		s.Flush()
	})
}

// Recover requests, as an operator, that a switch is brought in.
func (s *Shell) Recover(sw string) chain.OpID {
	delete(s.World.leftOut, sw)
	return s.bringIn(sw, func(op chain.OpID) { s.lastSaid = op })
}

// bringIn asks the machine to bring a switch in. It first passes the operation's id to named. It
// returns 0 if the switch cannot be brought in at present.
func (s *Shell) bringIn(sw string, named func(chain.OpID)) chain.OpID {
	moving := func(k keyspace.Key) bool { return k.State == keyspace.Moving }
	if len(s.tidying) > 0 || slices.ContainsFunc(s.dir.Chain(shapes.ChainID), moving) {
		return 0
	}
	s.lastOp++
	op := s.lastOp
	named(op)
	s.Machine.Recover(s.Clock(), op, sw)
	s.Flush()
	return op
}

// erase loads the program again, which empties the switch.
func (s *Shell) erase(a chain.Erase) {
	d := s.Device(a.Switch)
	n := d.Node
	d.emptying = true
	d.submit(func(done func()) {
		d.each([]step{
			{Loads, "program", n.load},
			{Writes, "base", n.setBase},
		}, func(err error) {
			d.emptying = false
			if err != nil {
				s.Machine.EraseFailed(s.Clock(), a.Seq, err)
			} else {
				d.keyIndex, d.part = n.KeyIndex, n.Assignment
				s.untidy[a.Switch] = true
				s.Machine.SwitchUp(s.Clock(), a.Switch, chain.Report{Fresh: true})
			}
			s.Flush()
			done()
		})
	})
}

// load has the effect of loading the program. It empties the switch, but the clock continues.
func (n *Node) load() {
	n.Count()
	n.wipe()
	n.Loaded = true
}

// wipe empties the switch.
func (n *Node) wipe() {
	entries := slices.Clone(n.Entries)
	n.clear()
	n.Data = false
	if n.w.Without.EmptyHasNoRole && n.Starts > 0 { // this mutant empties only registers
		n.watched = tableplan.WatchPart{}
		for _, e := range entries {
			n.Set(e)
		}
		return
	}
	n.ForgetTables()
}

// ForgetTables clears the state that a controller reads back from the switch.
func (n *Node) ForgetTables() {
	n.Assignment, n.KeyIndex, n.watched = nil, map[wire.Key]ops.Entry{}, tableplan.WatchPart{}
}

// copy fills a switch, or compares a switch with another.
func (s *Shell) copy(a chain.Copy) {
	r := &s.World.Without
	keys, records := ops.Reachable(s.dir.Chain(shapes.ChainID)), s.World.Sessions()
	if r.CopySessions {
		records = nil
	}
	if r.DropsMoving {
		keys = slices.DeleteFunc(keys, func(k keyspace.Key) bool { return k.Alias != 0 })
	}
	s.copying = s.process.Start(func(ctx context.Context) error {
		if (a.Compare || a.Passed) && r.Comparison {
			return nil
		}
		if members := s.Status.Config.Members; a.Passed && r.FillsFromBefore {
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
			s.World.Cover.Count(what, 1)
		}
		s.Machine.Copied(s.Clock(), a.Seq, err)
		s.Flush()
	})
}

// DriveFrozen re-propagates dirty keys at the members of a frozen chain, again and again. A
// controller must not do this, and members of a frozen chain must reject it.
func (w *World) DriveFrozen() {
	w.Loop.After(300*time.Microsecond, w.DriveFrozen)
	s := w.Controller()
	if !s.Alive || s.Deposed || !s.Status.Decided || s.Status.Config.Freeze != chain.FreezeAll {
		return
	}
	a := chain.Redrive{Epoch: s.Status.Config.Epoch, Via: s.Status.Config.Members[0]}
	for _, m := range s.Status.Config.Members {
		if s.Device(m).Ready {
			a.From = append(a.From, m)
		}
	}
	if len(a.From) == 0 {
		return
	}
	keys := ops.Reachable(s.dir.Chain(shapes.ChainID))
	s.process.Start(func(ctx context.Context) error {
		ctx, cancel := s.runtime(false).WithTimeout(ctx, 5*time.Millisecond)
		defer cancel()
		_, err := s.ops.Redrive(ctx, a, keys)
		return err
	}, func(error) {})
}
