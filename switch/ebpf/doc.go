// Package ebpf runs a P4 program that p4c compiled for BMv2 in the Linux kernel, as eBPF on the
// interfaces that are the switch's ports. [New] makes a [target.Device], the engine: committing a
// program translates the checked [bmv2json.Program] into eBPF instructions (without a compiler on
// the user's machine), has the kernel verify them, and attaches them to each port. A frame that the
// program sends never leaves the kernel; only frames for the controller reach this process. These
// packages do the work; imports go only downwards:
//
//	      ebpf           the engine: ports, and the replacement of programs
//	     /    \
//	runtime   attach     a program's maps and entries  |  hooks, devices, namespaces
//	   |
//	compile              the program's parser, tables and actions as instructions (several
//	   |                 packages: see its documentation)
//	   ir                expressions, as trees of 64-bit words
//	   |
//	  asm                functions with labels
//
// This package imports them, bmv2json, offload and target.
//
// # Common principles
//
// The packet's fields live in the PHV, a per-CPU map value that R6 points to (ir/layout.go). The
// verifier does not know its content, so all paths that lead to a node look the same to it, and a
// program of hundreds of tables and conditions is verified in milliseconds, because it visits each
// node once instead of once for each path.
//
// State (registers, counters, entries' parameters, multicast groups) is one memory-mapped value of
// one map (compile/memory/plan.go). Tables with small keys are arrays in it. Tables with larger
// exact keys are BPF hash tables, those with a prefix are BPF tries, and those with masks or ranges
// are lists (table.go and priority_list.go of compile/memory). A lookup returns one word, so a
// packet sees an entry completely or not at all.
//
// A packet's operations on registers in ingress are atomic for packets on other CPUs, and so are
// those in egress. The packet holds a lock from the first register on its path to the last
// (compile/control) or, if packets contend, finer locks for the cells that it touches
// (compile/locking).
//
// There are no silent differences from BMv2: a construct that is not in [Supported] is refused when
// the program is verified or committed, with its place in the JSON.
package ebpf
