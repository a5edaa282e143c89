package chainplan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/kube/internal/testutil"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeview"
)

func TestAccept(t *testing.T) {
	at := time.Unix(1000, 0)
	chainOf := func(name string, age int, id, profile int32) v1alpha1.NetcraqChain {
		return v1alpha1.NetcraqChain{ObjectMeta: metav1.ObjectMeta{Name: name,
			CreationTimestamp: metav1.NewTime(at.Add(-time.Duration(age) * time.Hour))},
			Spec: v1alpha1.NetcraqChainSpec{ID: id, Profile: profile}}
	}
	accepted, refused := Accept([]v1alpha1.NetcraqChain{chainOf("young", 1, 0, 128), chainOf("old", 3, 0, 128),
		chainOf("wide", 2, 1, 1024), chainOf("other", 2, 1, 128), chainOf("last", 1, 2, 128)})
	var names []string
	for _, c := range accepted {
		names = append(names, c.Name)
	}
	if got := strings.Join(names, " "); got != "old other last" {
		t.Errorf("accepted: %s", got)
	}
	for name, want := range map[string]string{"young": "the chain old has the id 0", "wide": "the chain old has the profile 128"} {
		if !strings.Contains(refused[name], want) {
			t.Errorf("%s: %q, want %q", name, refused[name], want)
		}
	}
}

func TestForm(t *testing.T) {
	for _, c := range []struct {
		what    string
		nodes   int
		change  func([]nodeview.Node, *v1alpha1.NetcraqChainSpec)
		waited  time.Duration
		load    map[string]int
		members string // members of the chain; "" means that it has not formed yet
		why     string
	}{
		{"all are there", 4, nil, 0, nil, "n1 n2 n3", ""},
		{"those in other chains come last", 4, nil, 0, map[string]int{"n1": 1, "n2": 1}, "n3 n4 n1", ""},
		{"too few, and they may yet come", 2, nil, formWait - time.Second, nil, "", "2 of 3"},
		{"too few, and they do not come", 2, nil, formWait, nil, "n1 n2", ""},
		{"one is none", 1, nil, time.Hour, nil, "", "two nodes at least, and there are 1"},
		{"one is excluded", 4, func(_ []nodeview.Node, s *v1alpha1.NetcraqChainSpec) { s.ExcludedNodes = []string{"n1"} }, 0, nil, "n2 n3 n4", ""},
		{"only some have the label", 4, func(n []nodeview.Node, s *v1alpha1.NetcraqChainSpec) {
			s.NodeSelector = map[string]string{"disk": "fast"}
			n[1].Labels, n[3].Labels = map[string]string{"disk": "fast", "a": "b"}, map[string]string{"disk": "fast"}
		}, time.Hour, nil, "n2 n4", ""},
		{"one is cordoned, one has no agent, one is not ready, one is gone", 7, func(n []nodeview.Node, _ *v1alpha1.NetcraqChainSpec) {
			n[0].Schedulable, n[1].Status, n[2].Ready, n[3].There = false, v1alpha1.NetcraqNodeStatus{}, false, false
		}, 0, nil, "n5 n6 n7", ""},
	} {
		nodes, spec := testutil.Cluster(c.nodes), &v1alpha1.NetcraqChainSpec{Length: 3}
		if c.change != nil {
			c.change(nodes, spec)
		}
		members, why := Form(spec, nodes, c.load, c.waited)
		if strings.Join(members, " ") != c.members || !strings.Contains(why, c.why) || (why == "") != (c.members != "") {
			t.Errorf("%s: %v, %q; want %q, %q", c.what, members, why, c.members, c.why)
		}
	}
}

func TestNext(t *testing.T) {
	for _, c := range []struct {
		what    string
		members string
		change  func([]nodeview.Node, *v1alpha1.NetcraqChainSpec, *admin.Chain)
		steady  string // nodes that are steady; "" means all
		want    string
	}{
		{"all is well", "n1 n2 n3", nil, "", "nothing"},
		{"one is missing", "n1 n2", nil, "", "bring in n3"},
		{"one is missing, and the first spare one has just come", "n1 n2", nil, "n4", "bring in n4"},
		{"one is missing, and no other is there", "n1 n2", func(n []nodeview.Node, _ *v1alpha1.NetcraqChainSpec, _ *admin.Chain) {
			n[2].Ready, n[3].Schedulable = false, false
		}, "", "nothing"},
		{"while it is not ready it is left alone", "n1 n2", func(_ []nodeview.Node, _ *v1alpha1.NetcraqChainSpec, c *admin.Chain) { c.Ready = false }, "", "nothing"},
		{"one is being brought in", "n1 n2", func(_ []nodeview.Node, _ *v1alpha1.NetcraqChainSpec, c *admin.Chain) {
			c.Members = append(c.Members, admin.Member{Switch: "n3", Role: "SHADOW"})
		}, "", "nothing"},
		{"a cordoned member stays", "n1 n2 n3", func(n []nodeview.Node, _ *v1alpha1.NetcraqChainSpec, _ *admin.Chain) { n[0].Schedulable = false }, "", "nothing"},
		{"a member that is not ready for its kubelet stays: its switch answers", "n1 n2 n3", func(n []nodeview.Node, _ *v1alpha1.NetcraqChainSpec, _ *admin.Chain) { n[0].Ready = false }, "", "nothing"},
		{"an excluded member is replaced first", "n1 n2 n3", func(_ []nodeview.Node, s *v1alpha1.NetcraqChainSpec, _ *admin.Chain) {
			s.ExcludedNodes = []string{"n2"}
		}, "", "bring in n4"},
		{"... and then taken out", "n1 n2 n3 n4", func(_ []nodeview.Node, s *v1alpha1.NetcraqChainSpec, _ *admin.Chain) {
			s.ExcludedNodes = []string{"n2"}
		}, "", "members n1 n3 n4"},
		{"... or at once, where there is no other", "n1 n2 n3", func(_ []nodeview.Node, s *v1alpha1.NetcraqChainSpec, _ *admin.Chain) {
			s.ExcludedNodes = []string{"n2", "n4"}
		}, "", "members n1 n3"},
		{"a node that was deleted", "n1 n2 n3", func(n []nodeview.Node, _ *v1alpha1.NetcraqChainSpec, _ *admin.Chain) {
			n[0].There, n[3].Ready = false, false
		}, "", "members n2 n3"},
		{"the last ones are never taken out", "n1 n2", func(_ []nodeview.Node, s *v1alpha1.NetcraqChainSpec, _ *admin.Chain) {
			s.ExcludedNodes = []string{"n1", "n2", "n3", "n4"}
		}, "", "nothing"},
		{"it is to be shorter", "n1 n2 n3 n4", nil, "", "members n1 n2 n3"},
		{"it is to have another lease", "n1 n2", func(_ []nodeview.Node, s *v1alpha1.NetcraqChainSpec, _ *admin.Chain) { s.LeaseMillis = 500 }, "", "lease 500"},
	} {
		nodes, spec := testutil.Cluster(4), &v1alpha1.NetcraqChainSpec{Length: 3, LeaseMillis: 200}
		now := &admin.Chain{Ready: true, LeaseMillis: 200}
		for _, m := range strings.Fields(c.members) {
			now.Members = append(now.Members, admin.Member{Switch: m, Role: "REPLICA"})
		}
		if c.change != nil {
			c.change(nodes, spec, now)
		}
		got := "nothing"
		if s := Next(spec, now, nodes, nil, func(n string) bool { return c.steady == "" || n == c.steady }); s != nil {
			switch {
			case s.BringIn != "":
				got = "bring in " + s.BringIn
			case s.Members != nil:
				got = "members " + strings.Join(s.Members, " ")
			default:
				got = fmt.Sprintf("lease %d", *s.Lease)
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}
