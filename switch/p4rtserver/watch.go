package p4rtserver

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/switch/p4rtserver/translate"
	"github.com/netcraq/netcraq/switch/target"
)

// Watch ports and backup replicas (sections 9.2.2 and 9.5.1) make groups and clone sessions depend
// on which ports are up. For each group and session, the server gives the engine the members or
// replicas that the present ports select. It checks the ports with every sweep. BMv2 checks them
// equally often.

// livePorts maps each port of the device to whether the port is up.
type livePorts map[uint32]bool

// linkUp is hasCarrier. Tests replace it.
var linkUp = hasCarrier

// hasCarrier reports whether an interface is up and has a carrier.
func hasCarrier(iface string) bool {
	const flags = unix.IFF_UP | unix.IFF_RUNNING
	link, err := netlink.LinkByName(iface)
	return err == nil && link.Attrs().RawFlags&flags == flags
}

func (s *Server) livePorts() livePorts {
	out := livePorts{}
	for p := range s.dev.Ports() {
		out[p.Number] = linkUp(p.Iface)
	}
	return out
}

// followerKey identifies an object that depends on ports.
type followerKey struct {
	in string // the name of an action selector, or one of the names below
	id uint32
}

// The names of objects other than action selectors.
const (
	inMulticast = "multicast group"
	inClones    = "clone session"
)

// follower updates an object in the engine according to the present ports. It reports whether the
// object has changed.
type follower func(livePorts) (changed bool, err error)

// follow sets an object to the result of choose for the present ports. If watches is true, the
// server repeats this whenever the result changes. If follow returns an error, nothing changes.
func follow[T comparable](c *config, k followerKey, watches bool, choose func(livePorts) []T,
	set func([]T) error) error {
	var up livePorts
	if watches {
		up = c.server.livePorts()
	}
	last := choose(up)
	if err := set(last); err != nil {
		return err
	}
	if !watches {
		delete(c.followers, k)
		return nil
	}
	c.followers[k] = func(up livePorts) (bool, error) {
		now := choose(up)
		if slices.Equal(now, last) {
			return false, nil
		}
		if err := set(now); err != nil {
			return false, err
		}
		last = now
		return true, nil
	}
	c.server.sweepSoon()
	return nil
}

// followPorts updates groups and clone sessions according to the present ports. It reports whether
// any object depends on ports. The caller holds s.state.
func (s *Server) followPorts() bool {
	var up livePorts
	for _, c := range []*config{s.live, s.saved} {
		if c == nil || len(c.followers) == 0 {
			continue
		}
		if up == nil {
			up = s.livePorts()
		}
		replicates := false
		for k, f := range c.followers {
			changed, err := f(up)
			if err != nil {
				s.log.Warn("a group or clone session does not follow the ports that are up",
					"of", k.in, "id", k.id, "err", err)
			}
			replicates = replicates || changed && (k.in == inMulticast || k.in == inClones)
		}
		if replicates && s.onReplication != nil && c == s.live {
			s.onReplication(&local{c.pipe, c})
		}
	}
	return up != nil
}

// watchedMember is a member of a group, with the port on which it depends.
type watchedMember struct {
	target.WeightedMember
	port    uint32
	watches bool
}

// watch reads the watch port of a group's member, and returns the port in the form in which it is
// stored. If the port is empty, the member is always selected. have returns the existing ports.
func (c *config) watch(m *watchedMember, port []byte, have func() livePorts) (kept []byte,
	err error) {
	if len(port) == 0 {
		return nil, nil
	}
	if m.port, err = c.portOf(port); err != nil {
		return nil, translate.Invalidf("watch_port: %s", status.Convert(err).Message())
	}
	m.watches = true
	if _, ok := have()[m.port]; !ok {
		return nil, translate.Invalidf("the switch has no port %d to watch; its ports are %v", m.port,
			slices.Sorted(maps.Keys(have())))
	}
	return translate.Shorten(port), nil
}

// oldWatch converts a watch port from the deprecated field. The value 0 stands for no port.
func oldWatch(port int32) []byte {
	if port == 0 {
		return nil
	}
	return binary.BigEndian.AppendUint32(nil, uint32(port))
}

// portOf decodes a port number.
func (c *config) portOf(b []byte) (n uint32, err error) {
	wide, err := translate.Widen(b, c.Ports)
	for _, b := range wide {
		n = n<<8 | uint32(b)
	}
	return n, err
}

// setGroup sets a group in the engine. It leaves out the members whose watch ports are down.
func (c *config) setGroup(p *translate.ActionProfile, id uint32, members []watchedMember, insert bool) error {
	choose := func(up livePorts) []target.WeightedMember {
		live := []target.WeightedMember{}
		for _, m := range members {
			if !m.watches || up[m.port] {
				live = append(live, m.WeightedMember)
			}
		}
		return live
	}
	return follow(c, followerKey{p.Name, id},
		slices.ContainsFunc(members, func(m watchedMember) bool { return m.watches }), choose,
		func(live []target.WeightedMember) error {
			err := c.pipe.SetGroup(p.Name, id, live, insert)
			insert = insert && err != nil
			return err
		})
}

// deleteGroup deletes a group in the engine.
func (c *config) deleteGroup(p *translate.ActionProfile, id uint32) error {
	if err := c.pipe.DeleteGroup(p.Name, id); err != nil {
		return err
	}
	delete(c.followers, followerKey{p.Name, id})
	return nil
}

// setReplicas sets one replica from each list: the first replica whose port is up or, if no port is
// up, the first replica of the list.
func (c *config) setReplicas(k followerKey, lists [][]target.Replica,
	set func([]target.Replica) error) error {
	choose := func(up livePorts) []target.Replica {
		out := make([]target.Replica, len(lists))
		for i, list := range lists {
			live := slices.IndexFunc(list, func(r target.Replica) bool { return up[r.Port] })
			out[i] = list[max(live, 0)]
		}
		return out
	}
	return follow(c, k, slices.ContainsFunc(lists, func(l []target.Replica) bool {
		return len(l) > 1
	}), choose, set)
}
