package guarded

import (
	"context"
	"slices"
	"sync"
)

// queues lets one write of this gateway at a time have a key, in order of arrival. Otherwise writes
// of the same gateway would compete for the guard in the switches, where the order is random.
type queues struct {
	mu   *sync.Mutex
	keys map[string]*queue
}

// queue is the list of writes of one key. The first one has the key, and the others wait.
type queue struct {
	turns []*turn
	// row counts the writes that have had the key without a gap. It begins again when the queue was
	// empty, or when another gateway could have had the key. Only the write that has the key
	// accesses it.
	row int
}

// turn is the place of a write in a queue.
type turn struct {
	come  chan struct{} // closed when this write gets the key
	key   placedKey
	lease int64  // lease of the session with which the write would guard the key
	guard *guard // guard that the previous write hands to this one, if any
}

// inARow is the number of writes of one gateway that may follow each other without a gap. After
// that, another gateway gets a chance. It checks every longestGuarded whether the slot is free.
// Without a gap, it would have to check exactly between one write's publication and the next
// write's guard.
const inARow = 8

func newQueues() queues {
	return queues{mu: new(sync.Mutex), keys: map[string]*queue{}}
}

// enter waits until the caller has a key. If it returns true, the caller must later call leave or
// hand. If the key already has a guard, the guard is returned and belongs to the caller.
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

// enterFree acquires a key if no other write of this gateway has the key. In that case the caller
// must later call leave or hand.
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

// hand gives a key and its guard to the next waiting write. It does so only if that write has the
// same session and placement, and if it is not another gateway's turn. It reports whether it has
// given the key away.
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

// leave lets the next waiting write have a key.
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

// drop removes a waiting write from its queue, unless the write has already got the key.
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
