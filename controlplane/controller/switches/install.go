package switches

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/controller/tableplan"
	"github.com/netcraq/netcraq/controlplane/keyspace"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// ErrGone says that the switch is no longer in the topology.
var ErrGone = fmt.Errorf("it has left the network: %w", ErrNotConnected)

// Become installs a part of a chain's configuration, with these keys, in the incarnation that the
// chain has judged. If it returns updates together with an error, the caller must
// apply them when no client is waiting, to remove leftovers.
func (d *Device) Become(ctx context.Context, in Incarnation, ct *topology.Chain, a chain.Install, keys []keyspace.Key,
	used func(wire.Key) bool) (rest []*v1.Update, err error) {
	if err := d.ReadIn(ctx, in); err != nil {
		return nil, err
	}
	if a.Assignment.Role.Member() {
		if err := d.forgetFormer(ctx, ct, keys, used); err != nil {
			return nil, err
		}
	}
	return d.install(ctx, false, part{ct, a.Config})
}

// Prepare runs while a configuration is being recorded. It creates the multicast groups of the
// switch's part, and admits packets from additional ports. No packet uses the groups before install
// writes the chain_config entry. So install has less to do while the chain is half changed. If
// Prepare cannot do something, install does it.
func (d *Device) Prepare(ctx context.Context, ct *topology.Chain, conf chain.Config) {
	s := d.Client.State()
	if s.Phase != p4rt.Primary || d.loadedAt != s.Stream {
		return
	}
	p := d.owner.Plan()
	sw := p.Topology.Switch(d.Spec.Name)
	if sw == nil || !slices.Contains(p.Chains, ct.ID) {
		return
	}
	part := p.Chain(ct, sw, conf)
	delete(d.complete, ct.ID)
	change, _, err := d.diffPeers(ct, part.Peers)
	if err != nil {
		return
	}
	// Groups of the same parity may be in use.
	if epoch, ok := d.epoch(ct); ok && epoch%2 != conf.Epoch%2 {
		if groups, _, err := p4rt.DiffGroups(d.groupsOf(p, ct, sw), part.Groups); err == nil {
			change = append(groups, change...)
		}
	}
	_ = d.Apply(ctx, change...)
}

// diffPeers compares the chain_peer entries of a chain with those that the switch should have.
// After the updates in add, the switch admits what either set admits. The updates in drop remove
// the other entries. They are applied later, when no other switch has the previous configuration
// any more.
func (d *Device) diffPeers(ct *topology.Chain, want map[uint32]tableplan.Peer) (add, drop []*v1.Update, err error) {
	have := d.haveOf("chain_peer", ct)
	both := maps.Clone(want)
	for _, te := range have {
		e, err := d.prog.Pipeline.Info.Decode(te)
		if err != nil {
			return nil, nil, err
		}
		port, part := tableplan.ReadPeerEntry(e)
		both[port] = both[port].Or(part)
	}
	wide, err := d.encode(tableplan.PeerEntries(ct.ID, both)...)
	if err != nil {
		return nil, nil, err
	}
	narrow, err := d.encode(tableplan.PeerEntries(ct.ID, want)...)
	if err != nil {
		return nil, nil, err
	}
	return p4rt.DiffEntries(have, wide), p4rt.DiffEntries(wide, narrow), nil
}

// closePeers makes a switch refuse messages of chains that no chain_peer entry admits. It waits
// until the entries have been written for all chains whose configuration the switch has. For other
// chains, the entries are written before their configurations.
func (d *Device) closePeers(ctx context.Context) error {
	if !d.peersOpen || d.lacks("chain_peer") {
		return nil
	}
	for of, configs := range d.byChain {
		if of.table == "chain_config" && len(configs) > 0 && !d.peered[of.chain] {
			return nil
		}
	}
	if err := d.writeDefault(ctx, tableplan.PeerDefault(false)); err != nil {
		return err
	}
	d.peersOpen = false
	return nil
}

// readPeersOpen reads contents.peersOpen from the switch's default entry.
func (d *Device) readPeersOpen(ctx context.Context) (open bool, err error) {
	e, ok, err := d.readDefault(ctx, "chain_peer")
	if err != nil || !ok {
		return true, err
	}
	_, part := tableplan.ReadPeerEntry(e)
	return part != tableplan.Peer{}, nil
}

// epoch returns the epoch of the configuration of a chain that the switch is known to have.
func (d *Device) epoch(ct *topology.Chain) (epoch uint16, ok bool) {
	configs := d.haveOf("chain_config", ct)
	if len(configs) != 1 {
		return 0, false
	}
	e, err := d.prog.Pipeline.Info.Decode(configs[0])
	if err != nil || e.Action != "set_chain" {
		return 0, false
	}
	return uint16(e.Param("epoch").Uint64()), true
}

// groupsOf returns the multicast groups that the switch has for a chain.
func (d *Device) groupsOf(p *tableplan.Plan, ct *topology.Chain, sw *topology.Switch) []p4rt.Group {
	groups := p.GroupsAt(sw)
	var out []p4rt.Group
	for _, g := range d.groups {
		if groups.Owns(ct.ID, g.ID) {
			out = append(out, g)
		}
	}
	slices.SortFunc(out, func(a, b p4rt.Group) int { return int(a.ID) - int(b.ID) })
	return out
}

// part is a switch's part of a chain's configuration.
type part struct {
	ct   *topology.Chain
	conf chain.Config
}

// install makes the switch hold its parts of some chains' configurations. The order matters. Groups
// come before the entry that refers to them, and peers before other switches send packets that
// they admit. That entry, by which the switch changes over, comes before the addresses that follow
// from it. A route comes before the switch stops accepting the address itself. Each of these steps
// is one write for all parts. install returns the objects that nothing refers to any more, which
// the caller removes when no client is waiting. The switch must have been read. With narrow,
// install also removes chain_peer entries for another configuration.
func (d *Device) install(ctx context.Context, narrow bool, parts ...part) (rest []*v1.Update, err error) {
	var all steps
	var installed []uint8
	for _, x := range parts {
		d.parts[x.ct.ID] = x.conf // before any write, so that refresh never goes back to an older configuration
		delete(d.complete, x.ct.ID)
		s, err := d.steps(x)
		if err != nil {
			return nil, err
		}
		all.add(s)
		installed = append(installed, x.ct.ID)
	}
	if err := d.Apply(ctx, all.prepare...); err != nil {
		return nil, err
	}
	for _, id := range installed {
		d.peered[id] = true
	}
	for _, updates := range [][]*v1.Update{all.config, all.take, all.drop} {
		if err := d.Apply(ctx, updates...); err != nil {
			return nil, err
		}
	}
	d.WatchSoon()
	if len(all.strangers) > 0 && !narrow {
		time.AfterFunc(narrowAfter, func() { d.owner.Post(d.RefreshLater) })
		all.strangers = nil
	}
	return append(all.remove, all.strangers...), d.closePeers(ctx)
}

// steps are the updates that give a switch parts of configurations, by the step that they belong
// to.
type steps struct{ prepare, config, take, drop, remove, strangers []*v1.Update }

func (s *steps) add(o steps) {
	s.prepare, s.config = append(s.prepare, o.prepare...), append(s.config, o.config...)
	s.take, s.drop = append(s.take, o.take...), append(s.drop, o.drop...)
	s.remove, s.strangers = append(s.remove, o.remove...), append(s.strangers, o.strangers...)
}

// steps compares the switch's content with what a part asks for.
func (d *Device) steps(x part) (s steps, err error) {
	p := d.owner.Plan()
	sw := p.Topology.Switch(d.Spec.Name)
	if sw == nil || !slices.Contains(p.Chains, x.ct.ID) {
		return s, ErrGone
	}
	want := p.Chain(x.ct, sw, x.conf)
	if s.prepare, s.remove, err = p4rt.DiffGroups(d.groupsOf(p, x.ct, sw), want.Groups); err != nil {
		return s, err
	}
	peers, strangers, err := d.diffPeers(x.ct, want.Peers)
	if err != nil {
		return s, err
	}
	s.prepare, s.strangers = append(s.prepare, peers...), strangers
	if s.config, _, err = d.diffEntry(d.haveOf("chain_config", x.ct), &want.Config); err != nil {
		return s, err
	}
	atAddress := tableplan.AtService(x.ct)
	for i, e := range []*p4rt.Entry{want.Take, want.Route} {
		have, err := d.haveLike(atAddress[i])
		if err != nil {
			return s, err
		}
		change, drop, err := d.diffEntry(have, e)
		if err != nil {
			return s, err
		}
		s.take, s.drop = append(s.take, change...), append(s.drop, drop...)
	}
	return s, nil
}

// diffEntry returns the updates that replace some entries by another one (nil: none), and those
// that delete what is left.
func (d *Device) diffEntry(have []*v1.TableEntry, want *p4rt.Entry) (change, drop []*v1.Update, err error) {
	var wanted []*v1.TableEntry
	if want != nil {
		if wanted, err = d.encode(*want); err != nil {
			return nil, nil, err
		}
	}
	for _, u := range p4rt.DiffEntries(have, wanted) {
		if u.Type == v1.Update_DELETE {
			drop = append(drop, u)
		} else {
			change = append(change, u)
		}
	}
	return change, drop, nil
}

// InstallRequest is a part of a chain's configuration for a switch that the chain does not wait
// for.
type InstallRequest struct {
	In     Incarnation // the one that the chain has judged
	Chain  *topology.Chain
	Config chain.Config
	Done   func(error)
}

// InstallSoon installs a part when the switches that chains wait for have had theirs, together with
// the other parts that the switch is to get by then.
func (d *Device) InstallSoon(r InstallRequest) {
	d.laterMu.Lock()
	d.later = append(d.later, r)
	first := len(d.later) == 1
	d.laterMu.Unlock()
	if !first {
		return
	}
	go func() {
		d.limits.parts <- struct{}{} // whoever has a place in it gives it back, even after the end
		d.Submit(func(ctx context.Context) {
			defer func() { <-d.limits.parts }()
			d.laterMu.Lock()
			requests := d.later
			d.later = nil
			d.laterMu.Unlock()
			d.installLater(ctx, requests)
		})
	}()
}

// errOvertaken says that the switch has a part of a later configuration, or is to get one.
var errOvertaken = errors.New("a later configuration came meanwhile")

func (d *Device) installLater(ctx context.Context, requests []InstallRequest) {
	newest := map[uint8]InstallRequest{}
	for _, r := range requests {
		if old, ok := newest[r.Chain.ID]; ok {
			old.Done(errOvertaken)
		}
		newest[r.Chain.ID] = r
	}
	var parts []part
	for id, r := range newest {
		err := d.ReadIn(ctx, r.In)
		if err == nil && d.parts[id].Epoch > r.Config.Epoch { // Become was sooner, with a later configuration
			err = errOvertaken
		}
		if err != nil {
			delete(newest, id)
			r.Done(err)
			continue
		}
		parts = append(parts, part{r.Chain, r.Config})
	}
	rest, err := d.install(ctx, false, parts...)
	for _, r := range newest {
		if err != nil && len(parts) > 1 { // which of them was refused is not known
			_, err := d.install(ctx, false, part{r.Chain, r.Config})
			r.Done(err)
			continue
		}
		r.Done(err)
	}
	_ = d.Apply(ctx, rest...) // the next pass reads leftovers again and removes them
}

// narrowAfter is how long a switch also accepts a chain's messages through the ports of the
// previous configuration.
const narrowAfter = time.Second
