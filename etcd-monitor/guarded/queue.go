package guarded

import (
	"context"
	"sync"
)

// queues let one write of this gateway at a time have a key, in the order in which they came. So writes of one gateway do not take guards from each other in the network, where who comes first is chance.
type queues struct {
	mu   *sync.Mutex
	keys map[string][]chan struct{} // who has the key, and then who waits; each channel is closed when its turn comes
}

func newQueues() queues {
	return queues{mu: new(sync.Mutex), keys: map[string][]chan struct{}{}}
}

// enter waits for a key. Without an error, leave must follow.
func (q queues) enter(ctx context.Context, r Runtime, key string) bool {
	turn := make(chan struct{})
	q.mu.Lock()
	first := len(q.keys[key]) == 0
	q.keys[key] = append(q.keys[key], turn)
	if first {
		close(turn)
	}
	q.mu.Unlock()
	if first || r.Wait(ctx, turn, 0) {
		return true
	}
	q.drop(key, turn)
	return false
}

// leave lets the next one have a key.
func (q queues) leave(key string) {
	q.mu.Lock()
	turn := q.keys[key][0]
	q.mu.Unlock()
	q.drop(key, turn)
}

func (q queues) drop(key string, turn chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, t := range q.keys[key] {
		if t != turn {
			continue
		}
		q.keys[key] = append(q.keys[key][:i:i], q.keys[key][i+1:]...)
		switch {
		case len(q.keys[key]) == 0:
			delete(q.keys, key)
		case i == 0:
			close(q.keys[key][0])
		}
		return
	}
}
