// Package chainplan makes decisions about chains. Its functions are pure: they use no clock,
// network or API server. Package reconcilers calls them and carries out the decisions.
//
//   - Accept decides which chains may exist, Form chooses their first members, and Next chooses the
//     next step of a running chain (chains.go) - Status computes the status of the chain's resource
//     (status.go) - WantedRules and RuleChanges decide which etcd keys may be in a chain
//     (key_rules.go)
package chainplan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeview"
)

// This file decides which chains are accepted, how they form, and what their next step is.

const (
	// formWait is how long a new chain waits for its requested number of nodes. After this time it
	// forms with the nodes that exist.
	formWait = 30 * time.Second
	// leastMembers is the minimum number of members of a new chain. With one member, all
	// acknowledged writes would be lost together with its switch.
	leastMembers = 2
)

// Accept decides which chains can coexist. Of two chains that conflict, it accepts the older one.
// refused has the reasons for the refused chains, by name.
func Accept(chains []v1alpha1.NetcraqChain) (accepted []*v1alpha1.NetcraqChain, refused map[string]string) {
	refused = map[string]string{}
	all := make([]*v1alpha1.NetcraqChain, len(chains))
	for i := range chains {
		all[i] = &chains[i]
	}
	slices.SortFunc(all, func(a, b *v1alpha1.NetcraqChain) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, c := range all {
		why := ""
		for _, other := range accepted {
			switch {
			case other.Spec.ID == c.Spec.ID:
				why = fmt.Sprintf("the chain %s has the id %d already: give this one another id", other.Name, c.Spec.ID)
			case other.Spec.Profile != c.Spec.Profile:
				why = fmt.Sprintf("all switches run one program, and the chain %s has the profile %d: this one can have no other", other.Name, other.Spec.Profile)
			}
			if why != "" {
				break
			}
		}
		if why != "" {
			refused[c.Name] = why
			continue
		}
		accepted = append(accepted, c)
	}
	return accepted, refused
}

// mayBeMember reports whether a node may be a member of a chain.
func mayBeMember(s *v1alpha1.NetcraqChainSpec, n nodeview.Node) bool {
	return n.There && n.Connected() && !slices.Contains(s.ExcludedNodes, n.Name) &&
		labels.SelectorFromSet(s.NodeSelector).Matches(labels.Set(n.Labels))
}

// candidates returns the nodes that could become members of a chain, the best node first. Nodes in
// the fewest chains come first, then those with the lowest number. An unschedulable node is not a
// candidate.
func candidates(s *v1alpha1.NetcraqChainSpec, nodes []nodeview.Node, members []string, load map[string]int) []string {
	var good []nodeview.Node
	for _, n := range nodes {
		if mayBeMember(s, n) && n.Ready && n.Schedulable && !slices.Contains(members, n.Name) {
			good = append(good, n)
		}
	}
	slices.SortFunc(good, func(a, b nodeview.Node) int {
		return cmp.Or(cmp.Compare(load[a.Name], load[b.Name]), cmp.Compare(a.Number, b.Number))
	})
	var out []string
	for _, n := range good {
		out = append(out, n.Name)
	}
	return out
}

// Form chooses the first members of a chain that has waited for some time. If it returns no
// members, why says what the chain waits for.
func Form(s *v1alpha1.NetcraqChainSpec, nodes []nodeview.Node, load map[string]int, waited time.Duration) (
	members []string, why string) {
	c := candidates(s, nodes, nil, load)
	switch {
	case len(c) >= int(s.Length):
		return c[:s.Length], ""
	case len(c) < leastMembers:
		return nil, fmt.Sprintf("a chain needs two nodes at least, and there are %d that could be members", len(c))
	case waited < formWait:
		return nil, fmt.Sprintf("%d of %d nodes are there", len(c), s.Length)
	}
	return c, ""
}

// Step is an action that changes a running chain. At most one of its fields is set.
type Step struct {
	BringIn string   // a switch to add to the chain
	Members []string // the new members, fewer than the current ones
	Lease   *int     // the new read lease in milliseconds
}

// Next returns the next step of a running chain. It returns nil if there is none, or if the chain
// must wait. steady reports whether a switch was ready for long enough.
func Next(s *v1alpha1.NetcraqChainSpec, now *admin.Chain, nodes []nodeview.Node, load map[string]int,
	steady func(node string) bool) *Step {
	if !now.Ready || now.Frozen {
		return nil
	}
	if lease := int(s.LeaseMillis); lease != now.LeaseMillis {
		return &Step{Lease: &lease}
	}
	var members, wanted []string
	for _, m := range now.Members {
		if m.Role == "SHADOW" {
			return nil // nothing else may happen while a switch joins
		}
		members = append(members, m.Switch)
		if i := slices.IndexFunc(nodes, func(n nodeview.Node) bool {
			return n.Name == m.Switch
		}); i >= 0 && mayBeMember(s, nodes[i]) {
			wanted = append(wanted, m.Switch)
		}
	}
	// A member that must leave is first replaced, if there is another switch.
	if len(wanted) < int(s.Length) {
		for _, c := range candidates(s, nodes, members, load) {
			if steady(c) {
				return &Step{BringIn: c}
			}
		}
	}
	switch {
	case len(wanted) > int(s.Length):
		// members leave from the end, because all members answer reads, and writes begin at the
		// head
		return &Step{Members: wanted[:s.Length]}
	case len(wanted) < len(members) && len(wanted) > 0:
		return &Step{Members: wanted}
	}
	return nil
}

// String describes the step.
func (s *Step) String() string {
	switch {
	case s.BringIn != "":
		return "bringing in " + s.BringIn
	case s.Members != nil:
		return fmt.Sprintf("members %v", s.Members)
	}
	return fmt.Sprintf("a lease of %d ms", *s.Lease)
}

// Undeleted returns the chains that are not being deleted.
func Undeleted(chains []v1alpha1.NetcraqChain) []v1alpha1.NetcraqChain {
	return slices.DeleteFunc(slices.Clone(chains), func(c v1alpha1.NetcraqChain) bool {
		return c.DeletionTimestamp != nil
	})
}

func Names(chains []*v1alpha1.NetcraqChain) (out []string) {
	for _, c := range chains {
		out = append(out, c.Name)
	}
	return out
}
