// Package packet holds one packet while a P4 program works on it.
//
// [Layout] gives every field of every header its own lanes of 64 bits, so that reading a field is
// one load. [State] has these lanes, the validity of the headers, the bytes that the parser has not
// consumed, and the program's requests (a clone, a resubmission, another port). wire.go moves
// fields between lanes and frames, and headers.go implements P4's operations on whole headers.
//
// The package does not know the program's statements. All other packages of the interpreter compile
// functions that take a *State.
package packet
