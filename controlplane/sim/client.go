package sim

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/core"
	"github.com/netcraq/netcraq/controlplane/controller/plan"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// host is a machine at a switch's port; its clients have a UDP port each.
type host struct {
	w       *world
	h       *topology.Host
	clients []*client
}

// receive takes a frame that the switch sent.
func (h *host) receive(frame []byte) {
	f, payload, err := wire.ParseFrame(frame)
	if err != nil || f.Dst.Addr() != h.h.IP {
		return
	}
	if x := h.w.watcher; x != nil && x.h == h.h && f.Dst.Port() == watchPort {
		h.w.notified(payload)
		return
	}
	if h.h.Principal != "clients" {
		h.w.intrusion(h.h, frame)
		return
	}
	for _, c := range h.clients {
		if c.alive && f.Dst.Port() == c.port {
			c.m.Receive(c.w.loop.now, f.Src, payload)
			c.flush()
		}
	}
}

// client is a client process: the client library's machine, and what calls it.
type client struct {
	w        *world
	name     string
	h        *topology.Host
	port     uint16
	alive    bool
	m        *core.Machine
	timer    int // number of the newest
	calls    map[core.CallID]*call
	think    time.Duration
	seen     map[wire.Key]wire.Version // the version that it was told last
	known    map[wire.Key]wire.Key     // the KEY_IDs that names had when it asked last
	looking  int                       // calls that wait for the directory
	left     int                       // how many calls it still makes by itself
	sessions []uint16                  // that it has
	robbed   bool                      // a session was taken from it
}

// call is a call and who waits for it.
type call struct {
	op   operationOf
	req  core.Request // with the KEY_ID for the key
	then func(core.Result)
	at   time.Duration // when it was begun, at last
	// it reads a KEY_ID that nobody has been told yet (peek.go)
	peeks bool
}

// newClient starts a client at a host, with sessions of its own.
func (w *world) newClient(name string, h *topology.Host, sessions int, change func(*core.Config)) *client {
	w.lastPort++
	c := &client{w: w, name: name, h: h, port: w.lastPort, alive: true, calls: map[core.CallID]*call{},
		seen: map[wire.Key]wire.Version{}, known: map[wire.Key]wire.Key{}}
	cfg := core.Config{Profile: profile, Seed: w.dice.clients.Uint64(),
		Addresses: []netip.AddrPort{netip.AddrPortFrom(w.shape.topo.Chains[0].Address, wire.Port)}}
	for _, s := range w.shape.topo.Switches {
		if s.Name != "s0" {
			cfg.Addresses = append(cfg.Addresses, address(w.node(s.Name)))
		}
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	c.m, err = core.New(cfg)
	must(err)
	for range sessions {
		w.lastSession++
		if w.lastSession >= maxSessions {
			panic("a run has more sessions than it clears")
		}
		must(c.m.AddSession(w.loop.now, core.Session{ID: w.lastSession, NextRequest: 1}))
		w.leaseTo(w.lastSession, h)
		c.sessions = append(c.sessions, w.lastSession)
	}
	w.clients = append(w.clients, c)
	w.hosts[h].clients = append(w.hosts[h].clients, c)
	return c
}

// leaseTo lets a host use a session.
func (w *world) leaseTo(session uint16, h *topology.Host) {
	n := w.node(h.Switch.Name)
	e := w.program.encode(plan.LeaseEntry(session, h.Port))
	w.leases[n.index] = append(w.leases[n.index], e)
	if n.alive {
		n.set(e)
	}
}

// sessions is those that a run has used so far, the controller's among them.
func (w *world) sessions() (out []uint16) {
	for id := uint16(1); id <= controllerSessions; id++ {
		out = append(out, id)
	}
	for id := uint16(topology.ControllerSessions + 1); id <= w.lastSession; id++ {
		out = append(out, id)
	}
	return out
}

// kill ends the process: what was under way is never answered, and its sessions never used again.
func (c *client) kill() {
	c.w.trace(c.name, "is killed")
	c.m.AbortAll(c.w.loop.now, core.ErrClosed)
	_, completions := c.m.Take()
	c.alive = false
	for _, x := range completions {
		c.complete(x)
	}
}

// start makes a call. then is told what came of it, and may be nil.
func (c *client) start(req core.Request, then func(core.Result)) {
	op := operationOf{client: c.name, key: req.Key, op: req.Op, value: string(req.Value), del: req.Delete,
		expected: req.Expected, eventual: req.Eventual, call: c.w.loop.now}
	if _, ok := c.known[req.Key]; !ok {
		if c.known[req.Key] = req.Key; c.w.placed(req.Key) { // else he has it from a time when it was another
			c.known[req.Key] = c.w.id(req.Key)
		}
	}
	req.Key = c.known[req.Key]
	req.Expected, op.expected = c.w.expected(req.Key, req.Expected)
	if c.w.tracing() {
		c.w.traceKey(op.key, c.name, "%s", op.request())
	}
	c.begin(&call{op: op, req: req, then: then})
}

// begin makes a call, or makes it again.
func (c *client) begin(k *call) {
	k.at = c.w.loop.now
	c.calls[c.m.Start(c.w.loop.now, k.req)] = k
	c.flush()
}

// flush sends what the machine wants sent, and takes what is done.
func (c *client) flush() {
	for {
		sends, completions := c.m.Take()
		if len(sends) == 0 && len(completions) == 0 {
			break
		}
		for _, s := range sends {
			f := wire.Frame{Src: netip.AddrPortFrom(c.h.IP, c.port), Dst: s.To}
			copy(f.EthernetDst[:], c.h.Switch.MAC)
			copy(f.EthernetSrc[:], c.h.MAC)
			frame, err := f.AppendTo(make([]byte, 0, wire.FrameOverhead+len(s.Packet)), s.Packet)
			must(err)
			c.w.overhear(c, s.Packet)
			c.w.fromHost(c.h, frame)
		}
		for _, x := range completions {
			c.complete(x)
		}
	}
	c.timer++
	if at, ok := c.m.NextTick(); ok {
		timer := c.timer
		c.w.loop.at(at, func() {
			if c.alive && c.timer == timer {
				c.m.Tick(c.w.loop.now)
				c.flush()
			}
		})
	}
}

// complete notes what came of a call.
func (c *client) complete(x core.Completion) {
	k := c.calls[x.ID]
	delete(c.calls, x.ID)
	if k.peeks {
		c.w.peeked(k, x.Result)
		return
	}
	c.w.hear(c.name, k, x.Result)
	var e *core.OpError
	if errors.As(x.Result.Err, &e) && x.Result.Attempts == 1 && c.alive {
		switch {
		case c.w.removed.oneCopy && (e.Err == core.ErrNotFound || e.Err == core.ErrDenied ||
			e.Err == core.ErrBadSession):
			e.OutcomeUnknown = false
		case c.w.removed.writesAnew && e.Err == core.ErrBadSession && c.w.loop.now < k.req.Deadline:
			c.begin(k)
			return
		}
	}
	if c.w.moving && c.alive && errors.As(x.Result.Err, &e) && errors.Is(e, core.ErrNotFound) &&
		!c.w.removed.lookupOnce && (k.op.op != wire.Read || e.Version == 0) {
		if k.op.op != wire.Read {
			c.lookup(k.op.key, func(id wire.Key) { c.known[k.op.key] = id })
		} else {
			c.looking++
			if c.w.tracing() {
				c.w.traceKey(k.op.key, c.name, "%s: %v has no slot, so the key is looked up", k.op.request(), k.req.Key)
			}
			c.lookup(k.op.key, func(id wire.Key) {
				c.looking--
				c.known[k.op.key] = id
				if k.req.Key = id; c.w.loop.now < k.req.Deadline {
					c.begin(k)
					return
				}
				x.Result.Err = &core.OpError{Err: core.ErrTimeout}
				c.finish(k, x)
			})
			return
		}
	}
	c.finish(k, x)
}

// finish notes what came of a call at last.
func (c *client) finish(k *call, x core.Completion) {
	k.op.end = c.w.loop.now
	k.op.take(x.Result)
	k.op.session, k.op.number = x.Result.Session, x.Result.Request
	if errors.Is(x.Result.Err, core.ErrBadSession) && !c.robbed && len(c.w.intrusions) == 0 {
		c.w.intrusions = append(c.w.intrusions, Violation{Kind: NotWritable, Key: k.op.key, What: c.name + " was refused a session that was leased to it"})
	}
	k.op.under = c.w.under(k.req.Key)
	if k.op.outcome == done || k.op.outcome == failed {
		k.op.version = c.w.composed(k.req.Key, k.op.version)
	}
	if k.op.outcome != nothing || k.op.op != wire.Read && x.Result.Attempts > 0 {
		c.w.history.add(k.op)
	}
	if k.op.version != 0 && k.op.outcome != unknown {
		c.seen[k.op.key] = k.op.version
	}
	c.w.cover.add("calls."+k.op.what(), 1)
	if c.w.tracing() {
		c.w.traceKey(k.op.key, c.name, "%s: %s (%d sent)", k.op.request(), k.op.result(), x.Result.Attempts)
	}
	if k.then != nil {
		k.then(x.Result)
	}
}

// take reads a result.
func (o *operationOf) take(r core.Result) {
	var e *core.OpError
	switch {
	case r.Err == nil && o.op == wire.Read:
		o.outcome, o.version, o.value, o.found = done, r.Version, string(r.Value), true
	case r.Err == nil:
		o.outcome, o.version = done, r.Version
	case !errors.As(r.Err, &e):
		panic(fmt.Sprintf("an error of another kind: %v", r.Err))
	case e.OutcomeUnknown:
		o.outcome, o.why = unknown, e.Err
	case errors.Is(e, core.ErrNotFound) && o.op == wire.Read:
		o.outcome, o.version, o.value = done, e.Version, ""
	case errors.Is(e, core.ErrCASFailed):
		o.outcome, o.version, o.found, o.saw = failed, e.Version, e.Found, string(e.Value)
	default:
		o.outcome, o.why = nothing, e.Err
	}
}

// work makes calls until it has made all that it was to make.
func (c *client) work() {
	if !c.alive || c.left == 0 {
		return
	}
	c.left--
	c.start(c.random(), func(core.Result) {
		c.w.loop.after(c.w.dice.clients.about(c.think), c.work)
	})
}

// random is a call as clients make them.
func (c *client) random() core.Request {
	w, d := c.w, c.w.dice.clients
	w.lastValue++
	req := core.Request{Key: pick(d, w.keys...), Value: fmt.Appendf(nil, "v%d", w.lastValue)}
	limit := d.between(20*time.Millisecond, 600*time.Millisecond)
	if d.chance(0.1) {
		limit = d.between(100*time.Microsecond, 10*time.Millisecond)
	}
	req.Deadline = w.loop.now + limit
	switch n := d.IntN(100); {
	case n < 38:
		req.Op, req.Value = wire.Read, nil
	case n < 46:
		req.Op, req.Value, req.Eventual = wire.Read, nil, true
	case n < 70:
		req.Op = wire.Write
	case n < 76:
		req.Op, req.Value, req.Delete = wire.Write, nil, true
	case n < 96:
		req.Op, req.Expected = wire.CAS, c.seen[req.Key]
	default:
		req.Op, req.Value, req.Expected, req.Delete = wire.CAS, nil, c.seen[req.Key], true
	}
	// the one that somebody will be given next
	if v := req.Expected; w.removed.toldVersions && v != 0 && d.chance(0.3) {
		req.Expected = wire.MakeVersion(v.Epoch(), v.Sequence()+1)
	}
	if req.Op == wire.Read && d.chance(0.3) { // of one switch, by its own address
		req.To = []netip.AddrPort{address(pick(d, w.nodes...))}
	}
	return req
}

// address is where a switch itself is asked.
func address(n *node) netip.AddrPort { return netip.AddrPortFrom(n.sw.Address, wire.Port) }
