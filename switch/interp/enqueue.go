package interp

import (
	"container/heap"
	"fmt"
	"time"
)

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
		p.obs.traceStep("Priority out of range, dropping packet")
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
		p.obs.traceStep("Queue is full, dropping packet")
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
	heap.Push(&room.ready[st.priority], waiter{st, q, q.last, room.order, p.obs.traced})
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
		st.now, p.obs.tracing = now, x.number
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
	p.obs.listen()
	digests := p.work(b, now)
	p.dp.Unlock()
	for _, d := range digests {
		p.opts.OnDigest(d)
	}
}
