package interp

import (
	"github.com/netcraq/netcraq/switch/target"
)

// Options are the settings with which a program runs. The zero value has BMv2's defaults.
type Options struct {
	// DropPort is the value of egress_spec that drops a packet. 0 means 511.
	DropPort uint32
	// Seed is the seed of the program's random numbers.
	Seed uint64
	// MaxPasses bounds the passes through ingress and egress of one received packet with all its
	// copies. 0 means 4096. The engine drops packets beyond this limit and logs that.
	MaxPasses int
	// OnDigest receives the program's digests. As in BMv2, a packet sends at most one digest, with
	// the values at the end of ingress. OnDigest is called after the packet, from the goroutine of
	// Process, and may call the Pipeline's methods. If it is nil, digests are dropped.
	OnDigest func(target.Digest)
	// Log receives the program's log_msg messages, and the reason if the engine itself drops a
	// packet. It must not call the Pipeline. If it is nil, messages are discarded.
	Log func(string)
	// QueueDepth returns the number of packets that wait at a port. If it is nil, no packets wait.
	QueueDepth func(port uint32) uint32
	// Events receives the steps of each packet's processing, like BMv2's event logger. If it is
	// nil, there are no events.
	Events Events
	// Queues are the queues between ingress and egress. If it is nil, each port has one queue
	// without a rate.
	Queues *Queues
	// Trace receives the steps of each packet's processing as text like BMv2's: states, tables,
	// actions, and what happens to the packet at the end. It must not call the Pipeline. If it is
	// nil, there is no trace, and tracing costs nothing.
	Trace func(string)
}
