// Package compile translates a checked program of package bmv2json into BPF instructions. It builds
// on packages with one subject each. Each of them imports only packages above it in this list:
//
//	analysis   what the program does, read from it
//	affine     what the index of a register is in terms of a slot, a session, ...
//	known      what its tables hold at present
//	memory     where everything is that it keeps: the plan
//	paths      which steps packets come by in ingress, and what is known of them there
//
//	emit       the program that is being written, and phrases that all parts use
//	locking    packets get registers to themselves
//	hashing    hashes and checksums
//	delivery   frames leave, come back, or go to the controller
//	headers    the parser, the deparser, and what actions do with headers
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
