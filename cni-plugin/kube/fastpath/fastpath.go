// Package fastpath decides which pods may send to the chains directly. Reconciler asks the API
// server whether the service accounts of requesting pods have the right (fastpath.go). It also
// checks whether network policies permit it (policy.go).
package fastpath

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	authorization "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/kube/netplan"
)

// A pod's port is closed by default. This means that the switch drops the pod's packets to the
// chains. The fast path opens the port for the keys of the pod's namespace. It has two conditions:
// the pod requests it by an annotation, and the pod's service account has the right. An admission
// policy (deploy/fast-path.yaml) refuses pods that request it without the right. The policy may be
// missing, and rights may be revoked while pods run, so the leader checks the right itself,
// repeatedly.

// Annotation is the annotation with which a pod requests the fast path. Its value must be "true".
const Annotation = "netcraq.io/fast-path"

// The right that a service account needs is this verb on this resource, in the pod's namespace. No
// such objects exist, but roles can name the resource.
const (
	verb     = "use"
	resource = "fastpaths"
)

const (
	// reviewEvery is how long an answer about a right is valid. A revoked right still works for
	// this time.
	reviewEvery = 10 * time.Second
	// reviewWait is the timeout of one review.
	reviewWait = 3 * time.Second
)

// account is a Kubernetes service account.
type account struct{ namespace, name string }

// Reconciler knows which pods may use the chains. It reviews the rights of service accounts whose
// pods request the fast path.
type Reconciler struct {
	client  client.Client // reads pods from the cache, and creates SubjectAccessReviews
	log     *slog.Logger
	leading func() bool
	changed func() // called when an account has gained or lost the right

	mu      sync.Mutex
	allowed map[account]bool   // the last answer of the API server for each account
	told    map[types.UID]bool // pods whose refusal was already logged
}

// New makes a Reconciler that has made no reviews yet. leading reports whether this agent leads.
// changed is called when an account has gained or lost the right.
func New(c client.Client, log *slog.Logger, leading func() bool, changed func()) *Reconciler {
	return &Reconciler{client: c, log: log, leading: leading, changed: changed,
		allowed: map[account]bool{}, told: map[types.UID]bool{}}
}

// Reconcile implements reconcile.Reconciler: it reviews the right of a service account. While the
// API server does not answer, its last answer stays valid.
func (f *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !f.leading() {
		return reconcile.Result{}, nil
	}
	a := account{req.Namespace, req.Name}
	asking, err := f.asking(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !slices.ContainsFunc(asking, func(p *corev1.Pod) bool { return ofPod(p) == a }) {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.allowed, a)
		return reconcile.Result{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, reviewWait)
	defer cancel()
	r := &authorization.SubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{
		User:   "system:serviceaccount:" + a.namespace + ":" + a.name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + a.namespace, "system:authenticated"},
		ResourceAttributes: &authorization.ResourceAttributes{Group: v1alpha1.GroupVersion.Group,
			Resource: resource, Verb: verb, Namespace: a.namespace}}}
	if err := f.client.Create(ctx, r); err != nil {
		return reconcile.Result{}, fmt.Errorf("whether the service account may use the fast path: %w", err)
	}
	f.mu.Lock()
	was, known := f.allowed[a]
	f.allowed[a] = r.Status.Allowed
	f.mu.Unlock()
	if !known || was != r.Status.Allowed {
		f.changed()
	}
	return reconcile.Result{RequeueAfter: reviewEvery}, nil
}

// asking returns the pods that request the fast path, run on a node, and have a service account.
func (f *Reconciler) asking(ctx context.Context) (out []*corev1.Pod, err error) {
	var all corev1.PodList
	if err := f.client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	for i := range all.Items {
		if p := &all.Items[i]; p.Annotations[Annotation] == "true" && p.Spec.NodeName != "" &&
			p.Spec.ServiceAccountName != "" {
			out = append(out, p)
		}
	}
	return out, nil
}

func ofPod(p *corev1.Pod) account { return account{p.Namespace, p.Spec.ServiceAccountName} }

// AccountOf returns a request for the service account of a pod that was created, changed or
// deleted.
func AccountOf(_ context.Context, o client.Object) []reconcile.Request {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return nil
	}
	a := types.NamespacedName{Namespace: p.Namespace, Name: p.Spec.ServiceAccountName}
	return []reconcile.Request{{NamespacedName: a}}
}

// Accounts returns requests for the service accounts of all pods that request the fast path.
func (f *Reconciler) Accounts(ctx context.Context) (out []reconcile.Request) {
	asking, _ := f.asking(ctx) // reading from the cache returns no errors
	for _, p := range asking {
		out = append(out, AccountOf(ctx, p)...)
	}
	return out
}

// Open returns the pods whose ports must be open, by UID and node, with their namespaces. chains
// are the addresses to which these pods send.
func (f *Reconciler) Open(ctx context.Context, chains []netip.AddrPort) (map[netplan.PodOn]string, error) {
	asking, err := f.asking(ctx)
	if err != nil {
		return nil, err
	}
	var policies networking.NetworkPolicyList
	if err := f.client.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing network policies: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[netplan.PodOn]string{}
	told := map[types.UID]bool{}
	for _, p := range asking {
		switch allowed, known := f.allowed[ofPod(p)]; {
		case allowed && !mayReach(p, policies.Items, chains):
			told[p.UID] = true
			if !f.told[p.UID] {
				f.log.Warn("a pod asks for the fast path, and network policies do not let it send to all chains: its port stays closed",
					"pod", p.Namespace+"/"+p.Name, "chains", chains)
			}
		case allowed:
			out[netplan.PodOn{UID: string(p.UID), Node: p.Spec.NodeName}] = p.Namespace
		case known:
			told[p.UID] = true
			if !f.told[p.UID] {
				f.log.Warn("a pod asks for the fast path, and its service account has no right to it: its port stays closed", "pod", p.Namespace+"/"+p.Name, "account", p.Spec.ServiceAccountName,
					"right", fmt.Sprintf("%s %s.%s", verb, resource, v1alpha1.GroupVersion.Group))
			}
		}
	}
	f.told = told
	return out, nil
}

// Changed is a predicate that ignores pods and changes that have nothing to do with the fast path.
var Changed = predicate.Funcs{
	CreateFunc:  func(e event.CreateEvent) bool { return e.Object.GetAnnotations()[Annotation] != "" },
	DeleteFunc:  func(e event.DeleteEvent) bool { return e.Object.GetAnnotations()[Annotation] != "" },
	GenericFunc: func(event.GenericEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		a, b := e.ObjectOld.GetAnnotations()[Annotation], e.ObjectNew.GetAnnotations()[Annotation]
		p, ok := e.ObjectOld.(*corev1.Pod)
		q, ok2 := e.ObjectNew.(*corev1.Pod)
		return a != b || b != "" && ok && ok2 && (p.Spec.NodeName != q.Spec.NodeName || !maps.Equal(p.Labels, q.Labels))
	},
}

// Trim returns the part of a pod that the cache keeps.
func Trim(p *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{TypeMeta: p.TypeMeta}
	out.Namespace, out.Name, out.UID, out.ResourceVersion = p.Namespace, p.Name, p.UID, p.ResourceVersion
	if v, ok := p.Annotations[Annotation]; ok {
		out.Annotations = map[string]string{Annotation: v}
		out.Labels = p.Labels // policies select pods by labels
	}
	out.Spec.NodeName, out.Spec.ServiceAccountName = p.Spec.NodeName, p.Spec.ServiceAccountName
	out.Status.Phase = p.Status.Phase
	return out
}
