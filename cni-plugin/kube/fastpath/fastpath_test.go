package fastpath

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

	"github.com/netcraq/netcraq/cni-plugin/kube/internal/testutil"
)

// reviews is a fake API server that answers SubjectAccessReviews.
type reviews struct {
	client.Client
	allowed map[string]bool // whether a user has the right, by the user's name
	err     error
	asked   []string
}

func newReviews(t *testing.T, objects ...client.Object) *reviews {
	t.Helper()
	r := &reviews{allowed: map[string]bool{}}
	r.Client = interceptor.NewClient(testutil.World(t, objects...).(client.WithWatch),
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

// TestFastPaths checks when a pod has the fast path. The pod must request it, its service account
// must currently have the right, and the pod must be on the node whose agent reports it.
func TestFastPaths(t *testing.T) {
	good := testutil.Pod("team", "good", "1", "fast", "n1", "true")
	policy := &networking.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "deny"},
		Spec: networking.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}},
			PolicyTypes: []networking.PolicyType{networking.PolicyTypeEgress}}}
	w := newReviews(t, good, policy, testutil.Pod("team", "again", "2", "fast", "n2", "true"), testutil.Pod("team", "may-not",
		"3", "default", "n1", "true"), testutil.Pod("team", "does-not-ask", "4", "fast", "n1", ""),
		testutil.Pod("team", "says-no", "5", "fast", "n1", "false"), testutil.Pod("team", "pending", "6", "fast", "", "true"), testutil.Pod("other", "elsewhere", "7", "fast", "n1", "true"),
		testutil.Pod("team", "static", "8", "", "n1", "true"))
	w.allowed["system:serviceaccount:team:fast"] = true
	var log bytes.Buffer
	leads, changes := false, 0
	f := New(w, slog.New(slog.NewTextHandler(&log, nil)), func() bool { return leads }, func() { changes++ })
	// review reviews the rights of all accounts, also those of deleted pods.
	var last error
	review := func() {
		last = nil
		for _, q := range append(f.Accounts(t.Context()),
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
		got, err := f.Open(t.Context(), []netip.AddrPort{netip.MustParseAddrPort("10.0.254.1:20035")})
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for on, namespace := range got {
			all = append(all, on.UID+"@"+on.Node+" "+namespace)
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
	delete(good.Annotations, Annotation)
	if err := w.Update(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	look("a pod does not ask any more", "2@n2 team", false)
	for _, uid := range []string{"again", "may-not"} {
		if err := w.Delete(t.Context(), testutil.Pod("team", uid, "", "", "", "")); err != nil {
			t.Fatal(err)
		}
	}
	look("pods go", "", false)
	if len(f.allowed) != 1 { // only the account other:fast may be left
		t.Errorf("kept: %v", slices.Collect(maps.Keys(f.allowed)))
	}
}

// TestFastPathNews checks that only changes that concern the fast path wake the leader.
func TestFastPathNews(t *testing.T) {
	none, asks := testutil.Pod("a", "b", "1", "c", "n1", ""), testutil.Pod("a", "b", "1", "c", "n1", "true")
	unbound := testutil.Pod("a", "b", "1", "c", "", "true")
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
			got = Changed.Create(event.CreateEvent{Object: c.new})
		case c.new == nil:
			got = Changed.Delete(event.DeleteEvent{Object: c.old})
		default:
			got = Changed.Update(event.UpdateEvent{ObjectOld: c.old, ObjectNew: c.new})
		}
		if got != c.want {
			t.Errorf("from %+v to %+v: %v", c.old, c.new, got)
		}
	}
}
