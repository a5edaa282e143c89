package controller

import (
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/keyspace"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// Layout says what the switches' tables should hold, for those who fill switches without P4Runtime:
// the simulator gives its switches the very entries that the controller writes.
type Layout struct{ p *plan }

// NewLayout makes the layout of a topology. It fails where the chains' multicast groups do not fit.
func NewLayout(t *topology.Topology) (*Layout, error) {
	p, err := newPlan(t, newNumbering(nil))
	if err != nil {
		return nil, err
	}
	return &Layout{p}, nil
}

// Base is what a switch holds whatever the chains are: who is trusted, its own address, routes.
func (l *Layout) Base(s *topology.Switch) []p4rt.Entry { return l.p.base(s) }

// ChainPart is what a switch holds for one configuration of a chain, in the order in which it is
// installed: groups and peers before the entry that refers to them, then the service address, which
// is taken at members and has a route at others. Peers that another configuration had stay until
// the end.
type ChainPart struct {
	Groups      []p4rt.Group
	Peers       []p4rt.Entry
	Config      p4rt.Entry
	Take, Route *p4rt.Entry
}

// Chain is a switch's part of a configuration.
func (l *Layout) Chain(c *topology.Chain, s *topology.Switch, conf chain.Config) ChainPart {
	p := l.p.chain(c, s, conf)
	return ChainPart{p.groups, peerEntries(c.ID, p.peers), p.config, p.take, p.route}
}

// NoPeers is the default entry of chain_peer, by which a switch refuses messages of chains that no
// other entry lets in. A switch gets it with Base.
func NoPeers() p4rt.Entry { return peerDefault(false) }

// Entry is the key_index entry of a key under the KEY_ID that it is given with, as its name and its
// state want it.
func (l *Layout) Entry(k keyspace.Key) ops.Entry { return l.p.entryOf(k) }

// OpenEntry is that of a key that clients may use, whatever is done with it.
func (l *Layout) OpenEntry(k keyspace.Key) ops.Entry { return l.p.openEntryOf(k) }

// AliasEntry is the entry of a key's alias: only the controller may use it.
func AliasEntry(k keyspace.Key) ops.Entry { return aliasOf(k) }

// SlotEntry is a key_index entry as it is written.
func SlotEntry(e ops.Entry) p4rt.Entry { return slotEntry(e) }

// GrantEntry is the access entry by which a principal may read and write in a realm, or not.
func (l *Layout) GrantEntry(principal, realm string, read, write bool) p4rt.Entry {
	return grantEntry(l.p.numbers[principal], l.p.numbers[realm], read, write)
}

// LeaseEntry is the session_lease entry of a session that is leased to a host, at the host's
// switch.
func LeaseEntry(session uint16, h *topology.Host) p4rt.Entry { return leaseEntry(session, h.Port) }

// EventName is the name of a cell of the P4 counter `events`, in lower case; "" where there is
// none.
func EventName(cell int) string { return eventNames[cell] }

// WatchServer is a server at a host that watches keys: their names, by KEY_ID.
type WatchServer struct {
	Host *topology.Host
	Port uint16
	Keys map[wire.Key]string
}

// WatchPart is what a switch holds for the watches of a chain, in the order in which it is written.
// Groups that are used by other packets meanwhile are changed while Chain is not there.
type WatchPart struct {
	Groups []p4rt.Group
	Keys   []p4rt.Entry
	Chain  []p4rt.Entry // one; none: nobody watches
}

// Watch is a switch's part of what is watched of a chain in a configuration.
func (l *Layout) Watch(c *topology.Chain, s *topology.Switch, conf chain.Config, servers ...WatchServer) WatchPart {
	all := watchServers{}
	for _, x := range servers {
		all[x.Host.IP] = &watchServer{address: x.Host.IP, port: x.Port, keys: x.Keys}
	}
	w := l.p.watch(c, s, conf, all)
	return WatchPart{w.groups, w.keys, w.chain}
}
