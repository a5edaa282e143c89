package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/controller/tableplan"
)

// This file implements watches (docs/protocol.md, "Watches"). The acknowledgements of watched keys
// also go to the servers that watch them. A server registers its keys and must renew the
// registration, which otherwise ends. Registrations are only in memory, so a new controller learns
// of them at the next renewal. Until then, servers find missed changes by reading.
//
// The tables of watches are not part of a chain's configuration. They are written when there is
// nothing else to do at a switch. A switch ignores groups of another epoch, so late updates do not
// harm the chain, which uses its own tree meanwhile.

const (
	// maxWatched is how many keys can be watched in the whole network. The servers of one switch
	// together can watch as many. These limits are the sizes of the tables watched_key and watcher.
	maxWatched = 16384
	// maxKeys is how many keys one server can watch, so that no server takes all of them.
	maxKeys = maxWatched / 4
	// maxServers is how many servers of one switch can watch. Each server gets a copy of all
	// commits that any of them watches.
	maxServers = 8
	// watchTTL is how long a registration lasts without renewal.
	watchTTL = 10 * time.Second
)

// Watch registers a server for commits of keys, for watchTTL. It replaces the server's previous
// registration.
func (c *Controller) Watch(ctx context.Context, r admin.WatchRequest) (*admin.Watch, error) {
	ip, err := netip.ParseAddr(r.Address)
	if err != nil || !ip.Is4() {
		return nil, admin.Errorf(admin.CodeInvalidArgument, "the address %q is not an IPv4 address", r.Address)
	}
	if r.Port == 0 || r.Port == wire.Port {
		return nil, admin.Errorf(admin.CodeInvalidArgument, "no server can have the UDP port %d", r.Port)
	}
	if len(r.KeyIDs) > maxKeys {
		return nil, admin.Errorf(admin.CodeInvalidArgument, "%d keys: a server can watch %d", len(r.KeyIDs), maxKeys)
	}
	out := &admin.Watch{TTLSeconds: int(watchTTL / time.Second), Refused: []uint32{}}
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
		e := admin.Errorf(admin.CodeFailedPrecondition, "%s", err.Error())
		e.WatchedAt = other.port
		return nil, e
	}
	if err != nil {
		return nil, apiError(err)
	}
	return out, nil
}

// watchedBy is the error that another server on the same host, at this port, already watches keys.
type watchedBy struct{ port uint16 }

func (w watchedBy) Error() string {
	return fmt.Sprintf("another server of this host watches, at the UDP port %d", w.port)
}

// watch is Watch on the controller's goroutine.
func (c *Controller) watch(ip netip.Addr, r admin.WatchRequest, out *admin.Watch) error {
	t := c.net().topo
	h := t.HostByAddress(ip)
	if h == nil {
		return fmt.Errorf("%w: no host of this network has the address %v", chain.ErrInvalid, ip)
	}
	now := time.Now()
	all := maps.Clone(*c.watching.Load())
	old := all[ip]
	if old != nil && old.Port != r.Port && old.Until.After(now) {
		return watchedBy{old.Port}
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
		for id := range s.Keys {
			taken[id] = true
		}
		other := t.HostByAddress(s.Address)
		if other != nil && other.Switch == h.Switch {
			servers++
			here += len(s.Keys)
		}
	}
	if servers >= maxServers {
		return fmt.Errorf("%w: %d servers at %s watch already", chain.ErrRefused, servers, h.Switch.Name)
	}
	s := &tableplan.WatchServer{Address: ip, Port: r.Port, Keys: map[wire.Key]string{}, Until: now.Add(watchTTL)}
	for _, n := range r.KeyIDs {
		id := wire.Key(n)
		k, ok := c.dir.ByID(id)
		// A hidden key's slot may hold another key's value, which may be committed. The leftover of
		// a moved key belongs to the controller.
		may := ok && !k.Hidden() && !k.Leftover() && c.net().plan.MayRead(h, k.FinalName())
		if !may || !taken[id] && len(taken) >= maxWatched || here+len(s.Keys) >= maxWatched {
			out.Refused = append(out.Refused, n)
			continue
		}
		taken[id] = true
		s.Keys[id] = k.FinalName()
	}
	all[ip] = s
	if old != nil && old.Port == s.Port && maps.Equal(old.Keys, s.Keys) {
		c.watching.Store(&all) // the registration was renewed and has not changed
	} else {
		c.setWatching(all)
	}
	time.AfterFunc(watchTTL+time.Millisecond, func() { c.post(c.endWatches) })
	return nil
}

// endWatches ends registrations that were not renewed.
func (c *Controller) endWatches() {
	now := time.Now()
	all := maps.Clone(*c.watching.Load())
	before := len(all)
	maps.DeleteFunc(all, func(_ netip.Addr, s *tableplan.WatchServer) bool { return !s.Until.After(now) })
	if len(all) != before {
		c.setWatching(all)
	}
}

func (c *Controller) setWatching(all tableplan.Watches) {
	c.watching.Store(&all)
	for _, d := range c.net().devices {
		d.WatchSoon()
	}
}
