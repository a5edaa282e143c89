package interp

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netcraq/netcraq/switch/target"
)

// Queues configure the queues between ingress and egress, as in BMv2's simple_switch: each port has
// one for each priority. A queue gives its packets to egress at its rate; one without a rate keeps
// none. Of packets that may go, those of the largest priority go first. A full queue drops new
// packets.
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

// SetRate sets how many packets a second leave a queue at most; 0 is not a limit.
func (q *Queues) SetRate(port *uint32, priority *int, perSecond uint64) error {
	gap := time.Duration(0)
	if perSecond > 0 {
		gap = time.Duration(uint64(time.Second) / perSecond)
	}
	return q.change(port, priority, func(s *queueSetting) { s.gap = gap })
}

// of returns a queue's configuration.
func (q *Queues) of(port uint32, priority int) queueSetting {
	q.mu.Lock()
	defer q.mu.Unlock()
	if own, ok := q.ports[port]; ok {
		return own[priority]
	}
	return q.other[priority]
}
