package interp

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/netcraq/netcraq/switch/interp/internal/packet"
)

// waitingRoom is where a program's packets wait.
type waitingRoom struct {
	queues map[queueName]*waitingQueue
	ready  []waiters // by priority
	count  int
	order  uint64
	// when the first of all may continue, as [Pipeline.NextDeparture] says it
	next atomic.Int64
	full bool // a full queue was reported
}

type queueName struct {
	port     uint32
	priority int
}

type waitingQueue struct {
	size int
	last time.Duration // when its newest packet may continue
}

// waiter is a packet that waits.
type waiter struct {
	st     *packet.State
	of     *waitingQueue
	at     time.Duration // when it may continue
	order  uint64
	number uint64 // of the packet, in traces
}

// waiters are packets of one priority, the first that may continue first.
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

// empty makes the room one for so many priorities in which nobody waits.
func (r *waitingRoom) empty(priorities int) {
	r.queues, r.ready = map[queueName]*waitingQueue{}, make([]waiters, priorities)
	r.next.Store(nobodyWaits)
}
