package kube

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A node describes itself: its kubelet writes the addresses of its Node, its agent writes the
// status of its NetcraqNode and lists its pods. A worker that was taken over can put anything
// there. The leader therefore checks each statement against the node that makes it. It leaves a
// wrong one out, and builds the network of everybody else as if the statement were not there.

// Why a statement is left out: the values of the label "reason".
const (
	wrongAddress     = "internal-ip"      // an InternalIP that the node cannot have
	wrongPrefix      = "pod-cidr"         // a podCIDR that the node cannot have
	wrongP4Runtime   = "p4runtime"        // a P4Runtime address that is not at the node
	wrongAgent       = "agent"            // an agent's address that is not at the node
	wrongNodeHost    = "node-host"        // the switches' prefix has no address for the node
	wrongEntry       = "pod-entry"        // an entry of a list that is not a pod
	wrongPodIP       = "pod-ip"           // an address that no pod can have
	podIPElsewhere   = "pod-ip-elsewhere" // an address that is not one of the node's own pods
	podIPTaken       = "pod-ip-taken"     // an address that another host has
	wrongPodPort     = "pod-port"         // a port that is not for pods, or another pod's
	wrongPodMAC      = "pod-mac"          // no MAC address, or another host's
	podWithoutIPv4   = "pod-without-ipv4" // a pod that asks for the fast path, which needs IPv4
	tooManyPods      = "too-many-pods"    // more entries than a switch has ports for pods
	tooManyInNetwork = "network-full"     // more hosts than the switches' tables take
)

// fault is one or more statements of a node that are left out for one reason.
type fault struct {
	node, reason string
	example      string // one of them, for people
	count        int
}

// faults are the statements that are left out, at most one fault for each node and reason.
type faults []fault

// add notes a statement.
func (f *faults) add(node, reason, format string, args ...any) {
	f.addMany(node, reason, 1, format, args...)
}

// addMany notes several statements.
func (f *faults) addMany(node, reason string, count int, format string, args ...any) {
	i := slices.IndexFunc(*f, func(x fault) bool { return x.node == node && x.reason == reason })
	if i >= 0 {
		(*f)[i].count += count
		return
	}
	*f = append(*f, fault{node, reason, fmt.Sprintf(format, args...), count})
}

// total is how many statements are left out.
func (f faults) total() (n int) {
	for _, x := range f {
		n += x.count
	}
	return n
}

// String describes the faults of one node.
func (f faults) String() string {
	var out []string
	for _, x := range f {
		s := x.reason + ": " + x.example
		if x.count > 1 {
			s += fmt.Sprintf(" (and %d more)", x.count-1)
		}
		out = append(out, s)
	}
	return strings.Join(out, "; ")
}

// of is an error that describes the faults of a node; nil: it has none.
func (f faults) of(node string) error {
	var own faults
	for _, x := range f {
		if x.node == node {
			own = append(own, x)
		}
	}
	if own == nil {
		return nil
	}
	return errors.New(own.String())
}
