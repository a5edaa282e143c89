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
	// MaxPasses bounds how often one received packet, with all its copies, may go through ingress
	// or egress; 0 means 4096. Further passes are dropped, and logged.
	MaxPasses int
	// OnDigest gets the program's digest(): at most one a packet, as in BMv2, taken when ingress
	// has ended. It is called after the packet, from the goroutine of Process, and may call the
	// Pipeline's methods. Nil drops digests.
	OnDigest func(target.Digest)
	// Log gets the program's log_msg messages, and why packets were dropped that the program did
	// not drop. It must not call the Pipeline. Nil discards them.
	Log func(string)
	// QueueDepth returns the number of packets that wait to be sent by a port; nil: none do.
	QueueDepth func(port uint32) uint32
	// Events gets the steps of packets' ways, like BMv2's event logger; nil: nobody does.
	Events Events
	// Queues are those between ingress and egress; nil: one for each port, without a rate.
	Queues *Queues
	// Trace gets a packet's way through the program, step by step, in words like BMv2's: states,
	// tables, actions and the packet's fate. It must not call the Pipeline. Nil traces nothing, and
	// costs nothing.
	Trace func(string)
}
