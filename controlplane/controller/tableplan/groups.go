package tableplan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/netcraq/netcraq/controlplane/topology"
)

// These constants are replica instances of the tail's multicast (docs/protocol.md, "Multicast at
// the tail").
const (
	instanceAck    = 1
	instanceReply  = 2
	instanceNotify = 3
)

// maxGroup is the highest usable multicast group id: simple_switch_grpc reserves ids from 32768
// on.
const maxGroup = 1<<15 - 1

// groupIDs holds the multicast groups of one chain at one switch. Configurations of even and odd
// epochs use different groups, so that the next configuration's groups can be made while the
// present ones are in use.
type groupIDs struct {
	ack   [2]uint16
	reply [2]uint16 // the group for a reply by port p is reply + p
	// The groups of watches are changed while no packet uses them, so one set is enough.
	watchAck, watchReply uint16
}

// groupTable holds the group ids of all chains at all switches.
type groupTable map[string]map[uint8]groupIDs

// A block holds the group ids for all ports that a switch can have. Its first id is the group for
// acknowledgements. The id that is p higher is the group for a reply by port p.
const (
	blockSize = int(topology.CPUPort) + 1
	maxBlocks = maxGroup / blockSize / 3 // number of chains that can have three blocks each
)

// allocateGroups gives every chain its groups at every switch. It should keep these groups when
// ports, hosts and chains come and go, because a chain's entry has to change with its groups. So
// the blocks of a chain follow from its id, as long as there are enough blocks for all chains.
// Otherwise each chain gets only the ids that the existing ports need.
func allocateGroups(t *topology.Topology) (groupTable, error) {
	if len(t.Chains) <= maxBlocks {
		return allocateBlocks(t), nil
	}
	return allocateDensely(t)
}

func allocateBlocks(t *topology.Topology) groupTable {
	ids := map[uint8]groupIDs{}
	taken := [maxBlocks]bool{}
	chains := slices.SortedFunc(slices.Values(t.Chains), func(a, b *topology.Chain) int {
		return cmp.Compare(a.ID, b.ID)
	})
	for _, c := range chains {
		n := int(c.ID) % maxBlocks
		for taken[n] {
			n = (n + 1) % maxBlocks
		}
		taken[n] = true
		first := uint16(1 + 2*n*blockSize)
		second := first + uint16(blockSize)
		watch := uint16(1 + (2*maxBlocks+n)*blockSize) // placed after all other blocks, which keep their ids
		ids[c.ID] = groupIDs{ack: [2]uint16{first, second}, reply: [2]uint16{first, second},
			watchAck: watch, watchReply: watch}
	}
	out := groupTable{}
	for _, s := range t.Switches {
		out[s.Name] = ids
	}
	return out
}

func allocateDensely(t *topology.Topology) (groupTable, error) {
	out := groupTable{}
	for _, s := range t.Switches {
		taken := make([]bool, maxGroup+1)
		taken[0] = true // id 0 is not a group
		ids := map[uint8]groupIDs{}
		ports := replyPorts(s)
		low := 1
		for _, c := range t.Chains {
			var g groupIDs
			for kind := range 3 { // the kinds are groups of even epochs, of odd epochs, and of watches
				for low <= maxGroup && taken[low] {
					low++
				}
				ack, ok := low, low <= maxGroup
				if ok {
					taken[ack] = true
				}
				// Find the lowest base whose groups are all free. The base itself may belong to
				// another chain, because there is no port 0.
				base := 0
				free := func(base int) bool {
					return !slices.ContainsFunc(ports, func(p uint32) bool {
						n := base + int(p)
						return n > maxGroup || taken[n]
					})
				}
				for base = 1; ok && !free(base); base++ {
					ok = base < maxGroup
				}
				if !ok {
					return nil, fmt.Errorf("switch %s has %d ports: the multicast groups of %d chains do not fit its %d group ids; use fewer chains",
						s.Name, len(s.Ports), len(t.Chains), maxGroup)
				}
				for _, p := range ports {
					taken[base+int(p)] = true
				}
				if kind == 2 {
					g.watchAck, g.watchReply = uint16(ack), uint16(base)
				} else {
					g.ack[kind], g.reply[kind] = uint16(ack), uint16(base)
				}
			}
			ids[c.ID] = g
		}
		out[s.Name] = ids
	}
	return out, nil
}

// replyPorts lists the ports by which a reply can leave a switch.
func replyPorts(s *topology.Switch) []uint32 {
	ports := []uint32{topology.CPUPort}
	for _, p := range s.Ports {
		ports = append(ports, p.Number)
	}
	return ports
}

// ownsWatch reports whether a group belongs to a chain's watches.
func (g groupIDs) ownsWatch(ports []uint32, id uint32) bool {
	base := uint32(g.watchReply)
	return id == uint32(g.watchAck) || id > base && slices.Contains(ports, id-base)
}

// owns reports whether a group belongs to a chain, but not to its watches, at a switch with these
// ports for replies.
func (g groupIDs) owns(ports []uint32, id uint32) bool {
	for parity := range 2 {
		if id == uint32(g.ack[parity]) {
			return true
		}
		if base := uint32(g.reply[parity]); id > base && slices.Contains(ports, id-base) {
			return true
		}
	}
	return false
}

// switchGroups tells which multicast groups of one switch belong to which chain.
type switchGroups struct {
	ids   map[uint8]groupIDs // group ids by chain
	ports []uint32           // ports by which replies leave the switch
}

// GroupsAt returns the group ids of the chains at a switch.
func (p *Plan) GroupsAt(s *topology.Switch) switchGroups {
	return switchGroups{p.groups[s.Name], replyPorts(s)}
}

// Owns reports whether a group belongs to a chain, but not to its watches.
func (g switchGroups) Owns(id uint8, group uint32) bool { return g.ids[id].owns(g.ports, group) }

// OwnsWatch reports whether a group belongs to a chain's watches.
func (g switchGroups) OwnsWatch(id uint8, group uint32) bool {
	return g.ids[id].ownsWatch(g.ports, group)
}

// CheckGroups reports an error if the multicast groups of a topology's chains do not fit its
// switches.
func CheckGroups(t *topology.Topology) error {
	_, err := allocateGroups(t)
	return err
}
