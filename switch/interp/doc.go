// Package interp runs a P4 program that p4c compiled for BMv2, in user space, on raw frames. It
// runs v1model programs as BMv2's simple_switch does, and PSA programs as BMv2's psa_switch does
// (psa.go).
//
// [New] compiles a [bmv2json.Program] and returns a [Pipeline]: the program and its state (tables,
// registers, counters, groups). [Pipeline.Process] processes one frame (parser, ingress, the packet
// replication engine, egress, deparser) and returns the frames that leave. It does no I/O, starts
// no goroutine and reads no clock. The caller supplies the time and the seed of random numbers, so
// the same calls give the same frames. The caller also provides ports, queues and the CPU port.
//
// # Differences from BMv2
//
// The following are as in simple_switch: the order of events; the initial state of a clone, a
// resubmit, a recirculation or a replica; which request wins if a program makes several; and the
// meaning of the drop port in ingress and in egress. This package defines some behaviour that
// simple_switch leaves undefined:
//
//   - Fields of a header that was never valid are 0. In BMv2 they have an earlier packet's values.
//   - Reading outside a stack or an array of registers, counters or meters gives 0, and writing
//     there does nothing. An optimized build of BMv2 leaves this undefined for arrays.
//   - A parser that never ends stops with the error ParserTimeout.
//   - A packet may be resubmitted, recirculated and cloned only a limited number of times
//     ([Options].MaxPasses).
//   - A failed assertion drops the packet. In BMv2 the process aborts.
//   - Two varbit fields are equal only if their lengths are equal, too, as P4 requires. BMv2
//     compares them as numbers.
//
// There are no silent differences. New refuses what it cannot run with an error that wraps
// [target.ErrUnsupported] and names the construct and its place in the JSON.
//
// # Internal packages
//
// This package moves packets between the blocks of the program (process.go, psa.go, and the
// queues), and implements the control plane's calls (control_*.go). The packages in internal/
// execute the blocks. Each package imports only packages above it in this list:
//
//   - wideint has numbers of any width, and refusal has a compiler's way to stop with an error.
//   - packet has one packet's fields and headers.
//   - arrays has registers, counters and meters, calculation has hashes, and matchtables has
//     tables.
//   - packetevents has events and traces.
//   - expression translates expressions to functions of a packet.
//   - reference runs the program statement by statement. It is the specification.
//   - vm runs the control flow as byte code. It has the same effect as reference and is faster.
//
// A pipeline that somebody may watch ([Options].Events, [Options].Trace) runs only on reference.
// All other pipelines run their control flow on vm. Outside of the interpreter, these packages
// import bmv2json, interval and target.
package interp
