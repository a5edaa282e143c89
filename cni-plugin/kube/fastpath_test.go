package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	authorization "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/netcraq/netcraq/cni-plugin/agentapi"
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// kubePod is a pod on a node, with what the annotation says ("": there is none).
func kubePod(namespace, name, uid, account, node, asks string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)},
		Spec: corev1.PodSpec{ServiceAccountName: account, NodeName: node}}
	if asks != "" {
		p.Annotations = map[string]string{"netcraq.io/fast-path": asks}
	}
	return p
}

// reviews answers SubjectAccessReviews.
type reviews struct {
	client.Client
	allowed map[string]bool // by the user's name
	err     error
	asked   []string
}

func newReviews(t *testing.T, objects ...client.Object) *reviews {
	t.Helper()
	r := &reviews{allowed: map[string]bool{}}
	r.Client = interceptor.NewClient(world(t, objects...).(client.WithWatch),
		interceptor.Funcs{Create: func(_ context.Context, _ client.WithWatch, o client.Object,
			_ ...client.CreateOption) error {
			review, ok := o.(*authorization.SubjectAccessReview)
			if !ok {
				return fmt.Errorf("a %T is made", o)
			}
			a := review.Spec.ResourceAttributes
			r.asked = append(r.asked, fmt.Sprintf("%s %s %s.%s in %s", strings.TrimPrefix(review.Spec.User,
				"system:serviceaccount:"), a.Verb, a.Resource, a.Group, a.Namespace))
			if want := []string{"system:serviceaccounts", "system:serviceaccounts:" + a.Namespace, "system:authenticated"}; !slices.Equal(review.Spec.Groups, want) {
				return fmt.Errorf("asked with the groups %v, as which no pod of the namespace would ask", review.Spec.Groups)
			}
			review.Status.Allowed = r.allowed[review.Spec.User]
			return r.err
		}})
	return r
}

// TestFastPaths: a pod has the fast path when it asks for it, its service account has the right
// now, and the API server has it on the node whose agent speaks of it.
func TestFastPaths(t *testing.T) {
	good := kubePod("team", "good", "1", "fast", "n1", "true")
	policy := &networking.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "deny"},
		Spec: networking.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}},
			PolicyTypes: []networking.PolicyType{networking.PolicyTypeEgress}}}
	w := newReviews(t, good, policy, kubePod("team", "again", "2", "fast", "n2", "true"), kubePod("team", "may-not",
		"3", "default", "n1", "true"), kubePod("team", "does-not-ask", "4", "fast", "n1", ""),
		kubePod("team", "says-no", "5", "fast", "n1", "false"), kubePod("team", "pending", "6", "fast", "", "true"), kubePod("other", "elsewhere", "7", "fast", "n1", "true"),
		kubePod("team", "static", "8", "", "n1", "true"))
	w.allowed["system:serviceaccount:team:fast"] = true
	var log bytes.Buffer
	leads, changes := false, 0
	f := newFastPaths(w, slog.New(slog.NewTextHandler(&log, nil)), func() bool { return leads }, func() { changes++ })
	// review has all accounts' rights reviewed, those of pods that have gone, too.
	var last error
	review := func() {
		last = nil
		for _, q := range append(f.accounts(t.Context()),
			reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "team", Name: "fast"}},
			reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "team", Name: "default"}}) {
			r, err := f.Reconcile(t.Context(), q)
			if err != nil {
				last = err
			} else if _, asks := f.allowed[account{q.Namespace, q.Name}]; (r.RequeueAfter == reviewEvery) != asks {
				t.Errorf("%s: reviewed again after %v", q, r.RequeueAfter)
			}
		}
	}
	look := func(what, want string, changed bool) {
		t.Helper()
		before := changes
		review()
		got, err := f.open(t.Context(), []netip.AddrPort{netip.MustParseAddrPort("10.0.254.1:20035")})
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for on, namespace := range got {
			all = append(all, on.uid+"@"+on.node+" "+namespace)
		}
		slices.Sort(all)
		if s := strings.Join(all, ", "); s != want {
			t.Errorf("%s: open are %q, not %q", what, s, want)
		}
		if (changes != before) != changed {
			t.Errorf("%s: the network is looked at %d times", what, changes-before)
		}
	}
	both := "1@n1 team, 2@n2 team"
	look("without leading", "", false)
	if len(w.asked) > 0 {
		t.Errorf("who does not lead asks %v", w.asked)
	}
	leads = true
	look("at first", both, true)
	slices.Sort(w.asked)
	if got := strings.Join(slices.Compact(w.asked), ", "); got != "other:fast use fastpaths.netcraq.io in other, team:default use fastpaths.netcraq.io in team, team:fast use fastpaths.netcraq.io in team" {
		t.Errorf("asked: %s", got)
	}
	if n := strings.Count(log.String(), "has no right to it"); n != 2 || !strings.Contains(log.String(), "team/may-not") {
		t.Errorf("the log: %s", log.String())
	}
	look("a moment later", both, false)
	if strings.Count(log.String(), "has no right to it") != 2 {
		t.Errorf("it says so again: %s", log.String())
	}
	w.err, w.allowed = errors.New("it does not answer"), map[string]bool{}
	look("the API server does not answer", both, false)
	if last == nil || !strings.Contains(last.Error(), "it does not answer") {
		t.Errorf("it is not tried again: %v", last)
	}
	w.err = nil
	look("the right is taken back", "", true)
	w.allowed["system:serviceaccount:team:fast"] = true
	look("the right is given again", both, true)
	good.Labels = map[string]string{"app": "a"}
	if err := w.Update(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	look("a policy does not let the pod send", "2@n2 team", false)
	look("a moment later", "2@n2 team", false)
	if n := strings.Count(log.String(), "network policies do not let it send to all chains"); n != 1 {
		t.Errorf("the log speaks %d times of the policy: %s", n, log.String())
	}
	policy.Spec.Egress = []networking.NetworkPolicyEgressRule{{To: []networking.NetworkPolicyPeer{{
		IPBlock: &networking.IPBlock{CIDR: "10.0.254.0/24"}}}}}
	if err := w.Update(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	look("the policy lets it send to the chains", both, false)
	delete(good.Annotations, FastPath)
	if err := w.Update(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	look("a pod does not ask any more", "2@n2 team", false)
	for _, uid := range []string{"again", "may-not"} {
		if err := w.Delete(t.Context(), kubePod("team", uid, "", "", "", "")); err != nil {
			t.Fatal(err)
		}
	}
	look("pods go", "", false)
	if len(f.allowed) != 1 { // other:fast
		t.Errorf("kept: %v", slices.Collect(maps.Keys(f.allowed)))
	}
}

// TestFastPathNews: only what has to do with the fast path has the leader look.
func TestFastPathNews(t *testing.T) {
	none, asks := kubePod("a", "b", "1", "c", "n1", ""), kubePod("a", "b", "1", "c", "n1", "true")
	unbound := kubePod("a", "b", "1", "c", "", "true")
	labelled, labelledNone := asks.DeepCopy(), none.DeepCopy()
	labelled.Labels, labelledNone.Labels = map[string]string{"app": "a"}, map[string]string{"app": "a"}
	for _, c := range []struct {
		old, new *corev1.Pod
		want     bool
	}{{none, none, false}, {none, asks, true}, {asks, none, true}, {asks, asks, false}, {unbound, asks, true},
		{asks, labelled, true}, {none, labelledNone, false},
		{nil, none, false}, {nil, asks, true}, {none, nil, false}, {asks, nil, true}} {
		var got bool
		switch {
		case c.old == nil:
			got = asksOtherwise.Create(event.CreateEvent{Object: c.new})
		case c.new == nil:
			got = asksOtherwise.Delete(event.DeleteEvent{Object: c.old})
		default:
			got = asksOtherwise.Update(event.UpdateEvent{ObjectOld: c.old, ObjectNew: c.new})
		}
		if got != c.want {
			t.Errorf("from %+v to %+v: %v", c.old, c.new, got)
		}
	}
}

// TestPodAuthority: whose pods and nodes may do what, as the controller is told of it.
func TestPodAuthority(t *testing.T) {
	nodes := cluster(2)
	for i := range nodes {
		nodes[i].Address = netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})
		nodes[i].PodCIDRs = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, 0, byte(8 * i)}), 29)}
	}
	program, err := writeProgram(t.TempDir(), 128)
	if err != nil {
		t.Fatal(err)
	}
	at := func(uid string, last byte) pod {
		return pod{agentapi.Pod{Namespace: "whatever-the-agent-says", Name: uid, UID: uid},
			netip.AddrFrom4([4]byte{10, 244, 0, last}), fmt.Sprintf("02:00:00:00:00:%02x", last), 64 + uint32(last)}
	}
	pods := map[string][]pod{"n1": {at("1", 1), at("2", 2), at("", 3), at("4", 4)}, "n2": {at("3", 13), at("1", 14)}}
	open := map[podOn]string{{"1", "n1"}: "team", {"3", "n2"}: "team", {"4", "n1"}: "other", {"5", "n2"}: "without-a-pod"}
	a := addressing{services: netip.MustParsePrefix("10.0.254.0/24"), switches: netip.MustParsePrefix("10.0.255.0/24")}
	spec, _, err := build(a, clusterState{program: program, nodes: nodes, pods: pods, open: open, podRate: 20000,
		chains: []formedChain{{name: "main", spec: v1alpha1.NetcraqChainSpec{LeaseMillis: 200}, members: []string{"n1", "n2"}}}})
	if err != nil {
		t.Fatal(err)
	}
	top := newTopology(t, spec)
	if top.Open() {
		t.Error("somebody may do everything with any session")
	}
	var got []string
	for _, h := range top.Hosts {
		got = append(got, fmt.Sprintf("%s=%s/%d", h.Name, h.Principal, h.Rate))
	}
	if s := strings.Join(got, " "); s != "node@n1=system/0 node@n2=system/0 pod@10.244.0.1=ns:team/20000 pod@10.244.0.2=/20000 pod@10.244.0.3=/20000 pod@10.244.0.4=ns:other/20000 "+
		"pod@10.244.0.13=ns:team/20000 pod@10.244.0.14=/20000" { // whose agent speaks of a pod that is on another node
		t.Errorf("hosts: %s", s)
	}
	got = nil
	for _, g := range top.Grants {
		got = append(got, fmt.Sprintf("%s %s read=%v write=%v", g.Principal, g.Realm, g.Read, g.Write))
	}
	if s := strings.Join(got, ", "); s != "system default read=true write=true, system node read=true write=true, system ns:other read=true write=true, system ns:team read=true write=true" {
		t.Errorf("grants: %s", s)
	}
	for key, realm := range map[string]string{"ns/team/a": "ns:team", "ns/other/": "ns:other",
		"node/team/a": nodeRealm, "ns/team": topology.DefaultRealm, "ns/teams/a": topology.DefaultRealm, "/registry/pods/team/a": topology.DefaultRealm,
		"ns/without-a-pod/a": topology.DefaultRealm} {
		if r := top.RealmOf(key); r != realm {
			t.Errorf("%s is of the realm %s, not %s", key, r, realm)
		}
	}
}

// TestPodInCache: what is kept of a pod is what is looked at.
func TestPodInCache(t *testing.T) {
	p := kubePod("team", "a", "1", "fast", "n1", "true")
	p.Annotations["large"], p.Labels = strings.Repeat("x", 1000), map[string]string{"a": "b"}
	p.Spec.Containers = []corev1.Container{{Name: "c"}}
	want := kubePod("team", "a", "1", "fast", "n1", "true")
	want.Labels = map[string]string{"a": "b"} // by which policies select it
	kept, err := withoutBallast(p)
	q, ok := kept.(*corev1.Pod)
	if err != nil || !ok || q.String() != want.String() {
		t.Errorf("%v, %v", kept, err)
	}
	n := podroutes.Node{} // other kinds go their way
	if kept, err := withoutBallast(&n); err != nil || kept != any(&n) {
		t.Errorf("%v, %v", kept, err)
	}
}
