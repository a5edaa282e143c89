package nodeclaims

import (
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/netcraq/netcraq/cni-plugin/kube/nodeview"
)

// Endpoints corrects wrong addresses in the nodes' statuses. A node's P4Runtime server and agent
// must be at the node's own addresses. TLS already prevents the leader from mistaking one node for
// another. This check also ensures that two switches never have the same address, and that the
// leader does not connect to any address that a node names. Endpoints replaces a wrong address by
// the node's own address, with the ports of the leader's agent, because all agents of a cluster use
// the same ports. A node without an address gets none.
//
// If a node's Node object is gone, only its status is left. Endpoints accepts it if no other node
// has the address.
func Endpoints(nodes []nodeview.Node, p4runtimePort, agentPort int) (wrong Faults) {
	taken := map[string]bool{}
	owned := map[netip.Addr]bool{}
	for _, n := range nodes {
		owned[n.Address], owned[n.Second] = true, true
	}
	order := make([]*nodeview.Node, len(nodes))
	for i := range nodes {
		order[i] = &nodes[i]
	}
	slices.SortStableFunc(order, nodeview.CompareAge)
	for _, n := range order {
		for _, e := range []struct {
			said   *string
			port   int
			reason string
		}{{&n.Status.P4Runtime, p4runtimePort, wrongP4Runtime}, {&n.Status.Agent, agentPort, wrongAgent}} {
			if *e.said == "" {
				continue
			}
			at, err := netip.ParseAddrPort(*e.said)
			ok := err == nil && at.Port() != 0 && nodeview.Usable(at.Addr())
			if n.There {
				ok = ok && (at.Addr() == n.Address || at.Addr() == n.Second)
			} else {
				ok = ok && !owned[at.Addr()]
			}
			if ok && !taken[at.String()] {
				*e.said = at.String()
				taken[*e.said] = true
				continue
			}
			wrong.Add(n.Name, e.reason, "%.64q is not an address and port of the node", *e.said)
			*e.said = ""
			if n.Address.IsValid() {
				if own := net.JoinHostPort(n.Address.String(), strconv.Itoa(e.port)); !taken[own] {
					*e.said = own
					taken[own] = true
				}
			}
		}
	}
	return wrong
}
