package switches

import (
	"context"
	"slices"
	"time"

	v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/controller/tableplan"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// SetUp prepares a newly connected switch for chains: it loads the program, and writes the entries
// that follow only from the topology. It runs on the worker, and tries again until the switch has
// everything or the connection has changed.
func (d *Device) SetUp(ctx context.Context, stream int) {
	said := ""
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		s := d.Client.State()
		if ctx.Err() != nil || s.Phase != p4rt.Primary || s.Stream != stream {
			return
		}
		fresh, reports, err := d.trySetUp(ctx, stream)
		if err == nil {
			d.owner.Post(func() { d.owner.SetUp(d, stream, fresh, reports) })
			return
		}
		if err.Error() != said {
			said = err.Error()
			d.owner.Post(func() { d.owner.NotSetUp(d, err.Error()) })
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

func (d *Device) trySetUp(ctx context.Context, stream int) (fresh bool, reports map[uint8]Report, err error) {
	pushed, err := d.ensureProgram(ctx, stream)
	if err != nil {
		return false, nil, err
	}
	if pushed != p4rt.Kept {
		d.freshAt, d.loadedAt = stream, 0
		d.owner.Post(func() {
			d.owner.Event("switch.program-loaded", d, "the program was loaded ("+pushed.String()+"): its registers are empty")
		})
	}
	if err := d.load(ctx, stream); err != nil {
		return false, nil, err
	}
	if err := d.WriteBase(ctx); err != nil {
		return false, nil, err
	}
	d.setUpAt = stream
	reports, err = d.report()
	return d.freshAt == stream, reports, err
}

// Empty loads the program again, which empties the switch, and sets it up. It runs on the worker.
func (d *Device) Empty(ctx context.Context) error {
	s := d.Client.State()
	err := error(ErrNotConnected)
	if s.Phase == p4rt.Primary {
		err = d.Client.ReloadIn(ctx, s.Stream, d.prog.Pipeline)
	}
	if err != nil {
		return err
	}
	d.freshAt, d.loadedAt = s.Stream, 0
	d.SetUp(ctx, s.Stream)
	return nil
}

// load reads the contents of the switch's tables.
func (d *Device) load(ctx context.Context, stream int) error {
	if d.loadedAt == stream {
		return nil
	}
	entries := map[string]map[string]*v1.TableEntry{}
	for _, table := range d.tables() {
		list, err := d.Client.ReadTable(ctx, table)
		if err != nil {
			return err
		}
		d.worked.Store(int64(d.owner.Now()))
		entries[table] = map[string]*v1.TableEntry{}
		for _, e := range list {
			entries[table][p4rt.MatchKey(e)] = e
		}
	}
	list, err := d.Client.ReadGroups(ctx)
	if err != nil {
		return err
	}
	groups := map[uint32]p4rt.Group{}
	for _, g := range list {
		groups[g.ID] = g
	}
	rates := map[int]int64{}
	if !d.Unguarded() {
		if rates, err = d.Client.ReadMeter(ctx, "host_rate"); err != nil {
			return err
		}
		if err := d.readOpenness(ctx); err != nil {
			return err
		}
	}
	if !d.lacks("chain_peer") {
		if err := d.readPeersOpen(ctx); err != nil {
			return err
		}
	}
	placed := map[uint8]map[wire.Key]ops.Entry{}
	for _, te := range entries["key_index"] {
		k, err := d.readSlot(te)
		if err != nil {
			return err
		}
		if placed[k.ID.Chain()] == nil {
			placed[k.ID.Chain()] = map[wire.Key]ops.Entry{}
		}
		placed[k.ID.Chain()][k.ID] = k
	}
	d.placedMu.Lock()
	d.placed = placed
	d.placedMu.Unlock()
	d.entries, d.groups, d.rates, d.loadedAt = entries, groups, rates, stream
	d.swept = nil
	d.peered = map[uint8]bool{}
	clear(d.parts) // the switch may have been restarted, so only the machine may install earlier content again
	return nil
}

// Report is a switch's content for one chain.
type Report struct {
	Assignment *chain.Assignment
	Keys       int // number of key_index entries
}

// ReadChains reads a switch's content for each chain. It also returns the number of the
// connection. It runs on the worker.
func (d *Device) ReadChains(ctx context.Context) (stream int, has map[uint8]Report, err error) {
	stream = d.Client.State().Stream
	if err = d.load(ctx, stream); err == nil {
		has, err = d.report()
	}
	return stream, has, err
}

// report returns the switch's known content for each chain.
func (d *Device) report() (map[uint8]Report, error) {
	info := d.prog.Pipeline.Info
	out := map[uint8]Report{}
	p := d.owner.Plan()
	for _, id := range p.Chains {
		out[id] = Report{Keys: len(d.KeyEntries(id))}
	}
	for _, te := range d.entries["chain_config"] {
		e, err := info.Decode(te)
		if err != nil {
			return nil, err
		}
		id := uint8(e.Exact("chain").Uint64())
		if r, ok := out[id]; ok && e.Action == "set_chain" {
			a := tableplan.ReadChainEntry(p.Topology, e)
			r.Assignment = &a
			out[id] = r
		}
	}
	return out, nil
}

// WriteBase makes the switch hold the entries that follow from the topology, and deletes entries of
// chains that do not exist.
func (d *Device) WriteBase(ctx context.Context) error {
	p := d.owner.Plan()
	sw := p.Topology.Switch(d.Spec.Name)
	if sw == nil {
		return ErrGone
	}
	// The right to use a session is written before the port that uses it. A request that came
	// between these writes would be refused permanently, because its session would not be the
	// host's.
	want, err := d.encode(append(d.owner.Leases(sw), p.Base(sw)...)...)
	if err != nil {
		return err
	}
	var have []*v1.TableEntry
	for _, table := range tableplan.BaseTables {
		h, err := d.have(table, p.IsBase)
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
	// There may be very many keys, so they are checked only if chains may have been removed.
	for _, table := range []string{"chain_config", "chain_peer", "key_index"} {
		if d.swept != nil && slices.Equal(d.swept, p.Chains) {
			break
		}
		h, err := d.have(table, func(e p4rt.Entry) bool {
			id := uint8(e.Exact("chain").Uint64())
			if table == "key_index" {
				id = wire.Key(e.Exact("KEY_ID").Uint64()).Chain()
			}
			return !slices.Contains(p.Chains, id)
		})
		if err != nil {
			return err
		}
		have = append(have, h...)
	}
	// A port that now leads to another neighbour must not admit what its previous neighbour could
	// send.
	former, err := d.have("chain_peer", func(e p4rt.Entry) bool {
		number, _ := tableplan.ReadPeerEntry(e)
		port, ok := sw.Port(number)
		return (!ok || port.Peer == nil) && slices.Contains(p.Chains, uint8(e.Exact("chain").Uint64()))
	})
	if err != nil {
		return err
	}
	if err := d.Apply(ctx, p4rt.DiffEntries(append(have, former...), want)...); err != nil {
		return err
	}
	var stray []p4rt.Group
	groups := p.GroupsAt(sw)
	for _, g := range d.groups {
		if !slices.ContainsFunc(p.Chains, func(id uint8) bool {
			return groups.Owns(id, g.ID) || groups.OwnsWatch(id, g.ID)
		}) {
			stray = append(stray, g)
		}
	}
	_, remove, err := p4rt.DiffGroups(stray, nil)
	if err != nil {
		return err
	}
	if err := d.Apply(ctx, remove...); err != nil {
		return err
	}
	d.swept = p.Chains
	return d.closePeers(ctx)
}

// writeRates limits the packet rates of hosts, before their ports are opened to them.
func (d *Device) writeRates(ctx context.Context, sw *topology.Switch) error {
	var updates []*v1.Update
	for _, p := range sw.Ports {
		if d.Unguarded() {
			break
		}
		if p.Host == nil || d.rates[int(p.Number)] == int64(p.Host.Rate) {
			continue
		}
		e, err := d.prog.Pipeline.Info.EncodeMeter("host_rate", int(p.Number), int64(p.Host.Rate), burst(p.Host.Rate))
		if err != nil {
			return err
		}
		updates = append(updates, p4rt.Modify(e))
	}
	return d.Apply(ctx, updates...)
}

// burst returns how many packets a host with a rate limit may send at once. This is a fiftieth of
// its rate per second, but at least as many as a client sends at a time.
func burst(rate int) int64 { return int64(max(rate/50, 64)) }

// Replace loads this program into a switch that runs another program, and sets the switch up. It
// runs on the worker.
func (d *Device) Replace(ctx context.Context) {
	d.replace.Store(true)
	d.SetUp(ctx, d.Client.State().Stream)
	d.replace.Store(false) // if this attempt has failed, the next one consults the chains again
}
