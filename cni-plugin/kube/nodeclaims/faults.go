// Package nodeclaims decides which of the nodes' statements about themselves to trust. It only
// computes and logs, and does not use the network.
//
//	[]nodeview.Node ──▶ Claims.Settle ──▶ Endpoints ──▶ nodes without what is wrong
//	                          │              │
//	                          └── Faults ────┴─────────▶ Report: log lines and a counter
package nodeclaims

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A node describes itself. Its kubelet writes the addresses of its Node, and its agent writes the
// status of its NetcraqNode and lists its pods. A compromised worker can put anything there. So the
// leader checks whether a node may make such a statement. It leaves out a wrong statement, and
// builds the network as if the statement did not exist.

// Reasons for which the leader leaves out a statement of a node. They are values of the label
// "reason".
const (
	wrongAddress     = "internal-ip"      // an InternalIP that the node cannot have
	wrongPrefix      = "pod-cidr"         // a podCIDR that the node cannot have
	wrongP4Runtime   = "p4runtime"        // a P4Runtime address that is not at the node
	wrongAgent       = "agent"            // an agent's address that is not at the node
	WrongNodeHost    = "node-host"        // the switches' prefix has no address for the node
	WrongEntry       = "pod-entry"        // an entry of a pod list that is not a pod
	WrongPodIP       = "pod-ip"           // an address that no pod can have
	PodIPElsewhere   = "pod-ip-elsewhere" // an address that is not one of the node's own pods
	PodIPTaken       = "pod-ip-taken"     // an address that another host has
	WrongPodPort     = "pod-port"         // a port that is not for pods, or another pod's
	WrongPodMAC      = "pod-mac"          // not a MAC address, or the MAC address of another host
	PodWithoutIPv4   = "pod-without-ipv4" // a pod that requests the fast path, which needs IPv4
	TooManyPods      = "too-many-pods"    // more entries than a switch has ports for pods
	TooManyInNetwork = "network-full"     // more hosts than the switches' tables hold
)

// Fault has one or more statements of a node that the leader leaves out for the same reason.
type Fault struct {
	Node, Reason string
	example      string // one of the statements, to show in log lines
	count        int
}

// Faults has the statements that were left out, with at most one Fault for each node and reason.
type Faults []Fault

// Add adds a statement that was left out.
func (f *Faults) Add(node, reason, format string, args ...any) {
	f.AddMany(node, reason, 1, format, args...)
}

// AddMany adds several statements that were left out for the same reason.
func (f *Faults) AddMany(node, reason string, count int, format string, args ...any) {
	i := slices.IndexFunc(*f, func(x Fault) bool { return x.Node == node && x.Reason == reason })
	if i >= 0 {
		(*f)[i].count += count
		return
	}
	*f = append(*f, Fault{node, reason, fmt.Sprintf(format, args...), count})
}

// Total returns the number of statements that were left out.
func (f Faults) Total() (n int) {
	for _, x := range f {
		n += x.count
	}
	return n
}

// String describes the faults of one node.
func (f Faults) String() string {
	var out []string
	for _, x := range f {
		s := x.Reason + ": " + x.example
		if x.count > 1 {
			s += fmt.Sprintf(" (and %d more)", x.count-1)
		}
		out = append(out, s)
	}
	return strings.Join(out, "; ")
}

// ErrorOf returns an error that describes the faults of a node, or nil if the node has none.
func (f Faults) ErrorOf(node string) error {
	var own Faults
	for _, x := range f {
		if x.Node == node {
			own = append(own, x)
		}
	}
	if own == nil {
		return nil
	}
	return errors.New(own.String())
}
