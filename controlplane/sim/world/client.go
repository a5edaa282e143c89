package world

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/calls"
	"github.com/netcraq/netcraq/controlplane/controller/tableplan"
	"github.com/netcraq/netcraq/controlplane/sim/clockwork"
	"github.com/netcraq/netcraq/controlplane/sim/compiled"
	"github.com/netcraq/netcraq/controlplane/sim/judge"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// host is a machine at a switch's port. Each client on it has a UDP port.
type host struct {
	w       *World
	h       *topology.Host
	clients []*Client
}

// receive handles a frame from the switch.
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
		if c.Alive && f.Dst.Port() == c.Port {
			c.Machine.Receive(c.w.Loop.Now, f.Src, payload)
			c.Flush()
		}
	}
}

// Client is a client process. It consists of the client library's machine and that machine's
// caller.
type Client struct {
	w        *World
	Name     string
	Host     *topology.Host
	Port     uint16
	Alive    bool
	Machine  *calls.Machine
	timer    int // number of the newest timer
	Calls    map[calls.CallID]*call
	Think    time.Duration
	Seen     map[wire.Key]wire.Version // for each key, the version in the client's last answer
	known    map[wire.Key]wire.Key     // for each name, the KEY_ID at the client's last lookup
	Looking  int                       // number of calls that wait for the directory
	Left     int                       // number of calls that the client still has to make by itself
	Sessions []uint16                  // sessions that are leased to the client
	Robbed   bool                      // whether a session was taken from the client
}

// call is a call with its callback.
type call struct {
	op   judge.Call
	req  calls.Request // the request, with the KEY_ID as its key
	then func(calls.Result)
	at   time.Duration // when the call last began
	// peeks says that the call reads a KEY_ID that no client knows yet (peek.go).
	peeks bool
}

// NewClient starts a client at a host. The client has sessions of its own.
func (w *World) NewClient(name string, h *topology.Host, sessions int, change func(*calls.Config)) *Client {
	w.lastPort++
	c := &Client{w: w, Name: name, Host: h, Port: w.lastPort, Alive: true, Calls: map[calls.CallID]*call{},
		Seen: map[wire.Key]wire.Version{}, known: map[wire.Key]wire.Key{}}
	cfg := calls.Config{Profile: compiled.Profile, Seed: w.Dice.Clients.Uint64(),
		Addresses: []netip.AddrPort{netip.AddrPortFrom(w.Shape.Topology.Chains[0].Address, wire.Port)}}
	for _, s := range w.Shape.Topology.Switches {
		if s.Name != "s0" {
			cfg.Addresses = append(cfg.Addresses, Address(w.Node(s.Name)))
		}
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	c.Machine, err = calls.New(cfg)
	Must(err)
	for range sessions {
		w.LastSession++
		if w.LastSession >= MaxSessions {
			panic("a run has more sessions than it clears")
		}
		Must(c.Machine.AddSession(w.Loop.Now, calls.Session{ID: w.LastSession, NextRequest: 1}))
		w.LeaseTo(w.LastSession, h)
		c.Sessions = append(c.Sessions, w.LastSession)
	}
	w.Clients = append(w.Clients, c)
	w.hosts[h].clients = append(w.hosts[h].clients, c)
	return c
}

// LeaseTo allows a host to use a session.
func (w *World) LeaseTo(session uint16, h *topology.Host) {
	n := w.Node(h.Switch.Name)
	e := w.Program.Encode(tableplan.LeaseEntry(session, h.Port))
	w.leases[n.Index] = append(w.leases[n.Index], e)
	if n.Alive {
		n.Set(e)
	}
}

// Sessions returns the sessions that a run has used so far, including the controller's.
func (w *World) Sessions() (out []uint16) {
	for id := uint16(1); id <= ControllerSessions; id++ {
		out = append(out, id)
	}
	for id := uint16(topology.ControllerSessions + 1); id <= w.LastSession; id++ {
		out = append(out, id)
	}
	return out
}

// Kill ends the process. Pending calls get no answer, and the client's sessions are not used again.
func (c *Client) Kill() {
	c.w.Trace(c.Name, "is killed")
	c.Machine.AbortAll(c.w.Loop.Now, calls.ErrClosed)
	_, completions := c.Machine.Take()
	c.Alive = false
	for _, x := range completions {
		c.complete(x)
	}
}

// Start makes a call. The function then gets the result, and may be nil.
func (c *Client) Start(req calls.Request, then func(calls.Result)) {
	op := judge.Call{Client: c.Name, Key: req.Key, Op: req.Op, Value: string(req.Value), Del: req.Delete,
		Expected: req.Expected, Eventual: req.Eventual, Begin: c.w.Loop.Now}
	if _, ok := c.known[req.Key]; !ok {
		// If the key is not placed, the client uses the first KEY_ID, which may be out of date.
		if c.known[req.Key] = req.Key; c.w.Placed(req.Key) {
			c.known[req.Key] = c.w.ID(req.Key)
		}
	}
	req.Key = c.known[req.Key]
	req.Expected, op.Expected = c.w.expected(req.Key, req.Expected)
	if c.w.tracing() {
		c.w.TraceKey(op.Key, c.Name, "%s", op.Request())
	}
	c.begin(&call{op: op, req: req, then: then})
}

// begin starts a call, for the first time or again.
func (c *Client) begin(k *call) {
	k.at = c.w.Loop.Now
	c.Calls[c.Machine.Start(c.w.Loop.Now, k.req)] = k
	c.Flush()
}

// Flush sends the machine's packets, and handles its completed calls.
func (c *Client) Flush() {
	for {
		sends, completions := c.Machine.Take()
		if len(sends) == 0 && len(completions) == 0 {
			break
		}
		for _, s := range sends {
			f := wire.Frame{Src: netip.AddrPortFrom(c.Host.IP, c.Port), Dst: s.To}
			copy(f.EthernetDst[:], c.Host.Switch.MAC)
			copy(f.EthernetSrc[:], c.Host.MAC)
			frame, err := f.AppendTo(make([]byte, 0, wire.FrameOverhead+len(s.Packet)), s.Packet)
			Must(err)
			c.w.overhear(c, s.Packet)
			c.w.FromHost(c.Host, frame)
		}
		for _, x := range completions {
			c.complete(x)
		}
	}
	c.timer++
	if at, ok := c.Machine.NextTick(); ok {
		timer := c.timer
		c.w.Loop.At(at, func() {
			if c.Alive && c.timer == timer {
				c.Machine.Tick(c.w.Loop.Now)
				c.Flush()
			}
		})
	}
}

// complete handles the result of a call, and makes the call again if the library would.
func (c *Client) complete(x calls.Completion) {
	k := c.Calls[x.ID]
	delete(c.Calls, x.ID)
	if k.peeks {
		c.w.peeked(k, x.Result)
		return
	}
	c.w.hear(c.Name, k, x.Result)
	var e *calls.OpError
	if errors.As(x.Result.Err, &e) && x.Result.Attempts == 1 && c.Alive {
		switch {
		case c.w.Without.OneCopy && (e.Err == calls.ErrNotFound || e.Err == calls.ErrDenied ||
			e.Err == calls.ErrBadSession):
			e.OutcomeUnknown = false
		case c.w.Without.WritesAnew && e.Err == calls.ErrBadSession && c.w.Loop.Now < k.req.Deadline:
			c.begin(k)
			return
		}
	}
	if c.w.Moving && c.Alive && errors.As(x.Result.Err, &e) && errors.Is(e, calls.ErrNotFound) &&
		!c.w.Without.LookupOnce && (k.op.Op != wire.Read || e.Version == 0) {
		if k.op.Op != wire.Read {
			c.lookup(k.op.Key, func(id wire.Key) { c.known[k.op.Key] = id })
		} else {
			c.Looking++
			if c.w.tracing() {
				c.w.TraceKey(k.op.Key, c.Name, "%s: %v has no slot, so the key is looked up", k.op.Request(), k.req.Key)
			}
			c.lookup(k.op.Key, func(id wire.Key) {
				c.Looking--
				c.known[k.op.Key] = id
				if k.req.Key = id; c.w.Loop.Now < k.req.Deadline {
					c.begin(k)
					return
				}
				x.Result.Err = &calls.OpError{Err: calls.ErrTimeout}
				c.finish(k, x)
			})
			return
		}
	}
	c.finish(k, x)
}

// finish records the final result of a call.
func (c *Client) finish(k *call, x calls.Completion) {
	k.op.End = c.w.Loop.Now
	take(&k.op, x.Result)
	k.op.Session, k.op.Number = x.Result.Session, x.Result.Request
	if errors.Is(x.Result.Err, calls.ErrBadSession) && !c.Robbed && len(c.w.Intrusions) == 0 {
		c.w.Intrusions = append(c.w.Intrusions, judge.Violation{Kind: judge.NotWritable, Key: k.op.Key,
			What: c.Name + " was refused a session that was leased to it"})
	}
	k.op.Under = c.w.under(k.req.Key)
	if k.op.Outcome == judge.Done || k.op.Outcome == judge.Failed {
		k.op.Version = c.w.composed(k.req.Key, k.op.Version)
	}
	if k.op.Outcome != judge.Nothing || k.op.Op != wire.Read && x.Result.Attempts > 0 {
		c.w.History.Add(k.op)
	}
	if k.op.Version != 0 && k.op.Outcome != judge.Unknown {
		c.Seen[k.op.Key] = k.op.Version
	}
	c.w.Cover.Count("calls."+k.op.What(), 1)
	if c.w.tracing() {
		c.w.TraceKey(k.op.Key, c.Name, "%s: %s (%d sent)", k.op.Request(), k.op.Result(), x.Result.Attempts)
	}
	if k.then != nil {
		k.then(x.Result)
	}
}

// take copies a result into a call's record.
func take(o *judge.Call, r calls.Result) {
	var e *calls.OpError
	switch {
	case r.Err == nil && o.Op == wire.Read:
		o.Outcome, o.Version, o.Value, o.Found = judge.Done, r.Version, string(r.Value), true
	case r.Err == nil:
		o.Outcome, o.Version = judge.Done, r.Version
	case !errors.As(r.Err, &e):
		panic(fmt.Sprintf("an error of another kind: %v", r.Err))
	case e.OutcomeUnknown:
		o.Outcome, o.Why = judge.Unknown, e.Err
	case errors.Is(e, calls.ErrNotFound) && o.Op == wire.Read:
		o.Outcome, o.Version, o.Value = judge.Done, e.Version, ""
	case errors.Is(e, calls.ErrCASFailed):
		o.Outcome, o.Version, o.Found, o.Saw = judge.Failed, e.Version, e.Found, string(e.Value)
	default:
		o.Outcome, o.Why = judge.Nothing, e.Err
	}
}

// Work makes the next call, until the client has no calls left to make.
func (c *Client) Work() {
	if !c.Alive || c.Left == 0 {
		return
	}
	c.Left--
	c.Start(c.random(), func(calls.Result) {
		c.w.Loop.After(c.w.Dice.Clients.About(c.Think), c.Work)
	})
}

// random draws a random call.
func (c *Client) random() calls.Request {
	w, d := c.w, c.w.Dice.Clients
	w.lastValue++
	req := calls.Request{Key: clockwork.Pick(d, w.Keys...), Value: fmt.Appendf(nil, "v%d", w.lastValue)}
	limit := d.Between(20*time.Millisecond, 600*time.Millisecond)
	if d.Chance(0.1) {
		limit = d.Between(100*time.Microsecond, 10*time.Millisecond)
	}
	req.Deadline = w.Loop.Now + limit
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
		req.Op, req.Expected = wire.CAS, c.Seen[req.Key]
	default:
		req.Op, req.Value, req.Expected, req.Delete = wire.CAS, nil, c.Seen[req.Key], true
	}
	// expects the version that the next write will get
	if v := req.Expected; w.Without.ToldVersions && v != 0 && d.Chance(0.3) {
		req.Expected = wire.MakeVersion(v.Epoch(), v.Sequence()+1)
	}
	if req.Op == wire.Read && d.Chance(0.3) { // the read goes to one switch's own address
		req.To = []netip.AddrPort{Address(clockwork.Pick(d, w.Nodes...))}
	}
	return req
}

// Address returns the address of a switch itself, as opposed to the service address.
func Address(n *Node) netip.AddrPort { return netip.AddrPortFrom(n.Switch.Address, wire.Port) }
