// Package compile translates a checked program of package bmv2json into BPF instructions. It builds
// on packages with one subject each. Each of them imports only packages above it in this list:
//
//	analysis   facts that can be read from the program
//	affine     indices of registers as multiples of a slot, a session, ... plus an offset
//	known      the present contents of small tables
//	memory     the plan: the place of each piece of data in memory
//	paths      the steps of packets in ingress, with what is known about a packet at each
//
//	emit       the program that is being written, and code that all parts use
//	locking    exclusive use of registers by a packet
//	hashing    hashes and checksums
//	delivery   sending frames, back into the program or to the controller as well
//	headers    the parser, the deparser, and operations on headers in actions
//	externs    registers, counters, meters, random
//	tables     lookups
//	control    ingress and egress: nodes, steps, actions
//
// The first five decide, and yield plain data. The others write instructions. Package compile
// combines them, in the order in which a packet passes: ingress.go, then traffic_manager.go, which
// includes egress. [Translate] writes the program for one hook.
//
// Nothing here talks to the kernel: a program is a function of the plan, the hook, the maps'
// numbers and the settings. Constructs that cannot be translated are refused with their place in
// the JSON.
package compile
