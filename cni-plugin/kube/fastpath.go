package kube

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	authorization "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/netcraq/netcraq/api/kubernetes/v1alpha1"
)

// A pod's port is closed: what it sends to the chains is dropped at its switch. The fast path opens it for the keys of the pod's namespace. It takes two: the pod asks for it by an
// annotation, and its service account has the right to it. An admission policy (deploy/fast-path.yaml) refuses pods that ask without the right; since a policy may be missing, and rights
// are taken back while pods run, the leader asks for itself, again and again.

// FastPath is the annotation by which a pod asks for the fast path, with the value "true".
const FastPath = "netcraq.io/fast-path"

// What a service account needs: the verb on the resource, in the pod's namespace. There are no such objects; roles can name the resource all the same.
const (
	fastPathVerb     = "use"
	fastPathResource = "fastpaths"
)

const (
	// reviewEvery is how long an answer about a right counts, and so how long a right that was taken back can be used yet.
	reviewEvery = 10 * time.Second
	// reviewWait bounds the questions of one look.
	reviewWait = 3 * time.Second
)

// principalOf is the principal of a namespace's pods, and the realm of its keys.
func principalOf(namespace string) string { return "ns:" + namespace }

// keysOf is what the names of a namespace's keys begin with.
func keysOf(namespace string) string { return "ns/" + namespace + "/" }

// account is a service account.
type account struct{ namespace, name string }

// review is what the API server has said about an account's right.
type review struct {
	allowed bool
	at      time.Time // when; zero: it has not answered yet
}

// fastPaths knows which pods may use the chains.
type fastPaths struct {
	client client.Client // reads pods from the cache, and creates SubjectAccessReviews
	log    *slog.Logger
	now    func() time.Time

	mu     sync.Mutex
	asked  map[account]review
	failed logOnce
	told   map[types.UID]bool // pods about which the log says that they may not
}

func newFastPaths(c client.Client, log *slog.Logger) *fastPaths {
	return &fastPaths{client: c, log: log, now: time.Now, asked: map[account]review{}, told: map[types.UID]bool{}}
}

// open gives the namespaces of the pods whose ports are to be open now, by the pods' UIDs and nodes. Where the API server does not answer, what it has said before holds.
func (f *fastPaths) open(ctx context.Context) (map[podOn]string, error) {
	var all corev1.PodList
	if err := f.client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	asking := map[podOn]*corev1.Pod{}
	accounts := map[account]bool{}
	for i := range all.Items {
		p := &all.Items[i]
		if p.Annotations[FastPath] == "true" && p.Spec.NodeName != "" && p.Spec.ServiceAccountName != "" {
			asking[podOn{string(p.UID), p.Spec.NodeName}] = p
			accounts[account{p.Namespace, p.Spec.ServiceAccountName}] = true
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.review(ctx, accounts)
	out := map[podOn]string{}
	told := map[types.UID]bool{}
	for on, p := range asking {
		switch r := f.asked[account{p.Namespace, p.Spec.ServiceAccountName}]; {
		case r.allowed:
			out[on] = p.Namespace
		case !r.at.IsZero():
			told[p.UID] = true
			if !f.told[p.UID] {
				f.log.Warn("a pod asks for the fast path, and its service account has no right to it: its port stays closed", "pod", p.Namespace+"/"+p.Name, "account", p.Spec.ServiceAccountName,
					"right", fmt.Sprintf("%s %s.%s", fastPathVerb, fastPathResource, v1alpha1.GroupVersion.Group))
			}
		}
	}
	f.told = told
	return out, nil
}

// podOn is a pod on a node. What an agent says of its node's pods counts for pods that the API server has there alone.
type podOn struct{ uid, node string }

// review asks about accounts of whom nothing is known, or nothing new, those that have waited longest first, and forgets the others.
func (f *fastPaths) review(ctx context.Context, accounts map[account]bool) {
	maps.DeleteFunc(f.asked, func(a account, _ review) bool { return !accounts[a] })
	var due []account
	for a := range accounts {
		if r := f.asked[a]; f.now().Sub(r.at) >= reviewEvery {
			due = append(due, a)
		}
	}
	slices.SortFunc(due, func(a, b account) int { return f.asked[a].at.Compare(f.asked[b].at) })
	ctx, cancel := context.WithTimeout(ctx, reviewWait)
	defer cancel()
	var failed error
	for _, a := range due {
		r := &authorization.SubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{User: "system:serviceaccount:" + a.namespace + ":" + a.name,
			Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + a.namespace, "system:authenticated"},
			ResourceAttributes: &authorization.ResourceAttributes{Group: v1alpha1.GroupVersion.Group, Resource: fastPathResource, Verb: fastPathVerb, Namespace: a.namespace}}}
		if err := f.client.Create(ctx, r); err != nil {
			failed = err
			continue
		}
		f.asked[a] = review{r.Status.Allowed, f.now()}
	}
	if f.failed.isNew(failed) {
		f.log.Warn("who may use the fast path is not known, but for what was known before", "err", failed)
	}
}

// pending says whether rights have to be looked at again.
func (f *fastPaths) pending() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.asked) > 0
}

// asksOtherwise leaves out pods that have nothing to do with the fast path, and changes that do not.
var asksOtherwise = predicate.Funcs{
	CreateFunc:  func(e event.CreateEvent) bool { return e.Object.GetAnnotations()[FastPath] != "" },
	DeleteFunc:  func(e event.DeleteEvent) bool { return e.Object.GetAnnotations()[FastPath] != "" },
	GenericFunc: func(event.GenericEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		a, b := e.ObjectOld.GetAnnotations()[FastPath], e.ObjectNew.GetAnnotations()[FastPath]
		p, ok := e.ObjectOld.(*corev1.Pod)
		q, ok2 := e.ObjectNew.(*corev1.Pod)
		return a != b || b != "" && ok && ok2 && p.Spec.NodeName != q.Spec.NodeName
	},
}

// onlyFastPath is what the cache keeps of a pod.
func onlyFastPath(p *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{TypeMeta: p.TypeMeta}
	out.Namespace, out.Name, out.UID, out.ResourceVersion = p.Namespace, p.Name, p.UID, p.ResourceVersion
	if v, ok := p.Annotations[FastPath]; ok {
		out.Annotations = map[string]string{FastPath: v}
	}
	out.Spec.NodeName, out.Spec.ServiceAccountName = p.Spec.NodeName, p.Spec.ServiceAccountName
	return out
}
