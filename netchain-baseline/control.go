package netchain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// Options are the options of a controller. The topology is a separate argument.
type Options struct {
	SeqBits int // width of sequence numbers in bits: 16 or 128
	Keys    int // number of keys; they are Key(0, Groups) to Key(Keys-1, Groups)
	// Groups is the number of virtual groups, from 1 to MaxGroups. A recovery stops the writes of
	// one group at a time.
	Groups int
	// Detect is the time for which the connection to a switch must be lost until the switch counts
	// as failed. It counts as failed even if it is reachable again, because it may have restarted
	// empty. If Detect is 0, only the method Fail declares a failure. NetChain assumes that a
	// failed switch has stopped (fail-stop).
	Detect time.Duration
	Log    *slog.Logger // log of the controller's actions; may be nil
}

func (o *Options) check(t *topology.Topology) error {
	switch {
	case len(t.Chains) == 0:
		return fmt.Errorf("the topology has no chain")
	case len(t.Chains[0].Members) > MaxChain-1:
		return fmt.Errorf("chain %s has %d members: NetChain's packets have room for %d", t.Chains[0].Name, len(t.Chains[0].Members), MaxChain-1)
	case o.Keys < 1 || o.Keys > 65536:
		return fmt.Errorf("%d keys: the switches have slots for 1 to 65536", o.Keys)
	case o.Groups < 1 || o.Groups > MaxGroups:
		return fmt.Errorf("%d virtual groups: there are 1 to %d", o.Groups, MaxGroups)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Controller runs NetChain on the first chain of a topology, which is described by a file for
// netcraq-controller. It bypasses failed switches. It also brings failed switches back, or replaces
// them by other switches.
type Controller struct {
	topo *topology.Topology
	o    Options
	info *p4rt.Info
	f    fabric

	connect func(context.Context)

	recovering sync.Mutex // held during a recovery

	mu   sync.Mutex
	plan *plan
	// the entries that each switch has, without constant entries, by switch and part
	installed map[string]map[int][]*v1.TableEntry
	started   bool
	events    []Event
	lost      map[string]*time.Timer // timers of switches that count as failed when their timer ends
}

// fenceTime is the time limit for fencing. It is short because a failed switch should not delay the
// controller.
const fenceTime = 100 * time.Millisecond

// Event describes an action of a controller.
type Event struct {
	Time    time.Time `json:"time"`
	Kind    string    `json:"kind"` // one of: failed, around, recovering, recovered
	Switch  string    `json:"switch"`
	Message string    `json:"message"`
}

// NewController checks the options and the topology. It does not contact any switch.
func NewController(t *topology.Topology, o Options) (*Controller, error) {
	if err := o.check(t); err != nil {
		return nil, err
	}
	c, text, err := newController(t, o)
	if err != nil {
		return nil, err
	}
	pipe, err := p4rt.NewPipeline(c.info, text)
	if err != nil {
		return nil, err
	}
	f, err := newP4Fabric(t, o.SeqBits, c.info, pipe, o.Log, c.connection)
	if err != nil {
		return nil, err
	}
	c.f, c.connect = f, f.connect
	return c, nil
}

// newController returns a controller without connections to switches.
func newController(t *topology.Topology, o Options) (*Controller, []byte, error) {
	text, p4info, err := Compiled(o.SeqBits)
	if err != nil {
		return nil, nil, err
	}
	var m configv1.P4Info
	if err := prototext.Unmarshal(p4info, &m); err != nil {
		return nil, nil, fmt.Errorf("NetChain's P4Info: %w", err)
	}
	info, err := p4rt.NewInfo(&m)
	if err != nil {
		return nil, nil, err
	}
	return &Controller{topo: t, o: o, info: info, connect: func(context.Context) {}, plan: newPlan(t, o.Groups,
		o.SeqBits), installed: map[string]map[int][]*v1.TableEntry{},
		lost: map[string]*time.Timer{}}, text, nil
}

// Start connects to the switches, loads the program into them and fills their tables. It returns
// when all switches have all entries. The connections last until ctx ends.
func (c *Controller) Start(ctx context.Context) error {
	c.connect(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.topo.Switches {
		if err := c.f.reload(ctx, s.Name); err != nil {
			return err
		}
		if err := c.fill(ctx, s); err != nil {
			return err
		}
		if c.plan.placeOf(s) != nil {
			if err := c.insert(ctx, s, c.plan.keys(c.o.Keys)); err != nil {
				return err
			}
		}
	}
	c.started = true
	return nil
}

// fill writes all entries except those of the keys into a switch with empty tables. As long as the
// switch does not have its place in the chain again, it passes packets for that place on to the
// next place.
func (c *Controller) fill(ctx context.Context, s *topology.Switch) error {
	c.installed[s.Name] = map[int][]*v1.TableEntry{}
	if err := c.update(ctx, s, c.all()...); err != nil {
		return err
	}
	return c.insert(ctx, s, addresses())
}

func (c *Controller) insert(ctx context.Context, s *topology.Switch, entries []p4rt.Entry) error {
	encoded, err := c.encode(entries)
	if err != nil {
		return err
	}
	return c.f.write(ctx, s.Name, p4rt.DiffEntries(nil, encoded))
}

func (c *Controller) encode(entries []p4rt.Entry) (out []*v1.TableEntry, err error) {
	for _, e := range entries {
		te, err := c.info.Encode(e)
		if err != nil {
			return nil, err
		}
		out = append(out, te)
	}
	return out, nil
}

// update changes parts of a switch's tables to the entries that the plan requires.
func (c *Controller) update(ctx context.Context, s *topology.Switch, parts ...int) error {
	var updates []*v1.Update
	want := map[int][]*v1.TableEntry{}
	for _, part := range parts {
		var err error
		if want[part], err = c.encode(c.plan.entries(s, part)); err != nil {
			return err
		}
		updates = append(updates, p4rt.DiffEntries(c.installed[s.Name][part], want[part])...)
	}
	if err := c.f.write(ctx, s.Name, updates); err != nil {
		return err
	}
	maps.Copy(c.installed[s.Name], want)
	return nil
}

// updateAll changes parts of the tables of all running switches, beginning with the switches in
// first. If the update of a switch fails, the other switches are still updated.
func (c *Controller) updateAll(ctx context.Context, parts []int, first ...*topology.Switch) error {
	var errs []error
	done := map[*topology.Switch]bool{}
	for _, s := range append(slices.Clone(first), c.topo.Switches...) {
		if !c.plan.down[s.Name] && !done[s] {
			done[s] = true
			errs = append(errs, c.update(ctx, s, parts...))
		}
	}
	return errors.Join(errs...)
}

// all returns the numbers of all parts of the tables.
func (c *Controller) all() []int {
	out := []int{common}
	for g := range c.o.Groups {
		out = append(out, g)
	}
	return out
}

// note records an event, and logs it.
func (c *Controller) note(kind, sw, message string) {
	c.o.Log.Info(message, "event", kind, "switch", sw)
	c.events = append(c.events, Event{time.Now(), kind, sw, message})
}

// Events returns the controller's actions, oldest first.
func (c *Controller) Events() []Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.events)
}

// connection is called when the connection to a switch is established or lost.
func (c *Controller) connection(sw string, connected bool) {
	if connected || c.o.Detect <= 0 {
		return
	}
	// Run this in a goroutine, because the caller must not block. A recovery may hold the lock
	// while it waits for this caller's connection.
	go func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.started && !c.plan.down[sw] && c.lost[sw] == nil {
			c.lost[sw] = time.AfterFunc(c.o.Detect, func() {
				if err := c.Fail(context.Background(), sw); err != nil {
					c.o.Log.Error(err.Error())
				}
			})
		}
	}()
}

// Fail removes a failed switch from the chain (NetChain, algorithm 2). The other switches skip its
// place, answer for it if it was the last switch, and route around it. The first switch of the
// remaining chain begins a session, so that no sequence number is assigned twice. Clients need no
// notice. The switch must have stopped, because NetChain cannot handle a failed switch that
// continues.
func (c *Controller) Fail(ctx context.Context, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.topo.Switch(name)
	switch {
	case s == nil:
		return fmt.Errorf("there is no switch %q in the topology", name)
	case c.plan.down[name]:
		return fmt.Errorf("%s is gone already", name)
	}
	at := c.plan.placeOf(s)
	before := c.plan.heads()
	if at != nil {
		old := *at
		at.by, at.active, at.skipped = nil, nil, true
		if slices.Contains(c.plan.heads(), nil) {
			*at = old
			return fmt.Errorf("%s is the last switch of the chain", name)
		}
	}
	c.plan.down[name] = true
	if t := c.lost[name]; t != nil {
		t.Stop()
		delete(c.lost, name)
	}
	c.note("failed", name, name+" is gone")
	// A new head gets its entries first. Otherwise the other switches would send it packets to
	// number too early.
	if err := c.updateAll(ctx, c.all(), c.plan.beginSessions(before)...); err != nil {
		return fmt.Errorf("going around %s: %w", name, err)
	}
	c.note("around", name, "all go around "+name)
	c.fence(ctx, s) // fence the switch, in case it still works
	return nil
}

// fence makes a removed switch bypass itself. It is not an error if the switch is unreachable,
// because it has failed.
func (c *Controller) fence(ctx context.Context, s *topology.Switch) {
	ctx, cancel := context.WithTimeout(ctx, fenceTime)
	defer cancel()
	if err := c.update(ctx, s, c.all()...); err != nil {
		c.o.Log.Debug("not told that it is out of the chain", "switch", s.Name, "error", err)
	}
}
