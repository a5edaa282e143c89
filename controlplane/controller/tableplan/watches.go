package tableplan

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// WatchServer is a server that watches keys.
type WatchServer struct {
	Address netip.Addr          // address of the server's host
	Port    uint16              // UDP port of the server
	Keys    map[wire.Key]string // names of the watched keys
	Until   time.Time
}

// Watches holds all watching servers, by address. Workers of switches read it, so the controller
// replaces the map and never changes it.
type Watches map[netip.Addr]*WatchServer

// MayRead reports whether a host may read a key of this name.
func (p *Plan) MayRead(h *topology.Host, name string) bool {
	realm := p.Topology.RealmOf(name)
	granted := func(g topology.Grant) bool {
		return g.Principal == h.Principal && g.Realm == realm && g.Read
	}
	return h.Principal != "" && (h.Principal == realm || slices.ContainsFunc(p.Topology.Grants, granted))
}

// WatchTables lists the tables of watches.
var WatchTables = []string{"watched_chain", "watched_key", "watcher"}

// WatchPart is a switch's content for the watches of a chain.
type WatchPart struct {
	Groups []p4rt.Group
	Chain  []p4rt.Entry // entries of watched_chain: one or none
	Keys   []p4rt.Entry // entries of watched_key and watcher
}

// Watch returns a switch's content for the watches of a chain in a configuration.
func (p *Plan) Watch(c *topology.Chain, s *topology.Switch, conf chain.Config, all Watches) (out WatchPart) {
	ends := slices.Clone(conf.Learners())
	watched := map[wire.Key]bool{}
	var copies []p4rt.Replica
	for _, ip := range slices.SortedFunc(maps.Keys(all), netip.Addr.Compare) {
		server := all[ip]
		h := p.Topology.HostByAddress(ip)
		if h == nil {
			continue
		}
		any := false
		for id, name := range server.Keys {
			if id.Chain() != c.ID || !p.MayRead(h, name) {
				continue
			}
			any, watched[id] = true, true
			if h.Switch == s {
				out.Keys = append(out.Keys, watcherEntry(h, server.Port, id))
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
		return WatchPart{}
	}
	tail := conf.Assignment(s.Name).Tail
	for _, port := range p.graph(tail, conf.Learners()...).Tree(tail, ends)[s.Name] {
		copies = append(copies, p4rt.Replica{Port: port, Instance: instanceAck})
	}
	if len(copies) == 0 {
		return WatchPart{}
	}
	for id := range watched {
		out.Keys = append(out.Keys, watchedKey(id))
	}
	ids := p.groups[s.Name][c.ID]
	out.Chain = []p4rt.Entry{watchedChain(c.ID, conf.Epoch, ids.watchAck, ids.watchReply)}
	out.Groups = append(out.Groups, p4rt.Group{ID: uint32(ids.watchAck), Replicas: copies})
	for _, port := range replyPorts(s) {
		replicas := slices.DeleteFunc(slices.Clone(copies), func(r p4rt.Replica) bool {
			return r.Port == port && r.Instance == instanceAck
		})
		out.Groups = append(out.Groups, p4rt.Group{ID: uint32(ids.watchReply) + port,
			Replicas: append(replicas, p4rt.Replica{Port: port, Instance: instanceReply})})
	}
	return out
}
