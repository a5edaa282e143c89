package world

import (
	"context"
	"slices"
	"time"

	"github.com/netcraq/netcraq/client/calls"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/sessions"
	"github.com/netcraq/netcraq/controlplane/sim/compiled"
	"github.com/netcraq/netcraq/controlplane/sim/shapes"
)

// This file leases sessions to other clients. A dead client's sessions go to the next client at
// once, while packets of the dead client are still in flight. The file is the counterpart of
// sessions.go in package controller.

// Inherit leases a dead client's sessions to client c. If no controller is running, c gets no
// session.
func (w *World) Inherit(c *Client, ids []uint16) {
	s := w.Controller()
	if !w.Serving() || !s.Status.Fenced {
		return
	}
	for _, id := range ids {
		w.LeaveSession(id)
		s.beginAnew(id, func(last uint32, err error) {
			if err != nil || !c.Alive {
				return
			}
			w.Cover.Count("controller.leased again", 1)
			w.Trace(s.Name, "leases session %d to %s, from request %d on", id, c.Name, last+1)
			w.LeaseTo(id, c.Host)
			Must(c.Machine.AddSession(w.Loop.Now, calls.Session{ID: id, NextRequest: last + 1}))
			c.Flush()
			c.Work()
		})
	}
}

// LeaveSession takes a session from the host that holds its lease.
func (w *World) LeaveSession(id uint16) {
	delete(w.begun, id)
	for i, entries := range w.leases {
		w.leases[i] = slices.DeleteFunc(entries, func(e compiled.Entry) bool {
			mine := be64(append(make([]byte, 6), e.TableEntry.Match[0].Value...)) == uint64(id)
			if mine && w.Nodes[i].Alive {
				w.Nodes[i].Unset(e)
			}
			return mine
		})
	}
}

// beginAnew resets the record of a session at all switches that writes reach, and at the switch
// that is being brought in. A chain without keys has no writes.
func (s *Shell) beginAnew(id uint16, then func(last uint32, err error)) {
	var last uint32
	s.process.Start(func(ctx context.Context) error {
		ctx, cancel := s.ops.WithTimeout(ctx, ops.FetchTimeout)
		defer cancel()
		var records []uint32
		at := s.keepRecords()
		for _, sw := range at {
			r, err := s.Device(sw).other.Recorded(ctx, id)
			if err != nil {
				return err
			}
			records = append(records, r)
		}
		last = sessions.Begin(records, s.World.Dice.Faults.Uint32)
		if s.World.Without.RecordStays {
			return nil
		}
		s.World.begun[id] = last
		for told := map[string]bool{}; ; {
			for _, sw := range at {
				if err := s.Device(sw).other.BeginRecord(ctx, id, last); err != nil {
					return err
				}
				told[sw] = true
			}
			if j := s.Status.Config.Shadow; j != "" && len(told) > 0 && !told[j] {
				s.tellJoiner(ctx, j, id, last)
				told[j] = true
			}
			for !s.Status.Fenced { // a switch that has left the chain may still act as head for a while
				if err := s.ops.Sleep(ctx, time.Millisecond); err != nil {
					return err
				}
			}
			at = slices.DeleteFunc(s.keepRecords(), func(sw string) bool { return told[sw] })
			if len(at) == 0 {
				return nil
			}
		}
	}, func(err error) { then(last, err) })
}

// keepRecords returns the switches that writes reach.
func (s *Shell) keepRecords() []string {
	if s.dir.Count(shapes.ChainID) == 0 {
		return nil
	}
	return slices.Clone(s.Status.Config.Members)
}

// joinerTimeout limits the time for a reset at the switch that is being brought in.
const joinerTimeout = 40 * time.Millisecond

// tellJoiner resets a session at the switch that is being brought in.
func (s *Shell) tellJoiner(ctx context.Context, sw string, id uint16, last uint32) {
	quick, cancel := s.ops.WithTimeout(ctx, joinerTimeout)
	defer cancel()
	if err := s.Device(sw).other.BeginRecord(quick, id, last); err != nil && ctx.Err() == nil {
		s.World.Cover.Count("controller.joiner not told", 1)
		s.Machine.Untold(s.Clock(), sw, err)
		s.Flush()
	}
}
