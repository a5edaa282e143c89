package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/keyspace"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// ourTables are the tables that the controller fills; all that is in them is its business.
var ourTables = slices.Concat([]string{"chain_config", "chain_peer", "key_index"}, baseTables, watchTables)

// baseTables are those of them that follow from the topology, but for chains' service addresses,
// and from the leases of sessions.
var baseTables = []string{"port_trust", "access", "session_lease", "local_address", "ipv4_lpm"}

// chainReport is what a switch has of one chain.
type chainReport struct {
	assignment *chain.Assignment
	keys       int // key_index entries
}

// have is what a table holds, in no order.
func (d *device) have(table string, choose func(p4rt.Entry) bool) ([]*v1.TableEntry, error) {
	var out []*v1.TableEntry
	for _, te := range d.entries[table] {
		e, err := d.c.prog.pipeline.Info.Decode(te)
		if err != nil {
			return nil, err
		}
		if choose(e) {
			out = append(out, te)
		}
	}
	return out, nil
}

// encode makes protobufs of planned entries; a plan that the program does not take was found out by
// readProgram.
func (d *device) encode(entries ...p4rt.Entry) ([]*v1.TableEntry, error) {
	var out []*v1.TableEntry
	for _, e := range entries {
		te, err := d.c.prog.pipeline.Info.Encode(e)
		if err == nil && d.former() {
			te, err = d.asFormer(d.c.prog.pipeline.Info, e, te)
		}
		if err != nil {
			return nil, err
		}
		if te != nil {
			out = append(out, te)
		}
	}
	return out, nil
}

// errGone: the topology has the switch no more.
var errGone = fmt.Errorf("it has left the network: %w", errNotConnected)

// writeBase makes the switch hold what follows from the topology, and drops what belongs to chains
// that there are not.
func (d *device) writeBase(ctx context.Context) error {
	p := d.c.net().plan
	sw := p.t.Switch(d.sw.Name)
	if sw == nil {
		return errGone
	}
	// Who may use a session comes before the port that uses it: a request that comes between the
	// two is told for good that its session is not its own.
	want, err := d.encode(append(d.c.leasedTo(sw), p.base(sw)...)...)
	if err != nil {
		return err
	}
	var have []*v1.TableEntry
	for _, table := range baseTables {
		h, err := d.have(table, p.isBase)
		if err != nil {
			return err
		}
		have = append(have, h...)
	}
	if err := d.writeRates(ctx, sw); err != nil {
		return err
	}
	if err := d.writeOpenness(ctx); err != nil {
		return err
	}
	// There may be very many keys, and they are looked at only where chains may have gone.
	for _, table := range []string{"chain_config", "chain_peer", "key_index"} {
		if d.swept != nil && slices.Equal(d.swept, p.chains) {
			break
		}
		h, err := d.have(table, func(e p4rt.Entry) bool {
			id := uint8(e.Exact("chain").Uint64())
			if table == "key_index" {
				id = wire.Key(e.Exact("KEY_ID").Uint64()).Chain()
			}
			return !slices.Contains(p.chains, id)
		})
		if err != nil {
			return err
		}
		have = append(have, h...)
	}
	// A port that leads elsewhere now brings nothing of what its neighbour of before could send.
	former, err := d.have("chain_peer", func(e p4rt.Entry) bool {
		number, _ := readPeerEntry(e)
		port, ok := sw.Port(number)
		return (!ok || port.Peer == nil) && slices.Contains(p.chains, uint8(e.Exact("chain").Uint64()))
	})
	if err != nil {
		return err
	}
	if err := d.apply(ctx, p4rt.DiffEntries(append(have, former...), want)...); err != nil {
		return err
	}
	var stray []p4rt.Group
	ports := replyPorts(sw)
	for _, g := range d.groups {
		if !slices.ContainsFunc(p.chains, func(id uint8) bool {
			ids := p.groups[sw.Name][id]
			return ids.owns(ports, g.ID) || ids.ownsWatch(ports, g.ID)
		}) {
			stray = append(stray, g)
		}
	}
	_, remove, err := p4rt.DiffGroups(stray, nil)
	if err != nil {
		return err
	}
	if err := d.apply(ctx, remove...); err != nil {
		return err
	}
	d.swept = p.chains
	return d.closePeers(ctx)
}

// writeRates bounds what hosts may send, before their ports are opened to them.
func (d *device) writeRates(ctx context.Context, sw *topology.Switch) error {
	var updates []*v1.Update
	for _, p := range sw.Ports {
		if d.unguarded() {
			break
		}
		if p.Host == nil || d.rates[int(p.Number)] == int64(p.Host.Rate) {
			continue
		}
		e, err := d.c.prog.pipeline.Info.EncodeMeter("host_rate", int(p.Number), int64(p.Host.Rate), burst(p.Host.Rate))
		if err != nil {
			return err
		}
		updates = append(updates, p4rt.Modify(e))
	}
	return d.apply(ctx, updates...)
}

// burst is how many packets a host may send at once where it may send so many a second: those of a
// fiftieth of it, and at least as many as a client sends at a time.
func burst(rate int) int64 { return int64(max(rate/50, 64)) }

// report says what the switch has of each chain.
func (d *device) report() (map[uint8]chainReport, error) {
	info := d.c.prog.pipeline.Info
	out := map[uint8]chainReport{}
	p := d.c.net().plan
	for _, id := range p.chains {
		out[id] = chainReport{keys: len(d.slotsOf(id))}
	}
	for _, te := range d.entries["chain_config"] {
		e, err := info.Decode(te)
		if err != nil {
			return nil, err
		}
		id := uint8(e.Exact("chain").Uint64())
		if r, ok := out[id]; ok && e.Action == "set_chain" {
			a := readChainEntry(p.t, e)
			r.assignment = &a
			out[id] = r
		}
	}
	return out, nil
}

// become gives the switch a part of a chain's configuration that has these keys, in the connection
// in which the chain has judged it. What is returned beside an error is to be taken away when
// nobody waits.
func (d *device) become(ctx context.Context, stream int, ct *topology.Chain, a chain.Install, keys []keyspace.Key,
	used func(wire.Key) bool) (rest []*v1.Update, err error) {
	if err := d.readIn(ctx, stream); err != nil {
		return nil, err
	}
	if a.Assignment.Role.Member() {
		if err := d.forgetFormer(ctx, ct, keys, used); err != nil {
			return nil, err
		}
	}
	return d.install(ctx, ct, a.Config, false)
}

// prepare makes the multicast groups that a switch's part of a configuration refers to, and lets in
// what comes by other ports then, while the configuration is being recorded: no packet takes them
// before the entry is there that install writes, which has the less to do while the chain is half
// changed. What it cannot do now is install's.
func (d *device) prepare(ctx context.Context, ct *topology.Chain, conf chain.Config) {
	s := d.client.State()
	if s.Phase != p4rt.Primary || d.loadedAt != s.Stream {
		return
	}
	p := d.c.net().plan
	sw := p.t.Switch(d.sw.Name)
	if sw == nil || !slices.Contains(p.chains, ct.ID) {
		return
	}
	part := p.chain(ct, sw, conf)
	change, _, err := d.diffPeers(ct, part.peers)
	if err != nil {
		return
	}
	// Groups of the other parity may be in use.
	if epoch, ok := d.epoch(ct); ok && epoch%2 != conf.Epoch%2 {
		if groups, _, err := p4rt.DiffGroups(d.groupsOf(p, ct, sw), part.groups); err == nil {
			change = append(groups, change...)
		}
	}
	_ = d.apply(ctx, change...)
}

// diffPeers compares the chain_peer entries of a chain with those that the switch should have. What
// add makes lets in what either of the two lets in, and drop takes away the rest. It is for later,
// when other switches no longer have the configuration that ends.
func (d *device) diffPeers(ct *topology.Chain, want map[uint32]peerPart) (add, drop []*v1.Update, err error) {
	have, err := d.have("chain_peer", ofChain(ct))
	if err != nil {
		return nil, nil, err
	}
	both := maps.Clone(want)
	for _, te := range have {
		e, err := d.c.prog.pipeline.Info.Decode(te)
		if err != nil {
			return nil, nil, err
		}
		port, part := readPeerEntry(e)
		both[port] = both[port].or(part)
	}
	wide, err := d.encode(peerEntries(ct.ID, both)...)
	if err != nil {
		return nil, nil, err
	}
	narrow, err := d.encode(peerEntries(ct.ID, want)...)
	if err != nil {
		return nil, nil, err
	}
	return p4rt.DiffEntries(have, wide), p4rt.DiffEntries(wide, narrow), nil
}

// closePeers makes a switch refuse messages of chains that no chain_peer entry lets in. It waits
// until the entries of all chains have been written that the switch has a configuration of. Those
// of the others come before their configurations.
func (d *device) closePeers(ctx context.Context) error {
	if !d.peersOpen || d.lacks("chain_peer") {
		return nil
	}
	wanting, err := d.have("chain_config", func(e p4rt.Entry) bool { return !d.peered[uint8(e.Exact("chain").Uint64())] })
	if err != nil || len(wanting) > 0 {
		return err
	}
	if err := d.writeDefault(ctx, peerDefault(false)); err != nil {
		return err
	}
	d.peersOpen = false
	return nil
}

// readPeersOpen sets peersOpen from the switch's default entry.
func (d *device) readPeersOpen(ctx context.Context) error {
	e, ok, err := d.readDefault(ctx, "chain_peer")
	if err != nil || !ok {
		d.peersOpen = true
		return err
	}
	_, part := readPeerEntry(e)
	d.peersOpen = part != peerPart{}
	return nil
}

// writeDefault writes the default entry of a table.
func (d *device) writeDefault(ctx context.Context, e p4rt.Entry) error {
	te, err := d.c.prog.pipeline.Info.Encode(e)
	if err != nil {
		return err
	}
	return d.write(ctx, p4rt.Modify(p4rt.EntryEntity(te)))
}

// readDefault reads the default entry of a table; ok is false where the switch shows none.
func (d *device) readDefault(ctx context.Context, table string) (e p4rt.Entry, ok bool, err error) {
	te, err := d.client.ReadDefault(ctx, table)
	if err != nil || te == nil {
		return e, false, err
	}
	e, err = d.c.prog.pipeline.Info.Decode(te)
	return e, err == nil, err
}

// ofChain says whether an entry is keyed by a chain.
func ofChain(ct *topology.Chain) func(p4rt.Entry) bool {
	return func(e p4rt.Entry) bool { return uint8(e.Exact("chain").Uint64()) == ct.ID }
}

// epoch is that of the configuration of a chain that the switch has, as far as is known.
func (d *device) epoch(ct *topology.Chain) (epoch uint16, ok bool) {
	configs, err := d.have("chain_config", ofChain(ct))
	if err != nil || len(configs) != 1 {
		return 0, false
	}
	e, err := d.c.prog.pipeline.Info.Decode(configs[0])
	if err != nil || e.Action != "set_chain" {
		return 0, false
	}
	return uint16(e.Param("epoch").Uint64()), true
}

// groupsOf are the multicast groups that the switch has for a chain.
func (d *device) groupsOf(p *plan, ct *topology.Chain, sw *topology.Switch) []p4rt.Group {
	ids, ports := p.groups[sw.Name][ct.ID], replyPorts(sw)
	var out []p4rt.Group
	for _, g := range d.groups {
		if ids.owns(ports, g.ID) {
			out = append(out, g)
		}
	}
	slices.SortFunc(out, func(a, b p4rt.Group) int { return int(a.ID) - int(b.ID) })
	return out
}

// install makes the switch hold its part of a chain's configuration. The order matters: groups
// before the entry that refers to them, and peers before others send what they let in; that entry,
// by which the switch changes over, before the addresses that follow from it; a route before the
// switch stops taking the address itself. What nothing refers to any more is returned, to be taken
// away when nobody waits. The switch has been read. With narrow, what chain_peer lets in of another
// configuration is taken away, too.
func (d *device) install(ctx context.Context, ct *topology.Chain, conf chain.Config,
	narrow bool) (rest []*v1.Update, err error) {
	d.parts[ct.ID] = conf // before anything of it is written, so that refresh never goes back to an older one
	p := d.c.net().plan
	sw := p.t.Switch(d.sw.Name)
	if sw == nil || !slices.Contains(p.chains, ct.ID) {
		return nil, errGone
	}
	want := p.chain(ct, sw, conf)
	change, remove, err := p4rt.DiffGroups(d.groupsOf(p, ct, sw), want.groups)
	if err != nil {
		return nil, err
	}
	peers, strangers, err := d.diffPeers(ct, want.peers)
	if err != nil {
		return nil, err
	}
	if err := d.apply(ctx, append(change, peers...)...); err != nil {
		return nil, err
	}
	d.peered[ct.ID] = true
	// Each of the others in turn: what the table has for this chain's key, and what it should have.
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
	config, _, err := parts("chain_config", ofChain(ct), &want.config)
	if err != nil {
		return nil, err
	}
	if err := d.apply(ctx, config...); err != nil {
		return nil, err
	}
	take, untake, err := parts("local_address", service, want.take)
	if err != nil {
		return nil, err
	}
	route, unroute, err := parts("ipv4_lpm", service, want.route)
	if err != nil {
		return nil, err
	}
	if err := d.apply(ctx, append(take, route...)...); err != nil {
		return nil, err
	}
	if err := d.apply(ctx, append(untake, unroute...)...); err != nil {
		return nil, err
	}
	d.watchSoon()
	if len(strangers) > 0 && !narrow {
		time.AfterFunc(narrowAfter, func() { d.c.post(d.refreshSoon) })
		strangers = nil
	}
	return append(remove, strangers...), d.closePeers(ctx)
}

// narrowAfter is for how long a switch takes a chain's messages by the ports of the configuration
// before, too.
const narrowAfter = time.Second

// forgetFormer drops the key_index entries that a switch must not have as a member (ops.Former).
func (d *device) forgetFormer(ctx context.Context, ct *topology.Chain, keys []keyspace.Key,
	used func(wire.Key) bool) error {
	configs, err := d.have("chain_config", ofChain(ct))
	if err != nil {
		return err
	}
	had := chain.None
	for _, te := range configs { // one at most
		e, err := d.c.prog.pipeline.Info.Decode(te)
		if err != nil {
			return err
		}
		had = chain.Role(e.Param("role").Uint64())
	}
	former := ops.Former(had, keys, used)
	strange, err := d.have("key_index", func(e p4rt.Entry) bool {
		id := wire.Key(e.Exact("KEY_ID").Uint64())
		return id.Chain() == ct.ID && former(id)
	})
	if err != nil {
		return err
	}
	return d.apply(ctx, p4rt.DiffEntries(strange, nil)...)
}

// writeKeys inserts or deletes the key_index entries of keys. The switch has been read.
func (d *device) writeKeys(ctx context.Context, insert bool, keys []ops.Entry) error {
	var updates []*v1.Update
	for _, k := range keys {
		te, err := d.encode(d.slotEntry(k))
		if err != nil {
			return err
		}
		old := d.entries["key_index"][p4rt.MatchKey(te[0])]
		switch {
		case insert && old == nil:
			updates = append(updates, p4rt.Insert(p4rt.EntryEntity(te[0])))
		case insert && !p4rt.SameAction(old, te[0]):
			updates = append(updates, p4rt.Modify(p4rt.EntryEntity(te[0])))
		case !insert && old != nil:
			updates = append(updates, p4rt.Delete(p4rt.EntryEntity(&v1.TableEntry{TableId: te[0].TableId,
				Match: te[0].Match})))
		}
	}
	return d.apply(ctx, updates...)
}

// slotEntry is a key's entry as the switch's program can have it: where it knows of no hidden keys,
// one that is to be hidden is closed.
func (d *device) slotEntry(e ops.Entry) p4rt.Entry {
	e.Hidden = e.Hidden && !d.former()
	return slotEntry(e)
}

// realign changes those of some keys' entries that are in the switch and say another realm. Hidden
// ones say none, and closed ones stay closed: whether they are is for the operation on the key.
func (d *device) realign(ctx context.Context, keys []ops.Entry) error {
	var updates []*v1.Update
	for _, k := range keys {
		has, ok := d.placed[k.ID.Chain()][k.ID] // which the worker alone changes
		if !ok || has.Hidden {
			continue
		}
		k.Realm |= has.Realm & closedKey
		te, err := d.encode(slotEntry(k))
		if err != nil {
			return err
		}
		if !p4rt.SameAction(d.entries["key_index"][p4rt.MatchKey(te[0])], te[0]) {
			updates = append(updates, p4rt.Modify(p4rt.EntryEntity(te[0])))
		}
	}
	return d.apply(ctx, updates...)
}

// entryOf is the key_index entry of a key under the KEY_ID that it is given with. That of one that
// is being added is hidden, that of one that is being removed is closed, and that of its alias is
// nobody's but the controller's.
func (p *plan) entryOf(k keyspace.Key) ops.Entry {
	e := p.openEntryOf(k)
	switch {
	case e.Realm == controllerNumber:
	case k.Hidden():
		e.Realm |= closedKey
		e.Hidden = true
	case k.State == keyspace.Removing:
		e.Realm |= closedKey
	}
	return e
}

// openEntryOf is the key_index entry of a key that clients may use, whatever is done with it.
func (p *plan) openEntryOf(k keyspace.Key) ops.Entry {
	if k.Leftover() || k.ID == k.Alias {
		return ops.Entry{ID: k.ID, Slot: k.Slot, Realm: controllerNumber}
	}
	return ops.Entry{ID: k.ID, Slot: k.Slot, Realm: p.realm(k.FinalName())}
}

// entriesBy makes the entries of keys, or of their aliases.
func (p *plan) entriesBy(alias bool) func(keyspace.Key) ops.Entry {
	if alias {
		return aliasOf
	}
	return p.entryOf
}

// aliasOf is the entry of a key's alias.
func aliasOf(k keyspace.Key) ops.Entry {
	return ops.Entry{ID: k.Alias, Slot: k.Slot, Realm: controllerNumber}
}
