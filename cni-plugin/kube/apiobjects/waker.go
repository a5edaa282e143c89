package apiobjects

import (
	"context"
	"sync/atomic"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
)

// Everything is the one request of reconcilers that look at all objects each time, since all that
// they make depends on several.
var Everything = handler.EnqueueRequestsFromMapFunc(
	func(ctx context.Context, _ client.Object) []reconcile.Request { return One(ctx) })

// One is that request.
func One(context.Context) []reconcile.Request { return []reconcile.Request{{}} }

// Named are the requests for objects without a namespace.
func Named(names []string) (out []reconcile.Request) {
	for _, n := range names {
		out = append(out, reconcile.Request{NamespacedName: Key(n)})
	}
	return out
}

// Waker makes a reconciler look at its objects again for reasons that the API server does not know
// about.
type Waker struct {
	signals chan event.GenericEvent
	anew    *atomic.Bool // what failed is not to wait for its next try
}

// NewWaker makes one that nobody has woken.
func NewWaker() Waker { return Waker{make(chan event.GenericEvent, 1), new(atomic.Bool)} }

// Wake makes it look at its objects, except for those that failed and wait for their next try.
func (w Waker) Wake() {
	select {
	case w.signals <- event.GenericEvent{Object: &v1alpha1.NetcraqChain{}}:
	default: // it is about to
	}
}

// Retry makes it look also at those that failed.
func (w Waker) Retry() {
	w.anew.Store(true)
	w.Wake()
}

// Source feeds the reconciler's queue: keys returns the objects.
func (w Waker) Source(keys func(context.Context) []reconcile.Request) source.Source {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	enqueue := func(ctx context.Context, _ event.GenericEvent, q queue) {
		anew := w.anew.Swap(false)
		for _, k := range keys(ctx) {
			if anew {
				q.Forget(k)
			}
			if q.NumRequeues(k) == 0 {
				q.Add(k)
			}
		}
	}
	return source.Channel(w.signals, handler.Funcs{GenericFunc: enqueue})
}
