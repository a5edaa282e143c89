// Package expression compiles the expressions of a P4 program into Go functions of a packet.
//
// Compilation binds all knowledge about the program into the functions: a field's lane, its width,
// the constant that it is compared with. At run time only loads, arithmetic and stores remain.
//
// narrow.go compiles values that need at most 64 bits, wide.go all others, and condition.go
// conditions. The three call each other, because each kind of expression can contain the others.
// place.go finds the lanes of fields and headers, and assign.go stores values there.
package expression
