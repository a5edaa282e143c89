// Package interval tells which values an expression of a compiled P4 program can have.
//
// BMv2's expressions are on integers without bound; only storing truncates. An engine on 64-bit
// words can be exact all the same, because almost every expression that p4c writes stays within
// bounds that are known beforehand: the operands are fields of known width, and p4c masks what
// could overflow. So each expression gets an interval that its value cannot leave. If the interval
// fits 64 bits, signed or unsigned, so does the arithmetic; if it fits some larger number of bits,
// that many words do; and sums, products, left shifts and bitwise operations need, for the low n
// bits of the result, only the low n bits of the operands, whatever the interval. Only if none of
// this helps (a right shift of an unbounded left shift) an engine has to refuse.
//
// It imports bmv2json alone.
package interval
