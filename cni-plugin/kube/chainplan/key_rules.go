package chainplan

import (
	"maps"
	"slices"
	"strings"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/controlplane/placement/policy"
)

// everyKey is an exclusion of all keys of an API server. Pins and narrower rules are exceptions to
// it.
const everyKey = "/"

// NeverPlaced are the keys of objects that Kubernetes writes to bring an agent back. A placed key
// cannot be written while the network does not answer and has no controller, so placing them could
// cause a deadlock. A replaced agent is deleted, counted, created again and bound to its node, and
// requests a certificate. Controllers and the agents' leader hold Leases for that.
func NeverPlaced(namespace string) []string {
	out := []string{"/registry/leases/*", "/registry/netcraq.io/*", "/registry/certificatesigningrequests/*"}
	for _, kind := range []string{"pods", "daemonsets", "controllerrevisions", "configmaps", "secrets", "serviceaccounts"} {
		out = append(out, "/registry/"+kind+"/"+namespace+"/*")
	}
	return out
}

// WantedRules are the rules from the chains' specs, plus the fixed exclusions in always.
func WantedRules(chains []*v1alpha1.NetcraqChain, always []string) map[policy.Subject]policy.Choice {
	out := map[policy.Subject]policy.Choice{}
	hot := false
	for _, c := range chains {
		p := c.Spec.Placement
		hot = hot || p.Policy == v1alpha1.PlaceHot || p.Policy == ""
		if p.Policy == v1alpha1.PlaceNone {
			continue
		}
		for _, k := range p.Pins {
			out[subject(k)] = policy.Pin
		}
	}
	if !hot {
		out[policy.Subject{Name: everyKey, Prefix: true}] = policy.Exclude
	}
	exclusions := slices.Clone(always)
	for _, c := range chains {
		exclusions = append(exclusions, c.Spec.Placement.Exclusions...)
	}
	for _, k := range exclusions { // if two specs conflict, an exclusion is the safer choice
		out[subject(k)] = policy.Exclude
	}
	return out
}

// subject parses KEY or PREFIX*.
func subject(text string) policy.Subject {
	name, prefix := strings.CutSuffix(text, "*")
	return policy.Subject{Name: name, Prefix: prefix}
}

// RuleChanges are the changes that turn the existing rules into the wanted ones.
func RuleChanges(have []admin.PlacementRule, want map[policy.Subject]policy.Choice) []admin.PlacementRule {
	left := maps.Clone(want)
	var out []admin.PlacementRule
	for _, h := range have {
		key, err := placement.ParsePrintable(h.Key)
		if err != nil || h.Default {
			continue
		}
		s := policy.Subject{Name: key, Prefix: h.Prefix}
		if w, ok := left[s]; !ok {
			out = append(out, admin.PlacementRule{Key: h.Key, Prefix: h.Prefix, Choice: "clear"})
		} else if string(w) == h.Choice {
			delete(left, s)
		}
	}
	byName := func(a, b policy.Subject) int { return strings.Compare(a.String(), b.String()) }
	for _, s := range slices.SortedFunc(maps.Keys(left), byName) {
		key := placement.Printable(s.Name)
		out = append(out, admin.PlacementRule{Key: key, Prefix: s.Prefix, Choice: string(left[s])})
	}
	return out
}
