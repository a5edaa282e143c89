// Package ebpf runs a P4 program that p4c compiled for BMv2 in the Linux kernel, as eBPF on the interfaces that are the switch's ports.
//
// [New] makes a [target.Device]. Committing a program translates the checked [bmv2json.Program] into eBPF instructions (there is no compiler on the user's machine,
// and none is needed), has the kernel verify them, and attaches them to each port at the tc ingress hook (tcx). A frame that the program sends never leaves the kernel;
// only frames for the controller come to this process.
//
// # How a program becomes eBPF
//
//	frame ──▶ entry ──▶ parser ──▶ checksums ──▶ ingress ──▶ traffic manager ──▶ egress ──▶ checksums ──▶ deparser ──▶ redirect
//	         (port,     state by    verified     node by      one copy, or one     (a function that is called         to an interface,
//	          length)   state                    node         for each replica      once for each copy)                or into the ring
//
// The packet's fields live in the PHV, a per-CPU map value that R6 points to (layout.go). The verifier does not know what is in it, so all paths that lead to a node
// look the same to it, and a program of hundreds of tables and conditions is verified in milliseconds: each node once, not once for each path.
//
// Expressions become small trees of 64-bit operations (value.go, expr.go) with known bounds, which drops most of the masks that p4c writes after every operation,
// and are computed in R1 to R5 and R0. Fields of more than 64 bits are words in network order; what moves them between packet, PHV and register copies words.
//
// State (registers, counters, entries' parameters, multicast groups) is one memory-mapped value of one map (plan.go). Tables with small keys are arrays in it, with
// larger exact keys BPF hash tables, with a prefix BPF tries, with masks or ranges lists (table.go, scan.go). Looking up gives one word, so that an entry is seen as a
// whole or not at all.
//
// What a packet does to registers in ingress, or in egress, is one step to packets on other CPUs: a lock is held from the first register on a packet's path to the last
// (control.go).
//
// Nothing is silently different: what is not in [Supported] is refused when the program is verified or committed, with its place in the JSON.
package ebpf
