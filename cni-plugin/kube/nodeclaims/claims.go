package nodeclaims

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/netcraq/netcraq/cni-plugin/kube/nodeview"
)

// Claims decides which node gets an address or a prefix that several Nodes claim. Each process that
// follows the nodes has one Claims.
//
// A kubelet may change the addresses of its own Node at any time, so the claim itself proves
// nothing. These rules decide, in this order:
//
//   - First acceptance. A claim that this process has accepted is valid as long as the Node makes
//     it. So a compromised worker cannot take an address that is in use. - Kind. podCIDRs outrank
//     addresses if the cluster sets them, because no one can change a Node's podCIDRs once they are
//     set. With another network plugin (chained) the cluster may leave them unset, and then a
//     kubelet could set them, so addresses outrank podCIDRs. - Age. The older Node object wins,
//     according to the API server. No node can make its object older.
type Claims struct {
	nodeview.Addressing
	chained bool

	mu   sync.Mutex
	held map[claim]bool
}

// New makes an empty Claims. chained reports whether another plugin makes the pods' network.
func New(a nodeview.Addressing, chained bool) *Claims {
	return &Claims{Addressing: a, chained: chained}
}

// claim is an address or a prefix that a node claims.
type claim struct {
	node    string
	address netip.Addr   // the claimed address, or unset
	prefix  netip.Prefix // the claimed prefix, or unset
}

// acceptedClaims has the claims that were accepted.
type acceptedClaims struct {
	addresses map[netip.Addr]string // the node that has each address
	prefixes  []claim
}

func (a *acceptedClaims) add(x claim) {
	if x.address.IsValid() {
		a.addresses[x.address] = x.node
	} else {
		a.prefixes = append(a.prefixes, x)
	}
}

// Settle removes from nodes the addresses and prefixes that they cannot have. If a node loses its
// first address, it also loses the second one, because it is not the node that it claims to be.
func (c *Claims) Settle(nodes []nodeview.Node) (wrong Faults) {
	c.mu.Lock()
	defer c.mu.Unlock()
	type candidate struct {
		claim
		of   *nodeview.Node
		rank int
	}
	var all []candidate
	for i := range nodes {
		n := &nodes[i]
		for _, p := range n.PodCIDRs {
			all = append(all, candidate{claim{node: n.Name, prefix: p}, n, 0})
		}
		for _, a := range []netip.Addr{n.Address, n.Second} {
			if a.IsValid() {
				x := candidate{claim{node: n.Name, address: a}, n, 1}
				if c.chained {
					x.rank = -1
				}
				all = append(all, x)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int {
		if x, y := c.held[a.claim], c.held[b.claim]; x != y {
			return map[bool]int{true: -1, false: 1}[x]
		}
		return cmp.Or(cmp.Compare(a.rank, b.rank), nodeview.CompareAge(a.of, b.of))
	})
	accepted := &acceptedClaims{addresses: map[netip.Addr]string{}}
	held := map[claim]bool{}
	refused := map[claim]string{}
	for _, x := range all {
		if why := c.conflict(x.claim, accepted); why == "" {
			accepted.add(x.claim)
			held[x.claim] = true
		} else if x.address.IsValid() || !held[x.claim] {
			refused[x.claim] = why
			wrong.Add(x.node, map[bool]string{true: wrongAddress, false: wrongPrefix}[x.address.IsValid()], "%s", why)
		} else {
			wrong.Add(x.node, wrongPrefix, "%s", why) // a node that lists a prefix twice keeps it once
		}
	}
	c.held = held
	for i := range nodes {
		n := &nodes[i]
		var prefixes []netip.Prefix
		for _, p := range n.PodCIDRs {
			if refused[claim{node: n.Name, prefix: p}] == "" && !slices.Contains(prefixes, p) {
				prefixes = append(prefixes, p)
			}
		}
		n.PodCIDRs = prefixes
		if refused[claim{node: n.Name, address: n.Second}] != "" {
			n.Second = netip.Addr{}
		}
		if refused[claim{node: n.Name, address: n.Address}] != "" {
			n.Address, n.Second = netip.Addr{}, netip.Addr{}
		}
	}
	return wrong
}

// conflict returns why a claim conflicts with the accepted claims, or "" if it does not.
func (c *Claims) conflict(x claim, accepted *acceptedClaims) string {
	reserved := func(a netip.Prefix) bool { return c.Services.Overlaps(a) || c.Switches.Overlaps(a) }
	switch {
	case x.address.IsValid() && !nodeview.Usable(x.address):
		return x.address.String() + " is not an address that a node can have"
	case x.address.IsValid() && reserved(netip.PrefixFrom(x.address, x.address.BitLen())):
		return x.address.String() + " is in the prefix of the chains' or the switches' addresses"
	case !x.address.IsValid() && reserved(x.prefix):
		return x.prefix.String() + " overlaps the prefix of the chains' or the switches' addresses"
	}
	if !x.address.IsValid() {
		for _, y := range accepted.prefixes {
			if x.prefix.Overlaps(y.prefix) {
				return fmt.Sprintf("%s overlaps the prefix %s, which node %s has", x.prefix, y.prefix, y.node)
			}
		}
		for address, node := range accepted.addresses {
			if x.node != node && x.prefix.Contains(address) {
				return fmt.Sprintf("%s contains an address of another node", x.prefix)
			}
		}
		return ""
	}
	if node, taken := accepted.addresses[x.address]; taken {
		return fmt.Sprintf("node %s has the address %s", node, x.address)
	}
	for _, y := range accepted.prefixes {
		if x.node != y.node && y.prefix.Contains(x.address) {
			return fmt.Sprintf("%s is in the prefix %s, which node %s has", x.address, y.prefix, y.node)
		}
	}
	return ""
}
