package userspace

import (
	"sync"
	"sync/atomic"

	"github.com/netcraq/netcraq/switch/interp"
	"github.com/netcraq/netcraq/switch/queues"
)

// queueDepths holds the number of packets that wait at each port. The switch counts them only while
// the running program reads queue depths.
type queueDepths struct {
	mu    sync.Mutex
	watch *queues.Watch
	ended bool

	byPort sync.Map // port number (uint32) -> *atomic.Uint32
}

// of returns the number of packets that wait at a port.
func (q *queueDepths) of(port uint32) uint32 {
	if v, ok := q.byPort.Load(port); ok {
		return v.(*atomic.Uint32).Load()
	}
	return 0
}

func (q *queueDepths) set(port, depth uint32) {
	v, _ := q.byPort.LoadOrStore(port, new(atomic.Uint32))
	v.(*atomic.Uint32).Store(depth)
}

// stop ends the counting permanently.
func (q *queueDepths) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	if q.watch != nil {
		q.watch.Stop()
		q.watch = nil
	}
}

// watchQueues starts or stops counting, depending on whether the program reads queue depths.
func (d *Device) watchQueues(p *interp.Pipeline) {
	q := &d.depths
	q.mu.Lock()
	defer q.mu.Unlock()
	switch wanted := p.ReadsQueueDepth() && !q.ended; {
	case !wanted && q.watch != nil:
		q.watch.Stop()
		q.watch = nil
	case wanted && q.watch == nil:
		var err error
		if q.watch, err = queues.New(d.portNames, q.set); err != nil {
			d.log.Warn("the program sees no queues: their depths are 0", "err", err)
		}
	}
}

// portNames returns the names of the ports' interfaces.
func (d *Device) portNames() map[uint32]string {
	out := map[uint32]string{}
	for n, s := range d.ports.Ports() {
		out[n] = s.Iface
	}
	return out
}

// SetQueueDepth implements [target.QueueSetter].
func (d *Device) SetQueueDepth(port *uint32, priority *int, packets int) error {
	return d.queues.SetDepth(port, priority, packets)
}

// SetQueueRate implements [target.QueueSetter].
func (d *Device) SetQueueRate(port *uint32, priority *int, perSecond uint64) error {
	return d.queues.SetRate(port, priority, perSecond)
}
