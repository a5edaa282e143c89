package fastpath

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// TestMayReach applies policies to the chains' addresses, in the form in which an operator writes
// them.
func TestMayReach(t *testing.T) {
	const selected = "podSelector: {matchLabels: {app: a}}\n"
	for _, c := range []struct {
		name     string
		policies []string // specs of policies in the pod's namespace
		may      bool
	}{
		{"no policy", nil, true},
		{"about ingress alone", []string{"{podSelector: {}, policyTypes: [Ingress]}"}, true},
		{"ingress rules, no types", []string{"{podSelector: {}, ingress: [{}]}"}, true},
		{"egress denied", []string{"{podSelector: {}, policyTypes: [Egress]}"}, false},
		{"egress of other pods denied", []string{"{podSelector: {matchLabels: {app: b}}, policyTypes: [Egress]}"}, true},
		{"by an expression", []string{"{podSelector: {matchExpressions: [{key: app, operator: NotIn, values: [b]}]}, policyTypes: [Egress]}"}, false},
		{"all allowed", []string{selected + "egress: [{}]"}, true},
		{"denied by one, allowed by another", []string{"{podSelector: {}, policyTypes: [Egress]}", selected + "egress: [{to: [{ipBlock: {cidr: 10.0.254.0/24}}]}]"}, true},
		{"one chain of two", []string{selected + "egress: [{to: [{ipBlock: {cidr: 10.0.254.1/32}}]}]"}, false},
		{"two rules for two chains", []string{selected + "egress: [{to: [{ipBlock: {cidr: 10.0.254.1/32}}]}, {to: [{ipBlock: {cidr: 10.0.254.2/32}}]}]"}, true},
		{"all but a chain", []string{selected + "egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.0.254.2/32]}}]}]"}, false},
		{"all pods", []string{selected + "egress: [{to: [{namespaceSelector: {}}]}]"}, false},
		{"IPv6", []string{selected + "egress: [{to: [{ipBlock: {cidr: \"::/0\"}}]}]"}, false},
		{"the port", []string{selected + "egress: [{ports: [{protocol: UDP, port: 20035}]}]"}, true},
		{"the port of TCP", []string{selected + "egress: [{ports: [{protocol: TCP, port: 20035}]}]"}, false},
		{"the port of no protocol", []string{selected + "egress: [{ports: [{port: 20035}]}]"}, false},
		{"any UDP", []string{selected + "egress: [{ports: [{protocol: UDP}]}]"}, true},
		{"another port", []string{selected + "egress: [{ports: [{protocol: UDP, port: 53}]}]"}, false},
		{"a range", []string{selected + "egress: [{ports: [{protocol: UDP, port: 20000, endPort: 20035}]}]"}, true},
		{"a range before it", []string{selected + "egress: [{ports: [{protocol: UDP, port: 20000, endPort: 20034}]}]"}, false},
		{"a name", []string{selected + "egress: [{ports: [{protocol: UDP, port: netcraq}]}]"}, false},
		{"the port elsewhere", []string{selected + "egress: [{to: [{ipBlock: {cidr: 192.0.2.0/24}}], ports: [{protocol: UDP, port: 20035}]}, {to: [{ipBlock: {cidr: 10.0.254.0/24}}], ports: [{protocol: UDP, port: 53}]}]"}, false},
	} {
		var policies []networking.NetworkPolicy
		for _, spec := range c.policies {
			p := networking.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "team"}}
			if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			policies = append(policies, p)
		}
		// This policy of another namespace denies everything.
		policies = append(policies, networking.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "other"},
			Spec: networking.NetworkPolicySpec{PolicyTypes: []networking.PolicyType{networking.PolicyTypeEgress}}})
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Labels: map[string]string{"app": "a"}}}
		to := []netip.AddrPort{netip.MustParseAddrPort("10.0.254.1:20035"), netip.MustParseAddrPort("10.0.254.2:20035")}
		if got := mayReach(pod, policies, to); got != c.may {
			t.Errorf("%s (%s): it may send to the chains: %v", c.name, strings.Join(c.policies, "; "), got)
		}
		if !mayReach(pod, policies, nil) {
			t.Errorf("%s: where there is no chain nothing is forbidden", c.name)
		}
	}
}
