package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	certificates "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
)

// world is an API server's objects.
func world(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.NetcraqNode{},
		&v1alpha1.NetcraqChain{}, &certificates.CertificateSigningRequest{}).WithObjects(objects...).Build()
}

// kubeNode is the i-th node.
func kubeNode(i int) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%02d", i)},
		Spec: corev1.NodeSpec{PodCIDRs: []string{fmt.Sprintf("10.244.%d.0/24", i), fmt.Sprintf("fd00:0:0:%d::/64", i)}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "x"},
			{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.0.2.%d", i)},
			{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("fd01::%d", i)}}}}
}

func numbered(name string, number int32, age time.Duration) *v1alpha1.NetcraqNode {
	return &v1alpha1.NetcraqNode{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(
		time.Unix(1e9, 0).Add(-age))}, Spec: v1alpha1.NetcraqNodeSpec{Number: number}}
}

// given lists the numbers that are given, by name.
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

// TestNodeIndex: each node gets the lowest index that is free, and keeps it.
func TestNodeIndex(t *testing.T) {
	var all []client.Object
	for i := 1; i <= v1alpha1.MaxNodes+1; i++ {
		all = append(all, kubeNode(i))
	}
	for _, c := range []struct {
		what    string
		objects []client.Object
		inChain string
		want    string
		err     string
	}{
		{"nobody has one", []client.Object{kubeNode(1), kubeNode(2)}, "", "n01=1 n02=2", ""},
		{"the lowest that is free", []client.Object{kubeNode(1), kubeNode(2), kubeNode(3),
			numbered("n01", 3, 0), numbered("n03", 1, 0)}, "", "n01=3 n02=2 n03=1", ""},
		{"a node is gone", []client.Object{kubeNode(2), numbered("n01", 1, 0), numbered("n02", 2, 0)}, "", "n02=2", ""},
		{"... and its index is free", []client.Object{kubeNode(2), numbered("n01", 1, 0)}, "", "n02=1", ""},
		{"... but a chain needs it yet", []client.Object{kubeNode(2), numbered("n01", 1, 0)}, "n01", "n01=1 n02=2", ""},
		{"two have the same: the elder keeps it", []client.Object{kubeNode(1), kubeNode(2), numbered("n01", 1, 0), numbered("n02", 1, time.Hour)}, "", "n01=2 n02=1", ""},
		{"a node without an address waits", []client.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "new"}}}, "", "", ""},
		{"there are too many", all, "", "", "node n64 has no number, so its switch is in no chain, and its pods reach none: all 63 are given away"},
	} {
		w := world(t, c.objects...)
		r := &nodeIndexes{client: w, fresh: w, inChain: func(context.Context) (func(string) bool, error) {
			return func(n string) bool { return n == c.inChain }, nil
		}}
		// What is inconsistent is looked at until nothing is, as each change has the queue do.
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
		// A node that is released or comes concerns those that wait for its index or have it, too.
		if got := len(r.concerned(t.Context(), numbered("n09", 1, 0))); got != 1+strings.Count(" "+c.want+" ", "=1 ") {
			t.Errorf("%s: a node with the index 1 concerns %d", c.what, got)
		}
	}
}

// TestIndexesElsewhere: where the switches are not on the nodes indexes are released, and none
// assigned.
func TestIndexesElsewhere(t *testing.T) {
	w := world(t, kubeNode(1), kubeNode(2), numbered("n01", 1, 0))
	leads := false
	r := &nodeIndexes{client: w, fresh: w, elsewhere: true, inChain: func(context.Context) (func(string) bool, error) {
		return map[bool]func(string) bool{true: func(string) bool { return true }}[leads], nil
	}}
	for _, want := range []string{"n01=1", ""} { // who does not lead changes nothing
		for i := 1; i <= 2; i++ {
			if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(
				kubeNode(i))}); err != nil {
				t.Fatal(err)
			}
		}
		if got := given(t, w); got != want {
			t.Errorf("leading: %v: %q, want %q", leads, got, want)
		}
		leads = true
	}
}

type lateReader struct {
	client.Reader
	missing int
}

func (l *lateReader) Get(ctx context.Context, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if l.missing > 0 {
		l.missing--
		k.Name += "-not-yet"
	}
	return l.Reader.Get(ctx, k, o, opts...)
}

// once has a reconciler look at everything.
func once(t *testing.T, r reconcile.Reconciler) {
	t.Helper()
	if _, err := r.Reconcile(t.Context(), reconcile.Request{}); err != nil {
		t.Fatal(err)
	}
}
