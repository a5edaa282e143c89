// Package memory lays out a program's data ([NewPlan]): the fields of one packet, which are in the
// PHV, and everything that outlives a packet, which is in the state. The result is a [Plan]. It is
// plain data: the compiler uses it to write loads and stores, and the control plane (package
// runtime) to find registers, counters and entries.
//
// Each file here is about one kind of data that takes space: table.go, register_families.go,
// counter.go and so on. maps.go has the layouts of the maps that outlive a program. Nothing here
// writes an instruction.
package memory
