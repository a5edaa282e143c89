package interp

import (
	"container/heap"
	"fmt"
	"time"

	"github.com/netcraq/netcraq/switch/interp/internal/packet"
)

// enqueue passes a packet to egress, or puts it into the queue of its port.
func (p *Pipeline) enqueue(st *packet.State, port uint32) {
	st.EgressPort = port
	priority := p.std.priority.Get(st)
	if priority >= uint64(p.opts.Queues.priorities) {
		if !p.outOfRange {
			p.outOfRange = true
			p.log(fmt.Sprintf("a packet was dropped: its priority is %d, and there are %d, from 0 on "+
				"(--priority-queues; said once)", priority, p.opts.Queues.priorities))
		}
		p.obs.TraceStep("Priority out of range, dropping packet")
		p.put(st)
		return
	}
	st.Priority, st.EnqueuedAt = int(priority), st.Now
	p.std.enqTime.Set(st, uint64(st.Now/time.Microsecond))
	if p.opts.Queues.set.Load() {
		p.enqueueAtRate(st)
		return
	}
	st.QueueDepth = p.queueDepth(port)
	p.std.enqDepth.Set(st, st.QueueDepth)
	p.queue = append(p.queue, st)
}

// enqueueAtRate does the work of enqueue if queues have rates or depths.
func (p *Pipeline) enqueueAtRate(st *packet.State) {
	room, s := &p.waiting, p.opts.Queues.of(st.EgressPort, st.Priority)
	name := queueName{st.EgressPort, st.Priority}
	q := room.queues[name]
	if q == nil {
		q = &waitingQueue{last: -1 << 62}
		room.queues[name] = q
	}
	outside := p.queueDepth(st.EgressPort)
	st.QueueDepth = uint64(q.size) + outside
	p.std.enqDepth.Set(st, st.QueueDepth)
	switch {
	case q.size >= s.depth || room.count >= maxWaiting:
		if !room.full {
			room.full = true
			p.log(fmt.Sprintf("a packet was dropped: the queue of port %d and priority %d is full, "+
				"with %d packets (said once)", st.EgressPort, st.Priority, q.size))
		}
		p.obs.TraceStep("Queue is full, dropping packet")
		p.put(st)
		return
	case s.gap == 0 && q.size == 0:
		p.queue = append(p.queue, st)
		return
	}
	q.last = max(st.Now, q.last+s.gap)
	q.size++
	room.count++
	room.order++
	st.OwnFrame()
	heap.Push(&room.ready[st.Priority], waiter{st, q, q.last, room.order, p.obs.LastNumber()})
}

// depart removes the next packet that may leave at the time now from its queue and returns it. It
// returns nil if no packet may leave yet.
func (p *Pipeline) depart(now time.Duration) *packet.State {
	room := &p.waiting
	if p.passes > p.opts.MaxPasses/2 {
		return nil // Later packets leave in a later call.
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
		st.Now = now
		p.obs.ResumeTrace(x.number)
		st.QueueDepth = uint64(x.of.size) + p.queueDepth(st.EgressPort)
		return st
	}
	return nil
}

// noteDeparture records the earliest time at which a waiting packet may continue.
func (p *Pipeline) noteDeparture() {
	next := time.Duration(nobodyWaits)
	for _, w := range p.waiting.ready {
		if len(w) > 0 {
			next = min(next, w[0].at)
		}
	}
	p.waiting.next.Store(int64(next))
}

// NextDeparture returns the time at which the next waiting packet may continue to egress (see
// [Pipeline.DepartInto]). It returns false if no packet waits.
func (p *Pipeline) NextDeparture() (time.Duration, bool) {
	next := p.waiting.next.Load()
	return time.Duration(next), next != nobodyWaits
}

// ReadsQueueDepth reports whether the program reads the number of packets that wait at a port.
func (p *Pipeline) ReadsQueueDepth() bool { return p.readsDepth }

func (p *Pipeline) queueDepth(port uint32) uint64 {
	if !p.readsDepth || p.opts.QueueDepth == nil {
		return 0
	}
	return uint64(p.opts.QueueDepth(port))
}
