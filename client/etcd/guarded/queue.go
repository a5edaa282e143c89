package guarded

import (
	"context"
	"slices"
	"sync"
)

// queues gives a key to one write of this gateway at a time, in order of arrival. So writes of one
// gateway do not take guards from each other in the network, where chance decides which one is
// first.
type queues struct {
	mu   *sync.Mutex
	keys map[string]*queue
}

// queue lists the write that has a key, followed by the writes that wait.
type queue struct {
	turns []*turn
	// writes that have had the key since the queue was empty, or since another gateway could have
	// had it; only the holder of the key accesses it
	row int
}

// turn is a write's place in a queue.
type turn struct {
	come  chan struct{} // closed when this write gets the key
	key   placedKey
	lease int64  // lease of the session with which the write would guard the key
	guard *guard // guard that the previous write has left for this one
}

// inARow is how many writes of one gateway follow each other without a gap. Then another gateway
// has its chance, which checks every longestGuarded whether the key is free. Without a gap, its
// check would have to hit the moment between one write's publication and the next one's guard.
const inARow = 8

func newQueues() queues {
	return queues{mu: new(sync.Mutex), keys: map[string]*queue{}}
}

// enter waits for a key. If it returns true, leave or hand must follow. The key may already have a
// guard, which then belongs to the caller.
func (q queues) enter(ctx context.Context, r Runtime, key placedKey, lease int64) (*guard, bool) {
	t := &turn{come: make(chan struct{}), key: key, lease: lease}
	q.mu.Lock()
	k := q.keys[key.Name]
	first := k == nil
	if first {
		k = &queue{}
		q.keys[key.Name] = k
		close(t.come)
	}
	k.turns = append(k.turns, t)
	q.mu.Unlock()
	if !first && !r.Wait(ctx, t.come, 0) && q.drop(key.Name, t) {
		return nil, false
	}
	if k.row == inARow {
		k.row = 0
		r.Wait(ctx, nil, longestGuarded)
	}
	k.row++
	return t.guard, true
}

// enterFree acquires a key if no other write of this gateway has it. Then leave or hand must
// follow.
func (q queues) enterFree(key placedKey, lease int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.keys[key.Name] != nil {
		return false
	}
	t := &turn{come: make(chan struct{}), key: key, lease: lease}
	close(t.come)
	q.keys[key.Name] = &queue{turns: []*turn{t}, row: 1}
	return true
}

// hand gives a key, together with its guard, to the next waiting write if that write has the same
// session and placement, and if it is not another gateway's turn. Otherwise it does nothing.
func (q queues) hand(g *guard) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	k := q.keys[g.key.Name]
	if len(k.turns) < 2 || k.row >= inARow || k.turns[1].lease != g.lease || k.turns[1].key != g.key {
		return false
	}
	next := k.turns[1]
	next.guard = g
	k.turns = k.turns[1:]
	close(next.come)
	return true
}

// leave lets the next write have a key.
func (q queues) leave(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	k := q.keys[key]
	if k.turns = k.turns[1:]; len(k.turns) == 0 {
		delete(q.keys, key)
		return
	}
	close(k.turns[0].come)
}

// drop removes a waiting write, unless its turn has come.
func (q queues) drop(key string, t *turn) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	k := q.keys[key]
	i := slices.Index(k.turns, t)
	if i == 0 {
		return false
	}
	k.turns = slices.Delete(k.turns, i, i+1)
	return true
}
