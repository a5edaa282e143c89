package switches

import (
	"context"
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

// Become installs a part of a chain's configuration, with the given keys, in the connection in
// which the chain has checked the switch's content. If it returns updates together with an error,
// the caller must apply these updates, which remove leftovers, when no client is waiting.
func (d *Device) Become(ctx context.Context, stream int, ct *topology.Chain, a chain.Install, keys []keyspace.Key,
	used func(wire.Key) bool) (rest []*v1.Update, err error) {
	if err := d.ReadIn(ctx, stream); err != nil {
		return nil, err
	}
	if a.Assignment.Role.Member() {
		if err := d.forgetFormer(ctx, ct, keys, used); err != nil {
			return nil, err
		}
	}
	return d.install(ctx, ct, a.Config, false)
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
	have, err := d.have("chain_peer", ofChain(ct))
	if err != nil {
		return nil, nil, err
	}
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
	wanting, err := d.have("chain_config", func(e p4rt.Entry) bool { return !d.peered[uint8(e.Exact("chain").Uint64())] })
	if err != nil || len(wanting) > 0 {
		return err
	}
	if err := d.writeDefault(ctx, tableplan.PeerDefault(false)); err != nil {
		return err
	}
	d.peersOpen = false
	return nil
}

// readPeersOpen sets peersOpen from the switch's default entry.
func (d *Device) readPeersOpen(ctx context.Context) error {
	e, ok, err := d.readDefault(ctx, "chain_peer")
	if err != nil || !ok {
		d.peersOpen = true
		return err
	}
	_, part := tableplan.ReadPeerEntry(e)
	d.peersOpen = part != tableplan.Peer{}
	return nil
}

// epoch returns the epoch of the configuration of a chain that the switch is known to have.
func (d *Device) epoch(ct *topology.Chain) (epoch uint16, ok bool) {
	configs, err := d.have("chain_config", ofChain(ct))
	if err != nil || len(configs) != 1 {
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

// install makes the switch hold its part of a chain's configuration. The order matters. Groups come
// before the chain_config entry that refers to them, and chain_peer entries come before other
// switches send packets that these entries admit. The chain_config entry, which switches to the new
// configuration, comes before the addresses that follow from it. A route comes before the switch
// stops accepting the address itself. install returns the objects to which nothing refers any more.
// The caller removes these objects when no client is waiting. The switch must have been read. With
// narrow, install also removes chain_peer entries for another configuration.
func (d *Device) install(ctx context.Context, ct *topology.Chain, conf chain.Config,
	narrow bool) (rest []*v1.Update, err error) {
	d.parts[ct.ID] = conf // set before any write, so that refresh never restores an older configuration
	p := d.owner.Plan()
	sw := p.Topology.Switch(d.Spec.Name)
	if sw == nil || !slices.Contains(p.Chains, ct.ID) {
		return nil, ErrGone
	}
	want := p.Chain(ct, sw, conf)
	change, remove, err := p4rt.DiffGroups(d.groupsOf(p, ct, sw), want.Groups)
	if err != nil {
		return nil, err
	}
	peers, strangers, err := d.diffPeers(ct, want.Peers)
	if err != nil {
		return nil, err
	}
	if err := d.Apply(ctx, append(change, peers...)...); err != nil {
		return nil, err
	}
	d.peered[ct.ID] = true
	// parts compares the entries for this chain that a table holds with those that it should hold.
	parts := func(table string, mine func(p4rt.Entry) bool, want ...*p4rt.Entry) (make, drop []*v1.Update, err error) {
		have, err := d.have(table, mine)
		if err != nil {
			return nil, nil, err
		}
		var wanted []*v1.TableEntry
		for _, e := range want {
			if e == nil {
				continue
			}
			te, err := d.encode(*e)
			if err != nil {
				return nil, nil, err
			}
			wanted = append(wanted, te...)
		}
		for _, u := range p4rt.DiffEntries(have, wanted) {
			if u.Type == v1.Update_DELETE {
				drop = append(drop, u)
			} else {
				make = append(make, u)
			}
		}
		return make, drop, nil
	}
	service := func(e p4rt.Entry) bool {
		v, _ := e.Match["ipv4_dst"].Value.(p4rt.Value)
		return v.Addr() == ct.Address
	}
	config, _, err := parts("chain_config", ofChain(ct), &want.Config)
	if err != nil {
		return nil, err
	}
	if err := d.Apply(ctx, config...); err != nil {
		return nil, err
	}
	take, untake, err := parts("local_address", service, want.Take)
	if err != nil {
		return nil, err
	}
	route, unroute, err := parts("ipv4_lpm", service, want.Route)
	if err != nil {
		return nil, err
	}
	if err := d.Apply(ctx, append(take, route...)...); err != nil {
		return nil, err
	}
	if err := d.Apply(ctx, append(untake, unroute...)...); err != nil {
		return nil, err
	}
	d.WatchSoon()
	if len(strangers) > 0 && !narrow {
		time.AfterFunc(narrowAfter, func() { d.owner.Post(d.RefreshSoon) })
		strangers = nil
	}
	return append(remove, strangers...), d.closePeers(ctx)
}

// narrowAfter is how long a switch also accepts a chain's messages through the ports of the
// previous configuration.
const narrowAfter = time.Second
