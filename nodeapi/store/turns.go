package store

import (
	"context"
	"sync"
)

// Turns lets those who want the same key have it one after another, or those who want the same
// namespace, which is a Key without a name.
type Turns struct {
	mu   sync.Mutex
	keys map[Key]*turn
}

type turn struct {
	wanted int
	held   chan struct{} // who has put something in has the turn
}

// Wait waits for a turn, which done ends.
func (t *Turns) Wait(ctx context.Context, key Key) (done func(), err error) {
	t.mu.Lock()
	if t.keys == nil {
		t.keys = map[Key]*turn{}
	}
	k := t.keys[key]
	if k == nil {
		k = &turn{held: make(chan struct{}, 1)}
		t.keys[key] = k
	}
	k.wanted++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if k.wanted--; k.wanted == 0 {
			delete(t.keys, key)
		}
	}
	select {
	case k.held <- struct{}{}:
		return func() { <-k.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
