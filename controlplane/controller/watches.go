package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	v1 "github.com/p4lang/p4runtime/go/p4/v1"

	api "github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// Watches (docs/protocol.md, "Watches"): the acknowledgements of keys that are watched go to the
// servers that watch them, too. A server says which keys it watches, and goes on saying so; what it
// does not renew ends. It is in memory alone: a controller that comes after hears of it at the next
// renewal, and until then servers find what they miss by reading.
//
// The tables of watches are no part of a chain's configuration, and are written when nothing else
// is to be done at a switch. Groups of one epoch count for nothing in another, so what is late does
// no harm to the chain: its own tree is used meanwhile.

const (
	// maxWatched is how many keys can be watched in all, and by the servers of one switch together:
	// the sizes of watched_key and watcher.
	maxWatched = 16384
	// maxKeys is how many one server can: none has all.
	maxKeys = maxWatched / 4
	// maxServers is how many servers of one switch can watch: each is a copy of what any watches.
	maxServers = 8
	// watchTTL is for how long a server watches without renewing it.
	watchTTL = 10 * time.Second
)

// watchServer is a server that watches.
type watchServer struct {
	address netip.Addr          // of its host
	port    uint16              // UDP
	keys    map[wire.Key]string // names
	until   time.Time
}

// watchServers are all of them, by address. Devices' workers read it; it is replaced, and not
// changed.
type watchServers map[netip.Addr]*watchServer

// Watch has a server told of what is committed of keys, for watchTTL. It replaces what the server
// watched before.
func (c *Controller) Watch(ctx context.Context, r api.WatchRequest) (*api.Watch, error) {
	ip, err := netip.ParseAddr(r.Address)
	if err != nil || !ip.Is4() {
		return nil, api.Errorf(api.CodeInvalidArgument, "the address %q is not an IPv4 address", r.Address)
	}
	if r.Port == 0 || r.Port == wire.Port {
		return nil, api.Errorf(api.CodeInvalidArgument, "no server can have the UDP port %d", r.Port)
	}
	if len(r.KeyIDs) > maxKeys {
		return nil, api.Errorf(api.CodeInvalidArgument, "%d keys: a server can watch %d", len(r.KeyIDs), maxKeys)
	}
	out := &api.Watch{TTLSeconds: int(watchTTL / time.Second), Refused: []uint32{}}
	var failed error
	err = c.call(ctx, func() {
		if failed = c.inCharge(); failed == nil {
			failed = c.watch(ip, r, out)
		}
	})
	if err == nil {
		err = failed
	}
	if other := (watchedBy{}); errors.As(err, &other) {
		e := api.Errorf(api.CodeFailedPrecondition, "%s", err.Error())
		e.WatchedAt = other.port
		return nil, e
	}
	if err != nil {
		return nil, apiError(err)
	}
	return out, nil
}

// watchedBy refuses a server at whose host another one watches.
type watchedBy struct{ port uint16 }

func (w watchedBy) Error() string {
	return fmt.Sprintf("another server of this host watches, at the UDP port %d", w.port)
}

// watch is Watch on the controller's goroutine.
func (c *Controller) watch(ip netip.Addr, r api.WatchRequest, out *api.Watch) error {
	t := c.net().topo
	h := t.HostByAddress(ip)
	if h == nil {
		return fmt.Errorf("%w: no host of this network has the address %v", chain.ErrInvalid, ip)
	}
	now := time.Now()
	all := maps.Clone(*c.watching.Load())
	old := all[ip]
	if old != nil && old.port != r.Port && old.until.After(now) {
		return watchedBy{old.port}
	}
	if len(r.KeyIDs) == 0 {
		if old != nil {
			delete(all, ip)
			c.setWatching(all)
		}
		return nil
	}
	taken, servers, here := map[wire.Key]bool{}, 0, 0
	for _, s := range all {
		if s == old {
			continue
		}
		for id := range s.keys {
			taken[id] = true
		}
		other := t.HostByAddress(s.address)
		if other != nil && other.Switch == h.Switch {
			servers++
			here += len(s.keys)
		}
	}
	if servers >= maxServers {
		return fmt.Errorf("%w: %d servers at %s watch already", chain.ErrRefused, servers, h.Switch.Name)
	}
	s := &watchServer{address: ip, port: r.Port, keys: map[wire.Key]string{}, until: now.Add(watchTTL)}
	for _, n := range r.KeyIDs {
		id := wire.Key(n)
		k, ok := c.dir.ByID(id)
		// What a hidden key's slot holds is of another key, and may be committed. What is left of a
		// key that has moved is the controller's.
		may := ok && !k.Hidden() && !k.Leftover() && c.net().plan.mayRead(h, k.FinalName())
		if !may || !taken[id] && len(taken) >= maxWatched || here+len(s.keys) >= maxWatched {
			out.Refused = append(out.Refused, n)
			continue
		}
		taken[id] = true
		s.keys[id] = k.FinalName()
	}
	all[ip] = s
	if old != nil && old.port == s.port && maps.Equal(old.keys, s.keys) {
		c.watching.Store(&all) // renewed: nothing else has changed
	} else {
		c.setWatching(all)
	}
	time.AfterFunc(watchTTL+time.Millisecond, func() { c.post(c.endWatches) })
	return nil
}

// endWatches ends those that were not renewed.
func (c *Controller) endWatches() {
	now := time.Now()
	all := maps.Clone(*c.watching.Load())
	before := len(all)
	maps.DeleteFunc(all, func(_ netip.Addr, s *watchServer) bool { return !s.until.After(now) })
	if len(all) != before {
		c.setWatching(all)
	}
}

func (c *Controller) setWatching(all watchServers) {
	c.watching.Store(&all)
	for _, d := range c.net().devices {
		d.watchSoon()
	}
}

// mayRead says whether a host may read a key of this name.
func (p *plan) mayRead(h *topology.Host, name string) bool {
	realm := p.t.RealmOf(name)
	return h.Principal != "" && (h.Principal == realm || slices.ContainsFunc(p.t.Grants, func(g topology.Grant) bool {
		return g.Principal == h.Principal && g.Realm == realm && g.Read
	}))
}

// The entries.

func watchedChain(id uint8, epoch, ack, reply uint16) p4rt.Entry {
	return p4rt.Entry{Table: "watched_chain", Match: p4rt.Match{"chain": p4rt.Exact(id)}, Action: "watch_groups",
		Params: p4rt.Params{"epoch": epoch, "watch_ack_group": ack, "watch_reply_group": reply}}
}

func watchedKey(id wire.Key) p4rt.Entry {
	return p4rt.Entry{Table: "watched_key", Match: p4rt.Match{"KEY_ID": p4rt.Exact(uint32(id))}, Action: "watched"}
}

func watcherEntry(h *topology.Host, port uint16, id wire.Key) p4rt.Entry {
	match := p4rt.Match{"egress_port": p4rt.Exact(h.Port), "KEY_ID": p4rt.Exact(uint32(id))}
	return p4rt.Entry{Table: "watcher", Match: match,
		Action: "notify", Params: p4rt.Params{"dst_mac": h.MAC, "address": h.IP, "udp_port": port}}
}

// watchTables are the tables of watches.
var watchTables = []string{"watched_chain", "watched_key", "watcher"}

// watchPlan is what a switch holds for the watches of a chain.
type watchPlan struct {
	groups []p4rt.Group
	chain  []p4rt.Entry // watched_chain: one, or none
	keys   []p4rt.Entry // watched_key and watcher
}

// watch is what a switch holds for the watches of a chain in a configuration.
func (p *plan) watch(c *topology.Chain, s *topology.Switch, conf chain.Config, all watchServers) (out watchPlan) {
	ends := slices.Clone(conf.Learners())
	watched := map[wire.Key]bool{}
	var copies []p4rt.Replica
	for _, ip := range slices.SortedFunc(maps.Keys(all), netip.Addr.Compare) {
		server := all[ip]
		h := p.t.HostByAddress(ip)
		if h == nil {
			continue
		}
		any := false
		for id, name := range server.keys {
			if id.Chain() != c.ID || !p.mayRead(h, name) {
				continue
			}
			any, watched[id] = true, true
			if h.Switch == s {
				out.keys = append(out.keys, watcherEntry(h, server.port, id))
			}
		}
		if any {
			ends = append(ends, h.Switch.Name)
		}
		if any && h.Switch == s {
			copies = append(copies, p4rt.Replica{Port: h.Port, Instance: instanceNotify})
		}
	}
	if len(watched) == 0 {
		return watchPlan{}
	}
	tail := conf.Assignment(s.Name).Tail
	for _, port := range p.graph(tail, conf.Learners()...).Tree(tail, ends)[s.Name] {
		copies = append(copies, p4rt.Replica{Port: port, Instance: instanceAck})
	}
	if len(copies) == 0 {
		return watchPlan{}
	}
	for id := range watched {
		out.keys = append(out.keys, watchedKey(id))
	}
	ids := p.groups[s.Name][c.ID]
	out.chain = []p4rt.Entry{watchedChain(c.ID, conf.Epoch, ids.watchAck, ids.watchReply)}
	out.groups = append(out.groups, p4rt.Group{ID: uint32(ids.watchAck), Replicas: copies})
	for _, port := range replyPorts(s) {
		replicas := slices.DeleteFunc(slices.Clone(copies), func(r p4rt.Replica) bool {
			return r.Port == port && r.Instance == instanceAck
		})
		out.groups = append(out.groups, p4rt.Group{ID: uint32(ids.watchReply) + port,
			Replicas: append(replicas, p4rt.Replica{Port: port, Instance: instanceReply})})
	}
	return out
}

// watchSoon has the worker bring the tables of watches up to date, once for all changes that there
// are until it comes to it.
func (d *device) watchSoon() {
	if d.watchesStale.Swap(true) {
		return
	}
	d.submit(func(ctx context.Context) {
		d.watchesStale.Store(false) // before it looks at what is watched
		err := d.read(ctx)
		if err == nil {
			err = d.writeWatches(ctx)
		}
		if err != nil && !passing(err) {
			d.c.post(func() { d.c.events.add("switch.not-watching", d.sw.Name, "", err.Error()) })
		}
	})
}

// writeWatches makes the switch hold what the watches of its chains are, in the configurations that
// were installed last.
func (d *device) writeWatches(ctx context.Context) error {
	if slices.ContainsFunc(watchTables, d.lacks) {
		return nil
	}
	n := d.c.net()
	sw := n.plan.t.Switch(d.sw.Name)
	if sw == nil {
		return errGone
	}
	var want watchPlan
	for id, conf := range d.parts {
		ch := n.byID[id]
		if ch == nil {
			continue
		}
		w := n.plan.watch(ch.topo, sw, conf, *d.c.watching.Load())
		want.groups = append(want.groups, w.groups...)
		want.chain = append(want.chain, w.chain...)
		want.keys = append(want.keys, w.keys...)
	}
	var have []p4rt.Group
	ports := replyPorts(sw)
	for _, g := range d.groups {
		if slices.ContainsFunc(n.plan.chains, func(id uint8) bool {
			return n.plan.groups[sw.Name][id].ownsWatch(ports, g.ID)
		}) {
			have = append(have, g)
		}
	}
	byID := func(a, b p4rt.Group) int { return int(a.ID) - int(b.ID) }
	slices.SortFunc(have, byID)
	slices.SortFunc(want.groups, byID)
	change, remove, err := p4rt.DiffGroups(have, want.groups)
	if err != nil {
		return err
	}
	diff := func(want []p4rt.Entry, tables ...string) ([]*v1.Update, error) {
		entries, err := d.encode(want...)
		if err != nil {
			return nil, err
		}
		var have []*v1.TableEntry
		for _, table := range tables {
			h, err := d.have(table, func(p4rt.Entry) bool { return true })
			if err != nil {
				return nil, err
			}
			have = append(have, h...)
		}
		return p4rt.DiffEntries(have, entries), nil
	}
	keys, err := diff(want.keys, "watched_key", "watcher")
	if err != nil {
		return err
	}
	chains, err := diff(want.chain, "watched_chain")
	if err != nil {
		return err
	}
	// What the groups of a chain are is changed while no packet uses them: its own tree does, so
	// that no acknowledgement is lost to a member.
	if len(change)+len(remove) > 0 {
		off, err := diff(nil, "watched_chain")
		if err != nil {
			return err
		}
		if err := d.apply(ctx, off...); err != nil {
			return err
		}
		if chains, err = diff(want.chain, "watched_chain"); err != nil {
			return err
		}
	}
	for _, updates := range [][]*v1.Update{change, remove, keys, chains} {
		if err := d.apply(ctx, updates...); err != nil {
			return err
		}
	}
	return nil
}
