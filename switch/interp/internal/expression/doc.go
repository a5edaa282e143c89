// Package expression compiles the expressions of a P4 program into Go functions of a packet.
//
// What is known about the program is bound in a function when it is compiled: which lane a field
// has, how wide it is, which constant it is compared with. At run time loads, arithmetic and stores
// remain.
//
// narrow.go compiles values that need at most 64 bits, wide.go all others, and condition.go
// conditions. The three call each other, because each kind of expression can contain the others.
// place.go finds the lanes of fields and headers, and assign.go stores values there.
package expression
