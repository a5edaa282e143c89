// Package memory lays out a program's data ([NewPlan]): the fields of one packet, which are in the
// PHV, and everything that outlives a packet, which is in the state. The result is a [Plan], plain
// data for everybody else: the compiler writes loads and stores by it, and the control plane
// (package runtime) finds registers, counters and entries by it.
//
// A file here is one thing that takes room: table.go, register_families.go, counter.go and so on.
// maps.go has the layouts of the maps that outlive a program. Nothing here writes an instruction.
package memory
