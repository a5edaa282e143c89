package store

import "context"

type withoutCreating struct{}

// WithoutCreating forbids a store to create a key for a write; if the key does not exist, the write
// returns refused.
func WithoutCreating(ctx context.Context, refused error) context.Context {
	return context.WithValue(ctx, withoutCreating{}, refused)
}

// MayCreate returns nil if a store may create a key for a write, and otherwise the error to return.
func MayCreate(ctx context.Context) error {
	refused, _ := ctx.Value(withoutCreating{}).(error)
	return refused
}
