package interp

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netcraq/netcraq/switch/target"
)

// Queues configures the queues between ingress and egress, as in BMv2's simple_switch. Each port
// has one queue for each priority. A queue passes its packets to egress at its rate. Without a
// rate, packets do not wait. Among packets that may leave, those of the largest priority leave
// first. A full queue drops new packets.
//
// The settings belong to the switch, so they stay when a program is replaced. The waiting packets
// belong to the program. Queues are safe for concurrent use.
type Queues struct {
	priorities int

	mu    sync.Mutex
	other []queueSetting // settings by priority, for ports that are not in ports
	ports map[uint32][]queueSetting
	set   atomic.Bool // set once somebody has changed a setting
}

// queueSetting is the configuration of a queue.
type queueSetting struct {
	depth int           // largest number of waiting packets
	gap   time.Duration // time between two packets; 0 if packets do not wait
}

const (
	// MaxQueuePriorities is the largest number of priorities. v1model's priority field has 3 bits.
	MaxQueuePriorities = 64
	// MaxQueueDepth is the largest number of packets in one queue.
	MaxQueueDepth = 1 << 16
	// maxWaiting is the largest number of waiting packets in all queues together.
	maxWaiting = 1 << 16
	// defaultQueueDepth is the depth of a queue unless somebody sets another. BMv2 has the same
	// default.
	defaultQueueDepth = 64
)

// NewQueues creates queues for a number of priorities, which is at least one.
func NewQueues(priorities int) *Queues {
	return &Queues{priorities: priorities, ports: map[uint32][]queueSetting{},
		other: slices.Repeat([]queueSetting{{depth: defaultQueueDepth}}, priorities)}
}

// change changes the settings of a port's queue for a priority. A nil port or priority stands for
// all.
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

// SetDepth sets the largest number of waiting packets in a port's queue for a priority. A nil port
// or priority stands for all.
func (q *Queues) SetDepth(port *uint32, priority *int, packets int) error {
	if packets < 0 || packets > MaxQueueDepth {
		return fmt.Errorf("a queue of %d packets (0 to %d): %w", packets, MaxQueueDepth,
			target.ErrInvalid)
	}
	return q.change(port, priority, func(s *queueSetting) { s.depth = packets })
}

// SetRate sets the largest number of packets per second that leave a queue. A rate of 0 means no
// limit.
func (q *Queues) SetRate(port *uint32, priority *int, perSecond uint64) error {
	gap := time.Duration(0)
	if perSecond > 0 {
		gap = time.Duration(uint64(time.Second) / perSecond)
	}
	return q.change(port, priority, func(s *queueSetting) { s.gap = gap })
}

// of returns the configuration of a port's queue for a priority.
func (q *Queues) of(port uint32, priority int) queueSetting {
	q.mu.Lock()
	defer q.mu.Unlock()
	if own, ok := q.ports[port]; ok {
		return own[priority]
	}
	return q.other[priority]
}
