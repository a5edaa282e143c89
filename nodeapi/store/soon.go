package store

import "context"

type soonKey struct{}

// SoonAnswered tells the caller of a call that it begins to wait, and that it is either answered
// within a few milliseconds or will call Done on its context then. The caller need not prepare for
// a long wait. SoonAnswered is called by the goroutine that was given the context, or by others.
func SoonAnswered(ctx context.Context) {
	if f, ok := ctx.Value(soonKey{}).(func()); ok && f != nil {
		f()
	}
}

// SoonKey is the key of the function in a context that SoonAnswered calls.
var SoonKey any = soonKey{}
