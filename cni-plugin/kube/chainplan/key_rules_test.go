package chainplan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
)

// TestRules checks that RuleChanges turns any existing rules into those of the chains' specs.
func TestRules(t *testing.T) {
	with := func(p v1alpha1.Placement) *v1alpha1.NetcraqChain {
		return &v1alpha1.NetcraqChain{Spec: v1alpha1.NetcraqChainSpec{Placement: p}}
	}
	health := admin.PlacementRule{Key: "/registry/health", Choice: "exclude", Default: true}
	for _, c := range []struct {
		what   string
		chains []*v1alpha1.NetcraqChain
		have   []admin.PlacementRule
		always []string
		want   string
	}{
		{"hot keys", []*v1alpha1.NetcraqChain{with(v1alpha1.Placement{Policy: v1alpha1.PlaceHot})},
			[]admin.PlacementRule{health}, nil, ""},
		{"pins and exclusions", []*v1alpha1.NetcraqChain{with(v1alpha1.Placement{Policy: v1alpha1.PlaceHot,
			Pins: []string{"/a", "/p/*"}, Exclusions: []string{"/e/*"}})}, nil, nil,
			"pin /a; exclude /e/*; pin /p/*"},
		{"only pins", []*v1alpha1.NetcraqChain{with(v1alpha1.Placement{Policy: v1alpha1.PlacePinned,
			Pins: []string{"/a"}})}, nil, nil, "exclude /*; pin /a"},
		{"hot for one chain, pins for another",
			[]*v1alpha1.NetcraqChain{with(v1alpha1.Placement{Policy: v1alpha1.PlacePinned,
				Pins: []string{"/a"}}), with(v1alpha1.Placement{})}, nil, nil, "pin /a"},
		{"an exclusion wins", []*v1alpha1.NetcraqChain{with(v1alpha1.Placement{Pins: []string{"/a"}}),
			with(v1alpha1.Placement{Exclusions: []string{"/a"}})}, nil, nil, "exclude /a"},
		{"nothing to do", []*v1alpha1.NetcraqChain{with(v1alpha1.Placement{Pins: []string{"/a"}})},
			[]admin.PlacementRule{health, {Key: "/a", Choice: "pin"}}, nil, ""},
		{"what nobody chooses any more", []*v1alpha1.NetcraqChain{with(v1alpha1.Placement{})},
			[]admin.PlacementRule{{Key: "/a", Choice: "pin"}, {Key: "/e/", Prefix: true, Choice: "exclude"}}, nil,
			"clear /a; clear /e/*"},
		{"another choice", []*v1alpha1.NetcraqChain{with(v1alpha1.Placement{Pins: []string{"/a"}})},
			[]admin.PlacementRule{{Key: "/a", Choice: "exclude"}}, nil, "pin /a"},
		{"none at all", []*v1alpha1.NetcraqChain{with(v1alpha1.Placement{Policy: v1alpha1.PlaceNone})}, nil, nil, "exclude /*"},
		{"what is never placed", []*v1alpha1.NetcraqChain{with(v1alpha1.Placement{Pins: []string{"/registry/*", "/registry/leases/*"}})}, nil, []string{"/registry/leases/*", "/registry/pods/us/*"},
			"pin /registry/*; exclude /registry/leases/*; exclude /registry/pods/us/*"},
	} {
		var got []string
		for _, r := range RuleChanges(c.have, WantedRules(c.chains, c.always)) {
			got = append(got, fmt.Sprintf("%s %s%s", r.Choice, r.Key, map[bool]string{true: "*"}[r.Prefix]))
		}
		if s := strings.Join(got, "; "); s != c.want {
			t.Errorf("%s: %q, want %q", c.what, s, c.want)
		}
	}
}

// TestNeverPlaced checks that the keys that bring an agent back are never placed.
func TestNeverPlaced(t *testing.T) {
	always := WantedRules(nil, NeverPlaced("netcraq-system"))
	for key, never := range map[string]bool{
		"/registry/pods/netcraq-system/netcraq-agent-x": true, "/registry/daemonsets/netcraq-system/netcraq-agent": true, "/registry/leases/kube-system/kube-controller-manager": true,
		"/registry/leases/netcraq-system/netcraq-leader": true, "/registry/netcraq.io/netcraqchains/main": true, "/registry/pods/default/web": false,
		"/registry/certificatesigningrequests/netcraq-switch-x": true, "/registry/configmaps/netcraq-system/netcraq-authorities": true, "/registry/secrets/netcraq-system/netcraq-authority": true,
		"/registry/pods/netcraq-systems/a": false,
	} {
		found := false
		for s := range always {
			found = found || s.Prefix && s.Name != everyKey && strings.HasPrefix(key, s.Name)
		}
		if found != never {
			t.Errorf("%s: %v", key, found)
		}
	}
}
