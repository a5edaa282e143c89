package store

import "context"

type soonKey struct{}

// SoonAnswered reports that the call with this context begins to wait for a short time. The call
// will either be answered within a few milliseconds, or call Done on its context. So the caller
// need not prepare for a long wait. Any goroutine that works for the call may call SoonAnswered.
func SoonAnswered(ctx context.Context) {
	if f, ok := ctx.Value(soonKey{}).(func()); ok && f != nil {
		f()
	}
}

// SoonKey is the key under which a context has the function that SoonAnswered calls.
var SoonKey any = soonKey{}
