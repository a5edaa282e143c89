package ops

import (
	"context"
	"sync/atomic"
	"time"
)

// Runtime provides time and concurrency to procedures.
type Runtime interface {
	// Now is the time since some moment.
	Now() time.Duration
	// Sleep pauses. It returns early, and why, when ctx ends.
	Sleep(ctx context.Context, d time.Duration) error
	// WithTimeout is context.WithTimeout by this clock.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
	// ForEach calls do for 0 to n-1, at most window at a time, and returns when all have returned.
	// The first error ends the context of the others, and is the one that it gives.
	ForEach(ctx context.Context, n, window int, do func(ctx context.Context, i int) error) error
}

// window is how many exchanges with switches are under way at a time.
const window = 64

// Each calls do for all of some things, 64 (window) at a time, and gives the first error.
func Each[T any](ctx context.Context, r Runtime, all []T, do func(context.Context, T) error) error {
	return r.ForEach(ctx, len(all), window, func(ctx context.Context, i int) error { return do(ctx, all[i]) })
}

// Chain is the common state of the procedures of one chain.
type Chain struct {
	Runtime
	ID uint8
	// Switch finds a switch. It may have left the network meanwhile.
	Switch func(name string) (*Switch, error)
	// Entry is the key_index entry of a key under the KEY_ID that it is given with, its alias
	// included.
	Entry func(Key) Entry
	Pool  *Pool
	// Buries returns the keys for which it is recorded that their values are lost (Redrive). nil:
	// none.
	Buries func(Key) bool
	held   atomic.Pointer[held]
	// Equality is all chains' of a controller.
	Equality *Equality
}

// switches finds several switches.
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
