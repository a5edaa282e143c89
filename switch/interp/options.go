package interp

import (
	"github.com/netcraq/netcraq/switch/target"
)

// Options are the target's choices for a program. The zero value is BMv2's default.
type Options struct {
	// DropPort is the egress_spec that drops a packet; 0 means 511.
	DropPort uint32
	// Seed seeds the program's random numbers.
	Seed uint64
	// MaxPasses bounds the passes through ingress and egress of one received packet with all its
	// copies; 0 means 4096. Packets beyond this are dropped, and that is logged.
	MaxPasses int
	// OnDigest gets the program's digests: as in BMv2 at most one per packet, with the values at
	// the end of ingress. It is called after the packet, from the goroutine of Process, and may
	// call the Pipeline's methods. Nil drops digests.
	OnDigest func(target.Digest)
	// Log gets the program's log_msg messages, and the reason if the engine itself drops a packet.
	// It must not call the Pipeline. Nil discards them.
	Log func(string)
	// QueueDepth returns the number of packets that wait to be sent by a port; nil: none do.
	QueueDepth func(port uint32) uint32
	// Events gets the steps of each packet's processing, like BMv2's event logger; nil: no events.
	Events Events
	// Queues are the queues between ingress and egress; nil: one for each port, without a rate.
	Queues *Queues
	// Trace gets the steps of each packet's processing as text like BMv2's: states, tables, actions
	// and the packet's fate. It must not call the Pipeline. Nil traces nothing, and costs nothing.
	Trace func(string)
}
