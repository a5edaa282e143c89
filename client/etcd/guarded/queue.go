package guarded

import (
	"context"
	"slices"
	"sync"
)

// queues let one write of this gateway at a time have a key, in the order in which they came. So
// writes of one gateway do not take guards from each other in the network, where who comes first is
// chance.
type queues struct {
	mu   *sync.Mutex
	keys map[string]*queue
}

// queue is who has a key, and then who waits; each channel is closed when its turn comes.
type queue struct {
	turns []chan struct{}
	// writes that have had the key since the queue was empty, or since another gateway could have
	// had it; who has the key may touch it
	row int
}

// inARow is how many writes of one gateway follow each other at once. Then another gateway, which
// looks whether the key is free every longestGuarded, has its chance: who waits there would else
// have to look in the moment between one write's publication and the next one's guard.
const inARow = 8

func newQueues() queues {
	return queues{mu: new(sync.Mutex), keys: map[string]*queue{}}
}

// enter waits for a key. Without an error, leave must follow.
func (q queues) enter(ctx context.Context, r Runtime, key string) bool {
	turn := make(chan struct{})
	q.mu.Lock()
	k := q.keys[key]
	first := k == nil
	if first {
		k = &queue{}
		q.keys[key] = k
		close(turn)
	}
	k.turns = append(k.turns, turn)
	q.mu.Unlock()
	if !first && !r.Wait(ctx, turn, 0) {
		q.drop(key, turn)
		return false
	}
	if k.row == inARow {
		k.row = 0
		r.Wait(ctx, nil, longestGuarded)
	}
	k.row++
	return true
}

// leave lets the next one have a key.
func (q queues) leave(key string) {
	q.mu.Lock()
	turn := q.keys[key].turns[0]
	q.mu.Unlock()
	q.drop(key, turn)
}

func (q queues) drop(key string, turn chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	k := q.keys[key]
	i := slices.Index(k.turns, turn)
	k.turns = slices.Delete(k.turns, i, i+1)
	switch {
	case len(k.turns) == 0:
		delete(q.keys, key)
	case i == 0:
		close(k.turns[0])
	}
}
