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

// Everything maps all events to one request, for reconcilers that handle all objects together
// because their output depends on several.
var Everything = handler.EnqueueRequestsFromMapFunc(
	func(ctx context.Context, _ client.Object) []reconcile.Request { return One(ctx) })

// One returns the request that Everything maps events to.
func One(context.Context) []reconcile.Request { return []reconcile.Request{{}} }

// Named are requests for objects without a namespace.
func Named(names []string) (out []reconcile.Request) {
	for _, n := range names {
		out = append(out, reconcile.Request{NamespacedName: Key(n)})
	}
	return out
}

// Waker makes a reconciler check its objects for reasons that the API server does not know.
type Waker struct {
	signals chan event.GenericEvent
	anew    *atomic.Bool // failed objects shall not wait for their next retry
}

// NewWaker makes a Waker.
func NewWaker() Waker { return Waker{make(chan event.GenericEvent, 1), new(atomic.Bool)} }

// Wake makes the reconciler check its objects, except for those that failed and wait for their next
// retry.
func (w Waker) Wake() {
	select {
	case w.signals <- event.GenericEvent{Object: &v1alpha1.NetcraqChain{}}:
	default: // a wake-up is pending already
	}
}

// Retry makes the reconciler check also the objects that failed.
func (w Waker) Retry() {
	w.anew.Store(true)
	w.Wake()
}

// Source feeds the reconciler's queue. keys returns the objects to check.
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
