package kube

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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

// reportInterval is the least time between two log lines about one node, which may change what it
// says as often as it likes.
const reportInterval = 5 * time.Second

// faultReport logs and counts faults when they change. It is not safe for concurrent use.
type faultReport struct {
	log     *slog.Logger
	counter *prometheus.CounterVec

	counted map[fault]bool
	logged  map[string]loggedFaults // by node
}

type loggedFaults struct {
	text string
	at   time.Time
}

// newFaultCounter makes the counter of a faultReport.
func newFaultCounter() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "netcraq_agent_left_out_total",
		Help: "Statements of nodes about themselves and their pods that the leader has left out of the network, by node and reason. " +
			"A statement counts once, and again each time that it comes back."}, []string{"node", "reason"})
}

// update takes in what is left out now.
func (r *faultReport) update(all faults, now time.Time) {
	counted := map[fault]bool{}
	byNode := map[string]faults{}
	for _, f := range all {
		counted[f] = true
		byNode[f.node] = append(byNode[f.node], f)
		if !r.counted[f] && r.counter != nil {
			r.counter.WithLabelValues(f.node, f.reason).Add(float64(f.count))
		}
	}
	r.counted = counted
	if r.logged == nil {
		r.logged = map[string]loggedFaults{}
	}
	for _, node := range slices.Sorted(maps.Keys(byNode)) {
		was, text := r.logged[node], byNode[node].String()
		if text == was.text || !was.at.IsZero() && now.Sub(was.at) < reportInterval {
			continue
		}
		r.logged[node] = loggedFaults{text, now}
		r.log.Warn("some of what a node says is wrong and was left out of the network", "node", node,
			"statements", byNode[node].total(), "wrong", text)
	}
	for node, was := range r.logged {
		if byNode[node] == nil && now.Sub(was.at) >= reportInterval {
			delete(r.logged, node)
			r.log.Info("all that a node says is in the network", "node", node)
		}
	}
}

// compareAge orders nodes by the age of their Node objects, which the API server wrote down. The
// oldest comes first. Nodes without a Node object come last.
func compareAge(a, b *node) int {
	switch {
	case a.there != b.there && a.there:
		return -1
	case a.there != b.there:
		return 1
	}
	return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.Name, b.Name))
}
