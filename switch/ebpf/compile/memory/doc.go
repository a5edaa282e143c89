// Package memory lays out a program's data ([NewPlan]). The fields of one packet are in the PHV,
// and everything that outlives a packet is in the state. The result is a [Plan], which is plain
// data. The compiler uses it to emit loads and stores. The control plane (package runtime) uses it
// to find registers, counters and entries.
//
// Each file here is about one kind of data, for example, table.go, register_families.go and
// counter.go. maps.go has the layouts of the maps that outlive a program. Nothing here emits an
// instruction.
package memory
