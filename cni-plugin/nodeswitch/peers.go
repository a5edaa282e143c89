package nodeswitch

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/cni-plugin/guards"
	"github.com/netcraq/netcraq/cni-plugin/ingressfilter"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
)

// fabricPort is a port that leads to another switch.
type fabricPort struct {
	iface string
	index int // of the interface, by which one that was made again is known
}

// ConnectPeers makes tunnels to other nodes' switches ports, by their numbers, and removes ports
// and tunnels of an earlier call that are no longer wanted. Correct ones stay. The error names the
// nodes that could not be connected; the others are.
func (s *Switch) ConnectPeers(self podroutes.Node, peers map[uint32]podroutes.Node) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, number := range slices.Sorted(maps.Keys(s.peers)) {
		if n, ok := peers[number]; !ok || podroutes.PeerName(n) != s.peers[number].iface {
			errs = append(errs, s.disconnect(number))
		}
	}
	if err := podroutes.RemovePeerLinks(slices.Collect(maps.Values(peers))); err != nil {
		errs = append(errs, err)
	}
	for _, number := range slices.Sorted(maps.Keys(peers)) {
		if err := s.connect(self, number, peers[number]); err != nil {
			errs = append(errs, fmt.Errorf("the switch's port %d to node %s: %w", number, peers[number].Name, err))
		}
	}
	return errors.Join(errs...)
}

func (s *Switch) connect(self podroutes.Node, number uint32, peer podroutes.Node) error {
	name, err := podroutes.PeerLink(self, peer)
	if err != nil {
		return err
	}
	l, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("the tunnel %s: %w", name, err)
	}
	index := l.Attrs().Index
	if old, ok := s.peers[number]; ok {
		if old.index == index {
			return setUp(l)
		}
		if err := s.disconnect(number); err != nil { // somebody removed the tunnel, and it was made again
			return err
		}
	}
	if err := s.filter(index, betweenSwitches); err != nil { // before it can receive anything
		return err
	}
	if err := setUp(l); err != nil {
		return err
	}
	if err := s.AddPort(number, name); err != nil {
		return err
	}
	s.peers[number] = fabricPort{name, index}
	return nil
}

func (s *Switch) disconnect(number uint32) error {
	delete(s.peers, number)
	if err := s.RemovePort(number); err != nil {
		return fmt.Errorf("the switch's port %d, which leads nowhere any more: %w", number, err)
	}
	return nil
}

// ConnectUplink makes an interface that leads to one other switch a port.
func (s *Switch) ConnectUplink(number uint32, iface string) error {
	l, err := net.InterfaceByName(iface)
	if err == nil {
		err = s.filter(l.Index, uplinkRules)
	}
	if err == nil {
		err = s.AddPort(number, iface)
	}
	if err != nil {
		return fmt.Errorf("the switch's port %d, %s: %w", number, iface, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uplinks = append(s.uplinks, l.Index)
	return nil
}

// filter puts an ingress filter behind the switch's program.
func (s *Switch) filter(ifindex int, r ingressfilter.Rules) error {
	r.Place = s.place
	s.filtering.Lock()
	defer s.filtering.Unlock()
	err := ingressfilter.Attach(ifindex, r)
	if err == nil {
		s.filters[ifindex] = r
	}
	return err
}

// Restore restores the ingress filters of the switch's own interfaces that somebody has removed.
func (s *Switch) Restore(report guards.Report) {
	s.filtering.Lock()
	defer s.filtering.Unlock()
	for index, rules := range s.filters {
		l, err := netlink.LinkByIndex(index)
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			delete(s.filters, index)
			continue
		}
		if err != nil {
			continue // which says nothing about the filter
		}
		if there, err := ingressfilter.Attached(index); err == nil && !there {
			report(guards.IngressFilter, l.Attrs().Name, ingressfilter.Attach(index, rules))
		}
	}
}

// Packets to a switch are not for the node's own stack, whatever runs the program. So its ports
// have ingress filters.
var (
	// betweenSwitches is for interfaces that only switches use, or one and its node: the stack
	// would route what comes by them, NetCRAQ or not, as if it came from a network of the node's.
	betweenSwitches = ingressfilter.Rules{Everything: true}
	// uplinkRules are for interfaces that the node uses, too.
	uplinkRules = ingressfilter.Rules{Port: wire.Port}
)

// removeFilters leaves the operator's interfaces as they were. Those that the agent has made keep
// theirs.
func (s *Switch) removeFilters() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.filtering.Lock()
	defer s.filtering.Unlock()
	for _, index := range s.uplinks {
		delete(s.filters, index)
		_ = ingressfilter.Detach(index) // the process ends
	}
}
