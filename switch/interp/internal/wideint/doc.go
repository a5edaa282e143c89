// Package wideint computes with numbers of any width.
//
// A number is a slice of 64-bit lanes, the least significant lane first. P4 has fields of any
// number of bits, so a 48-bit address takes one lane and a 128-bit address takes two lanes. bits.go
// moves numbers between lanes and the bits of a frame. arithmetic.go adds, shifts and compares them
// as two's complement. Nothing here allocates, except where a number becomes bytes or a big.Int.
package wideint
