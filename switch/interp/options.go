package interp

import (
	"github.com/netcraq/netcraq/switch/target"
)

// Options are what a program's target decides. The zero value is BMv2's default.
type Options struct {
	// DropPort is the egress_spec that drops a packet; 0 means 511.
	DropPort uint32
	// Seed is where the program's random numbers start.
	Seed uint64
	// MaxPasses bounds how often one received packet may go through ingress or egress, all its
	// copies together; 0 means 4096. What is beyond it is dropped, and said to Log.
	MaxPasses int
	// OnDigest gets what the program sends with digest(): at most one a packet, as in BMv2, taken
	// when ingress has ended. It is called after the packet, from the goroutine of Process, and may
	// call the Pipeline's methods. Nil drops digests.
	OnDigest func(target.Digest)
	// Log gets what the program says with log_msg, and why packets were dropped that the program
	// did not drop. It must not call the Pipeline. Nil discards it.
	Log func(string)
	// QueueDepth says how many packets wait to be sent by a port; nil: none do.
	QueueDepth func(port uint32) uint32
	// Events gets the steps of packets' ways, as BMv2's event logger tells them; nil tells nobody.
	Events Events
	// Queues are those between ingress and egress; nil: one for each port, without a rate.
	Queues *Queues
	// Trace gets a packet's way through the program, step by step, in words like BMv2's: states,
	// tables, actions and what becomes of the packet. It must not call the Pipeline. Nil traces
	// nothing, and costs nothing.
	Trace func(string)
}
