package interp

import (
	"container/heap"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netcraq/netcraq/switch/target"
)

// Queues are how the queues between ingress and egress are set, as BMv2's simple_switch has them:
// each port has one for each priority. A queue gives its packets to egress at its rate; one without
// a rate keeps none. Of those that may go on, the packets of the largest priority go first. What a
// full queue is given is dropped.
//
// They are the switch's, not the program's, so that they stay when a program is replaced. The
// packets that wait are the program's. Queues are safe for concurrent use.
type Queues struct {
	priorities int

	mu    sync.Mutex
	other []queueSetting // by priority, of ports of which nothing has been said
	ports map[uint32][]queueSetting
	set   atomic.Bool // something is other than at the beginning
}

// queueSetting is how a queue is set.
type queueSetting struct {
	depth int           // packets that may wait
	gap   time.Duration // between two packets; 0: they do not wait
}

const (
	// MaxQueuePriorities is how many priorities there are at most. The field of v1model has 3 bits.
	MaxQueuePriorities = 64
	// MaxQueueDepth is how many packets one queue holds at most.
	MaxQueueDepth = 1 << 16
	// maxWaiting bounds the packets that wait in all queues together.
	maxWaiting = 1 << 16
	// defaultQueueDepth is BMv2's.
	defaultQueueDepth = 64
)

// NewQueues makes queues for a number of priorities, at least one.
func NewQueues(priorities int) *Queues {
	return &Queues{priorities: priorities, ports: map[uint32][]queueSetting{},
		other: slices.Repeat([]queueSetting{{depth: defaultQueueDepth}}, priorities)}
}

// change changes some queues' settings: of a port and a priority, or where those are nil of all.
func (q *Queues) change(port *uint32, priority *int, do func(*queueSetting)) error {
	if priority != nil && (*priority < 0 || *priority >= q.priorities) {
		return fmt.Errorf("priority %d: there are %d, from 0 on (--priority-queues): %w", *priority,
			q.priorities, target.ErrOutOfRange)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.set.Store(true)
	one := func(of []queueSetting) {
		for i := range of {
			if priority == nil || *priority == i {
				do(&of[i])
			}
		}
	}
	if port != nil {
		if q.ports[*port] == nil {
			q.ports[*port] = slices.Clone(q.other)
		}
		one(q.ports[*port])
		return nil
	}
	for _, of := range q.ports {
		one(of)
	}
	one(q.other)
	return nil
}

// SetDepth sets how many packets wait at most: in the queue of a port and a priority, or, where
// those are nil, of all.
func (q *Queues) SetDepth(port *uint32, priority *int, packets int) error {
	if packets < 0 || packets > MaxQueueDepth {
		return fmt.Errorf("a queue of %d packets (0 to %d): %w", packets, MaxQueueDepth,
			target.ErrInvalid)
	}
	return q.change(port, priority, func(s *queueSetting) { s.depth = packets })
}

// SetRate sets how many packets a second leave a queue at most; 0 is no limit.
func (q *Queues) SetRate(port *uint32, priority *int, perSecond uint64) error {
	gap := time.Duration(0)
	if perSecond > 0 {
		gap = time.Duration(uint64(time.Second) / perSecond)
	}
	return q.change(port, priority, func(s *queueSetting) { s.gap = gap })
}

// of is how a queue is set.
func (q *Queues) of(port uint32, priority int) queueSetting {
	q.mu.Lock()
	defer q.mu.Unlock()
	if own, ok := q.ports[port]; ok {
		return own[priority]
	}
	return q.other[priority]
}

// waitingRoom is where a program's packets wait.
type waitingRoom struct {
	queues map[queueName]*waitingQueue
	ready  []waiters // by priority
	count  int
	order  uint64
	// when the first of all may go on, as [Pipeline.NextDeparture] says it
	next atomic.Int64
	full bool // that a queue was full was said
}

type queueName struct {
	port     uint32
	priority int
}

type waitingQueue struct {
	size int
	last time.Duration // when its newest packet may go on
}

// waiter is a packet that waits.
type waiter struct {
	st     *state
	of     *waitingQueue
	at     time.Duration // when it may go on
	order  uint64
	number uint64 // of the packet, in what is traced
}

// waiters are packets of one priority, the first that may go on first.
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

// enqueue hands a packet to egress, or puts it into its port's queue.
func (p *Pipeline) enqueue(st *state, port uint32) {
	st.outPort = port
	priority := p.std.priority.get(st)
	if priority >= uint64(p.opts.Queues.priorities) {
		if !p.outOfRange {
			p.outOfRange = true
			p.log(fmt.Sprintf("a packet was dropped: its priority is %d, and there are %d, from 0 on "+
				"(--priority-queues; said once)", priority, p.opts.Queues.priorities))
		}
		p.traceStep("Priority out of range, dropping packet")
		p.put(st)
		return
	}
	st.priority, st.queuedAt = int(priority), st.now
	p.std.enqTime.set(st, uint64(st.now/time.Microsecond))
	if p.opts.Queues.set.Load() {
		p.enqueueAtRate(st)
		return
	}
	st.depth = p.queueDepth(port)
	p.std.enqDepth.set(st, st.depth)
	p.queue = append(p.queue, st)
}

// enqueueAtRate is enqueue where queues have rates or depths.
func (p *Pipeline) enqueueAtRate(st *state) {
	room, s := &p.waiting, p.opts.Queues.of(st.outPort, st.priority)
	name := queueName{st.outPort, st.priority}
	q := room.queues[name]
	if q == nil {
		q = &waitingQueue{last: -1 << 62}
		room.queues[name] = q
	}
	outside := p.queueDepth(st.outPort)
	st.depth = uint64(q.size) + outside
	p.std.enqDepth.set(st, st.depth)
	switch {
	case q.size >= s.depth || room.count >= maxWaiting:
		if !room.full {
			room.full = true
			p.log(fmt.Sprintf("a packet was dropped: the queue of port %d and priority %d is full, "+
				"with %d packets (said once)", st.outPort, st.priority, q.size))
		}
		p.traceStep("Queue is full, dropping packet")
		p.put(st)
		return
	case s.gap == 0 && q.size == 0:
		p.queue = append(p.queue, st)
		return
	}
	q.last = max(st.now, q.last+s.gap)
	q.size++
	room.count++
	room.order++
	st.keepFrame()
	heap.Push(&room.ready[st.priority], waiter{st, q, q.last, room.order, p.traced})
}

// keepFrame makes the packet's bytes its own: those that it came in are the caller's.
func (st *state) keepFrame() {
	n := len(st.frame)
	st.kept = append(append(st.kept[:0], st.frame...), st.payload...)
	st.frame, st.payload = st.kept[:n:n], st.kept[n:]
}

// depart takes the packet that is next to leave its queue at now; nil where none may.
func (p *Pipeline) depart(now time.Duration) *state {
	room := &p.waiting
	if p.passes > p.opts.MaxPasses/2 {
		return nil // the rest is for the next call
	}
	for priority := len(room.ready) - 1; priority >= 0; priority-- {
		w := &room.ready[priority]
		if len(*w) == 0 || (*w)[0].at > now {
			continue
		}
		x := heap.Pop(w).(waiter)
		x.of.size--
		room.count--
		st := x.st
		st.now, p.tracing = now, x.number
		st.depth = uint64(x.of.size) + p.queueDepth(st.outPort)
		return st
	}
	return nil
}

// noteDeparture notes when there is something to do next.
func (p *Pipeline) noteDeparture() {
	next := time.Duration(nobodyWaits)
	for _, w := range p.waiting.ready {
		if len(w) > 0 {
			next = min(next, w[0].at)
		}
	}
	p.waiting.next.Store(int64(next))
}

// NextDeparture is when the next of the packets that wait in queues may go on to egress, as
// [Pipeline.DepartInto] takes them; false: none waits.
func (p *Pipeline) NextDeparture() (time.Duration, bool) {
	next := p.waiting.next.Load()
	return time.Duration(next), next != nobodyWaits
}

// DepartInto takes the packets whose time has come at now out of their queues and through egress,
// as [Pipeline.ProcessInto] does with a packet that comes in.
func (p *Pipeline) DepartInto(b *Buffer, now time.Duration) {
	b.reset()
	p.dp.Lock()
	p.passes, p.digests = 0, nil
	p.listens()
	digests := p.work(b, now)
	p.dp.Unlock()
	for _, d := range digests {
		p.opts.OnDigest(d)
	}
}
