package podapi

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	authorization "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/netcraq/netcraq/cni-plugin/kube/apiobjects"
	"github.com/netcraq/netcraq/nodeapi/authority"
)

// nodePods follows the pods of this node. It implements authority.Pods.
type nodePods struct {
	node string

	mu      sync.Mutex
	byUID   map[string]authority.PodInfo
	changed chan struct{}
}

// followPods makes a nodePods that follows the pods of a node. It knows the pods once the cache has
// synced.
func followPods(ctx context.Context, in cache.Cache, node string) (*nodePods, error) {
	p := &nodePods{node: node, byUID: map[string]authority.PodInfo{}, changed: make(chan struct{})}
	_, err := apiobjects.Follow(ctx, in, &corev1.Pod{}, p.set)
	return p, err
}

// set records a pod's current state. It forgets a pod that has ended or is on another node.
func (p *nodePods) set(o any, there bool) {
	pod, ok := o.(*corev1.Pod)
	if !ok || pod.Spec.NodeName != p.node {
		return
	}
	there = there && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
	p.mu.Lock()
	defer p.mu.Unlock()
	if there {
		p.byUID[string(pod.UID)] = authority.PodInfo{UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name,
			ServiceAccountName: pod.Spec.ServiceAccountName}
	} else {
		delete(p.byUID, string(pod.UID))
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

// Pod implements authority.Pods.
func (p *nodePods) Pod(uid string) (authority.PodInfo, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i, ok := p.byUID[uid]
	return i, ok
}

// Changed implements authority.Pods.
func (p *nodePods) Changed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

// KeyReviews implements authority.Reviewer with SubjectAccessReviews of the API server.
type KeyReviews struct {
	client client.Client
	asked  *prometheus.CounterVec
}

// Review implements authority.Reviewer.
func (r *KeyReviews) Review(ctx context.Context, q authority.Review) (bool, error) {
	s := &authorization.SubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{
		User: "system:serviceaccount:" + q.AccountNamespace + ":" + q.Account,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + q.AccountNamespace,
			"system:authenticated"},
		ResourceAttributes: &authorization.ResourceAttributes{Group: authority.Group, Resource: authority.Resource,
			Verb: q.Verb, Namespace: q.Namespace}}}
	if err := r.client.Create(ctx, s); err != nil {
		r.asked.WithLabelValues("none").Inc()
		return false, err
	}
	allowed := s.Status.Allowed && !s.Status.Denied
	r.asked.WithLabelValues(map[bool]string{true: "yes", false: "no"}[allowed]).Inc()
	return allowed, nil
}
