// Package interp runs a P4 program that p4c compiled for BMv2, in user space, on raw frames:
// v1model like BMv2's simple_switch, and PSA like its psa_switch (psa.go).
//
// [New] compiles a [bmv2json.Program] and gives a [Pipeline]: the program and its state (tables,
// registers, counters, groups). [Pipeline.Process] takes one frame through it (parser, ingress, the
// packet replication engine, egress, deparser) and returns the frames that leave. It does no I/O,
// starts no goroutine and reads no clock. The caller supplies the time and the seed of random
// numbers, so the same calls give the same frames. The caller also provides ports, queues and the
// CPU port.
//
// # Differences from BMv2
//
// The following are as in simple_switch: the order of events; the initial state of a clone, a
// resubmit, a recirculation or a replica; which request wins if a program makes several; and the
// meaning of the drop port in ingress and in egress. Behaviour that simple_switch leaves undefined
// is defined here: a header's fields read before it was ever valid are 0 (BMv2: an earlier packet's
// values); an index outside of a stack reads 0 and writes nothing, and so does one outside of a
// register, counter or meter array (undefined in an optimized build of BMv2); a parser that never
// ends stops with the error ParserTimeout; a packet may be resubmitted, recirculated and cloned
// only a limited number of times ([Options].MaxPasses); a failed assertion drops the packet (BMv2:
// the process aborts); two varbit fields are equal only if their lengths are equal, too, as P4
// requires (BMv2 compares them as numbers).
//
// There are no silent differences: New refuses what it cannot run with an error that wraps
// [target.ErrUnsupported] and names the construct and its place in the JSON.
//
// # Internal packages
//
// This package moves packets between the blocks of the program (process.go, psa.go, and the
// queues), and implements the control plane's calls (control_*.go). The packages in internal/
// execute the blocks. Each package imports only packages above it in this list:
//
//   - wideint: numbers of any width; refusal: how a compiler gives up
//   - packet: one packet's fields and headers
//   - arrays, calculation, matchtables: what a program keeps, computes and looks up
//   - packetevents: events and traces
//   - expression: expressions as functions of a packet
//   - reference: the program statement by statement, which is the specification
//   - vm: the control flow as byte code, which has the same effect and is faster
//
// A pipeline that may be watched ([Options].Events, [Options].Trace) runs only on reference. All
// others run their control flow on vm. Outside of the interpreter they import bmv2json, interval
// and target.
package interp
