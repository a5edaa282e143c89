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

// fabricPort is a port of the switch that leads to another switch.
type fabricPort struct {
	iface string
	index int // index of the interface; it differs if the interface was made again
}

// ConnectPeers makes the tunnels to other nodes' switches ports of this switch. The keys are port
// numbers. ConnectPeers removes ports and tunnels of an earlier call that are no longer wanted, and
// does not change correct ones. It connects all nodes that it can. The error names the other nodes.
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
		if err := s.disconnect(number); err != nil { // someone removed the tunnel, and it was made again
			return err
		}
	}
	if err := s.filter(index, betweenSwitches); err != nil { // before the interface can receive anything
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

// ConnectUplink makes an interface that leads to another switch a port of this switch.
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

// filter puts an ingress filter after the switch's program.
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

// Restore restores the ingress filters of the switch's own interfaces that someone has removed.
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
			continue // after an error it is unknown whether the filter is missing
		}
		if there, err := ingressfilter.Attached(index); err == nil && !there {
			report(guards.IngressFilter, l.Attrs().Name, ingressfilter.Attach(index, rules))
		}
	}
}

// The ports of a switch have ingress filters, whichever engine runs the program, because packets to
// a switch are not for the node's own stack.
var (
	// betweenSwitches are the rules for interfaces that only switches use, or only a switch and its
	// node. Without them, the stack would route all packets from such an interface as if they came
	// from the node's own network.
	betweenSwitches = ingressfilter.Rules{Everything: true}
	// uplinkRules are the rules for interfaces that the node uses, too.
	uplinkRules = ingressfilter.Rules{Port: wire.Port}
)

// removeFilters removes the filters from the operator's interfaces. Interfaces that the agent has
// made keep their filters.
func (s *Switch) removeFilters() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.filtering.Lock()
	defer s.filtering.Unlock()
	for _, index := range s.uplinks {
		delete(s.filters, index)
		_ = ingressfilter.Detach(index) // errors do not matter, because the process ends
	}
}
