package controller

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netcraq/netcraq/api/clock"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/controller/observe"
	"github.com/netcraq/netcraq/controlplane/controller/program"
	"github.com/netcraq/netcraq/controlplane/controller/saved"
	"github.com/netcraq/netcraq/controlplane/controller/switches"
	"github.com/netcraq/netcraq/controlplane/controller/tableplan"
	"github.com/netcraq/netcraq/controlplane/keyspace"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/sessions"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// Options make a Controller.
type Options struct {
	Topology *topology.Topology
	Store    saved.Store
	// ElectionID orders controllers: of two that run at the same time the higher is primary at the
	// switches. Zero: the time, so that the one started last is.
	ElectionID p4rt.ElectionID
	// Led is when this controller was last known to lead, if there are several (nil: it is the only
	// one). It gives leases until Leading after that, and assumes that its predecessor did so for
	// Leading after this one was made.
	Led     func() clock.Time
	Leading time.Duration
	// TLS is the TLS configuration for all switches; each has the server name from the topology.
	// nil: as the topology says (Topology.TLS).
	TLS *tls.Config
	// RPCTimeout bounds each P4Runtime request (0: p4rt.Options' own).
	RPCTimeout time.Duration
	Log        *slog.Logger
}

// Controller runs a network. Its exported methods are safe for concurrent use once Run has started.
type Controller struct {
	current atomic.Pointer[network]
	tls     *tls.Config // of the connections to switches; nil: plain text
	// rpcTimeout bounds each request to a switch.
	rpcTimeout time.Duration
	election   p4rt.ElectionID // of the first stream to a switch that is connected to now
	prog       *program.Program
	saver      *saved.Saver
	log        *slog.Logger
	events     *observe.Log
	requests   *switches.Requests
	metrics    *observe.Metrics
	start      time.Duration // clock.Raw
	pool       *ops.Pool
	equality   ops.Equality
	running    sync.WaitGroup // what Run waits for

	inboxMu sync.Mutex
	inbox   []func()
	wake    chan struct{}

	// What only run's goroutine touches.
	wanted *topology.Topology   // the last that was given
	gone   map[uint8]chain.Time // ids of chains that were removed, and until when they are not given to others
	// the highest that any chain has had, those that were removed included, when it was last looked
	// at
	epoch uint16
	dir   *keyspace.Directory
	sess  *sessions.Table
	// numbering is of principals and realms.
	numbering *tableplan.Numbering
	// leased is the session_lease entries, by switch: what sess says. Devices' workers read it.
	leased atomic.Pointer[map[string][]p4rt.Entry]
	// watching is who watches what; devices' workers read it.
	watching atomic.Pointer[tableplan.Watches]
	records  map[string]chain.Record // of the chains, by name
	saved    bool                    // an earlier controller's state was there
	// savedKeys are the keys as they are on record.
	savedKeys keyspace.Snapshot
	stale     bool // ... but was an earlier one than the last
	knows     bool // ... and so the directory says which keys there are, and which KEY_IDs were given
	lastOp    chain.OpID
	avoided   map[string]bool // switches that routes go around
	// news are the names of keys that were placed, moved or given up, until that is on record: a
	// controller that took over before would take a key that was placed out again, and one that was
	// moved back.
	news map[string]bool
	// replacedAt is when the last KEY_ID that a name had before could no longer be used
	// (settled.go)
	replacedAt map[string]chain.Time
	replacedBy chain.Time           // for names that were dropped from replacedAt: the latest possible time
	touched    map[*chainState]bool // chains whose machines may ask for something
	deposed    string               // why this controller does nothing any more: another has taken over
	letGo      chan struct{}        // closed then
	forgetting string               // why switches that have left could not be forgotten the last time
	led        func() clock.Time    // Options
	leading    time.Duration
	// leaseTag is in the LEASEs of this controller, and so in the replies to them: a switch sends
	// those to whoever is primary, and the numbers of another controller's LEASEs say nothing here.
	leaseTag uint32
	bringing chan struct{}   // has room for one: for bringing in a switch that was lost
	ctx      context.Context // Run's
	stopped  chan struct{}   // closed when Run ends
	heldUpAt chain.Time      // when it was last said that the controller is held up; 0: never
}

// New reads the program and the saved state, and checks that they fit the topology. It touches no
// switch.
func New(o Options) (*Controller, error) {
	t := o.Topology
	pl, err := p4rt.LoadPipeline(t.Program.P4Info, t.Program.JSON)
	if err != nil {
		return nil, err
	}
	prog, err := program.Read(pl)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.Program.P4Info, err)
	}
	kept, err := o.Store.Load()
	if err != nil {
		return nil, err
	}
	shown := observe.NewMetrics()
	c := &Controller{prog: prog, saver: saved.NewSaver(o.Store), log: o.Log,
		metrics: shown, events: observe.NewLog(o.Log, shown.Count),
		requests: switches.NewRequests(), start: clock.Raw(),
		wanted: t, saved: kept != nil && !kept.Lost, knows: kept != nil, touched: map[*chainState]bool{},
		gone: map[uint8]chain.Time{},
		wake: make(chan struct{}, 1), stopped: make(chan struct{}), letGo: make(chan struct{}), led: o.Led,
		bringing: make(chan struct{}, 1),
		leading:  o.Leading,
		leaseTag: rand.Uint32N(1 << 24),
		election: cmp.Or(o.ElectionID, p4rt.ElectionID{Low: uint64(time.Now().UnixNano())})}
	shown.Registry.MustRegister(observe.NewSwitchEvents(c.switchEvents), observe.NewUnsentPackets(c.unsentPackets))
	c.watching.Store(&tableplan.Watches{})
	if kept == nil {
		kept = &saved.State{}
	}
	for _, k := range kept.Directory.Keys {
		if k.Slot < 0 || k.Slot >= prog.Slots {
			return nil, fmt.Errorf("the saved directory has the key %q in slot %d, and the switches have the slots 0 "+
				"to %d: it is damaged, or of a network with another program. "+
				"Put the right one back, or start with the program that it is of", k.Name, k.Slot, prog.Slots-1)
		}
	}
	spaces, err := prog.Fit(t, kept.Spaces)
	if err != nil {
		return nil, err
	}
	if c.tls = o.TLS; c.tls == nil {
		if c.tls, err = switches.TLSConfig(t.TLS); err != nil {
			return nil, err
		}
	}
	c.rpcTimeout = o.RPCTimeout
	c.numbering = tableplan.NewNumbering(kept.Principals)
	c.pool = ops.NewPool(t.Sessions.Controller, c.begin)
	c.news, c.avoided, c.replacedAt = map[string]bool{}, map[string]bool{}, map[string]chain.Time{}
	for _, s := range kept.Avoided {
		if t.Switch(s) != nil {
			c.avoided[s] = true
		}
	}
	old, left, err := kept.Earlier(t)
	if err != nil {
		return nil, err
	}
	topo, err := t.Keeping(old, left)
	if err != nil {
		return nil, err
	}
	n, err := newNetwork(topo, c.numbering, left, c.avoided)
	if err != nil {
		return nil, err
	}
	if c.dir, err = keyspace.New(spaces, kept.Directory); err != nil {
		return nil, err
	}
	c.savedKeys = kept.Directory
	c.sess = sessions.New(uint16(t.Sessions.Controller)+1, prog.LastSession(t), t.Sessions.TTL, kept.Sessions)
	c.leased.Store(&map[string][]p4rt.Entry{})
	c.records = map[string]chain.Record{}
	maps.Copy(c.records, kept.Chains)
	c.epoch = kept.Highest()
	for i, ct := range t.Chains {
		co := chain.Options{Switches: n.switches(), PriorLeaseBound: o.Leading, EpochFloor: c.epoch}
		// a file can be put back as it was earlier. (In etcd, writes are counted, and switches take
		// nothing from a controller with a lower count.)
		if o.Led == nil {
			co.Doubt = doubt
		}
		if r, ok := kept.Chains[ct.Name]; ok && known(n.topo, r) {
			co.Record = &r
		}
		ch := c.newChain(ct, spaces[i], co)
		if len(left) > 0 {
			ch.m.SetSwitches(0, n.switches(), n.left)
		}
		ch.m.SetKeys(c.dir.Count(ct.ID))
		if ops.InUse(c.dir, ct.ID) {
			c.equality.HasKeys(ct.ID)
		}
		n.addChain(ch)
	}
	for _, s := range topo.Switches {
		d, err := c.newDevice(s, c.election)
		if err != nil {
			return nil, err
		}
		n.addDevice(d)
	}
	c.current.Store(n)
	for _, d := range n.devices {
		c.metrics.ShowSwitch(d.Spec.Name, false)
	}
	return c, nil
}

// doubt is how long the controller waits for all members of a chain's record before it acts on it.
const doubt = 2 * time.Second

// known says whether all switches of a saved configuration are in the topology; if not, the record
// is of another network.
func known(t *topology.Topology, r chain.Record) bool {
	return !slices.ContainsFunc(slices.Concat(r.Config.Learners(), r.Fence), func(s string) bool {
		return t.Switch(s) == nil
	})
}

// now is the time since the controller started, by an unslewed clock: it waits for leases of
// switches, whose clocks may be slewed.
func (c *Controller) now() chain.Time { return clock.Raw() - c.start }

// post gives run's goroutine something to do.
func (c *Controller) post(f func()) {
	c.inboxMu.Lock()
	c.inbox = append(c.inbox, f)
	c.inboxMu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// call runs f on run's goroutine and waits for it. After an error f has not run, and does not any
// more.
func (c *Controller) call(ctx context.Context, f func()) error {
	done := make(chan struct{})
	var taken atomic.Bool // f is run, or is no longer wanted
	c.post(func() {
		if taken.CompareAndSwap(false, true) {
			f()
			close(done)
		}
	})
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		if !taken.CompareAndSwap(false, true) {
			<-done
			return nil
		}
		return ctx.Err()
	case <-c.stopped:
		return errStopped
	}
}

// errStopped: the controller is shutting down.
var errStopped = fmt.Errorf("%w: the controller is shutting down", chain.ErrUnavailable)

// Run works until ctx ends. The switches keep running after it: what is installed stays, and leases
// run out.
func (c *Controller) Run(ctx context.Context) {
	c.ctx = ctx
	defer close(c.stopped)
	c.running.Go(func() { c.saver.Run(ctx) })
	c.running.Go(func() { c.watchLeases(ctx) })
	c.running.Go(func() { c.roll(ctx) })
	c.publishLeases()
	for _, d := range c.net().devices {
		c.startDevice(d)
	}
	c.undoUnfinished()
	for _, ch := range c.net().chains {
		c.touch(ch).Tick(c.now())
		c.flush(ch)
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			c.running.Wait() // not deferred: a panic must end the process, and the others end with ctx
			return
		case <-c.wake:
		case <-timer.C:
		}
		c.late()
		// Events before timers: an event may be what the machine waits for.
		c.inboxMu.Lock()
		todo := c.inbox
		c.inbox = nil
		c.inboxMu.Unlock()
		for _, f := range todo {
			f()
		}
		for _, ch := range c.net().chains {
			if ch.next > 0 && ch.next <= c.now() {
				c.touch(ch).Tick(c.now())
			}
		}
		for again := true; again; again = c.release() {
			for _, ch := range c.net().chains {
				if c.touched[ch] {
					c.flush(ch)
				}
			}
			clear(c.touched)
		}
		wait := time.Hour
		for _, ch := range c.net().chains {
			if ch.next > 0 {
				wait = min(wait, max(0, ch.next-c.now()))
			}
		}
		timer.Reset(early(wait))
	}
}

// early is how long to sleep for a duration on an unslewed clock, because timers run by one that
// may be slewed. Being late for that reason must not look as if this controller was held up, so
// most of a long wait comes first, and the rest after another look at the clock.
func early(wait time.Duration) time.Duration {
	if wait > 20*time.Millisecond {
		wait -= wait / 8
	}
	return wait
}

// heldUpAgain is how long the controller says nothing more of being held up.
const heldUpAgain = time.Minute

// late tells machines whose tick was due a while ago that this controller has been held up.
func (c *Controller) late() {
	now := c.now()
	for _, ch := range c.net().chains {
		by := now - ch.next
		if ch.next == 0 || by <= 0 || !c.touch(ch).Late(now, by) {
			continue
		}
		if c.heldUpAt == 0 || now-c.heldUpAt >= heldUpAgain {
			c.heldUpAt = now
			c.events.Add("controller.held-up", "", ch.topo.Name, fmt.Sprintf("what was due was done %v late: this machine "+
				"has too much to do, or was stopped. Leases of %v may run out, and nobody is given up for that",
				by.Round(time.Millisecond), ch.m.Status(now).Config.Lease))
		}
	}
}

// touch gives a chain's machine to somebody who is about to tell it something; what it asks for
// then is done before run waits again.
func (c *Controller) touch(ch *chainState) *chain.Machine {
	c.touched[ch] = true
	return ch.m
}

// flush does what a machine asks for, until it asks for nothing more.
func (c *Controller) flush(ch *chainState) {
	for actions := ch.m.Actions(); len(actions) > 0; actions = ch.m.Actions() {
		for _, a := range actions {
			c.do(ch, a)
		}
	}
	ch.next = 0
	if at, ok := ch.m.Next(c.now()); ok {
		ch.next = at
	}
	st := ch.m.Status(c.now())
	if learners := st.Config.Learners(); st.Decided {
		ch.learners.Store(&learners)
	}
	c.tidy(ch, st)
	c.announce(ch, st)
	c.metrics.ShowChain(ch.topo.Name, st)
	if !c.saved && st.Found || st.Stale && !c.stale {
		c.saved, c.stale = true, st.Stale
		c.sess.Rest(c.now())
		c.events.Add("sessions.resting", "", "", fmt.Sprintf(
			"an earlier controller ran, and its leases on sessions are not known: none are given for %v", 2*c.sess.TTL()))
	}
}

// announce says when a chain becomes ready, and when it is no longer.
func (c *Controller) announce(ch *chainState, s chain.Status) {
	if s.Ready == ch.ready {
		return
	}
	ch.ready = s.Ready
	if s.Ready {
		c.events.Add("chain.ready", "", ch.topo.Name, fmt.Sprintf("%v, service address %v, %d keys", s.Config, ch.topo.Address, c.dir.Count(ch.topo.ID)))
	} else {
		c.events.Add("chain.not-ready", "", ch.topo.Name, s.Reason)
	}
}

// do carries out one action.
func (c *Controller) do(ch *chainState, a chain.Action) {
	switch a := a.(type) {
	case chain.Event:
		c.events.Add(a.Type, a.Switch, ch.topo.Name, a.Message)
	case chain.Persist:
		c.records[ch.topo.Name] = a.Record
		if conf := a.Record.Config; !a.Record.Installed {
			for _, d := range c.net().devices {
				d.Submit(func(ctx context.Context) { d.Prepare(ctx, ch.topo, conf) })
			}
		}
		c.save(func(err error) { c.touch(ch).Persisted(c.now(), a.Seq, err) })
	case chain.Lease:
		c.lease(ch, a)
	case chain.Install:
		d := c.net().byName[a.Switch]
		keys, used := c.dir.Chain(ch.topo.ID), c.dir.Used(ch.topo.ID)
		stream := d.state.Stream
		d.Submit(func(ctx context.Context) {
			rest, err := d.Become(ctx, stream, ch.topo, a, keys, used)
			c.post(func() { c.touch(ch).Installed(c.now(), a.Switch, a.Seq, err) })
			_ = d.Apply(ctx, rest...) // what fails is read again, and taken away, the next time
		})
	case chain.Redrive:
		keys := c.dir.Chain(ch.topo.ID)
		go func() {
			n, err := ch.ops.Redrive(c.ctx, a, ops.Reachable(keys))
			c.metrics.Redrove(n)
			c.post(func() { c.touch(ch).Redriven(c.now(), a.Epoch, err) })
		}()
	case chain.Reconnect:
		d := c.net().byName[a.Switch]
		d.Client.Reconnect(d.state.Stream, errors.New(a.Why))
	case chain.Erase:
		c.erase(ch, a)
	case chain.Rejoin:
		go func() {
			err := c.bringIn(c.ctx, ch.topo.Name, a.Switch)
			c.post(func() { c.touch(ch).Rejoined(c.now(), a.Seq, err) })
		}()
	case chain.Copy:
		keys, records := c.dir.Chain(ch.topo.ID), c.recordsToCopy()
		ctx, cancel := context.WithCancel(c.ctx)
		ch.endCopy = cancel
		go func() {
			defer cancel()
			start := time.Now()
			n, rounds, err := ch.ops.Copy(ctx, a, ops.Reachable(keys), records)
			c.post(func() {
				what := map[bool]string{true: "chain.compared", false: "chain.copied"}[a.Compare || a.Passed]
				if err == nil {
					c.metrics.CopiedInto(ch.topo.Name, n)
					c.events.Add(what, a.To, ch.topo.Name, fmt.Sprintf("%d slots and sessions written, of %d keys, in %v and %d rounds", n, len(keys), time.Since(start), rounds))
				}
				c.touch(ch).Copied(c.now(), a.Seq, err)
			})
		}()
	case chain.CancelCopy:
		ch.endCopy()
	case chain.InsertKeys:
		c.entriesOf(ch, a.Op, a.Attempt, a.Switch, true, c.net().plan.EntriesBy(a.Alias))
	case chain.OpenKeys:
		c.openEntriesOf(ch, a)
	case chain.DeleteKeys:
		c.entriesOf(ch, a.Op, a.Attempt, a.Switch, false, c.net().plan.EntriesBy(a.Alias))
	case chain.WriteKeys:
		c.valuesOf(ch, a.Op, a.Attempt, false)
	case chain.DeleteValues:
		c.valuesOf(ch, a.Op, a.Attempt, true)
	case chain.DrainKeys:
		c.drainKeys(ch, a)
	case chain.CancelKeys:
		if o := ch.operations[a.Op]; o != nil && o.cancel != nil {
			o.cancel()
		}
	case chain.Done:
		if w := ch.waiting[a.Op]; w != nil {
			delete(ch.waiting, a.Op)
			w <- a.Err
		}
		if o := ch.operations[a.Op]; o != nil {
			delete(ch.operations, a.Op)
			c.keysDone(ch, o, a.Err)
		}
	default:
		panic(fmt.Sprintf("an action that the shell does not know: %T", a))
	}
}

// leads says whether this process still acts as the leader: one that is alone does, another for as
// long after etcd has said so as it may.
func (c *Controller) leads() bool {
	return c.led == nil || clock.Since(c.led()) <= c.leading
}

// lease sends one LEASE.
func (c *Controller) lease(ch *chainState, a chain.Lease) {
	if !c.leads() {
		return // another may lead, and count on it that none are given
	}
	d := c.net().byName[a.Switch]
	if d.Heard(a.Every) {
		c.touch(ch).Alive(a.Switch)
	}
	if d.Worked(a.Every) {
		c.touch(ch).Working(c.now(), a.Switch)
	}
	if err := d.SendLease(&wire.Packet{
		Op: wire.Lease, Epoch: a.Epoch, Session: a.Number, Key: wire.MakeKey(ch.topo.ID, c.leaseTag),
		Request: uint32(a.Duration.Microseconds()), Version: wire.Version(a.Clock),
	}); err != nil {
		c.log.Debug("lease not sent", "switch", a.Switch, "chain", ch.topo.Name, "error", err)
	}
}

// save makes the state as it is now durable, and then calls done on run's goroutine. done nil:
// nothing waits for it, and a failure is said in an event.
func (c *Controller) save(done func(error)) {
	if done == nil {
		done = func(err error) {
			if err != nil {
				c.events.Add("state.not-saved", "", "", err.Error())
			}
		}
	}
	s := &saved.State{Version: saved.Version, Chains: maps.Clone(c.records), Directory: c.dir.Snapshot(),
		Sessions:   c.sess.Leases(),
		Principals: c.numbering.Numbers(),
		Avoided:    slices.Sorted(maps.Keys(c.avoided)), Switches: saved.Switches(c.net().topo), Spaces: c.dir.Spaces(),
		Epoch: c.epoch}
	news := slices.Collect(maps.Keys(c.news))
	c.saver.Save(s, func(err error) {
		c.post(func() {
			if err == nil {
				for _, name := range news {
					delete(c.news, name)
				}
			}
			if errors.Is(err, saved.ErrNotLeading) {
				c.depose("", fmt.Sprintf("%v: this one does nothing any more", err))
			}
			if err == nil {
				c.savedKeys = s.Directory
			}
			done(err)
		})
	})
}

// nextOp names an operation.
func (c *Controller) nextOp() chain.OpID {
	c.lastOp++
	return c.lastOp
}
