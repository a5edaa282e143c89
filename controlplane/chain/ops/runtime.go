package ops

import (
	"context"
	"sync/atomic"
	"time"
)

// Runtime provides time and concurrency to procedures.
type Runtime interface {
	// Now returns the time since some fixed moment.
	Now() time.Duration
	// Sleep pauses. If ctx ends, it returns early with ctx's error.
	Sleep(ctx context.Context, d time.Duration) error
	// WithTimeout is context.WithTimeout by this Runtime's clock.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
	// ForEach calls do for 0 to n-1, with at most window calls at a time, and returns when all
	// calls have returned. The first error ends the context of the other calls, and is the error
	// that ForEach returns.
	ForEach(ctx context.Context, n, window int, do func(ctx context.Context, i int) error) error
}

// window is the maximum number of exchanges with switches that are under way at a time.
const window = 64

// Each calls do for every element of all, with at most 64 (window) calls at a time, and returns the
// first error.
func Each[T any](ctx context.Context, r Runtime, all []T, do func(context.Context, T) error) error {
	return r.ForEach(ctx, len(all), window, func(ctx context.Context, i int) error { return do(ctx, all[i]) })
}

// Chain is the state that the procedures of one chain share.
type Chain struct {
	Runtime
	ID uint8
	// Switch finds a switch by name. It fails if the switch has left the network.
	Switch func(name string) (*Switch, error)
	// Entry returns a key's key_index entry under the given Key's KEY_ID, which may be an alias.
	Entry func(Key) Entry
	Pool  *Pool
	// Buries reports whether the directory records that a key's value is lost (Redrive). If Buries
	// is nil, no value is lost.
	Buries func(Key) bool
	held   atomic.Pointer[held]
	// Equality is shared by all chains of a controller.
	Equality *Equality
}

// switches finds several switches by name.
func (c *Chain) switches(names []string) ([]*Switch, error) {
	var out []*Switch
	for _, n := range names {
		s, err := c.Switch(n)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}
