package server

import (
	"context"
	"sync"

	"github.com/netcraq/netcraq/nodeapi/store"
)

// turns lets those who want the same key have it one after another.
type turns struct {
	mu   sync.Mutex
	keys map[store.Key]*turn
}

type turn struct {
	wanted int
	held   chan struct{} // who has put something in has the turn
}

// wait waits for a turn, which done ends.
func (t *turns) wait(ctx context.Context, key store.Key) (done func(), err error) {
	t.mu.Lock()
	if t.keys == nil {
		t.keys = map[store.Key]*turn{}
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
