package store

import (
	"context"
	"sync"
)

// Turns makes callers with the same key take turns. A Key without a name stands for its namespace.
type Turns struct {
	mu   sync.Mutex
	keys map[Key]*turn
}

type turn struct {
	wanted int
	held   chan struct{} // has an element while a caller has the turn
}

// Wait waits for a turn. The caller must call done to end the turn.
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
