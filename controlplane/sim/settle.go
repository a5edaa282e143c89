package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/calls"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/keyspace"
	"github.com/netcraq/netcraq/controlplane/sim/judge"
	"github.com/netcraq/netcraq/controlplane/sim/trouble"
	"github.com/netcraq/netcraq/controlplane/sim/world"
)

// mend ends all faults. Afterwards the network is perfect, all switches run and can be reached, and
// a controller is running. Clients make no new calls.
func mend(w *world.World) {
	w.Trace("fault", "all faults end")
	w.Mended = true
	w.Network.Conditions = world.Conditions{Delay: 10 * time.Microsecond}
	clear(w.Network.Cut)
	w.Network.Rules = nil
	w.Release(len(w.Network.Held))
	w.ControlRules = nil
	w.LetGo(nil, -1)
	w.SlowDisk, w.ControlDelay, w.BadDisk = 0, 0, 0
	for _, n := range w.Nodes {
		trouble.Resume(w, n)
		w.Reconnect(n)
		w.StartNode(n)
		trouble.SetUpAnew(w, n)
	}
	for _, s := range w.Controllers {
		s.Starved = world.Starvation{}
		for _, d := range s.Devices {
			trouble.Rejoin(w, d)
		}
		for _, n := range w.Nodes {
			s.Joins(n)
		}
	}
	if s := w.Controller(); !s.Alive || s.Deposed {
		w.StartController()
	}
	for _, c := range w.Clients {
		c.Left = 0
	}
}

// settle waits until the chain is complete, ready and consistent. It returns a violation for each
// condition that is not met in time.
func settle(w *world.World) (out []judge.Violation) {
	fail := func(key wire.Key, format string, args ...any) {
		v := judge.Violation{Kind: judge.NotSettled, Key: key, What: fmt.Sprintf(format, args...)}
		w.TraceKey(key, "check", "%v", v)
		out = append(out, v)
	}
	// If an operator has frozen a chain, the operator must also thaw it.
	var thaw func()
	thaw = func() {
		if s := w.Controller(); w.Serving() && s.Status.Config.Freeze == chain.FreezeAll {
			no := false
			s.Propose(chain.Change{Frozen: &no})
		}
		w.Loop.After(20*time.Millisecond, thaw)
	}
	thaw()
	idle := func() bool {
		return w.Serving() && !slices.ContainsFunc(w.Keys, func(k wire.Key) bool {
			return !w.Placed(k)
		}) && w.Controller().Status.Config.Freeze == chain.Thawed &&
			!slices.ContainsFunc(w.Store.Dir.Keys, func(k keyspace.Key) bool {
				return k.State != keyspace.Placed
			}) && !slices.ContainsFunc(w.Clients, func(c *world.Client) bool {
			return c.Alive && len(c.Calls)+c.Looking > 0
		})
	}
	w.Loop.Run(w.Loop.Now+readyWithin, idle)
	w.Loop.Run(w.Loop.Now+longest, nil) // wait until the last late frame has arrived
	if !w.Serving() {
		fail(0, "the chain is not whole after %v: %s", readyWithin, w.Controller().Status.Reason)
		return out
	}
	w.Loop.Run(w.Loop.Now+readyWithin, w.Whole)
	if !w.Whole() {
		fail(0, "the chain is short after %v: %v are missing", readyWithin, w.Controller().Status.Missing)
		return out
	}
	for _, k := range w.Store.Dir.Keys {
		if k.State != keyspace.Placed {
			fail(k.ID, "the key %s is still %s after %v", k.Name, k.State, readyWithin)
			return out
		}
		if k.Name != k.FinalName() {
			fail(k.ID, "%s stays, and takes nobody's place: %s cannot be moved any more", k.Name, k.FinalName())
		}
	}
	if f := w.Controller().Status.Config.Freeze; f != chain.Thawed {
		fail(0, "the chain is still frozen after %v: %v", readyWithin, f)
		return out
	}
	var dirty string
	var at wire.Key
	w.Loop.Run(w.Loop.Now+cleanWithin, func() bool {
		at, dirty = firstDirty(w)
		return at == 0
	})
	if at, dirty = firstDirty(w); at != 0 {
		fail(at, "not clean after %v: %s", cleanWithin, dirty)
	}
	// A client that no fault has touched makes one call after the other.
	c := w.NewClient("probe", w.Shape.Topology.Hosts[0], 1, nil)
	probe := func(k wire.Key, req calls.Request) judge.Call {
		req.Key, req.Deadline = k, w.Loop.Now+probeWithin
		over := false
		n := len(w.History.Ops)
		c.Start(req, func(calls.Result) { over = true })
		w.Loop.Run(w.Loop.Now+2*probeWithin, func() bool { return over })
		for _, o := range w.History.Ops[n:] {
			if o.Client == c.Name {
				return o
			}
		}
		return judge.Call{Outcome: judge.Nothing}
	}
	for _, k := range w.Keys {
		if o := probe(k, calls.Request{Op: wire.Read}); o.Outcome != judge.Done {
			fail(k, "a read gets no answer after all faults have ended")
		}
		if o := probe(k, calls.Request{Op: wire.CAS, Value: fmt.Appendf(nil, "probe %d", k&0xFFFFFF),
			Expected: c.Seen[k]}); o.Outcome != judge.Done && o.Outcome != judge.Failed {
			fail(k, "a compare and swap of what was just read is not decided after all faults have ended: %s", o.Result())
		}
		o := probe(k, calls.Request{Op: wire.Write, Value: fmt.Appendf(nil, "probe of w %d", k&0xFFFFFF)})
		if o.Outcome != judge.Done {
			out = append(out, judge.Violation{Kind: judge.NotWritable, Key: k, What: "a write is not executed after all faults have ended"})
		}
	}
	return append(out, w.AllTold(func(k wire.Key) (wire.Version, bool) {
		o := probe(k, calls.Request{Op: wire.Write, Value: fmt.Appendf(nil, "probe of t %d", k&0xFFFFFF)})
		return o.Version, o.Outcome == judge.Done
	})...)
}

// firstDirty finds a key that is dirty at some member, or differs between members. It returns 0 if
// there is none.
func firstDirty(w *world.World) (wire.Key, string) {
	members := w.Controller().Status.Config.Members
	for _, k := range w.Keys {
		var first world.Slot
		for i, m := range members {
			x, ok := w.Node(m).Slot(w.ID(k))
			if i == 0 {
				first = x
			}
			switch {
			case !ok:
				return k, fmt.Sprintf("%s has no slot for it", m)
			case x.Committed != x.Latest:
				return k, fmt.Sprintf("%s has committed %v and accepted %v", m, x.Committed, x.Latest)
			case x.Committed != first.Committed:
				return k, fmt.Sprintf("%s has version %v, %s has version %v", members[0], first.Committed, m, x.Committed)
			}
		}
	}
	return 0, ""
}
