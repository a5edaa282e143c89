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

// Options are the parameters of New.
type Options struct {
	Topology *topology.Topology
	Store    saved.Store
	// ElectionID orders controllers. If two run at the same time, the controller with the higher id
	// is primary at the switches. Zero stands for the current time, so the controller that was
	// started last is primary.
	ElectionID p4rt.ElectionID
	// Led returns the time at which this controller was last known to lead. It is nil if there is
	// only one controller. The controller gives leases for the duration Leading after that time. It
	// assumes that its predecessor gave leases for the duration Leading after this controller was
	// made.
	Led     func() clock.Time
	Leading time.Duration
	// TLS is the TLS configuration for all switches. The server name of each switch comes from the
	// topology. If TLS is nil, Topology.TLS applies.
	TLS *tls.Config
	// RPCTimeout bounds each P4Runtime request. If it is 0, the default of p4rt.Options applies.
	RPCTimeout time.Duration
	Log        *slog.Logger
}

// Controller runs a network. Its exported methods are safe for concurrent use once Run has started.
type Controller struct {
	current atomic.Pointer[network]
	tls     *tls.Config // TLS configuration of connections to switches; nil: plain text
	// rpcTimeout bounds each request to a switch.
	rpcTimeout time.Duration
	election   p4rt.ElectionID // election id of the first stream to a switch that the controller connects now
	prog       *program.Program
	saver      *saved.Saver
	log        *slog.Logger
	events     *observe.Log
	requests   *switches.Requests
	metrics    *observe.Metrics
	start      time.Duration // start time by clock.Raw
	pool       *ops.Pool
	equality   ops.Equality
	running    sync.WaitGroup // goroutines that Run waits for

	inboxMu sync.Mutex
	inbox   []func()
	wake    chan struct{}

	// Only run's goroutine uses the following fields.
	wanted *topology.Topology   // the topology of the last New or Update
	gone   map[uint8]chain.Time // ids of removed chains, and until when each must not be given to another chain
	// epoch is the highest epoch that any chain had when epoch was last computed. It includes
	// removed chains.
	epoch uint16
	dir   *keyspace.Directory
	sess  *sessions.Table
	// numbering holds the numbers of principals and realms.
	numbering *tableplan.Numbering
	// leased holds the session_lease entries by switch, computed from sess. The devices' workers
	// read it.
	leased atomic.Pointer[map[string][]p4rt.Entry]
	// watching says which server watches which keys. The devices' workers read it.
	watching atomic.Pointer[tableplan.Watches]
	records  map[string]chain.Record // the chains' records, by name
	saved    bool                    // an earlier controller's state was found
	// savedKeys holds the keys as they are on record.
	savedKeys keyspace.Snapshot
	stale     bool // an earlier state was found, but a later state must have existed
	knows     bool // the saved directory is up to date: it has all keys, and all KEY_IDs that were ever assigned
	lastOp    chain.OpID
	avoided   map[string]bool // switches that routes bypass
	// news holds the names of keys that were placed, moved or given up, until that is on record. A
	// controller that took over before then would remove a placed key again, and move a moved key
	// back.
	news map[string]bool
	// replacedAt maps a name to the time when its previous KEY_ID could no longer be used
	// (settled.go)
	replacedAt map[string]chain.Time
	replacedBy chain.Time           // upper bound of the times of names that were dropped from replacedAt
	touched    map[*chainState]bool // chains whose machines may have new actions
	// deposed says how another controller took over, so that this controller has stopped acting. It
	// is "" while this controller acts.
	deposed    string
	letGo      chan struct{}     // closed when another controller has taken over
	forgetting string            // why the last attempt to forget switches that have left failed
	led        func() clock.Time // Options.Led
	leading    time.Duration
	// leaseTag is in the LEASEs of this controller, and so in the replies to them. A switch sends
	// replies to whichever controller is primary, and the numbers of another controller's LEASEs
	// mean nothing here.
	leaseTag uint32
	bringing chan struct{}   // semaphore of size one for bringing in a lost switch
	ctx      context.Context // Run's context
	stopped  chan struct{}   // closed when Run ends
	heldUpAt chain.Time      // when an event last said that the controller is held up; 0: never
}

// New reads the program and the saved state, and checks that they fit the topology. It contacts no
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
		// Without etcd, an operator can restore an older file. With etcd this cannot go unnoticed,
		// because etcd counts the writes, and switches reject a controller with a lower count.
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

// known reports whether all switches of a saved configuration are in the topology. If not, the
// record is from another network.
func known(t *topology.Topology, r chain.Record) bool {
	return !slices.ContainsFunc(slices.Concat(r.Config.Learners(), r.Fence), func(s string) bool {
		return t.Switch(s) == nil
	})
}

// now returns the time since the controller started, by an unslewed clock. The controller needs
// such a clock because it waits for leases of switches, whose clocks may be slewed.
func (c *Controller) now() chain.Time { return clock.Raw() - c.start }

// post queues a function to run on run's goroutine.
func (c *Controller) post(f func()) {
	c.inboxMu.Lock()
	c.inbox = append(c.inbox, f)
	c.inboxMu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// call runs f on run's goroutine and waits for it. If call returns an error, f has not run and will
// never run.
func (c *Controller) call(ctx context.Context, f func()) error {
	done := make(chan struct{})
	var taken atomic.Bool // whether f has started, or the caller has stopped waiting
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

// errStopped says that the controller is shutting down.
var errStopped = fmt.Errorf("%w: the controller is shutting down", chain.ErrUnavailable)

// Run works until ctx ends. The switches keep running afterwards. Their tables stay, and leases run
// out.
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
			c.running.Wait() // not deferred, because after a panic the process must end without this wait
			return
		case <-c.wake:
		case <-timer.C:
		}
		c.late()
		// Handle events before timers, because the machine may wait for an event.
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

// early returns how long to sleep in order to wait for a duration on an unslewed clock. Timers use
// a clock that may be slewed, and the difference must not look as if this controller was held up.
// So a long wait has two parts: early first returns most of it, and the rest after the clock has
// been read again.
func early(wait time.Duration) time.Duration {
	if wait > 20*time.Millisecond {
		wait -= wait / 8
	}
	return wait
}

// heldUpAgain is the minimum time between two events that say that the controller is held up.
const heldUpAgain = time.Minute

// late tells the machines whose tick is overdue that this controller was held up.
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

// touch returns a chain's machine to a caller that is about to give it an input. The resulting
// actions are carried out before run waits again.
func (c *Controller) touch(ch *chainState) *chain.Machine {
	c.touched[ch] = true
	return ch.m
}

// flush carries out a machine's actions until it has no more.
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

// announce reports when a chain becomes ready, and when it stops being ready.
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
			_ = d.Apply(ctx, rest...) // if this fails, the next pass reads the leftovers again and removes them
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

// leads reports whether this process still acts as the leader. A single controller always does. If
// there are several, a controller does so for a limited time after etcd last confirmed it.
func (c *Controller) leads() bool {
	return c.led == nil || clock.Since(c.led()) <= c.leading
}

// lease sends one LEASE.
func (c *Controller) lease(ch *chainState, a chain.Lease) {
	if !c.leads() {
		return // another controller may lead, and it may rely on this controller giving no leases
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

// save makes the present state durable, and then calls done on run's goroutine. If done is nil, an
// event reports a failure.
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

// nextOp returns a new operation id.
func (c *Controller) nextOp() chain.OpID {
	c.lastOp++
	return c.lastOp
}
