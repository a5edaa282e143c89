package reconcilers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/kube/internal/testutil"
)

// given returns the assigned numbers as text, by node name.
func given(t *testing.T, c client.Client) string {
	t.Helper()
	var list v1alpha1.NetcraqNodeList
	if err := c.List(context.Background(), &list); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, n := range list.Items {
		out = append(out, fmt.Sprintf("%s=%d", n.Name, n.Spec.Number))
	}
	return strings.Join(out, " ")
}

// TestNodeIndex checks that each node gets the lowest free index, and keeps it.
func TestNodeIndex(t *testing.T) {
	var all []client.Object
	for i := 1; i <= v1alpha1.MaxNodes+1; i++ {
		all = append(all, testutil.Node(i))
	}
	for _, c := range []struct {
		what    string
		objects []client.Object
		inChain string
		want    string
		err     string
	}{
		{"nobody has one", []client.Object{testutil.Node(1), testutil.Node(2)}, "", "n01=1 n02=2", ""},
		{"the lowest that is free", []client.Object{testutil.Node(1), testutil.Node(2), testutil.Node(3),
			testutil.Numbered("n01", 3, 0), testutil.Numbered("n03", 1, 0)}, "", "n01=3 n02=2 n03=1", ""},
		{"a node is gone", []client.Object{testutil.Node(2), testutil.Numbered("n01", 1, 0), testutil.Numbered("n02", 2, 0)}, "", "n02=2", ""},
		{"... and its index is free", []client.Object{testutil.Node(2), testutil.Numbered("n01", 1, 0)}, "", "n02=1", ""},
		{"... but a chain needs it yet", []client.Object{testutil.Node(2), testutil.Numbered("n01", 1, 0)}, "n01", "n01=1 n02=2", ""},
		{"two have the same: the elder keeps it", []client.Object{testutil.Node(1), testutil.Node(2), testutil.Numbered("n01", 1, 0),
			testutil.Numbered("n02", 1, time.Hour)}, "", "n01=2 n02=1", ""},
		{"a node without an address waits", []client.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "new"}}}, "", "", ""},
		{"there are too many", all, "", "", "node n64 has no number, so its switch is in no chain, and its pods reach none: all 63 are given away"},
	} {
		w := testutil.World(t, c.objects...)
		r := &NodeIndexes{client: w, fresh: w, inChain: func(context.Context) (func(string) bool, error) {
			return func(n string) bool { return n == c.inChain }, nil
		}}
		// The loop reconciles inconsistent nodes until there are none, as the queue does after each
		// change.
		var failed error
		for range 3 {
			for _, q := range r.inconsistent(t.Context()) {
				if _, err := r.Reconcile(t.Context(), q); err != nil {
					failed = err
				}
			}
		}
		if c.err != "" {
			if failed == nil || !strings.Contains(failed.Error(), c.err) ||
				!errors.Is(failed, reconcile.TerminalError(nil)) {
				t.Errorf("%s: %v, want %q, and not to be tried again", c.what, failed, c.err)
			}
			continue
		}
		if got := given(t, w); failed != nil || got != c.want {
			t.Errorf("%s: %s (%v), want %s", c.what, got, failed, c.want)
		}
		for _, q := range r.inconsistent(t.Context()) {
			if q.Name != c.inChain {
				t.Errorf("%s: it would look at %s again", c.what, q.Name)
			}
		}
		// A node that is new or was released also affects nodes that wait for its index or have it.
		if got := len(r.concerned(t.Context(), testutil.Numbered("n09", 1, 0))); got != 1+strings.Count(" "+c.want+" ", "=1 ") {
			t.Errorf("%s: a node with the index 1 concerns %d", c.what, got)
		}
	}
}

// TestIndexesElsewhere checks that if the switches are not on the nodes, indexes are released and
// none is assigned.
func TestIndexesElsewhere(t *testing.T) {
	w := testutil.World(t, testutil.Node(1), testutil.Node(2), testutil.Numbered("n01", 1, 0))
	leads := false
	r := &NodeIndexes{client: w, fresh: w, elsewhere: true, inChain: func(context.Context) (func(string) bool, error) {
		return map[bool]func(string) bool{true: func(string) bool { return true }}[leads], nil
	}}
	for _, want := range []string{"n01=1", ""} { // in the first iteration the agent does not lead, and changes nothing
		for i := 1; i <= 2; i++ {
			if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(
				testutil.Node(i))}); err != nil {
				t.Fatal(err)
			}
		}
		if got := given(t, w); got != want {
			t.Errorf("leading: %v: %q, want %q", leads, got, want)
		}
		leads = true
	}
}
