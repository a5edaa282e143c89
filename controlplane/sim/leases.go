package sim

import (
	"context"
	"slices"
	"time"

	"github.com/netcraq/netcraq/client/core"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/sessions"
)

// Sessions that change hands: those of a client that is dead are leased to the next, at once, while
// what the dead one has sent is still on its way. It is the counterpart of sessions.go in package
// controller.

// inherit leases a dead client's sessions to another; it gets none where there is no controller
// that could see to it.
func (w *world) inherit(c *client, ids []uint16) {
	s := w.controller()
	if !w.serving() || !s.status.Fenced {
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
	delete(w.begun, id)
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

// beginAnew makes the record of a session begin anew at all switches that some write comes to, and
// at the one that is being brought in. A chain without keys has no writes.
func (s *shell) beginAnew(id uint16, then func(last uint32, err error)) {
	var last uint32
	s.start(func(ctx context.Context) error {
		ctx, cancel := s.ops.WithTimeout(ctx, ops.FetchTimeout)
		defer cancel()
		var records []uint32
		at := s.keepRecords()
		for _, sw := range at {
			r, err := s.device(sw).other.Recorded(ctx, id)
			if err != nil {
				return err
			}
			records = append(records, r)
		}
		last = sessions.Begin(records, s.w.dice.faults.Uint32)
		if s.w.removed.recordStays {
			return nil
		}
		s.w.begun[id] = last
		for told := map[string]bool{}; ; {
			for _, sw := range at {
				if err := s.device(sw).other.BeginRecord(ctx, id, last); err != nil {
					return err
				}
				told[sw] = true
			}
			if j := s.status.Config.Shadow; j != "" && len(told) > 0 && !told[j] {
				s.tellJoiner(ctx, j, id, last)
				told[j] = true
			}
			for !s.status.Fenced { // a switch that is being left out may be head for a while
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

// keepRecords is the switches that some write comes to.
func (s *shell) keepRecords() []string {
	if s.dir.Count(chainID) == 0 {
		return nil
	}
	return slices.Clone(s.status.Config.Members)
}

// joinerTimeout is how long a switch has that is being brought in.
const joinerTimeout = 40 * time.Millisecond

// tellJoiner tells a switch that is being brought in of a session.
func (s *shell) tellJoiner(ctx context.Context, sw string, id uint16, last uint32) {
	quick, cancel := s.ops.WithTimeout(ctx, joinerTimeout)
	defer cancel()
	if err := s.device(sw).other.BeginRecord(quick, id, last); err != nil && ctx.Err() == nil {
		s.w.cover.add("controller.joiner not told", 1)
		s.m.Untold(s.now(), sw, err)
		s.flush()
	}
}
