package authority

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/netcraq/netcraq/api/nodeapi"
)

// These are the API group and the resource that roles name. The resource is virtual: it has no
// objects.
const (
	Group    = "netcraq.io"
	Resource = "keys"
)

// kubernetesVerbs are the names of the verbs in Kubernetes roles.
var kubernetesVerbs = [numVerbs]string{Read: "get", Watch: "watch", Write: "update", Create: "create"}

// Review is a question to the API server. It asks whether a service account may use a verb on the
// keys of a namespace.
type Review struct {
	AccountNamespace, Account string
	Verb                      string // the name of a verb in Kubernetes roles
	Namespace                 string
}

// Reviewer sends a Review to the API server, as a SubjectAccessReview.
type Reviewer interface {
	Review(ctx context.Context, r Review) (allowed bool, err error)
}

// KubernetesOptions are the options of a Kubernetes.
type KubernetesOptions struct {
	Pods     Pods
	Reviewer Reviewer
	// Hosts decides about processes that are not in a pod. If it is nil, such processes have no
	// rights.
	Hosts Authorizer
	// The following fields are durations, numbers and rates. If a field is 0, the default at the
	// end of its comment applies.
	AllowedFor   time.Duration // how long a positive answer is cached. 30 s
	DeniedFor    time.Duration // how long a negative answer is cached. 10 s
	ReviewTime   time.Duration // timeout of one review. 3 s
	Answers      int           // maximum number of cached answers. 4,096
	ReviewsASec  float64       // maximum number of reviews per second for the pods of one namespace. 10
	ReviewsBurst int           // maximum burst of reviews. 50
	PodWait      time.Duration // how long to wait for a pod that is not known yet. 3 s
	Clock        interface{ Now() time.Time }
}

// Kubernetes is the Authorizer for the nodes of a cluster. A pod may do everything with the keys of
// its own namespace. For the keys of other namespaces, roles decide what its service account may
// do.
type Kubernetes struct {
	o       KubernetesOptions
	answers *cache.LRUExpireCache // answers by Review
	asking  singleflight.Group

	mu   sync.Mutex
	rate map[string]*rate.Limiter // limits the reviews for each namespace of callers
}

// NewKubernetes makes a Kubernetes.
func NewKubernetes(o KubernetesOptions) *Kubernetes {
	setDefault(&o.AllowedFor, 30*time.Second)
	setDefault(&o.DeniedFor, 10*time.Second)
	setDefault(&o.ReviewTime, 3*time.Second)
	setDefault(&o.Answers, 4096)
	setDefault(&o.ReviewsASec, 10)
	setDefault(&o.ReviewsBurst, 50)
	setDefault(&o.PodWait, 3*time.Second)
	if o.Clock == nil {
		o.Clock = wallClock{}
	}
	return &Kubernetes{o: o, answers: cache.NewLRUExpireCacheWithClock(o.Answers, o.Clock),
		rate: map[string]*rate.Limiter{}}
}

type wallClock struct{}

func (wallClock) Now() time.Time { return time.Now() }

func setDefault[T int | float64 | time.Duration](v *T, otherwise T) {
	if *v == 0 {
		*v = otherwise
	}
}

// Namespace implements [Authorizer]. The namespace of a pod is its Kubernetes namespace. Namespace
// may wait, because the agent may learn of a pod only after the pod has begun to run.
func (k *Kubernetes) Namespace(ctx context.Context, c Caller) (string, error) {
	switch {
	case c.Kind == Pod:
	case c.Kind != Unknown && k.o.Hosts != nil:
		return k.o.Hosts.Namespace(ctx, c)
	default:
		return "", k.noPod(c)
	}
	ctx, cancel := context.WithTimeout(ctx, k.o.PodWait)
	defer cancel()
	for {
		changed := k.o.Pods.Changed()
		if p, ok := k.o.Pods.Pod(c.PodUID); ok {
			return p.Namespace, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return "", podGone(c)
		}
	}
}

// Authorize implements [Authorizer].
func (k *Kubernetes) Authorize(ctx context.Context, c Caller, v Verb, namespace string) error {
	if err := CheckNamespace(namespace); err != nil {
		return err
	}
	if v < 0 || v >= numVerbs {
		return denied(ruleUnknown, "", "there is no %s", v)
	}
	switch {
	case c.Kind == Pod:
	case c.Kind != Unknown && k.o.Hosts != nil:
		return k.o.Hosts.Authorize(ctx, c, v, namespace)
	default:
		return k.noPod(c)
	}
	p, ok := k.o.Pods.Pod(c.PodUID)
	if !ok {
		return podGone(c)
	}
	if p.Namespace == namespace {
		return nil
	}
	q := Review{p.Namespace, p.ServiceAccountName, kubernetesVerbs[v], namespace}
	allowed, err := k.review(ctx, q)
	if err != nil {
		return err
	}
	if !allowed {
		return denied(ruleRoles, fmt.Sprintf("stay in namespace %s, or have a Role in %s give the service account %s/%s the verb %s on %s.%s",
			p.Namespace, namespace, p.Namespace, p.ServiceAccountName, q.Verb, Resource, Group),
			"pod %s/%s may not %s keys of namespace %s: it is not its own, and no role lets its service account %s %s them",
			p.Namespace, p.Name, v, namespace, p.ServiceAccountName, q.Verb)
	}
	return nil
}

// Name implements [Namer]. It names a pod of this node by its namespace and name.
func (k *Kubernetes) Name(c Caller) string {
	if c.Kind == Pod {
		if p, ok := k.o.Pods.Pod(c.PodUID); ok {
			return fmt.Sprintf("pod %s/%s (pid %d)", p.Namespace, p.Name, c.PID)
		}
	}
	return c.String()
}

// Subject implements [Authorizer]. The subject of a pod is its namespace.
func (k *Kubernetes) Subject(c Caller) string {
	if c.Kind == Pod {
		if p, ok := k.o.Pods.Pod(c.PodUID); ok {
			return p.Namespace
		}
	}
	return c.Principal()
}

func (k *Kubernetes) noPod(c Caller) error {
	if c.Kind == Unknown {
		return denied(ruleUnknown, "", "%s", c)
	}
	return denied(ruleHost, "run it in a pod, or have the node's policy file name it", "%s is in no pod", c)
}

func podGone(c Caller) error {
	return denied(rulePodGone, "connect again from a pod that runs", "%s is not, or not any more, a pod of this node", c)
}

// review returns the cached answer to a question, or asks the API server. It fails if the API
// server cannot be reached. In this case the caller has no rights.
func (k *Kubernetes) review(ctx context.Context, q Review) (bool, error) {
	if v, ok := k.answers.Get(q); ok {
		return v.(bool), nil
	}
	if !k.mayAsk(q.AccountNamespace) {
		return false, &nodeapi.Error{Code: nodeapi.CodeQuotaExceeded, Do: "try again later, and use fewer namespaces",
			Message: fmt.Sprintf("namespace %s asks for rights in other namespaces more than %g times a second", q.AccountNamespace, k.o.ReviewsASec)}
	}
	// Concurrent callers with the same question wait for the same answer. The request is not
	// canceled when the first caller gives up.
	answer := k.asking.DoChan(fmt.Sprintf("%q", q), func() (any, error) {
		if v, ok := k.answers.Get(q); ok {
			return v, nil
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.o.ReviewTime)
		defer cancel()
		allowed, err := k.o.Reviewer.Review(ctx, q)
		if err != nil {
			return false, err
		}
		counts := k.o.DeniedFor
		if allowed {
			counts = k.o.AllowedFor
		}
		k.answers.Add(q, allowed, counts)
		return allowed, nil
	})
	select {
	case a := <-answer:
		if a.Err != nil {
			return false, unavailable(a.Err)
		}
		return a.Val.(bool), nil
	case <-ctx.Done():
		return false, unavailable(context.Cause(ctx))
	}
}

func unavailable(err error) error {
	var e *nodeapi.Error
	if errors.As(err, &e) {
		return e
	}
	return &nodeapi.Error{Code: nodeapi.CodeUnavailable, Do: "try again; a pod's own namespace needs no answer of the API server",
		Message: fmt.Sprintf("the API server does not say whether this is allowed: %v", err)}
}

// mayAsk limits the rate at which the pods of one namespace cause questions to the API server.
func (k *Kubernetes) mayAsk(namespace string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.o.Clock.Now()
	l := k.rate[namespace]
	if l == nil {
		// delete the limiters of namespaces whose pods have caused no question for a while
		for n, old := range k.rate {
			if old.TokensAt(now) >= float64(k.o.ReviewsBurst) {
				delete(k.rate, n)
			}
		}
		l = rate.NewLimiter(rate.Limit(k.o.ReviewsASec), k.o.ReviewsBurst)
		k.rate[namespace] = l
	}
	return l.AllowN(now, 1)
}
