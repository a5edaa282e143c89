package store

import "context"

type withoutCreating struct{}

// WithoutCreating returns a context that forbids a store to create a key for a write. If the key
// does not exist, the write returns the error refused.
func WithoutCreating(ctx context.Context, refused error) context.Context {
	return context.WithValue(ctx, withoutCreating{}, refused)
}

// MayCreate returns nil if a store may create a key for a write with this context. Otherwise it
// returns the error for the write.
func MayCreate(ctx context.Context) error {
	refused, _ := ctx.Value(withoutCreating{}).(error)
	return refused
}
