package tableplan

import (
	"fmt"
	"slices"
	"testing"

	"github.com/netcraq/netcraq/controlplane/topology"
)

// TestGroupsDoNotOverlap: each multicast group id has only one use, for any number of chains and
// ports.
func TestGroupsDoNotOverlap(t *testing.T) {
	for _, c := range []struct {
		chains, ports int
		fits          bool
	}{{1, 1, true}, {4, 8, true}, {256, 16, true}, {20, 500, true}, {256, 64, false}} {
		top := &topology.Topology{}
		s := &topology.Switch{Name: "s1"}
		for n := range c.ports {
			s.Ports = append(s.Ports, topology.Port{Number: uint32(n + 1)})
		}
		top.Switches = []*topology.Switch{s}
		for n := range c.chains {
			top.Chains = append(top.Chains, &topology.Chain{ID: uint8(n)})
		}
		groups, err := allocateGroups(top)
		if (err == nil) != c.fits {
			t.Errorf("%+v: %v", c, err)
		}
		seen := map[uint32]string{}
		use := func(id uint32, what string) {
			if id == 0 || id > maxGroup || seen[id] != "" {
				t.Fatalf("%+v: group %d of %s is also %s", c, id, what, seen[id])
			}
			seen[id] = what
		}
		for _, ch := range top.Chains {
			if err != nil {
				continue
			}
			g := groups["s1"][ch.ID]
			for parity := range 2 {
				use(uint32(g.ack[parity]), fmt.Sprintf("chain %d ack %d", ch.ID, parity))
				for _, p := range replyPorts(s) {
					use(uint32(g.reply[parity])+p, fmt.Sprintf("chain %d reply %d port %d", ch.ID, parity, p))
				}
			}
		}
		for id := range seen {
			owners := slices.DeleteFunc(slices.Clone(top.Chains), func(ch *topology.Chain) bool {
				return !groups["s1"][ch.ID].owns(replyPorts(s), id)
			})
			if len(owners) != 1 {
				t.Fatalf("%+v: group %d has %d owners", c, id, len(owners))
			}
		}
	}
}
