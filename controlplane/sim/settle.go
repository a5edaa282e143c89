package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/core"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/keyspace"
)

// mend ends all faults: the network is perfect, switches run and are reached, there is a
// controller. Clients make no new calls.
func (w *world) mend() {
	w.trace("fault", "all faults end")
	w.mended = true
	w.network.conditions = conditions{delay: 10 * time.Microsecond}
	clear(w.network.cut)
	w.network.rules = nil
	w.release(len(w.network.held))
	w.controlRules = nil
	w.letGo(nil, -1)
	w.slowDisk, w.controlDelay, w.badDisk = 0, 0, 0
	for _, n := range w.nodes {
		w.resume(n)
		w.reconnect(n)
		w.startNode(n)
		w.setUpAnew(n)
	}
	for _, s := range w.controllers {
		s.starved = starvation{}
		for _, d := range s.devices {
			w.rejoin(d)
		}
		for _, n := range w.nodes {
			s.joins(n)
		}
	}
	if s := w.controller(); !s.alive || s.deposed {
		w.startController()
	}
	for _, c := range w.clients {
		c.left = 0
	}
}

// settle gives everything the time to become whole, and says what did not.
func (w *world) settle() (out []Violation) {
	fail := func(key wire.Key, format string, args ...any) {
		v := Violation{Kind: NotSettled, Key: key, What: fmt.Sprintf(format, args...)}
		w.traceKey(key, "check", "%v", v)
		out = append(out, v)
	}
	// A chain that an operator has frozen is not thawed by itself.
	var thaw func()
	thaw = func() {
		if s := w.controller(); w.serving() && s.status.Config.Freeze == chain.FreezeAll {
			no := false
			s.propose(chain.Change{Frozen: &no})
		}
		w.loop.after(20*time.Millisecond, thaw)
	}
	thaw()
	idle := func() bool {
		return w.serving() && !slices.ContainsFunc(w.keys, func(k wire.Key) bool {
			return !w.placed(k)
		}) && w.controller().status.Config.Freeze == chain.Thawed &&
			!slices.ContainsFunc(w.store.dir.Keys, func(k keyspace.Key) bool {
				return k.State != keyspace.Placed
			}) && !slices.ContainsFunc(w.clients, func(c *client) bool { return c.alive && len(c.calls)+c.looking > 0 })
	}
	w.loop.run(w.loop.now+readyWithin, idle)
	w.loop.run(w.loop.now+longest, nil) // frames that are late yet
	if !w.serving() {
		fail(0, "the chain is not whole after %v: %s", readyWithin, w.controller().status.Reason)
		return out
	}
	w.loop.run(w.loop.now+readyWithin, w.whole)
	if !w.whole() {
		fail(0, "the chain is short after %v: %v are missing", readyWithin, w.controller().status.Missing)
		return out
	}
	for _, k := range w.store.dir.Keys {
		if k.State != keyspace.Placed {
			fail(k.ID, "the key %s is still %s after %v", k.Name, k.State, readyWithin)
			return out
		}
		if k.Name != k.FinalName() {
			fail(k.ID, "%s stays, and takes nobody's place: %s cannot be moved any more", k.Name, k.FinalName())
		}
	}
	if f := w.controller().status.Config.Freeze; f != chain.Thawed {
		fail(0, "the chain is still frozen after %v: %v", readyWithin, f)
		return out
	}
	var dirty string
	var at wire.Key
	w.loop.run(w.loop.now+cleanWithin, func() bool {
		at, dirty = w.dirty()
		return at == 0
	})
	if at, dirty = w.dirty(); at != 0 {
		fail(at, "not clean after %v: %s", cleanWithin, dirty)
	}
	// One call after the other, by a client that nothing has happened to.
	c := w.newClient("probe", w.shape.topo.Hosts[0], 1, nil)
	probe := func(k wire.Key, req core.Request) operationOf {
		req.Key, req.Deadline = k, w.loop.now+probeWithin
		over := false
		n := len(w.history.ops)
		c.start(req, func(core.Result) { over = true })
		w.loop.run(w.loop.now+2*probeWithin, func() bool { return over })
		for _, o := range w.history.ops[n:] {
			if o.client == c.name {
				return o
			}
		}
		return operationOf{outcome: nothing}
	}
	for _, k := range w.keys {
		if o := probe(k, core.Request{Op: wire.Read}); o.outcome != done {
			fail(k, "a read gets no answer after all faults have ended")
		}
		if o := probe(k, core.Request{Op: wire.CAS, Value: fmt.Appendf(nil, "probe %d", k&0xFFFFFF),
			Expected: c.seen[k]}); o.outcome != done && o.outcome != failed {
			fail(k, "a compare and swap of what was just read is not decided after all faults have ended: %s", o.result())
		}
		if o := probe(k, core.Request{Op: wire.Write, Value: fmt.Appendf(nil, "probe of w %d", k&0xFFFFFF)}); o.outcome != done {
			out = append(out, Violation{Kind: NotWritable, Key: k, What: "a write is not executed after all faults have ended"})
		}
	}
	return append(out, w.allTold(func(k wire.Key) (wire.Version, bool) {
		o := probe(k, core.Request{Op: wire.Write, Value: fmt.Appendf(nil, "probe of t %d", k&0xFFFFFF)})
		return o.version, o.outcome == done
	})...)
}

// dirty is a key that is not clean at some member, or not the same at all; 0: there is none.
func (w *world) dirty() (wire.Key, string) {
	members := w.controller().status.Config.Members
	for _, k := range w.keys {
		var first slot
		for i, m := range members {
			x, ok := w.node(m).slot(w.id(k))
			if i == 0 {
				first = x
			}
			switch {
			case !ok:
				return k, fmt.Sprintf("%s has no slot for it", m)
			case x.committed != x.latest:
				return k, fmt.Sprintf("%s has committed %v and accepted %v", m, x.committed, x.latest)
			case x.committed != first.committed:
				return k, fmt.Sprintf("%s has version %v, %s has version %v", members[0], first.committed, m, x.committed)
			}
		}
	}
	return 0, ""
}
