package testutil

import (
	"fmt"
	"testing"
	"time"

	certificates "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/kube/apiobjects"
)

// Pod returns a pod on a node. asks is the value of the fast path's annotation; "" means that there
// is no annotation.
func Pod(namespace, name, uid, account, node, asks string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)},
		Spec: corev1.PodSpec{ServiceAccountName: account, NodeName: node}}
	if asks != "" {
		p.Annotations = map[string]string{"netcraq.io/fast-path": asks}
	}
	return p
}

// World returns a client of a fake API server that has these objects.
func World(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	scheme, err := apiobjects.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.NetcraqNode{},
		&v1alpha1.NetcraqChain{}, &certificates.CertificateSigningRequest{}).WithObjects(objects...).Build()
}

// Node returns a Node object with the number i in its name and addresses.
func Node(i int) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%02d", i)},
		Spec: corev1.NodeSpec{PodCIDRs: []string{fmt.Sprintf("10.244.%d.0/24", i), fmt.Sprintf("fd00:0:0:%d::/64", i)}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "x"},
			{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.0.2.%d", i)},
			{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("fd01::%d", i)}}}}
}

// Numbered returns the NetcraqNode of a node, with a number and an age.
func Numbered(name string, number int32, age time.Duration) *v1alpha1.NetcraqNode {
	return &v1alpha1.NetcraqNode{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(
		time.Unix(1e9, 0).Add(-age))}, Spec: v1alpha1.NetcraqNodeSpec{Number: number}}
}

// Reconcile runs a reconciler once, with the request for all objects.
func Reconcile(t *testing.T, r reconcile.Reconciler) {
	t.Helper()
	if _, err := r.Reconcile(t.Context(), reconcile.Request{}); err != nil {
		t.Fatal(err)
	}
}
