package interp

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/netcraq/netcraq/switch/interp/internal/packet"
)

// waitingRoom holds the packets of a program that wait in queues.
type waitingRoom struct {
	queues map[queueName]*waitingQueue
	ready  []waiters // heaps of waiting packets, by priority
	count  int
	order  uint64
	// The earliest time at which a waiting packet may continue (see [Pipeline.NextDeparture]).
	next atomic.Int64
	full bool // set once the log says that a queue is full
}

type queueName struct {
	port     uint32
	priority int
}

type waitingQueue struct {
	size int
	last time.Duration // the time at which the queue's newest packet may continue
}

// waiter is a packet that waits in a queue.
type waiter struct {
	st     *packet.State
	of     *waitingQueue
	at     time.Duration // the time at which the packet may continue
	order  uint64
	number uint64 // the packet's number in traces
}

// waiters is a heap of the waiting packets of one priority, ordered by the time at which they may
// continue.
type waiters []waiter

func (w waiters) Len() int      { return len(w) }
func (w waiters) Swap(i, j int) { w[i], w[j] = w[j], w[i] }
func (w waiters) Less(i, j int) bool {
	return w[i].at < w[j].at || w[i].at == w[j].at && w[i].order < w[j].order
}
func (w *waiters) Push(x any) { *w = append(*w, x.(waiter)) }
func (w *waiters) Pop() any {
	last := len(*w) - 1
	x := (*w)[last]
	(*w)[last] = waiter{}
	*w = (*w)[:last]
	return x
}

const nobodyWaits = math.MaxInt64

// empty removes all packets and sets the number of priorities.
func (r *waitingRoom) empty(priorities int) {
	r.queues, r.ready = map[queueName]*waitingQueue{}, make([]waiters, priorities)
	r.next.Store(nobodyWaits)
}
