package store

import "context"

type withoutCreating struct{}

// WithoutCreating has a store make no key for a write, and return refused if there is none.
func WithoutCreating(ctx context.Context, refused error) context.Context {
	return context.WithValue(ctx, withoutCreating{}, refused)
}

// MayCreate returns nil if a store may make a key for a write, and else what to return.
func MayCreate(ctx context.Context) error {
	refused, _ := ctx.Value(withoutCreating{}).(error)
	return refused
}
