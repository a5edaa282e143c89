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

// Everything is an event handler that maps all events to one request. It is for reconcilers that
// handle all objects together, because their output depends on several objects.
var Everything = handler.EnqueueRequestsFromMapFunc(
	func(ctx context.Context, _ client.Object) []reconcile.Request { return One(ctx) })

// One returns the single request to which Everything maps events.
func One(context.Context) []reconcile.Request { return []reconcile.Request{{}} }

// Named returns requests for the objects with these names, which have no namespace.
func Named(names []string) (out []reconcile.Request) {
	for _, n := range names {
		out = append(out, reconcile.Request{NamespacedName: Key(n)})
	}
	return out
}

// Waker makes a reconciler check its objects for a reason that the API server does not know.
type Waker struct {
	signals chan event.GenericEvent
	anew    *atomic.Bool // true if failed objects must not wait for their next retry
}

// NewWaker makes a Waker.
func NewWaker() Waker { return Waker{make(chan event.GenericEvent, 1), new(atomic.Bool)} }

// Wake makes the reconciler check its objects. It excludes objects that failed and wait for their
// next retry.
func (w Waker) Wake() {
	select {
	case w.signals <- event.GenericEvent{Object: &v1alpha1.NetcraqChain{}}:
	default: // a wake-up is already pending
	}
}

// Retry makes the reconciler check all of its objects, including those that failed.
func (w Waker) Retry() {
	w.anew.Store(true)
	w.Wake()
}

// Source returns an event source for the reconciler. keys returns the objects to check.
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
