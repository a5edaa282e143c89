package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/controller/program"
	"github.com/netcraq/netcraq/controlplane/controller/switches"
	"github.com/netcraq/netcraq/controlplane/keyspace"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/sessions"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// The methods of this file make the controller the admin API's backend (package adminserver serves
// these methods over HTTP). Errors are *admin.Error.

// apiError adds the API's error code to an error.
func apiError(err error) error {
	if err == nil {
		return nil
	}
	var we *p4rt.WriteError
	code := admin.CodeInternal
	switch {
	case errors.Is(err, keyspace.ErrInvalid) || errors.Is(err, chain.ErrInvalid):
		code = admin.CodeInvalidArgument
	case errors.Is(err, keyspace.ErrNotFound) || errors.Is(err, errNotFound) || errors.Is(err, sessions.ErrNotFound):
		code = admin.CodeNotFound
	case errors.Is(err, keyspace.ErrExists):
		code = admin.CodeAlreadyExists
	case errors.Is(err, errQuota):
		code = admin.CodeQuotaExceeded
	case errors.Is(err, keyspace.ErrFull) || errors.Is(err, keyspace.ErrShare) || errors.Is(err, sessions.ErrFull) ||
		errors.As(err, &we) && we.Code() == codes.ResourceExhausted:
		code = admin.CodeResourceExhausted
	case errors.Is(err, chain.ErrRefused):
		code = admin.CodeFailedPrecondition
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.Is(err, chain.ErrSilent):
		code = admin.CodeDeadlineExceeded
	case errors.Is(err, chain.ErrUnavailable) || switches.Passing(err):
		code = admin.CodeUnavailable
	}
	return admin.Errorf(code, "%s", err.Error())
}

// Chains lists the chains.
func (c *Controller) Chains(ctx context.Context) ([]admin.Chain, error) {
	out := []admin.Chain{}
	err := c.call(ctx, func() {
		for _, ch := range c.net().chains {
			out = append(out, c.describeChain(ch))
		}
	})
	return out, apiError(err)
}

// Chain returns one chain, by name or decimal id.
func (c *Controller) Chain(ctx context.Context, name string) (*admin.Chain, error) {
	var out admin.Chain
	var failed error
	err := c.call(ctx, func() {
		ch, err := c.findChain(name)
		if failed = err; err == nil {
			out = c.describeChain(ch)
		}
	})
	return &out, apiError(errors.Join(err, failed))
}

func (c *Controller) describeChain(ch *chainState) admin.Chain {
	s := ch.m.Status(c.now())
	out := admin.Chain{
		Name: ch.topo.Name, ID: ch.topo.ID, Epoch: s.Config.Epoch,
		ServiceAddress: ch.topo.Address.String(), LeaseMillis: int(s.Config.Lease / time.Millisecond),
		Length: s.Length, Frozen: s.Config.Freeze != chain.Thawed, Slots: ch.space.Count, Keys: c.dir.Count(ch.topo.ID),
		Ready: s.Ready, Reason: s.Reason,
		ValueBytes: c.prog.Profile.ValueBytes(), Members: []admin.Member{},
	}
	if s.LeaseGiven < s.Config.Lease {
		out.LeaseGivenMillis = int(s.LeaseGiven / time.Millisecond)
	}
	for _, m := range s.Members {
		out.Members = append(out.Members, admin.Member{
			Switch: m.Switch, Role: m.Role.String(), Address: c.net().topo.Switch(m.Switch).Address.String(),
			Ready: m.Ready, LeaseLive: m.LeaseLive, Version: c.versionOf(m.Switch),
		})
	}
	out.VersionWarning = c.versionWarning(out.Members)
	for _, m := range s.Missing {
		out.Missing = append(out.Missing, admin.MissingMember{Switch: m.Switch, Why: m.Why})
	}
	return out
}

// ChangeChain changes a running chain.
func (c *Controller) ChangeChain(ctx context.Context, name string, ch admin.ChainChange) (*admin.Chain, error) {
	var change chain.Change
	if ch.LeaseMillis != nil {
		l := time.Duration(*ch.LeaseMillis) * time.Millisecond
		change.Lease = &l
	}
	change.Frozen = ch.Frozen
	if ch.Members != nil {
		// an empty list is not nil, so it is refused
		change.Members = append([]string{}, *ch.Members...)
	}
	err := c.probeJoiners(ctx, name, change.Members)
	if err == nil {
		err = c.change(ctx, name, change)
	}
	if err != nil {
		return nil, apiError(err)
	}
	return c.Chain(ctx, name)
}

// Recover brings a switch into a chain, and returns when it is a member.
func (c *Controller) Recover(ctx context.Context, name, sw string) (*admin.Chain, error) {
	if err := c.recoverByHand(ctx, name, sw); err != nil {
		return nil, apiError(err)
	}
	return c.Chain(ctx, name)
}

// Metrics serves the metrics for Prometheus.
func (c *Controller) Metrics() http.Handler { return c.metrics.Handler() }

// Registry returns the metrics' registry. Other components in the process add their metrics to it.
func (c *Controller) Registry() *prometheus.Registry { return c.metrics.Registry }

// Keys lists the keys of a chain by name, in their recorded state. So after a failure the next
// controller returns the same list.
func (c *Controller) Keys(ctx context.Context, chainName string) ([]admin.Key, error) {
	out := []admin.Key{}
	var failed error
	err := c.call(ctx, func() {
		ch, err := c.findChain(chainName)
		if failed = errors.Join(err, c.mayTell()); failed != nil {
			return
		}
		for _, k := range c.onRecord("") {
			if k.ID.Chain() == ch.topo.ID {
				out = append(out, c.describeKey(k))
			}
		}
	})
	return out, apiError(errors.Join(err, failed))
}

// mayTell returns why this controller must not report the KEY_IDs of keys (another controller may
// have moved the keys), or nil if it may.
func (c *Controller) mayTell() error {
	switch {
	case c.deposed != "":
		return fmt.Errorf("%w: %s", chain.ErrUnavailable, c.deposed)
	case !c.leads():
		return fmt.Errorf("%w: this controller has not heard from the store that it leads", chain.ErrUnavailable)
	}
	return nil
}

// onRecord returns the keys whose names start with prefix, by name, in their recorded state. It
// leaves out keys that are being added, that were added and are being removed again, or that will
// replace a key that moves. If this controller ended now, the next controller would remove them. A
// key that is moving has its former KEY_ID.
func (c *Controller) onRecord(prefix string) []keyspace.Key {
	return c.savedKeys.List(prefix, func(k keyspace.Key) bool {
		return k.State != keyspace.Adding && !k.Undone && !strings.HasPrefix(k.Name, keyspace.MovingPrefix)
	})
}

func (c *Controller) describeKey(k keyspace.Key) admin.Key {
	out := admin.Key{Name: k.Name, KeyID: uint32(k.ID), Slot: k.Slot, Realm: c.net().topo.RealmOf(k.FinalName())}
	out.VersionOffset = k.Offset
	if k.Empty {
		out.Unwritten = uint64(k.Made)
	}
	if ch := c.net().byID[k.ID.Chain()]; ch != nil { // the chain may have been removed a moment ago
		out.Chain = ch.topo.Name
	}
	return out
}

// describeOne returns the API's description of one key.
func (c *Controller) describeOne(k keyspace.Key) admin.Key {
	out := c.describeKey(k)
	out.SettledMillis = c.settled(k.Name).Milliseconds()
	return out
}

// AddKeys places keys. The results are in the order of the specs, each with its own error.
func (c *Controller) AddKeys(ctx context.Context, chainName string, specs []admin.KeySpec) ([]admin.Key, error) {
	keys := make([]newKey, len(specs))
	for i, s := range specs {
		keys[i] = newKey{name: s.Name, value: s.Value}
		if s.KeyID != nil {
			id := wire.Key(*s.KeyID)
			keys[i].id = &id
		}
	}
	added, err := c.addKeys(ctx, chainName, keys)
	if err != nil {
		return nil, apiError(err)
	}
	out := make([]admin.Key, len(added))
	for i, a := range added {
		if a.err == nil {
			out[i] = c.describeKey(a.key)
			continue
		}
		out[i] = admin.Key{Name: specs[i].Name}
		errors.As(apiError(a.err), &out[i].Error)
	}
	return out, nil
}

// RemoveKey removes a key from the network.
func (c *Controller) RemoveKey(ctx context.Context, chainName, nameOrID string) error {
	return apiError(c.removeKey(ctx, chainName, nameOrID))
}

// MoveKey moves a key to another chain, where it gets another KEY_ID. Until the move is recorded,
// lookups of its name return Unavailable.
func (c *Controller) MoveKey(ctx context.Context, chainName, nameOrID, to string) (*admin.Key, error) {
	k, err := c.moveKey(ctx, chainName, nameOrID, to)
	if err != nil {
		return nil, apiError(err)
	}
	out := c.describeKey(k)
	return &out, nil
}

// Directory lists the keys of all chains whose names start with prefix, as Keys does. If state is
// set, it also fetches the content that each member holds.
func (c *Controller) Directory(ctx context.Context, prefix string, state bool) ([]admin.Key, error) {
	var keys []keyspace.Key
	var failed error
	if err := c.call(ctx, func() {
		if failed = c.mayTell(); failed == nil {
			keys = c.onRecord(prefix)
		}
	}); err != nil || failed != nil {
		return nil, apiError(errors.Join(err, failed))
	}
	return c.describeKeys(ctx, keys, stateAt(state))
}

// Lookup finds one key by its exact name.
func (c *Controller) Lookup(ctx context.Context, name string, state bool) (*admin.Key, error) {
	return c.lookup(ctx, name, stateAt(state))
}

// LookupTail is Lookup, with the key's state at only the last member of its chain.
func (c *Controller) LookupTail(ctx context.Context, name string) (*admin.Key, error) {
	return c.lookup(ctx, name, stateAtTail)
}

// reach says at which members of its chain a key's state is read.
type reach int

const (
	stateNowhere reach = iota
	stateAtTail
	stateEverywhere
)

func stateAt(all bool) reach {
	if all {
		return stateEverywhere
	}
	return stateNowhere
}

func (c *Controller) lookup(ctx context.Context, name string, state reach) (*admin.Key, error) {
	var k keyspace.Key
	var ok bool
	var failed error
	var settled time.Duration
	if err := c.call(ctx, func() {
		k, ok, failed = c.find(name)
		settled = c.settled(name)
	}); err != nil || failed != nil {
		return nil, apiError(errors.Join(err, failed))
	}
	if !ok {
		e := admin.Errorf(admin.CodeNotFound, "no key %q is placed in the network", name)
		e.SettledMillis = settled.Milliseconds()
		return nil, e
	}
	out, err := c.describeKeys(ctx, []keyspace.Key{k}, state)
	if err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, admin.Errorf(admin.CodeNotFound, "the key %q is of chain %d, which the topology does not have", name, k.ID.Chain())
	}
	out[0].SettledMillis = settled.Milliseconds()
	return &out[0], nil
}

func (c *Controller) describeKeys(ctx context.Context, keys []keyspace.Key, state reach) ([]admin.Key, error) {
	out := []admin.Key{}
	keys = slices.DeleteFunc(keys, func(k keyspace.Key) bool { return c.net().byID[k.ID.Chain()] == nil })
	for _, k := range keys {
		out = append(out, c.describeKey(k))
	}
	if state == stateNowhere {
		return out, nil
	}
	states, err := c.states(ctx, keys, state)
	if err != nil {
		return nil, apiError(err)
	}
	for i, k := range keys {
		for _, s := range states[k.ID] {
			out[i].State = append(out[i].State, describeState(s))
		}
	}
	return out, nil
}

func describeState(s keyState) admin.KeyState {
	out := admin.KeyState{Switch: s.sw, Status: "UNREACHABLE", Length: -1}
	if s.err != nil {
		return out
	}
	out.Version, out.Newest = uint64(s.committed.Version), uint64(s.newest.Version)
	out.Session, out.Request = s.newest.Session, s.newest.Request
	switch {
	case s.newest.Status == wire.Dirty:
		out.Status = wire.Dirty.String()
	case s.committed.Tombstone:
		out.Status = wire.NotFound.String()
	default:
		out.Status = s.committed.Status.String()
	}
	if !s.committed.Tombstone {
		out.Length, out.Value = len(s.committed.Value), append([]byte{}, s.committed.Value...)
	}
	return out
}

// Switches lists the switches in the topology's order.
func (c *Controller) Switches(ctx context.Context) ([]admin.Switch, error) {
	out := []admin.Switch{}
	err := c.call(ctx, func() {
		for _, d := range c.net().devices {
			s := admin.Switch{
				Name: d.Spec.Name, P4Runtime: d.Spec.P4Runtime, DeviceID: d.Spec.DeviceID,
				Address:   d.Spec.Address.String(),
				Connected: d.state.Phase != p4rt.Disconnected, Primary: d.state.Phase == p4rt.Primary,
				Ready: d.ready, LastError: d.lastError, Version: d.state.Version,
				Chains: []string{}, Ports: describePorts(c.net().topo.Switch(d.Spec.Name)),
			}
			if c.net().left[d.Spec.Name] && s.LastError == "" {
				s.LastError = "it has left the topology, and is forgotten when no chain needs it"
			}
			if d.ready {
				s.Pipeline = fmt.Sprintf("%016x", c.prog.Pipeline.Cookie)
			}
			for _, ch := range c.net().chains {
				if ch.m.Status(c.now()).Config.IsMember(d.Spec.Name) {
					s.Chains = append(s.Chains, ch.topo.Name)
				}
			}
			out = append(out, s)
		}
	})
	return out, apiError(err)
}

func describePorts(s *topology.Switch) []admin.Port {
	out := []admin.Port{}
	if s == nil { // the switch left a moment ago
		return out
	}
	for _, p := range s.Ports {
		port := admin.Port{Number: p.Number, Trust: "closed", LeadsTo: p.LeadsTo()}
		switch h := p.Host; {
		case p.Peer != nil:
			port.Trust = "fabric"
		case h != nil && h.Principal != "":
			port.Trust, port.Principal, port.Rate = "host", h.Principal, h.Rate
			if h.Open {
				port.Trust = "open"
			}
		}
		out = append(out, port)
	}
	return out
}

// Counters reads a switch's counters.
func (c *Controller) Counters(ctx context.Context, name string) (*admin.Counters, error) {
	d := c.net().byName[name]
	if d == nil {
		var names []string
		for _, d := range c.net().devices {
			names = append(names, d.Spec.Name)
		}
		return nil, admin.Errorf(admin.CodeNotFound, "there is no switch %q; there is: %s", name, strings.Join(names, ", "))
	}
	var keys []keyspace.Key
	if err := c.call(ctx, func() { keys = c.dir.List("") }); err != nil {
		return nil, apiError(err)
	}
	out := &admin.Counters{Switch: name, Unsent: d.Unsent(), Slots: []admin.SlotCounters{},
		Ports: describePorts(c.net().topo.Switch(d.Spec.Name))}
	var err error
	if out.Events, err = readEvents(ctx, d); err != nil {
		return nil, apiError(err)
	}
	slices.SortFunc(keys, func(a, b keyspace.Key) int { return a.Slot - b.Slot })
	cells := make([]int, len(keys))
	for i, k := range keys {
		cells[i] = k.Slot
		out.Slots = append(out.Slots, admin.SlotCounters{Slot: k.Slot, KeyID: uint32(k.ID), Name: k.Name})
	}
	for _, counter := range []struct {
		name string
		set  func(*admin.SlotCounters, uint64)
	}{
		{"slot_reads", func(s *admin.SlotCounters, n uint64) { s.Reads = n }},
		{"slot_forwards", func(s *admin.SlotCounters, n uint64) { s.Forwards = n }},
		{"slot_writes", func(s *admin.SlotCounters, n uint64) { s.Writes = n }},
	} {
		counts, err := d.Client.ReadCounterCells(ctx, counter.name, cells)
		if err != nil {
			return nil, apiError(err)
		}
		for i, n := range counts {
			counter.set(&out.Slots[i], n.Packets)
		}
	}
	return out, nil
}

// readEvents reads a switch's P4 counter `events`, which counts packets by outcome.
func readEvents(ctx context.Context, d *device) (map[string]uint64, error) {
	counts, err := d.Client.ReadCounter(ctx, "events")
	if err != nil {
		return nil, err
	}
	out := map[string]uint64{}
	for i, n := range counts {
		switch label, ok := program.EventNames[i]; {
		case ok:
			out[label] = n.Packets
		case n.Packets > 0:
			out[fmt.Sprintf("event_%d", i)] = n.Packets
		}
	}
	return out, nil
}

// switchEvents reads the counter `events` of all switches, for Prometheus. It omits switches that
// do not answer.
func (c *Controller) switchEvents(ctx context.Context) map[string]map[string]uint64 {
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(16)
	out := map[string]map[string]uint64{}
	for _, d := range c.net().devices {
		g.Go(func() error {
			if events, err := readEvents(ctx, d); err == nil {
				mu.Lock()
				defer mu.Unlock()
				out[d.Spec.Name] = events
			}
			return nil
		})
	}
	_ = g.Wait()
	return out
}

// unsentPackets returns how many packets the controller dropped for each switch, for Prometheus.
func (c *Controller) unsentPackets() map[string]uint64 {
	out := map[string]uint64{}
	for _, d := range c.net().devices {
		out[d.Spec.Name] = d.Unsent()
	}
	return out
}

// Events returns the stored events with numbers above since, and a channel that is closed when
// there are more.
func (c *Controller) Events(since uint64) ([]admin.Event, <-chan struct{}) {
	return c.events.Since(since)
}

// Ready returns nil if every chain serves, and otherwise an *admin.Error that says what is
// missing.
func (c *Controller) Ready(ctx context.Context) error {
	chains, err := c.Chains(ctx)
	if err != nil {
		return err
	}
	var missing []string
	if err := c.call(ctx, func() {
		if c.deposed != "" {
			missing = append(missing, c.deposed)
		}
	}); err != nil {
		return apiError(err)
	}
	for _, ch := range chains {
		if !ch.Ready {
			missing = append(missing, fmt.Sprintf("chain %s: %s", ch.Name, ch.Reason))
		}
	}
	if len(missing) > 0 {
		return admin.Errorf(admin.CodeUnavailable, "%s", strings.Join(missing, "; "))
	}
	return nil
}

// Announce adds an event of another component (such as placement/controller). The event is shown
// and counted like the controller's own events.
func (c *Controller) Announce(kind, chain, message string) { c.events.Add(kind, "", chain, message) }
