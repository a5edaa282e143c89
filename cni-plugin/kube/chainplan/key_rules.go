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

// everyKey is the prefix of all keys of an API server. An exclusion of it has pins and narrower
// rules as exceptions.
const everyKey = "/"

// NeverPlaced returns the keys of objects that Kubernetes must write to bring an agent back. These
// keys must not be placed. A placed key cannot be written while the network does not answer and has
// no controller, so the result would be a deadlock. When an agent is replaced, its pod is deleted,
// counted, created again and bound to its node. The new agent requests a certificate. Controllers
// and the agents' leader hold Leases for all this.
func NeverPlaced(namespace string) []string {
	out := []string{"/registry/leases/*", "/registry/netcraq.io/*", "/registry/certificatesigningrequests/*"}
	for _, kind := range []string{"pods", "daemonsets", "controllerrevisions", "configmaps", "secrets", "serviceaccounts"} {
		out = append(out, "/registry/"+kind+"/"+namespace+"/*")
	}
	return out
}

// WantedRules returns the rules from the chains' specs, and the fixed exclusions in always.
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
	for _, k := range exclusions { // exclusions come last, because they are the safer choice if two specs conflict
		out[subject(k)] = policy.Exclude
	}
	return out
}

// subject parses the text of a rule's subject, which is KEY or PREFIX*.
func subject(text string) policy.Subject {
	name, prefix := strings.CutSuffix(text, "*")
	return policy.Subject{Name: name, Prefix: prefix}
}

// RuleChanges returns the changes that turn the existing rules into the wanted rules.
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
