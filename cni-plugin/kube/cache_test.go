package kube

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/netcraq/netcraq/cni-plugin/kube/internal/testutil"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
)

// TestPodInCache checks that the cache keeps only those fields of a pod that the agent reads.
func TestPodInCache(t *testing.T) {
	p := testutil.Pod("team", "a", "1", "fast", "n1", "true")
	p.Annotations["large"], p.Labels = strings.Repeat("x", 1000), map[string]string{"a": "b"}
	p.Spec.Containers = []corev1.Container{{Name: "c"}}
	want := testutil.Pod("team", "a", "1", "fast", "n1", "true")
	want.Labels = map[string]string{"a": "b"} // the labels stay, because policies select pods by labels
	kept, err := withoutBallast(p)
	q, ok := kept.(*corev1.Pod)
	if err != nil || !ok || q.String() != want.String() {
		t.Errorf("%v, %v", kept, err)
	}
	n := podroutes.Node{} // objects of other kinds are not changed
	if kept, err := withoutBallast(&n); err != nil || kept != any(&n) {
		t.Errorf("%v, %v", kept, err)
	}
}
