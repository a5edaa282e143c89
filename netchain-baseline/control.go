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

// Options are what a controller is told alongside the topology.
type Options struct {
	SeqBits int // width of sequence numbers: 16 or 128
	Keys    int // how many there are: Key(0, Groups) to Key(Keys-1, Groups)
	// virtual groups that they are spread over, 1 to MaxGroups: a recovery stops the writes of one
	// at a time
	Groups int
	// Detect is how long after the loss of its connection a switch is taken for gone, even if it
	// can be reached again (it may have been started again, and be empty); 0: only Fail says that
	// one is. NetChain assumes that a switch that is taken for gone has stopped (fail-stop).
	Detect time.Duration
	Log    *slog.Logger // nil: none
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

// Controller brings NetChain up on the switches of a topology (the file that netcraq-controller
// takes; of its chains the first), goes around switches that are gone, and brings them, or others
// in their place, in again.
type Controller struct {
	topo *topology.Topology
	o    Options
	info *p4rt.Info
	f    fabric

	connect func(context.Context)

	recovering sync.Mutex // one at a time

	mu        sync.Mutex
	plan      *plan
	installed map[string]map[int][]*v1.TableEntry // of what changes in a switch's tables, by part
	started   bool
	events    []Event
	lost      map[string]*time.Timer // switches that will soon be taken for gone
}

// A switch that is gone should not keep the controller waiting.
const fenceTime = 100 * time.Millisecond

// Event is something that a controller did.
type Event struct {
	Time    time.Time `json:"time"`
	Kind    string    `json:"kind"` // failed, around, recovering, recovered
	Switch  string    `json:"switch"`
	Message string    `json:"message"`
}

// NewController reads nothing but the topology, and touches no switch.
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

// newController makes one without switches.
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

// Start connects to the switches, loads the program again and fills the tables; it returns when all
// switches have everything. The connections last as long as ctx.
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

// fill gives a switch whose tables are empty all but the keys. A place that is not to be its own
// yet it goes around, too.
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

// update changes parts of a switch's tables to what the plan has for it.
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

// updateAll changes parts of the tables of all switches that are up, of these first. One that
// cannot be changed does not keep the others from it.
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

// all are all parts.
func (c *Controller) all() []int {
	out := []int{common}
	for g := range c.o.Groups {
		out = append(out, g)
	}
	return out
}

// note keeps an event, and logs it.
func (c *Controller) note(kind, sw, message string) {
	c.o.Log.Info(message, "event", kind, "switch", sw)
	c.events = append(c.events, Event{time.Now(), kind, sw, message})
}

// Events are what the controller has done, oldest first.
func (c *Controller) Events() []Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.events)
}

// connection is told that a connection is there, or not.
func (c *Controller) connection(sw string, connected bool) {
	if connected || c.o.Detect <= 0 {
		return
	}
	// Never waits: it is called while a recovery, which holds the lock, may be waiting for that
	// very connection.
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

// Fail continues without a switch (NetChain, algorithm 2): the others skip its place, answer for it
// where it was the last, and send by other ways what went through it. The first of the chain that
// is left begins a session, so that no number is given twice. Clients need to know nothing. The
// switch must have stopped: NetChain does not know what to do with one that continues.
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
	// A new head is one before it is sent anything to number.
	if err := c.updateAll(ctx, c.all(), c.plan.beginSessions(before)...); err != nil {
		return fmt.Errorf("going around %s: %w", name, err)
	}
	c.note("around", name, "all go around "+name)
	c.fence(ctx, s) // should it work after all
	return nil
}

// fence has a switch that is out of the chain go around itself. That it cannot be reached is not an
// error: it is gone.
func (c *Controller) fence(ctx context.Context, s *topology.Switch) {
	ctx, cancel := context.WithTimeout(ctx, fenceTime)
	defer cancel()
	if err := c.update(ctx, s, c.all()...); err != nil {
		c.o.Log.Debug("not told that it is out of the chain", "switch", s.Name, "error", err)
	}
}
