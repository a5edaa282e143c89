package apiobjects

import (
	"context"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Follow calls set for each object of a kind when it changes, until ctx ends. set gets the object's
// current state, and whether the object exists. synced reports whether set was called for all
// objects that existed at the beginning.
func Follow(ctx context.Context, in cache.Cache, kind client.Object, set func(o any, there bool)) (
	synced func() bool, err error) {
	informer, err := in.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	told, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { set(o, true) },
		UpdateFunc: func(_, o any) { set(o, true) },
		DeleteFunc: func(o any) {
			if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			set(o, false)
		},
	})
	switch {
	case err != nil:
		return nil, err
	case told == nil: // a fake informer in a test returns no registration
		return informer.HasSynced, nil
	}
	return told.HasSynced, nil
}
